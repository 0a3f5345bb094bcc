"""Support: what does each kind of executor do with what a job asks for? It works, works and is told, or is refused.

The tables are `field_support.py` and `verb_support.py`; here is how they are read. A submit asks `judged`; the page
docs/executors.md and the tests are made of the same rows, so that no field is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, cast

from jobyard.errors import UserError
from jobyard.model.executor_kinds import ExecutorKind
from jobyard.model.job import JobSpec


class Verdict(StrEnum):
    WORKS = "works"
    TOLD = "told"  # it is taken, and a note says what happens instead
    REFUSED = "refused"


class Asked(NamedTuple):
    """A job, and what beside it decides whether it gets what it asks for."""

    spec: JobSpec
    has_queue: bool = False  # it goes to a cluster where Kueue decides


def _always(asked: Asked) -> bool:
    return True


@dataclass(frozen=True)
class Cell:
    """What one kind of executor does with one field. In its sentence `{image}` and `{kind}` stand for the job's own."""

    verdict: Verdict = Verdict.WORKS
    sentence: str = ""  # of what works: a remark for the page
    when: Callable[[Asked], bool] = _always  # of the jobs that ask for it, those that it is about
    which: str = ""  # the same for people: which values, or which jobs

    def is_about(self, asked: Asked) -> bool:
        return self.verdict is not Verdict.WORKS and self.when(asked)

    def told(self, spec: JobSpec) -> str:
        return self.sentence.format(image=spec.container.image, kind=spec.kubernetes.kind or "Kubernetes object")


WORKS = Cell()


def works(remark: str) -> Cell:
    return Cell(sentence=remark)


def told(sentence: str, when: Callable[[Asked], bool] = _always, which: str = "") -> Cell:
    return Cell(Verdict.TOLD, sentence, when, which)


def refused(sentence: str, when: Callable[[Asked], bool] = _always, which: str = "") -> Cell:
    return Cell(Verdict.REFUSED, sentence, when, which)


@dataclass(frozen=True)
class FieldSupport:
    """A row: one field of a job, at its place in a JobSpec."""

    at: str  # `policy.retries`; of every group: `groups.env`
    called: str  # as its flag is spelled, or its key, or else its place
    cells: Mapping[ExecutorKind, Cell]
    when_asked: Callable[[JobSpec], bool] | None = None  # None: where it is not as its default

    def is_asked(self, spec: JobSpec) -> bool:
        return self.when_asked(spec) if self.when_asked else _differs(spec, self.at.split("."))


Exceptions = tuple[Iterable[ExecutorKind], Cell]
_OWN_SAYS = refused("an object of your own says itself what its pods are; change it there")


def by_yard(
    at: str, called: str, *exceptions: Exceptions, when_asked: Callable[[JobSpec], bool] | None = None
) -> FieldSupport:
    """What the yard does itself, or reads of an object of the user's own: it works for that too."""
    return FieldSupport(at, called, cells_of(exceptions, own=WORKS), when_asked)


def in_tasks(at: str, called: str, *exceptions: Exceptions) -> FieldSupport:
    """What tasks or their pods are made of: an object of the user's own is sent as it is."""
    return FieldSupport(at, called, cells_of(exceptions, own=_OWN_SAYS))


def cells_of(exceptions: Iterable[Exceptions], own: Cell = WORKS) -> Mapping[ExecutorKind, Cell]:
    """A cell for every kind: it works, but for the exceptions; a later one replaces an earlier one."""
    found = dict.fromkeys(ExecutorKind, WORKS) | {ExecutorKind.OBJECT: own}
    for kinds, cell in exceptions:
        found |= dict.fromkeys(kinds, cell)
    return found


@dataclass(frozen=True)
class VerbSupport:
    """A row: one verb of the command line, perhaps with a flag, for a job that runs there."""

    verb: str
    cells: Mapping[ExecutorKind, Cell]


def judged(rows: Iterable[FieldSupport], asked: Asked, kinds: Collection[ExecutorKind]) -> tuple[str, ...]:
    """What the submitter is told. `kinds` are those that the job may come to: at submit it is not known which.

    Raises UserError where all of them refuse a field. Where only some do, the scheduler may still choose one of those,
    and so it is told.
    """
    notes: dict[str, None] = {}
    for row in rows:
        if not row.is_asked(asked.spec):
            continue
        about = [cell for kind in kinds if (cell := row.cells[kind]).is_about(asked)]
        if len(about) == len(kinds) and all(cell.verdict is Verdict.REFUSED for cell in about):
            raise UserError(about[0].told(asked.spec), field=row.called)
        notes |= dict.fromkeys(cell.told(asked.spec) for cell in about)
    return tuple(notes)


def _differs(noun: Any, names: list[str]) -> bool:
    """Is what stands there not as its default? Of several groups: in any of them."""
    name, *rest = names
    value = getattr(noun, name)
    if not rest:
        return bool(value != _default(cast(Any, type(noun)), name))
    if value is None:
        return False
    return any(_differs(each, rest) for each in (value if isinstance(value, tuple) else (value,)))


@cache
def _default(kind: Any, name: str) -> Any:
    """What has none is asked for by everybody."""
    (found,) = (field for field in fields(kind) if field.name == name)
    if found.default_factory is not MISSING:
        return found.default_factory()
    return found.default
