"""Sbatch directives: which flags do the `#SBATCH` lines of a script mean?

As sbatch they count up to the first command, a later line wins, and the script runs once, whatever `--ntasks` is. What
has no meaning here is named in one note; what would run something else than was asked for is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobyard.errors import UserError
from jobyard.manifests.files import lines_of
from jobyard.manifests.job_fields import FLAGGED
from jobyard.manifests.overrides import Overrides
from jobyard.model.units import parse_cpu_millis, parse_size_mib, show_cpus, whole_number


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DIRECTIVE = re.compile(r"#SBATCH(?:\s+(.*))?$")
_SHORT = dict(
    pair.split("=")
    for pair in _names(
        "a=array J=job-name c=cpus-per-task n=ntasks N=nodes t=time G=gpus o=output e=error d=dependency D=chdir "
        "p=partition A=account q=qos C=constraint w=nodelist x=exclude M=clusters L=licenses m=distribution b=begin "
        "B=extra-node-info F=nodefile S=core-spec i=input H=hold k=no-kill O=overcommit s=oversubscribe Q=quiet "
        "v=verbose W=wait"
    )
)
_SAME = {"tasks-per-node": "ntasks-per-node", "workdir": "chdir"}  # older words of sbatch
_ALONE = _names(
    "hold no-kill overcommit oversubscribe quiet verbose wait requeue no-requeue exclusive contiguous parsable nice "
    "get-user-env spread-job use-min-nodes reboot test-only ignore-pbs x11"
)  # a value of theirs stands behind `=`
_AS_WRITTEN = {"array": "array", "job-name": "name", "chdir": "workdir", "output": "output", "error": "error"}
# Which of our flags an option sets, in the sentences of a refusal.
_SETS = {
    **_AS_WRITTEN,
    **dict.fromkeys(("cpus-per-task", "ntasks", "ntasks-per-node"), "cpus"),
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "mem"),
    **dict.fromkeys(("gres", "gpus", "gpus-per-node", "gpus-per-task"), "gpus"),
    "time": "timeout",
    "dependency": "after",
    "exclusive": "whole_node",
    "nodes": "workers",
}
_GPU = re.compile(r"(?:gres:)?gpu(?::([A-Za-z][\w.-]*))?(?::(\d+))?(?:\(.*\))?")
_COUNT = re.compile(r"(?:([A-Za-z][\w.-]*):)?(\d+)")
_CLOCK_UNITS = {(False, 1): (60,), (False, 2): (60, 1), (False, 3): (3600, 60, 1)}
_CLOCK_UNITS |= {(True, parts): (3600, 60, 1)[:parts] for parts in (1, 2, 3)}
_TIMES = "write minutes, MM:SS, HH:MM:SS, D-HH or D-HH:MM:SS"


@dataclass(frozen=True)
class Asked:
    """One option: its long name, its value (None: it has none), and where and how it was written."""

    option: str
    value: str | None
    where: str

    def __str__(self) -> str:
        return f"--{self.option}" + (f"={self.value}" if self.value is not None else "")

    def error(self, sentence: str) -> UserError:
        return UserError(f"{self.where}: {self}: {sentence}")

    @property
    def text(self) -> str:
        if self.value is None:
            raise self.error(f"needs a value; write --{self.option}=VALUE")
        return self.value

    def count(self, least: int = 1) -> int:
        number = whole_number(self.text, 9)
        if number is None or number < least:
            raise self.error(f"write a whole number from {least} on")
        return number


@dataclass
class Meaning:
    """What the lines mean, with one note about what they do not."""

    said: dict[str, Any] = field(default_factory=dict)
    gpu_kind: str = ""  # the last that was said
    kept: tuple[str, ...] | None = None  # of the shell's variables only these; None: all
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asked: tuple[Asked, ...] = ()

    def as_written(self, refusal: UserError) -> UserError:
        """A refusal of a flag that a directive sets, in its words and with its line."""
        name = refusal.field.removeprefix("--").replace("-", "_")
        return next((each.error(refusal.sentence) for each in self.asked if _SETS.get(each.option) == name), refusal)


def options_of(line: str, where: str = "") -> Iterator[Asked]:
    """Of one line of a script; none where it is no directive. Raises UserError."""
    match = DIRECTIVE.match(line)
    try:
        words = shlex.split(match[1] or "", comments=True) if match else []
    except ValueError as error:
        raise UserError(f"{where}: cannot read the #SBATCH line: {str(error).lower()}") from None
    while words:
        word = words.pop(0)
        option, value = _cut(word)
        if not option:
            raise UserError(f"{where}: #SBATCH {word}: an option begins with a dash, as in --time=60")
        if value is None and option not in _ALONE and words and not words[0].startswith("--"):
            value = words.pop(0)
        yield Asked(option, value, where)


def _cut(word: str) -> tuple[str, str | None]:
    if word.startswith("--"):
        option, equals, value = word[2:].partition("=")
        return _SAME.get(option, option), value if equals else None
    if word[:1] != "-" or len(word) < 2:
        return "", None
    return _SHORT.get(word[1], word[1]), word[2:].removeprefix("=") or None


def sets(line: str, flag: str) -> bool:
    """Does a directive of the line set this flag of ours, as `after`?"""
    try:
        return any(_SETS.get(asked.option) == flag for asked in options_of(line))
    except UserError:
        return False


def read_directives(head: str, file: str, above: Overrides) -> Meaning:
    """Of the part of a script before its first command; `above` are words that win, and that amounts depend on."""
    asked: dict[str, Asked] = {}
    for number, line in enumerate(lines_of(head), start=1):
        for each in options_of(line, f"{file}: line {number}"):
            asked[each.option] = each
    meaning = Meaning(asked=tuple(asked.values()))
    _read_words(asked, meaning)
    _read_amounts(asked, above, meaning)
    if meaning.ignored:
        meaning.notes.insert(
            0, f"{file}: of its #SBATCH lines these are not honoured: {', '.join(sorted(meaning.ignored))}"
        )
    return meaning


def _read_words(asked: Mapping[str, Asked], meaning: Meaning) -> None:
    """What stands for itself."""
    for option, each in asked.items():
        match option:
            case "time":
                if seconds := _seconds(each):
                    meaning.said["timeout"] = f"{seconds}s"
            case "dependency":
                meaning.said["after"] = (_dependencies(each),)
            case "export":
                _read_export(each, meaning)
            case "exclusive" if each.value is None:
                meaning.said["whole_node"] = True
            case "requeue" | "nodes":
                pass  # a task whose node is lost always runs again
            case _ if _AS_WRITTEN.get(option) in FLAGGED:
                meaning.said[_AS_WRITTEN[option]] = each.text
            case _ if option not in _SETS:
                meaning.ignored.append(str(each))
            case "output" | "error" | "exclusive":
                meaning.ignored.append(str(each))


def _dependencies(asked: Asked) -> str:
    if "?" in asked.text:
        raise asked.error("one of several jobs cannot be waited for; name those that must all be over")
    if "singleton" in asked.text.split(","):
        raise asked.error("nothing waits for jobs of the same name here; name them: afterany:JOB")
    return asked.text


def _read_export(each: Asked, meaning: Meaning) -> None:
    names = [word.strip() for word in each.text.split(",") if word.strip()]
    plain = [name for name in names if "=" not in name]
    meaning.said["env"] = tuple(name for name in names if "=" in name)
    if "ALL" not in plain:
        meaning.kept = tuple(name for name in plain if name not in ("NONE", "NIL"))


def _read_amounts(asked: Mapping[str, Asked], above: Overrides, meaning: Meaning) -> None:
    """Cores, memory and GPUs of one run of the script: of all of Slurm's tasks on one node."""
    nodes = _nodes(asked.get("nodes"), above)
    tasks = _tasks(asked, nodes)
    each_millis = 1000
    if cores := asked.get("cpus-per-task"):
        each_millis = 1000 * cores.count()
    millis = parse_cpu_millis(above["cpus"], "--cpus") if above["cpus"] else each_millis * tasks
    if cores or tasks > 1:
        meaning.said["cpus"] = show_cpus(each_millis * tasks)
    if cores:
        of_one = each_millis if above["cpus"] is None else millis
        meaning.said["env"] = (*meaning.said.get("env", ()), f"SLURM_CPUS_PER_TASK={max(1, of_one // 1000)}")
    gpus = _gpus(asked, nodes, tasks, meaning)
    if gpus is not None:
        meaning.said["gpus"] = f"{meaning.gpu_kind}:{gpus}" if meaning.gpu_kind and gpus else str(gpus)
    _read_memory(asked, millis, gpus or 0, meaning)
    if tasks > 1:
        option = asked.get("ntasks") or asked["ntasks-per-node"]
        meaning.notes.append(
            f"{option}: the script runs once, as with sbatch, and has {show_cpus(millis)} cores; "
            f"what srun would start {tasks} times the script has to start itself"
        )


def _nodes(asked: Asked | None, above: Overrides) -> int:
    if asked is None:
        return 1
    nodes = whole_number(asked.text.partition("-")[0], 6)
    if not nodes:
        raise asked.error("write a number of nodes")
    if nodes > 1 and "workers" not in above:
        raise asked.error(
            f"a script runs on one node; leave it out, or give --workers {nodes} to run the script itself {nodes} "
            "times at once, with RANK and WORLD_SIZE, as srun would run its program"
        )
    return nodes


def _tasks(asked: Mapping[str, Asked], nodes: int) -> int:
    """On each node."""
    if each := asked.get("ntasks-per-node"):
        return each.count()
    if each := asked.get("ntasks"):
        return -(-each.count() // nodes)
    return 1


def _gpus(asked: Mapping[str, Asked], nodes: int, tasks: int, meaning: Meaning) -> int | None:
    """On each node. The last of sbatch's words for it wins."""
    found = None
    for option in ("gres", "gpus-per-node", "gpus", "gpus-per-task"):
        each = asked.get(option)
        if each is None:
            continue
        count = _of_gres(each, meaning) if option == "gres" else _count(each, meaning)
        if count is not None:
            found = count * tasks if option == "gpus-per-task" else -(-count // nodes) if option == "gpus" else count
    return found


def _of_gres(asked: Asked, meaning: Meaning) -> int | None:
    found = None
    for part in asked.text.split(","):
        if match := _GPU.fullmatch(part.strip()):
            found = int(match[2] or 1) + (found or 0)
            meaning.gpu_kind = match[1] or ""
        elif part.strip() != "none":
            meaning.ignored.append(f"--gres={part.strip()}")
    return found


def _count(asked: Asked, meaning: Meaning) -> int:
    match = _COUNT.fullmatch(asked.text)
    if not match:
        raise asked.error("write a number of GPUs, as in 2 or a100:2")
    meaning.gpu_kind = match[1] or ""
    return int(match[2])


def _read_memory(asked: Mapping[str, Asked], cpu_millis: int, gpus: int, meaning: Meaning) -> None:
    given = [asked[option] for option in ("mem", "mem-per-cpu", "mem-per-gpu") if option in asked]
    if len(given) > 1:
        raise given[1].error(f"it cannot stand beside --{given[0].option}; leave one of them out")
    for each in given:
        try:
            mib = parse_size_mib(each.text, "memory")
        except UserError:
            raise each.error("write a size such as 512M or 24G; a number alone is MiB") from None
        factor = {"mem": 1000, "mem-per-cpu": cpu_millis, "mem-per-gpu": 1000 * gpus}[each.option]
        if mib and factor:
            meaning.said["mem"] = str(-(-mib * factor // 1000))
        else:  # 0 is all of a node's memory
            meaning.ignored.append(str(each))


def _seconds(asked: Asked) -> int:
    """Of Slurm's time, where a number alone is minutes; 0: without limit."""
    text = asked.text.strip()
    if text.lower() in ("unlimited", "infinite"):
        return 0
    days, dash, clock = text.rpartition("-")
    numbers = [whole_number(part, 9) for part in clock.split(":")]
    units = _CLOCK_UNITS.get((bool(dash), len(numbers)))
    day = whole_number(days, 6) if dash else 0
    if units is None or day is None or None in numbers:
        raise asked.error(f"it is no time; {_TIMES}")
    return day * 86400 + sum(number * unit for number, unit in zip(numbers, units, strict=True) if number is not None)
