"""Damaged rows: what is replayed of a journal with rows that cannot be read or applied, and what is put on hold?

The jobs that such a row concerns are held. Where nobody can say which they are, the yard is read-only, until somebody
accepts that the row is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jobyard.engine import concerns, quarantine, saved_state
from jobyard.engine.handling import handle
from jobyard.engine.yard_state import YardState
from jobyard.server.journal import Journal, JournalRow


class Damage(NamedTuple):
    row: int
    sentence: str  # as in "row 12 is damaged"
    jobs: frozenset[str] | None  # held because of it; None: nobody can say which
    is_accepted: bool = False

    def plain(self) -> tuple[int, str, list[str] | None]:
        return self.row, self.sentence, None if self.jobs is None else sorted(self.jobs)

    @classmethod
    def accepted(cls, row: int, sentence: str, jobs: list[str] | None) -> Damage:
        """A damage that was saved with a state: only accepted ones are."""
        return cls(row, sentence, None if jobs is None else frozenset(jobs), is_accepted=True)

    @property
    def stops_all(self) -> bool:
        return self.jobs is None and not self.is_accepted


class Restored(NamedTuple):
    seq: int  # of the last row
    state: YardState
    damages: tuple[Damage, ...]


def replay(journal: Journal, after: int, state: YardState) -> Restored:
    """The state after all rows beyond a number; each row that cannot be applied is reported."""
    damages: list[Damage] = []
    for row in journal.rows(after):
        if row.damage:
            damages.append(_held(state, Damage(row.seq, row.damage, row.jobs)))
        else:
            damages += _carried_out(state, row)
        after = row.seq
    return Restored(after, state, _as_accepted(journal, damages))


def from_base(journal: Journal) -> Restored:
    """The newest intact base; None where there is none. A damaged base is reported, but holds no job."""
    damages: list[Damage] = []
    for base in journal.bases():
        if not base.damage:
            before = tuple(Damage.accepted(*each) for each in base.data["damages"])
            yard = saved_state.load(base.data["yard"])
            return Restored(base.covers, yard, _as_accepted(journal, damages) + before)
        damages.append(Damage(base.seq, base.damage, frozenset()))
    return Restored(0, YardState(), _as_accepted(journal, damages))


def why_read_only(damages: Iterable[Damage]) -> str:
    """Empty: it is not. One sentence, with the way out."""
    for damage in damages:
        if damage.stops_all:
            return (
                f"this yard can only be read: journal {damage.sentence}, and nobody can say which jobs that concerns; "
                f"put a copy of the database back, or go on without it: yard doctor --accept {damage.row}"
            )
    return ""


def _carried_out(state: YardState, row: JournalRow) -> list[Damage]:
    damages = []
    for event in row.events:
        jobs = concerns.jobs_of(state, event)
        try:
            handle(state, event)
        except Exception as error:
            sentence = f"row {row.seq} cannot be carried out ({type(event).__name__}: {error!r})"
            damages.append(_held(state, Damage(row.seq, sentence, row.jobs if jobs is None else jobs)))
    return damages


def _as_accepted(journal: Journal, damages: list[Damage]) -> tuple[Damage, ...]:
    accepted = journal.accepted_rows() if damages else set()
    return tuple(each._replace(is_accepted=each.row in accepted) for each in damages)


def _held(state: YardState, damage: Damage) -> Damage:
    for job in sorted(damage.jobs or ()):
        quarantine.begin(state, job, f"journal {damage.sentence}")
    return damage
