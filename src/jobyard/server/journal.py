"""What has happened, on disk: a row is a batch of events, and what `append` has returned from is durable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Engine, func, insert, select

from jobyard.model import events as kinds
from jobyard.model.codec import decode, encode
from jobyard.model.events import Event
from jobyard.server.schema import facts, journal

VERSION = 1
KINDS: dict[str, type[Event]] = {
    name: kind
    for name, kind in vars(kinds).items()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
}


class Journal:
    """Used from one thread at a time: the server's writer thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def append(self, events: Sequence[Event], at: float) -> int:
        """Write the events as one row and one commit; returns the row's number. Nothing is written when it raises."""
        body = json.dumps([[type(event).__name__, encode(event)] for event in events], separators=(",", ":"))
        with self._engine.begin() as connection:
            result = connection.execute(insert(journal).values(at=at, version=VERSION, events=body))
            key = result.inserted_primary_key
        assert key is not None
        return int(key[0])

    def read(self, after: int = 0) -> Iterator[tuple[int, list[Event]]]:
        """The rows after a number, in order."""
        query = select(journal.c.seq, journal.c.events).where(journal.c.seq > after).order_by(journal.c.seq)
        with self._engine.connect() as connection:
            for seq, body in connection.execution_options(yield_per=200).execute(query):
                yield seq, [_event(kind, data) for kind, data in json.loads(body)]

    def last_seq(self) -> int:
        """The number of the last row; 0 where there is none."""
        with self._engine.connect() as connection:
            return int(connection.scalar(select(func.max(journal.c.seq))) or 0)

    def fact(self, name: str, default: str) -> str:
        """A value that is written down once and stays, like the yard's id."""
        with self._engine.begin() as connection:
            found = connection.scalar(select(facts.c.value).where(facts.c.name == name))
            if found is not None:
                return str(found)
            connection.execute(insert(facts).values(name=name, value=default))
        return default


def _event(kind: str, data: Any) -> Event:
    return decode(KINDS[kind], data, kind)
