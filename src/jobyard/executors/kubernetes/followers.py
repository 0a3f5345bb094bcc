"""Followers: how do output and reports of an attempt's pod reach the server, while it runs and after its end?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jobyard.agent_protocol.progress_reducer import ProgressReducer
from jobyard.executors.kubernetes.outcomes import main_container, started_at
from jobyard.executors.kubernetes.reporting import CONTAINER as SIDECAR
from jobyard.executors.kubernetes.reporting import has_sidecar
from jobyard.executors.kubernetes.streams import LogFile, Stream
from jobyard.executors.mirror import Mirror
from jobyard.executors.reports import Reports
from jobyard.kubernetes.api import Api
from jobyard.model.events import Event
from jobyard.model.task import AttemptId

Object = dict[str, Any]
GIVE_UP_SECONDS = 30.0  # a pod whose node is gone is given up after so long, output or not
HANGING_SECONDS = 10.0  # so long after its pod's end a stream is not followed any more: it may hang


class Followers:
    """One for each attempt of a job whose output is still being read."""

    def __init__(self, mirror: Mirror, tell: Callable[[Sequence[Event]], None]) -> None:
        self._mirror, self._tell = mirror, tell
        self._reports = Reports()
        self._running: dict[AttemptId, _Follower] = {}

    def __bool__(self) -> bool:
        return bool(self._running)

    def begin(self, api: Api, attempt: AttemptId, pod: Object, writer: Object) -> None:
        """`writer` is the pod whose output is the attempt's, `pod` the one that reports."""
        file = LogFile(self._mirror.path(attempt, "out"))
        self._running[attempt] = _Follower(attempt, pod, writer, api, file, self._reports, self._tell)

    async def finish(self, attempt: AttemptId) -> ProgressReducer | None:
        """Its pod writes no more: returns when all is here, with what its reports add up to."""
        follower = self._running.get(attempt)
        if follower is None:
            return None
        await follower.finish()
        self._running.pop(attempt, None)
        return follower.reducer

    def stop_all(self) -> None:
        """Streams need a connection."""
        for follower in self._running.values():
            follower.stop()
        self._running.clear()

    def forget_told(self) -> None:
        self._reports.forget()

    def ended(self, attempts: Iterable[AttemptId]) -> None:
        self._reports.ended(attempts)


class _Follower:
    def __init__(
        self,
        attempt: AttemptId,
        pod: Object,
        writer: Object,
        api: Api,
        file: LogFile,
        reports: Reports,
        tell: Callable[[Sequence[Event]], None],
    ) -> None:
        self._attempt, self._reports, self._tell = attempt, reports, tell
        self._file = file
        self.reducer: ProgressReducer | None = None
        self._streams = [Stream(writer["metadata"]["name"], main_container(writer), file.append, lambda: file.size)]
        if has_sidecar(pod):
            self.reducer = ProgressReducer(started_at(pod))
            self._streams.append(Stream(pod["metadata"]["name"], SIDECAR, self._report))
        self._api = api
        self._tasks = [asyncio.create_task(stream.run(api)) for stream in self._streams]

    def _report(self, data: bytes) -> None:
        assert self.reducer is not None
        self.reducer.feed(data)
        if told := self.reducer.progress():
            now = time.time()
            self._tell(self._reports.read({"attempts": {str(self._attempt): told}}, 0.0, now))

    async def finish(self) -> None:
        for stream in self._streams:
            stream.ended()
        _, hanging = await asyncio.wait(self._tasks, timeout=HANGING_SECONDS)
        if hanging:
            for task in hanging:
                task.cancel()
            await asyncio.wait(hanging)
            again = [stream for task, stream in zip(self._tasks, self._streams, strict=True) if task in hanging]
            self._tasks = [asyncio.create_task(stream.run(self._api)) for stream in again]
            while (await asyncio.wait(self._tasks, timeout=GIVE_UP_SECONDS))[1]:
                if not any(stream.is_cut for stream in again):
                    break
        self.stop()
        if self.reducer is not None:
            self.reducer.close()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._file.close()
