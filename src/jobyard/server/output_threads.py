"""Output threads: how does a place that is slow, or never answers, keep only its own files from being written?

A thread writes one file after another. Where one of them takes long, the thread stays with it and with the others of
its directory, and another thread goes on with the rest. Nothing more is written into that directory until it is done.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

log = logging.getLogger(__name__)

PATIENT_SECONDS = 1.0  # with one file, until the others go on without it
SLOW_MOST = 64  # directories, each of which holds a thread; all files wait once there are more
SLOW_MOST_OF_MOUNT = 4  # of one file system: a server of files that is away holds so many threads
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(eq=False)
class Work:
    """A file to write."""

    target: Path
    write: Callable[[], object]  # raises OSError
    whose: tuple[str, int] | None = None  # job and task that wait for it
    failure: str | None = None  # in words; empty: it is written; None: nobody knows yet

    @property
    def place(self) -> str:
        return str(self.target.parent)

    def carry_out(self) -> None:
        """Raises nothing."""
        failure = ""
        try:
            self.write()
        except OSError as error:
            failure = f"{self.target}: {error.strerror or error}"
        except Exception as error:  # a name that no file can have, or a bug of ours
            log.exception("output files of %s", self.whose)
            failure = f"{self.target!s:.200}: {error}"
        self.failure = failure


class OutputThreads:
    """All files of one yard: a directory has one thread at a time. `when_free` hears of what was slow and is done."""

    def __init__(self, when_free: Callable[[Sequence[Work]], None]) -> None:
        self._when_free = when_free
        self._one_at_a_time = asyncio.Lock()
        self._slow: dict[str, _Run] = {}  # by their directory

    async def carry_out(self, works: Sequence[Work]) -> Collection[Work]:
        """Returns those that were not begun, because their place is slow. Of others that are slow `failure` is None."""
        refused: list[Work] = []
        async with self._one_at_a_time:
            left = list(works)
            while left:
                is_refused = self._refusals()
                refused += [work for work in left if is_refused(work.place)]
                left = [work for work in left if not is_refused(work.place)]
                left = await self._run(left) if left else []
        return refused

    async def _run(self, works: Sequence[Work]) -> list[Work]:
        """In one thread. Those that it had not begun when it became slow."""
        run = _Run(works, asyncio.get_running_loop())
        # A daemon, for which no server waits that stops: a file system that hangs may never answer.
        Thread(target=run.carry_out, name="output files", daemon=True).start()
        seen = -1
        while not run.over.is_set() and run.begun != seen:
            seen = run.begun
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENT_SECONDS):
                    await run.over.wait()
        place, others = run.leave()
        if place:
            self._slow[place] = run
            run.when_over = lambda: self._free(place, run)
        return others

    def _free(self, place: str, run: _Run) -> None:
        del self._slow[place]
        self._when_free(run.kept)

    def _refusals(self) -> Callable[[str], bool]:
        """Which directories take no file now."""
        if not self._slow:
            return lambda place: False
        mounts = mount_points()
        slow = [mount_of(place, mounts) for place in self._slow]
        full = {mount for mount in slow if mount != "/" and slow.count(mount) >= SLOW_MOST_OF_MOUNT}
        is_full = len(slow) >= SLOW_MOST
        return lambda place: is_full or place in self._slow or mount_of(place, mounts) in full


class _Run:
    """One thread and its works. It belongs to the loop, but for `carry_out`."""

    def __init__(self, works: Sequence[Work], loop: asyncio.AbstractEventLoop) -> None:
        self.over = asyncio.Event()
        self.when_over: Callable[[], None] = lambda: None
        self.kept: list[Work] = []  # once it was left alone
        self.begun = 0
        self._loop = loop
        self._lock = Lock()
        self._left = deque(works)
        self._now: Work | None = None

    def carry_out(self) -> None:
        while (work := self._next()) is not None:
            work.carry_out()
        with suppress(RuntimeError):  # the server has stopped
            self._loop.call_soon_threadsafe(self._end)

    def _next(self) -> Work | None:
        with self._lock:
            self.begun += 1
            self._now = self._left.popleft() if self._left else None
            return self._now

    def _end(self) -> None:
        self.over.set()
        self.when_over()

    def leave(self) -> tuple[str, list[Work]]:
        """Where it is slow, and its works elsewhere, which are not its own any more. It is nowhere if it is done."""
        with self._lock:
            if self._now is None:
                return "", []
            place = self._now.place
            others = [work for work in self._left if work.place != place]
            self._left = deque(work for work in self._left if work.place == place)
            self.kept = [self._now, *self._left]
            return place, others


def mount_points() -> list[str]:
    """Of all file systems; the root's alone where nobody can tell. No file system is asked."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ["/"]
    return ["/", *(_ESCAPED.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in lines)]


def mount_of(place: str, mounts: Sequence[str]) -> str:
    """On which file system a directory is by its name; links are not looked at."""
    above = (mount for mount in mounts if mount == "/" or place == mount or place.startswith(f"{mount}/"))
    return max(above, key=len)
