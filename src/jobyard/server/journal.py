"""Journal: what has happened, on disk? A row is a batch of events; when `append` returns, its row is durable."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, RowMapping, case, delete, func, insert, inspect, select

from jobyard.errors import Bug, UserError
from jobyard.model import events as kinds
from jobyard.model.codec import decode, encode
from jobyard.model.events import Event
from jobyard.server.checksums import jobs_column, jobs_of, row_checksum
from jobyard.server.schema import facts, journal

VERSION = 2  # of the events' JSON; 2: the spec of a job has parts
KINDS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(kinds).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


_ACCEPTED = "accepted row "


class JournalRow(NamedTuple):
    """As it was read. With `damage`, a sentence, it is damaged and has no events."""

    seq: int
    events: list[Event]
    damage: str = ""
    jobs: frozenset[str] | None = None  # those it concerns; None: not known, or it concerns more than jobs


class Base(NamedTuple):
    """A row that holds a whole state, as JSON-ready data. With `damage` it is damaged."""

    seq: int
    covers: int  # the last row whose events are in it
    data: Any
    damage: str = ""


class Journal:
    """Used from one thread at a time: the server's writer thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def append(self, events: Sequence[Event], at: float, jobs: Collection[str] | None = None) -> int:
        """Write the events as one row and one commit; returns the row's number. Nothing is written when it raises.

        `jobs` are those that the events concern; None: the yard as a whole.
        """
        body = json.dumps([[type(event).__name__, encode(event)] for event in events], separators=(",", ":"))
        row = {"at": at, "version": VERSION, "events": body}
        stamp = {"checksum": row_checksum(VERSION, at, body), "jobs": jobs_column(jobs)}
        with self._engine.begin() as connection:
            key = connection.execute(insert(journal).values(**row, **stamp)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def rows(self, after: int = 0) -> Iterator[JournalRow]:
        """The rows after a number, in order; damaged and missing ones too.

        Raises UserError at a row that a newer yard has written, or an older one in another form.
        """
        columns = [column for column in journal.c if column is not journal.c.events]
        events = case((journal.c.covers.is_(None), journal.c.events), else_="").label("events")  # a base is large
        begin = func.substr(journal.c.events, 1, 1).label("begin")
        query = select(*columns, events, begin).where(journal.c.seq > after).order_by(journal.c.seq)
        with self._engine.connect() as connection:
            for found in connection.execution_options(yield_per=200).execute(query).mappings():
                seq = found["seq"]
                if seq > after + 1:
                    missing = f"row {after + 1} is" if seq == after + 2 else f"rows {after + 1} to {seq - 1} are"
                    yield JournalRow(seq - 1, [], f"{missing} missing")
                if found["begin"] == ("{" if found["covers"] is None else "["):  # events are a list, a base is none
                    yield JournalRow(seq, [], f"row {seq} is damaged", jobs_of(str(found["jobs"])))
                else:
                    yield _row(found) if found["covers"] is None else JournalRow(seq, [], "", frozenset())
                after = seq

    def read(self, after: int = 0, *, past_damage: bool = False) -> Iterator[tuple[int, list[Event]]]:
        """The rows after a number that are still there, in order. Raises Bug at a damaged one, or leaves it out."""
        for row in self.rows(max(after, self.first_seq() - 1)):
            if row.damage and not past_damage:
                raise Bug(f"journal: {row.damage}; `yard doctor` says more")
            yield row.seq, row.events

    def append_base(self, covers: int, data: Any, at: float) -> int:
        """Write a whole state, as it was after row `covers`; returns the row's number."""
        body = json.dumps({"covers": covers, "state": data}, separators=(",", ":"))
        row = {"at": at, "version": VERSION, "events": body, "covers": covers}
        stamp = {"checksum": row_checksum(VERSION, at, body), "jobs": jobs_column(())}
        with self._engine.begin() as connection:
            key = connection.execute(insert(journal).values(**row, **stamp)).inserted_primary_key
        assert key is not None
        return int(key[0])

    def bases(self) -> Iterator[Base]:
        """The newest first; damaged ones too. Raises UserError at one of another version."""
        query = select(journal).where(journal.c.covers.is_not(None)).order_by(journal.c.seq.desc())
        with self._engine.connect() as connection:
            for found in connection.execution_options(yield_per=1).execute(query).mappings():
                yield _base(found)

    def base_rows(self) -> list[tuple[int, int]]:
        """The number of each base and of the last row that it covers, the newest first."""
        query = select(journal.c.seq, journal.c.covers).where(journal.c.covers.is_not(None))
        with self._engine.connect() as connection:
            return [(row.seq, row.covers) for row in connection.execute(query.order_by(journal.c.seq.desc()))]

    def forget(self, until: int, most: int) -> int:
        """Delete the oldest rows up to a number, at most so many; returns how many were."""
        oldest = select(journal.c.seq).where(journal.c.seq <= until).order_by(journal.c.seq).limit(most)
        with self._engine.begin() as connection:
            return connection.execute(delete(journal).where(journal.c.seq.in_(oldest))).rowcount

    def first_seq(self) -> int:
        """The number of the oldest row; 0 where there is none."""
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.min(journal.c.seq))) or 0)

    def last_seq(self) -> int:
        """The number of the last row; 0 where there is none."""
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.max(journal.c.seq))) or 0)

    def accept(self, row: int, who: str, at: float) -> None:
        """Record that this damaged row is given up, and by whom; the first record stays."""
        self.fact(f"{_ACCEPTED}{row}", json.dumps({"who": who, "at": at}))

    def accepted_rows(self) -> set[int]:
        with self._engine.connect() as connection:
            found = connection.scalars(select(facts.c.name).where(facts.c.name.startswith(_ACCEPTED)))
            return {int(name.removeprefix(_ACCEPTED)) for name in found}

    def fact(self, name: str, default: str) -> str:
        """A value that is written once and never changes, like the yard's id."""
        with self._engine.begin() as connection:
            found = connection.scalar(select(facts.c.value).where(facts.c.name == name))
            if found is not None:
                return str(found)
            connection.execute(insert(facts).values(name=name, value=default))
        return default


def _base(found: RowMapping) -> Base:
    seq, covers = found["seq"], found["covers"]
    if found["checksum"] != row_checksum(found["version"], found["at"], found["events"]):
        return Base(seq, covers, None, f"row {seq}, a base, is damaged")
    refuse_other_version(seq, found["version"])
    data = json.loads(found["events"])
    if not isinstance(data, dict):
        return Base(seq, covers, None, f"row {seq} is damaged: it says that it is a base")
    return Base(seq, data["covers"], data["state"])


def _row(found: RowMapping) -> JournalRow:
    seq, version, jobs = found["seq"], found["version"], jobs_of(str(found["jobs"]))
    if found["checksum"] != row_checksum(version, found["at"], found["events"]):
        return JournalRow(seq, [], f"row {seq} is damaged", jobs)
    refuse_other_version(seq, version)
    try:
        return JournalRow(seq, [_event(kind, data) for kind, data in json.loads(found["events"])], "", jobs)
    except UserError as error:
        raise _other_yards(seq, "a newer", str(error)) from error


def refuse_other_versions(connection: Connection) -> None:
    """Raises UserError with the way out, where the oldest or the newest row is of another version.

    Before anything is written, and whatever a snapshot has: the yard that wrote these rows can still be started.
    """
    for end in (journal.c.seq, journal.c.seq.desc()):
        found = connection.execute(select(journal.c.seq, journal.c.version).order_by(end).limit(1)).first()
        if found is not None and found.version != VERSION and _is_intact(connection, found.seq):
            refuse_other_version(found.seq, found.version)


def _is_intact(connection: Connection, seq: int) -> bool:
    """Of a damaged row the version says nothing. The first tables had no checksums."""
    if all(column["name"] != "checksum" for column in inspect(connection).get_columns("journal")):
        return True
    columns = journal.c.version, journal.c.at, journal.c.events, journal.c.checksum
    version, at, events, checksum = connection.execute(select(*columns).where(journal.c.seq == seq)).one()
    return bool(checksum == row_checksum(version, at, events))


def refuse_other_version(seq: int, version: int) -> None:
    """Raises UserError with the way out."""
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise _other_yards(seq, age, f"its format is {version}, ours {VERSION}")


def _other_yards(seq: int, age: str, why: str) -> UserError:
    way_out = "start it with that version, or choose another yard with --yard"
    return UserError(f"the journal has a row {seq} of {age} yard ({why}); {way_out}")


def _event(kind: str, data: Any) -> Event:
    if kind not in KINDS:
        raise UserError(f"no event {kind!r} is known here")
    return decode(KINDS[kind], data, kind)
