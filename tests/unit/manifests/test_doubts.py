"""What a job may ask for, but hardly means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.builders import a_job

from jobyard.manifests.command import spec_from_command
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.input_words import InputWords
from jobyard.manifests.overrides import Overrides, apply

if TYPE_CHECKING:
    from tests.unit.manifests.conftest import Load

LITTLE = "20 MiB of a GPU's memory is very little; a number without a unit is MiB, write 20G for GiB"


@pytest.mark.parametrize(("text", "notes"), [("20", (LITTLE,)), ("20G", ()), ("20480", ()), ("256", ())])
def test_so_little_memory_of_a_gpu_is_likely_meant_in_another_unit(
    text: str, notes: tuple[str, ...], context: SubmitContext, load: Load
) -> None:
    assert apply(a_job(), Overrides(gpu_mem=text), context).submitter.notes == notes
    assert load(f"command: x\nresources: {{gpu_memory: {text}}}\n").submitter.notes == notes


def test_it_is_told_on_a_cluster_too(context: SubmitContext) -> None:
    spec = a_job(gpus=1)
    spec = replace(spec, submitter=replace(spec.submitter, notes=("here",), cluster_notes=("there",)))
    told = apply(spec, Overrides(gpu_mem="20"), context).submitter
    assert (told.notes, told.cluster_notes) == (("here", LITTLE), ("there", LITTLE))


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        ({"timeout": "90"}, ("--timeout 90 is 90 seconds (1m30s); write 90m for minutes",)),
        ({"estimate": "5"}, ("--estimate 5 is 5 seconds (5.0s); write 5m for minutes",)),
        ({"timeout": "90s"}, ()),
        ({"timeout": "1:30:00"}, ()),
        ({"retry_delay": "2"}, ()),  # seconds everywhere
    ],
)
def test_a_long_time_without_a_unit_is_told_in_seconds(
    words: dict[str, str], notes: tuple[str, ...], context: SubmitContext
) -> None:
    assert apply(a_job(), Overrides(**words), context).submitter.notes == notes


@pytest.mark.parametrize(
    ("argv", "mark", "line"),
    [
        ("echo {} > {}.out", ">", "'echo {} > {}.out'"),
        ("ls -l | wc", "|", ""),
        ("make && make install", "&&", "'make && make install'"),
        ("wc < x", "", ""),
        ("cut -d | -f1", "", ""),
        ("find . -exec rm {} ;", "", ""),
        ("test a < b", "", ""),
    ],
)
def test_a_word_that_only_a_shell_reads_is_told_with_the_line_that_one_reads(
    argv: str, mark: str, line: str, context: SubmitContext
) -> None:
    if not line:
        mark = ""
    notes = spec_from_command(argv.split(), Overrides(), context).submitter.notes
    assert [mark] * bool(mark) == [note.split("'")[1] for note in notes]
    assert all(note.endswith(f"quote the whole command as one word: {line}") for note in notes)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["echo", "{foo}"], "{foo} stays as it is: no column has a name; --header gives"),
        (["awk '{=print=}' {}"], ""),
        (["echo", "{}", "{1}", "{#}"], ""),
        (["awk", "{print}", "{}"], ""),
        (["python", "-c", "print(f'{x}')"], ""),
    ],
)
def test_what_looks_like_a_column_and_is_none_is_told(command: list[str], says: str, context: SubmitContext) -> None:
    overrides = Overrides(inputs=(InputWords(":::", ("a",)),))
    notes = spec_from_command(command, overrides, context).submitter.notes
    assert [note.startswith(says) for note in notes] == [True] * bool(says)
