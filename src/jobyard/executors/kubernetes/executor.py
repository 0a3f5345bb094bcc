"""Kubernetes executor: how do attempts run on a cluster? What the yard wants is compared with what is there.

Watches tell what is there. Each change, in the yard or in the cluster, has its job reconciled: the yard hears what was
seen, missing objects are made, and those that nobody wants are removed. All of it may be done twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from jobyard.errors import ExecutorError, UserError
from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.admission import Admission
from jobyard.executors.kubernetes.carrying_out import RETRY_SECONDS
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.held_jobs import HeldJobs
from jobyard.executors.kubernetes.link import ClusterLink
from jobyard.executors.kubernetes.object_keys import ObjectKey, Scope
from jobyard.executors.kubernetes.reconciler import Reconciler
from jobyard.executors.kubernetes.room import ClusterRoom
from jobyard.executors.kubernetes.text import text_of
from jobyard.executors.kubernetes.watches import Watches
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import AgentStatus, SubmittedJob, YardView
from jobyard.kubernetes.api import Api
from jobyard.model.effects import CloseSlot, Effect, JobEnded, Launch, Stop, Yield
from jobyard.model.events import Event
from jobyard.model.node import ClusterConfig
from jobyard.model.task import AttemptId

log = logging.getLogger(__name__)

Object = dict[str, Any]
AT_ONCE = 16  # jobs that are reconciled at the same time


class KubernetesExecutor:
    name = "kubernetes"

    def __init__(self, config: ClusterConfig, yard: YardView, yard_id: str, mirror: Mirror) -> None:
        self._config = config
        self._yard = yard
        self._yard_id = yard_id
        self._mirror = mirror
        self._seen: asyncio.Queue[Sequence[Event]] = asyncio.Queue()
        self._link = link = ClusterLink(config, self._tell, self._returned)
        self._room = ClusterRoom(config.id, bool(config.queue), self._is_in_our_books)
        self._jobs = jobs = HeldJobs(config.id, mirror, self._tell, self._job_of)
        self._watches = Watches(config, yard_id, link, self._room, jobs)
        self._reconciler = Reconciler(
            config, yard_id, yard, self._tell, jobs.again, self._watches.sees_all_of, self._room.is_simulated
        )
        self._admission = Admission(config, link, self._watches, self._reconciler.build)

    # -- being connected --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            try:
                await self._run_once()
            except (ExecutorError, UserError) as error:
                self._fail(error)
            except ExceptionGroup as several:
                known = [each for each in several.exceptions if isinstance(each, ExecutorError | UserError)]
                if not known:
                    log.exception("cluster %s", self._config.id)
                self._fail((known or several.exceptions)[0])
            except Exception as error:
                # A half-written kubeconfig, or an answer that cannot be read: try again soon.
                log.exception("cluster %s", self._config.id)
                self._fail(error)
            finally:
                for held in self._jobs:
                    held.disconnect()
                await self._link.disconnect()
            await self._link.pause()

    def _fail(self, error: Exception) -> None:
        self._link.fail(str(error))
        log.warning("cluster %s: %s", self._config.id, error)

    async def _run_once(self) -> None:
        """Until the cluster refuses something that we cannot do without."""
        api = await self._link.connect()
        async with asyncio.TaskGroup() as group:
            group.create_task(api.keep_identity())
            await self._watches.start(api, group)
            self._tell_all_of_room()
            self._link.back()
            self._jobs.reopen({live.slot.id: live.slot.job for live in self._yard.live_attempts(self._config.id)})
            self._jobs.touch_all()
            for _ in range(AT_ONCE):
                group.create_task(self._jobs.work(self._reconcile))
            group.create_task(self._tell_of_room())
            group.create_task(self._explain(api))

    def _returned(self) -> None:
        self._tell_all_of_room()
        self._jobs.touch_all()  # effects that came meanwhile were not carried out

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _job_of(self, seen: Object) -> str:
        """The job that an object belongs to; empty: somebody else's. Labels can be copied into any other namespace."""
        if self._link.api is None or seen["metadata"].get("namespace") != self._link.api.namespace:
            return ""
        labels = seen["metadata"].get("labels") or {}
        return labels.get(names.JOB, "") if labels.get(names.YARD) == self._yard_id else ""

    def _is_in_our_books(self, pod: Object) -> bool:
        """Has the yard slots here for this object's job? The same cluster may be added twice, under two names."""
        job_id = self._job_of(pod)
        try:
            return self._yard.job(job_id).spec.cluster == self._config.id
        except KeyError:
            return False

    def _tell_all_of_room(self) -> None:
        self._room.tell_all(name.partition("/")[2] for name in self._yard.nodes_of(self._config.id))

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            self._seen.put_nowait(events)

    async def _tell_of_room(self) -> None:
        while True:
            await self._room.changed.wait()
            placements = [live.slot.placement for live in self._yard.live_attempts(self._config.id)]
            self._tell(self._room.changes(placements, time.time()))
            await asyncio.sleep(0.25)  # pods come and go by the hundred

    async def _explain(self, api: Api) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            with suppress(ExecutorError):
                await self._reconciler.explain(api, self._jobs)

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            yield await self._seen.get()

    # -- what is done -------------------------------------------------------------------------------------------------

    async def _reconcile(self, held: HeldJob) -> None:
        api = self._link.api
        if api is None or self._link.is_away:
            return  # all jobs are looked at when the cluster is back
        await self._yard.journalled()  # only what is on disk may be launched
        await self._reconciler.reconcile(api, held)
        if held.is_empty and self._yard.facts(held.id).is_over:
            self._jobs.let_go(held.id)

    def perform(self, effects: Sequence[Effect]) -> None:
        """What is to be done is read from the yard itself: an effect only says whose turn it is."""
        for effect in effects:
            match effect:
                case Launch(slot=slot):
                    self._jobs.open(slot.id, slot.job)
                case CloseSlot(slot=slot_id):
                    self._jobs.close(slot_id)
                case Stop(attempts=attempts, grace_seconds=grace):
                    for attempt in attempts:
                        if not grace:
                            self._jobs.of(attempt.job).done.hurried.add(attempt)
                        self._jobs.touch(attempt.job)
                case Yield(attempts=attempts):
                    for attempt in attempts:
                        self._jobs.touch(attempt.job)
                case JobEnded(job=job_id):
                    self._jobs.touch(job_id)
                case _:
                    pass  # GPUs are whole here, and a slot has one task

    def announce(self, is_busy: bool) -> None:
        """A cluster cannot restart the server."""

    async def check(self, job: SubmittedJob) -> None:
        await self._admission.check(job)

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        objects = self._reconciler.build(job, ObjectKey(Scope.WHOLE, 1), self._config.namespace)
        return text_of(job, objects, self._config.queue)

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        return str(self._mirror.path(attempt, stream))

    async def probe(self) -> None:
        """It is watched all the time."""

    def dismiss(self) -> None:
        """Nothing of ours serves the yard there."""

    def reconnect(self) -> None:
        """Everything is reported again."""
        self._tell_all_of_room()
        for held in self._jobs:
            held.forget_told()
            self._jobs.touch(held.id)

    @property
    def namespace(self) -> str:
        return self._link.api.namespace if self._link.api else self._config.namespace

    @property
    def is_tidy(self) -> bool:
        return self._jobs.is_tidy

    def status(self) -> AgentStatus:
        link = self._link
        address = link.api.host if link.api else ""
        return AgentStatus(self._config.id, None, "", link.is_up, link.problem, address)

    @property
    def calls(self) -> dict[str, int]:
        """How often the API server was asked for what."""
        return dict(self._link.api.calls) if self._link.api else {}
