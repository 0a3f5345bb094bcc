"""Held jobs: of which jobs is anything in a cluster, or to be there, and whose turn is it to be looked at?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from jobyard.errors import ExecutorError
from jobyard.executors.kubernetes.carrying_out import RETRY_SECONDS
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import Kind
from jobyard.executors.mirror import Mirror
from jobyard.model.events import Event

log = logging.getLogger(__name__)

Object = dict[str, Any]


class HeldJobs:
    """Of one cluster. Whatever changes, here or there, makes its job be looked at again."""

    def __init__(
        self,
        cluster: str,
        mirror: Mirror,
        tell: Callable[[Sequence[Event]], None],
        job_of: Callable[[Object], str],
    ) -> None:
        """`job_of` an object is empty where it is somebody else's."""
        self._cluster = cluster
        self._mirror = mirror
        self._tell = tell
        self._job_of = job_of
        self._jobs: dict[str, HeldJob] = {}
        self._slots: dict[str, str] = {}  # open slots -> their jobs
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._busy: set[str] = set()

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(self._jobs.values())

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def of(self, job_id: str) -> HeldJob:
        """Held from now on, if it was not."""
        if job_id not in self._jobs:
            self._jobs[job_id] = HeldJob(job_id, self._mirror, self._tell, self.again)
        return self._jobs[job_id]

    def let_go(self, job_id: str) -> None:
        self._jobs.pop(job_id, None)

    @property
    def is_tidy(self) -> bool:
        return not (self._queued or self._busy)

    # -- what is seen -------------------------------------------------------------------------------------------------

    def pod_changed(self, pod: Object, gone: bool) -> None:
        if job_id := self._job_of(pod):
            self.of(job_id).observed.pod_changed(pod, gone)
            self.touch(job_id)

    def object_changed(self, kind: Kind, seen: Object, gone: bool) -> None:
        if job_id := self._job_of(seen):
            self.of(job_id).observed.object_changed(kind, seen, gone)
            self.touch(job_id)

    def workload_changed(self, seen: Object, gone: bool) -> None:
        owners = {owner["name"] for owner in seen["metadata"].get("ownerReferences") or ()}
        for held in self:
            if owners & held.observed.objects.keys():
                held.observed.workload_changed(seen, gone)
                self.touch(held.id)

    # -- what is wanted -----------------------------------------------------------------------------------------------

    def reopen(self, slots: Mapping[str, str]) -> None:
        """These slots are open, with their jobs, and no others."""
        self._slots = dict(slots)

    def open(self, slot_id: str, job_id: str) -> None:
        self._slots[slot_id] = job_id
        self.touch(job_id)

    def close(self, slot_id: str) -> None:
        if job_id := self._slots.pop(slot_id, ""):
            self.touch(job_id)

    # -- turns --------------------------------------------------------------------------------------------------------

    def touch(self, job_id: str) -> None:
        if job_id not in self._queued:
            self._queued.add(job_id)
            self._dirty.put_nowait(job_id)

    def touch_all(self) -> None:
        for job_id in {*self._jobs, *self._slots.values()}:
            self.touch(job_id)

    def again(self, job_id: str, seconds: float = RETRY_SECONDS) -> None:
        asyncio.get_running_loop().call_later(seconds, self.touch, job_id)

    async def work(self, reconcile: Callable[[HeldJob], Awaitable[None]]) -> None:
        """Until cancelled, beside others: one job at a time, and no job twice at once."""
        while True:
            job_id = await self._dirty.get()
            self._queued.discard(job_id)
            if job_id in self._busy:
                self.of(job_id).is_touched = True
                continue
            self._busy.add(job_id)
            try:
                await reconcile(self.of(job_id))
            except ExecutorError as error:
                log.warning("job %s on cluster %s: %s", job_id, self._cluster, error)
                self.again(job_id)
            except Exception:  # a bug of ours, or an object that we do not understand: others must go on
                log.exception("job %s on cluster %s", job_id, self._cluster)
                self.again(job_id)
            finally:
                self._busy.discard(job_id)
                if (held := self._jobs.get(job_id)) and held.is_touched:
                    held.is_touched = False
                    self.touch(job_id)
