"""Growing output: what have tasks that still run written into the files of `--output`? The server looks each second.

It is for whoever watches a file. What counts is written when the task has ended (`output_files.py`), whatever became
of the file until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from jobyard.engine.job_record import JobRecord
from jobyard.model.events import AttemptsStarted, Event
from jobyard.model.job import State
from jobyard.model.task import AttemptId
from jobyard.server.logs import STREAMS, log_paths, open_growing
from jobyard.server.loop import YardLoop
from jobyard.server.output_threads import OutputThreads, Work
from jobyard.server.output_writing import Grown, grow_output

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
AT_ONCE = 200  # tasks: 10,000 that run have their turn each minute
Targets = Callable[[JobRecord, int], Iterable[tuple[str, Path]]]


class _Growing(NamedTuple):
    attempt: int  # whose output is in the file
    grown: Grown | None  # None: it is not ours any more, or cannot be written


class GrowingOutput:
    """Of the tasks that run in jobs with such files."""

    def __init__(self, loop: YardLoop, threads: OutputThreads, targets: Targets) -> None:
        """`targets` are the files of a task, each with the stream that it begins with; none for most jobs."""
        self._loop = loop
        self._threads = threads
        self._targets = targets
        self._running: OrderedDict[tuple[str, int], int] = OrderedDict()  # task -> attempt; whose turn is next first
        self._files: dict[tuple[str, int, str], _Growing] = {}  # by job, task and stream

    def begin(self) -> None:
        """With what runs already."""
        for job in self._loop.state.jobs.values():
            if not job.is_final:
                for first, last in job.tasks.numbers_in(State.RUNNING):
                    for number in range(first, last + 1):
                        self._add(job, number, job.task(number).attempt)

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            for item in event.items if isinstance(event, AttemptsStarted) else ():
                job = self._loop.state.jobs.get(item.attempt.job)
                if job is not None and item.attempt.task < job.spec.size:
                    self._add(job, item.attempt.task, item.attempt.number)

    def _add(self, job: JobRecord, number: int, attempt: int) -> None:
        if job.spec.staging.output or job.spec.staging.error:
            self._running[job.id, number] = attempt

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:  # the next look is in a second
                log.exception("growing output")

    async def look(self) -> None:
        works = [work for key in list(islice(self._running, AT_ONCE)) for work in self._works(*key)]
        if works:
            await self._threads.carry_out(works)

    def _works(self, job_id: str, number: int) -> Iterator[Work]:
        """Until the task has ended for good: of one that waits for its next attempt the rest of the last one comes."""
        attempt = AttemptId(job_id, number, self._running.pop((job_id, number)))
        job = self._loop.state.jobs.get(job_id)
        if job is None or number >= job.spec.size or job.task(number).state.is_final:
            for stream in STREAMS:
                self._files.pop((job_id, number, stream), None)
            return
        self._running[job_id, number] = attempt.number
        for stream, target in self._targets(job, number):
            yield Work(target, partial(self._grow, attempt, stream, log_paths(self._loop, attempt, stream), target))

    def _grow(self, attempt: AttemptId, stream: str, paths: Sequence[Path], target: Path) -> None:
        """In a thread. What fails is not tried again before the task has ended."""
        key = (attempt.job, attempt.task, stream)
        known = self._files.get(key)
        is_new = known is None or known.attempt != attempt.number
        grown = known.grown if known is not None else None
        if not is_new and grown is None:
            return
        try:
            written = open_growing(paths)
        except FileNotFoundError:  # it has written nothing yet
            return
        with written:
            size = written.seek(0, 2)
            if is_new or grown is None or size != grown.bytes:
                self._files[key] = _Growing(attempt.number, None)
                self._files[key] = _Growing(attempt.number, grow_output(written, target, grown, is_new=is_new))
