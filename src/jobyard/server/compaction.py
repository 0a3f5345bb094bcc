"""Compaction: how does the journal stay small? Now and then a base is written, and rows that no start needs go.

The rows since the base before are kept: if the newest base is damaged, they and the older one still give the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from jobyard.engine import saved_state
from jobyard.server.damages import Restored
from jobyard.server.history import KEPT_SECONDS, History
from jobyard.server.journal import Journal

T = TypeVar("T")

BASE_EVERY_ROWS = 20_000
_ROWS_AT_ONCE = 1000  # so that no commit waits long for what is deleted

# Runs a function on the thread that may write the journal, and returns its result.
Write = Callable[[Callable[[], T]], T]


def compact(
    journal: Journal, history: History, restored: Restored, write: Write[int | None], unread_after: int
) -> None:
    """Write a base from a private copy of the state: the live state changes while this runs.

    Rows after `unread_after` stay, whatever a start needs: somebody has yet to read them.
    """
    bases = journal.base_rows()
    since = bases[0][1] if bases else 0
    if restored.seq - since < BASE_EVERY_ROWS or not all(damage.is_accepted for damage in restored.damages):
        return
    now = time.time()
    rows = history.new_of(restored.state.jobs.values())
    write(lambda: history.write(rows))
    write(lambda: history.forget(now - KEPT_SECONDS))
    data = base_data(restored)
    write(lambda: journal.append_base(restored.seq, data, now))
    if bases:
        seq, covers = bases[0]
        while write(lambda: journal.forget(min(seq - 1, covers, unread_after), _ROWS_AT_ONCE)):
            pass


def base_data(restored: Restored) -> object:
    return {"yard": saved_state.save(restored.state), "damages": [each.plain() for each in restored.damages]}
