"""Limits: how long, how many and how large may each field of a request be? Each number with its reason.

A limit stands in a type hint. `checks` holds requests to it and `json_schema` writes it down; the codec does not look
at it, so that what an older yard has journalled can always be read. Where a hint says nothing, DEFAULTS count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

NAME_MOST = 300  # characters; the command line allows 200 and a prefix of its own before it
LINE_MOST = 10_000  # characters of a sentence, a reference or a list with commas
TEXT_MOST = 2 << 20  # characters; the largest is a Kubernetes object, of which etcd takes 1.5 MiB
WORD_BYTES_MOST = 128 * 1024 - 1  # of one word or variable: Linux' MAX_ARG_STRLEN, with its closing NUL
SCRIPT_BYTES_MOST = 120 * 1024  # a script travels in one variable, beside its name and its arguments
ENVIRONMENT_BYTES_MOST = 4 << 20  # of all variables of a task: Linux takes 2 MiB as a rule, 6 at most
VARIABLES_MOST = 10_000  # a shell has some hundred; more than this is a mistake
PATH_BYTES_MOST = 4095  # Linux' PATH_MAX, with its closing NUL
STDIN_BYTES_MOST = 1 << 20  # what each task reads as its stdin is kept with the job, in memory and in the journal
COMMAND_BYTES_MOST = 2 << 20  # of a command with the values of a task: what Linux takes as a rule
WORDS_MOST = 100_000  # of one command: Linux takes 2 MiB of them in all
LINES_MOST = 1 << 30  # characters of a batch file: a hundred million lines of ten
TASKS_MOST = 100_000_000  # of a job; tasks that were never tried cost nothing, but their numbers are counted
GANG_MOST = 4096  # each task of a gang is told of all the others: in TF_CONFIG, 4096 fill three quarters of a variable
OBJECT_MOST = 20_000  # tasks that one object of a cluster starts together: some 10 us of each round for each
ROWS_MOST = 10_000_000  # of inputs: a typing error in a product must not become a job
COLUMNS_MOST = 1000  # of inputs: each is a variable of each task
SOURCES_MOST = 100  # of inputs: with two values each they are far beyond ROWS_MOST
CHOSEN_MOST = 1_000_000  # ranges of rows that are left when others are skipped
GROUPS_MOST = 256  # each is planned by itself in every round
PIECES_MOST = 10_000  # of an array: an id is looked for in all of them
ITEMS_MOST = 10_000  # of any other list: task labels, paths, volumes
PAGE_MOST = 1000  # jobs or tasks in one answer: some 20 ms of work, 500 KB; and jobs that one request cancels
AFTER_MOST = 1000  # different jobs that one waits for: each is looked up in every round
NOTES_MOST = 32  # of a job: more than anybody reads
NOTE_MOST = 1000  # characters of one
SECONDS_MOST = 10 * 365 * 86400.0  # ten years, as the command line has it
PRIORITY_MOST = 1_000_000
RETRIES_MOST = 1_000_000
CPU_MILLIS_MOST = 1_000_000_000  # a million cores
MIB_MOST = 1 << 40  # an exbibyte
GPUS_MOST = 1 << 16  # of one task; no machine has as many
ANNOTATIONS_MOST = 32  # of a job: a few words of each program that uses it; every list of jobs carries them
ANNOTATION_MOST = 4096  # characters of one
STEPS_MOST = 1 << 53  # epochs, steps, samples: beyond, a float has no whole numbers, and most JSON readers have floats


@dataclass(frozen=True)
class Text:
    """Text is UTF-8 and has no NUL. On one line it has no control characters either: it stands in tables.

    A path may have bytes that are not UTF-8 (as surrogates, see PEP 383), because files are called so.
    """

    most: int = TEXT_MOST  # characters
    least: int = 0
    bytes_most: int | None = None
    is_line: bool = False
    is_path: bool = False


@dataclass(frozen=True)
class Number:
    """Both ends included; `is_more`: the lower one not."""

    least: float
    most: float
    is_more: bool = False


@dataclass(frozen=True)
class Items:
    most: int = ITEMS_MOST
    least: int = 0


@dataclass(frozen=True)
class Variables:
    """Environment variables by name. Those of a shell may be bytes that are not UTF-8, as its files' names may."""

    of_shell: bool = False


LINES = Text(LINES_MOST)
DEFAULTS: dict[object, Text | Number | Items] = {
    str: Text(),
    int: Number(-STEPS_MOST, STEPS_MOST),
    float: Number(-1e300, 1e300),
    tuple: Items(),
}

Name = Annotated[str, Text(NAME_MOST, 1, is_line=True)]
Line = Annotated[str, Text(LINE_MOST, is_line=True)]
Sentence = Annotated[str, Text(LINE_MOST)]
Notes = Annotated[tuple[Annotated[str, Text(NOTE_MOST)], ...], Items(NOTES_MOST)]
Word = Annotated[str, Text(WORD_BYTES_MOST, bytes_most=WORD_BYTES_MOST)]
ScriptText = Annotated[str, Text(SCRIPT_BYTES_MOST, bytes_most=SCRIPT_BYTES_MOST)]
Base64 = Annotated[str, Text(TEXT_MOST)]
Path = Annotated[str, Text(PATH_BYTES_MOST, bytes_most=PATH_BYTES_MOST, is_path=True)]
Bytes = Annotated[str, Text(is_path=True)]
TaskCount = Annotated[int, Number(0, TASKS_MOST)]
TaskLimit = Annotated[int, Number(1, TASKS_MOST)]
Workers = Annotated[int, Number(1, GANG_MOST)]
Timeout = Annotated[float, Number(0, SECONDS_MOST, is_more=True)]
Seconds = Annotated[float, Number(0, SECONDS_MOST)]
Priority = Annotated[int, Number(-PRIORITY_MOST, PRIORITY_MOST)]
Retries = Annotated[int, Number(0, RETRIES_MOST)]
CpuMillis = Annotated[int, Number(0, CPU_MILLIS_MOST)]
Mib = Annotated[int, Number(0, MIB_MOST)]
Gpus = Annotated[int, Number(0, GPUS_MOST)]
Percent = Annotated[int, Number(0, 100)]
SomePercent = Annotated[int, Number(0, 100, is_more=True)]
SomeSteps = Annotated[int, Number(1, STEPS_MOST)]
Port = Annotated[int, Number(1, 65535)]
ArrayId = Annotated[int, Number(0, 10**18)]  # the command line takes 18 digits
ArrayStep = Annotated[int, Number(1, 10**18)]
Env = Annotated[Mapping[str, str], Variables()]
Annotations = Annotated[Mapping[str, Annotated[str, Text(ANNOTATION_MOST)] | None], Items(ANNOTATIONS_MOST, 1)]
ShellEnv = Annotated[Mapping[str, str], Variables(of_shell=True)]


def range_of(hint: Any) -> Number:
    """The range that a hint of this module has: flags and manifests take what requests may hold."""
    (limit,) = (each for each in get_args(hint) if isinstance(each, Number))
    return limit
