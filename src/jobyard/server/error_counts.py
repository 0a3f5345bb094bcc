"""Error counters: which errors has the server survived? Counted by what they spoiled; each is logged with its trace."""

from __future__ import annotations

import logging
import time
from collections import Counter

from jobyard.wire.views import TroubleView

log = logging.getLogger(__name__)


class ErrorCounts:
    """What `yard doctor` tells of them: how many of each kind, and the last one in a sentence."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._last: dict[str, tuple[str, float]] = {}

    def note(self, what: str, sentence: str, error: BaseException | None = None) -> None:
        """`what` it spoiled: a launch, a view, a command, ..."""
        self._counts[what] += 1
        self._last[what] = (sentence, time.time())
        # `what` is part of the format: the log limits equal formats, and many views must not hide the journal.
        log.error(what + ": %s", sentence, exc_info=error)

    def views(self) -> tuple[TroubleView, ...]:
        return tuple(TroubleView(what, count, *self._last[what]) for what, count in sorted(self._counts.items()))
