"""Endings: how did each task of a job end? Those in the journal, then each as it happens, until the job has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from jobyard.engine.job_record import JobRecord
from jobyard.model.events import AttemptsFinished, Event, Finished
from jobyard.model.own_command import own_command, seq_of
from jobyard.server.finding import find_job
from jobyard.server.logs import log_path, log_size
from jobyard.server.loop import YardLoop
from jobyard.wire.views import EndingView


class EndingStream:
    """Of tasks that are not tried again, after a row of the journal. A row that is gone tells no more."""

    def __init__(self, loop: YardLoop, selector: str, after: int) -> None:
        self._loop = loop
        self._found = find_job(loop.state, selector)
        self._last = after
        self.is_cut = False  # we were too slow: the client goes on after the last row

    async def batches(self) -> AsyncGenerator[tuple[int, list[EndingView]], None]:
        """The endings of each row, with the row's number."""
        subscription = self._loop.feed.subscribe()
        try:
            while rows := await self._loop.read_journal(self._last):
                for seq, events in rows:
                    if found := self._take(seq, events):
                        yield seq, found
            # The state may be ahead of the rows: only once they are written does a final job mean that all were told.
            await self._loop.journalled()
            while not subscription.is_cut and not (self._job.is_final and subscription.empty()):
                seq, events = await subscription.get()
                if found := self._take(seq, events):
                    yield seq, found
                await self._loop.journalled()
            self.is_cut = subscription.is_cut
        finally:
            self._loop.feed.unsubscribe(subscription)

    @property
    def _job(self) -> JobRecord:
        """As it is now; of a job that was forgotten meanwhile, as it was."""
        return self._loop.state.jobs.get(self._found.id, self._found)

    def _take(self, seq: int, events: Sequence[Event]) -> list[EndingView]:
        if seq <= self._last:
            return []
        self._last = seq
        return list(self._endings(events))

    def _endings(self, events: Sequence[Event]) -> Iterator[EndingView]:
        job = self._job
        for event in events:
            if isinstance(event, AttemptsFinished):
                for item in event.items:
                    if item.attempt.job == job.id and has_ended_with(job, item):
                        yield self._view(job, item)

    def _view(self, job: JobRecord, item: Finished) -> EndingView:
        attempt, outcome = item
        task = job.task(attempt.task)
        return EndingView(
            number=attempt.task,
            task=job.spec.label_of(attempt.task),
            attempt=attempt.number,
            state=task.state,
            node=task.node,
            started_at=outcome.started_at,
            finished_at=outcome.finished_at,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            output_bytes=self._output_bytes(item),
            command=own_command(job.spec, attempt.task),
            seq=seq_of(job.spec, attempt.task),
        )

    def _output_bytes(self, item: Finished) -> int:
        return log_size(log_path(self._loop, item.attempt, "out")) or 0


def has_ended_with(job: JobRecord, item: Finished) -> bool:
    """Whether this attempt is the last one of its task, as far as is known now."""
    attempt = item.attempt
    if attempt.task >= job.spec.size:  # of an elastic job that was larger
        return False
    task = job.task(attempt.task)
    return task.state.is_final and task.attempt == attempt.number
