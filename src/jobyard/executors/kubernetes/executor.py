"""How do attempts run on a cluster? Level-triggered: what the yard wants is compared with what is there, job by job.

Watches tell what is there. Whatever changes, here or there, makes its job be looked at again: `_settle` tells the yard
what was seen, makes the objects that are missing, and removes those that nobody wants. All of it may be done twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from jobyard.errors import ExecutorError, Unavailable, UserError
from jobyard.executors.kubernetes import names, secrets
from jobyard.executors.kubernetes.carrying_out import RETRY_SECONDS
from jobyard.executors.kubernetes.forbidden import Own, own_things, refuse_forbidden
from jobyard.executors.kubernetes.held_job import HeldJob
from jobyard.executors.kubernetes.kinds import KINDS, Kind, kind_of
from jobyard.executors.kubernetes.rights import (
    STOPPING,
    Right,
    check_place,
    kueue_version,
    lacking,
    rights_on,
    sentence,
    service_account,
)
from jobyard.executors.kubernetes.room import ClusterRoom
from jobyard.executors.kubernetes.settling import Settling
from jobyard.executors.kubernetes.text import text_of
from jobyard.executors.kubernetes.units import Scope, UnitKey
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import AgentStatus, SubmittedJob, YardView
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.watching import Watching
from jobyard.model.effects import CloseSlot, Effect, JobEnded, Launch, Stop, Yield
from jobyard.model.events import Event, NodeWentAway
from jobyard.model.job import JobSpec
from jobyard.model.node import ClusterConfig
from jobyard.model.task import AttemptId

log = logging.getLogger(__name__)

Object = dict[str, Any]
AT_ONCE = 16  # jobs that are settled side by side
READY_SECONDS = 15.0
MOST_ACCEPTED = 1000
ACCEPTED_SECONDS = 300.0
AWAY_SECONDS = 3.0  # an API server that restarts is back by then, and nobody need hear of it
CONNECT_SECONDS = (1.0, 2.0, 5.0, 10.0)


class KubernetesExecutor:
    name = "kubernetes"

    def __init__(self, config: ClusterConfig, yard: YardView, yard_id: str, mirror: Mirror) -> None:
        self._config = config
        self._yard = yard
        self._yard_id = yard_id
        self._mirror = mirror
        self._api: Api | None = None
        self._account = ""  # the service account that we are there
        self._problem = ""
        self._ready = asyncio.Event()  # it is connected
        self._seen: asyncio.Queue[Sequence[Event]] = asyncio.Queue()
        self._jobs: dict[str, HeldJob] = {}
        self._room = ClusterRoom(config.id, bool(config.queue), self._is_in_our_books)
        self._watches: dict[str, Watching] = {}  # also those of earlier connections, which go on from what they know
        self._running: list[Watching] = []
        self._beginning = asyncio.Lock()
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._slots: dict[str, str] = {}  # open slots -> their jobs
        self._busy: set[str] = set()
        self._settling = Settling(
            config, yard_id, yard, self._tell, self._again, self._sees_all_of, self._room.is_simulated
        )
        self._accepted: dict[str, float] = {}  # shapes of objects that the API server would take, and when it said so
        self._away: asyncio.TimerHandle | None = None
        self._is_away = False
        self._returning: asyncio.Task[None] | None = None
        self._failures = 0  # since it was last connected

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
                # A kubeconfig that is being written, an answer that is none: it may be better soon.
                log.exception("cluster %s", self._config.id)
                self._fail(error)
            finally:
                await self._disconnect()
            await asyncio.sleep(CONNECT_SECONDS[min(self._failures, len(CONNECT_SECONDS) - 1)])
            self._failures += 1

    def _fail(self, error: Exception) -> None:
        self._problem = str(error)
        log.warning("cluster %s: %s", self._config.id, error)
        if self._away is None and not self._is_away:
            self._away = asyncio.get_running_loop().call_later(AWAY_SECONDS, self._go_away)

    async def _run_once(self) -> None:
        """Until the cluster refuses something that we cannot do without."""
        self._api = api = await Api.connect(self._config)
        await check_place(api, self._config)
        self._account = await service_account(api)
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(api.keep_identity())
            await self._watch_all(api)
            self._tell_all_of_room()
            self._back()
            self._slots = {live.slot.id: live.slot.job for live in self._yard.live_attempts(self._config.id)}
            self._touch_all()
            for _ in range(AT_ONCE):
                group.create_task(self._work())
            group.create_task(self._tell_of_room())
            group.create_task(self._explain(api))

    async def _watch_all(self, api: Api) -> None:
        """What is there, whole, before anything is decided."""
        namespace = api.namespace
        self._running.clear()
        everywhere = await self._may_list_all_pods(api)
        self._watch("nodes", Watching(object_path("v1", "nodes", ""), self._room.node_changed))
        self._watch("pods", Watching(object_path("v1", "pods", "" if everywhere else namespace), self._pod_changed))
        self._watch("quotas", Watching(object_path("v1", "resourcequotas", namespace), self._room.quota_changed))
        for kind in KINDS.values():
            if kind.name != "Pod" and await self._may_use(api, kind):
                self._watch(kind.name, self._watching(kind, namespace))
        if self._config.queue:
            path = object_path(await kueue_version(api), "workloads", namespace)
            self._watch("workloads", Watching(path, self._workload_changed))
        for watch in self._running:
            await watch.is_complete.wait()
        if self._config.queue:  # once more: some were told of before the objects that they are about
            for seen in self._watches["workloads"].objects.values():
                self._workload_changed(seen, False)

    def _watching(self, kind: Kind, namespace: str) -> Watching:
        changed = partial(self._object_changed, kind)
        return Watching(kind.collection(namespace), changed, labelSelector=f"{names.YARD}={self._yard_id}")

    def _watch(self, name: str, watch: Watching) -> None:
        """One that was running before goes on from what it knows."""
        assert self._api is not None
        known = self._watches.get(name)
        if known is None or known.path != watch.path:
            if known is not None:  # what it knew and is not there any more has gone
                watch.objects.update(known.objects)
            self._watches[name] = known = watch
        known.is_complete.clear()
        self._running.append(known)
        self._group.create_task(self._follow(known, self._api), name=f"watch {name} of {self._config.id}")

    def _watch_of(self, kind: Kind) -> Watching | None:
        watch = self._watches.get("pods" if kind.name == "Pod" else kind.name)
        return watch if watch in self._running else None

    def _sees_all_of(self, kind: Kind) -> bool:
        """Is all that there is of this kind known? Not while its list is still to be read."""
        watch = self._watch_of(kind)
        return watch is not None and watch.is_complete.is_set()

    async def _follow(self, watch: Watching, api: Api) -> None:
        try:
            await watch.run(api, self._cut)
        except Refused as refused:
            raise Unavailable(f"the cluster does not let us watch: {refused}") from refused

    async def _may_list_all_pods(self, api: Api) -> bool:
        """Pods of other namespaces use room too. Without that permission only those of ours are counted."""
        try:
            await api.get(object_path("v1", "pods", ""), limit="1")
        except Refused as refused:
            if not refused.is_forbidden:
                raise
            return False
        return True

    async def _may_use(self, api: Api, kind: Kind) -> bool:
        """What an operator brings and we have no right to is left alone: jobs of that kind hear of it."""
        return await self._has(api, kind) and (not kind.operator or await lacking(api, rights_on(kind)) is None)

    async def _has(self, api: Api, kind: Kind) -> bool:
        if not kind.operator:
            return True
        try:
            found = await api.get(f"/apis/{kind.api_version}")
        except Refused as refused:
            if refused.is_absent:
                return False
            raise
        return any(each["name"] == kind.plural for each in found.get("resources", ()))

    async def _disconnect(self) -> None:
        self._ready.clear()
        for held in self._jobs.values():
            held.disconnect()
        if self._api is not None:
            with suppress(Exception):
                await self._api.close()
            self._api = None

    def _cut(self, problem: str) -> None:
        """A watch was cut. If it does not come back soon, nothing new is sent there."""
        self._problem = problem
        if self._away is None and not self._is_away:
            self._away = asyncio.get_running_loop().call_later(AWAY_SECONDS, self._go_away)
        if self._returning is None or self._returning.done():
            with suppress(RuntimeError):
                self._returning = self._group.create_task(self._wait_until_back())

    async def _wait_until_back(self) -> None:
        while not all(watch.is_complete.is_set() for watch in self._running):
            for watch in list(self._running):
                await watch.is_complete.wait()
        self._back()

    def _go_away(self) -> None:
        self._away, self._is_away = None, True
        self._ready.clear()
        self._seen.put_nowait([NodeWentAway(self._config.id, time.time(), self._problem)])

    def _back(self) -> None:
        self._failures = 0
        if self._away is not None:
            self._away.cancel()
            self._away = None
        self._problem = ""
        self._ready.set()
        if self._is_away:
            self._is_away = False
            self._tell_all_of_room()
            self._touch_all()  # what was handed over meanwhile was let lie

    # -- what is seen -------------------------------------------------------------------------------------------------

    def _ours(self, pod: Object) -> str:
        """The job that a pod belongs to; empty: somebody else's. Labels can be copied into any other namespace."""
        if self._api is None or pod["metadata"].get("namespace") != self._api.namespace:
            return ""
        labels = pod["metadata"].get("labels") or {}
        return labels.get(names.JOB, "") if labels.get(names.YARD) == self._yard_id else ""

    def _is_in_our_books(self, pod: Object) -> bool:
        """Is it of a job for which the yard has slots here? Another entry of the same cluster has books of its own."""
        job_id = self._ours(pod)
        try:
            return self._yard.job(job_id).spec.cluster == self._config.id
        except KeyError:
            return False

    def _tell_all_of_room(self) -> None:
        self._room.tell_all(name.partition("/")[2] for name in self._yard.nodes_of(self._config.id))

    def _pod_changed(self, pod: Object, gone: bool) -> None:
        self._room.pod_changed(pod, gone)
        if job_id := self._ours(pod):
            self._held(job_id).observed.pod_changed(pod, gone)
            self._touch(job_id)

    def _object_changed(self, kind: Kind, seen: Object, gone: bool) -> None:
        if job_id := self._ours(seen):
            self._held(job_id).observed.object_changed(kind, seen, gone)
            self._touch(job_id)

    def _workload_changed(self, seen: Object, gone: bool) -> None:
        owners = {owner["name"] for owner in seen["metadata"].get("ownerReferences") or ()}
        for held in self._jobs.values():
            if owners & held.observed.objects.keys():
                held.observed.workload_changed(seen, gone)
                self._touch(held.id)

    def _held(self, job_id: str) -> HeldJob:
        if job_id not in self._jobs:
            self._jobs[job_id] = HeldJob(job_id, self._mirror, self._tell, self._again)
        return self._jobs[job_id]

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            self._seen.put_nowait(events)

    async def _tell_of_room(self) -> None:
        while True:
            await self._room.changed.wait()
            placements = [live.slot.placement for live in self._yard.live_attempts(self._config.id)]
            self._tell(self._room.news(placements, time.time()))
            await asyncio.sleep(0.25)  # pods come and go by the hundred

    async def _explain(self, api: Api) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            with suppress(ExecutorError):
                await self._settling.explain(api, self._jobs.values())

    async def observations(self) -> AsyncIterator[Sequence[Event]]:
        while True:
            yield await self._seen.get()

    # -- settling -----------------------------------------------------------------------------------------------------

    def _touch_all(self) -> None:
        for job_id in {*self._jobs, *self._slots.values()}:
            self._touch(job_id)

    def _touch(self, job_id: str) -> None:
        if job_id not in self._queued:
            self._queued.add(job_id)
            self._dirty.put_nowait(job_id)

    async def _work(self) -> None:
        """One job at a time, and no job twice at once."""
        while True:
            job_id = await self._dirty.get()
            self._queued.discard(job_id)
            if job_id in self._busy:
                self._held(job_id).is_touched = True
                continue
            self._busy.add(job_id)
            try:
                await self._settle(job_id)
            except ExecutorError as error:
                log.warning("job %s on cluster %s: %s", job_id, self._config.id, error)
                self._again(job_id)
            except Exception:  # a bug of ours, or an object that we do not understand: others must go on
                log.exception("job %s on cluster %s", job_id, self._config.id)
                self._again(job_id)
            finally:
                self._busy.discard(job_id)
                if (held := self._jobs.get(job_id)) and held.is_touched:
                    held.is_touched = False
                    self._touch(job_id)

    def _again(self, job_id: str, seconds: float = RETRY_SECONDS) -> None:
        asyncio.get_running_loop().call_later(seconds, self._touch, job_id)

    async def _settle(self, job_id: str) -> None:
        api, held = self._api, self._held(job_id)
        if api is None or self._is_away:
            return  # whoever is held is looked at when the cluster is back
        await self._yard.settled()  # only what is on disk may be launched
        await self._settling.settle(api, held)
        if held.is_empty and self._yard.facts(job_id).is_over:
            self._jobs.pop(job_id, None)

    # -- the protocol -------------------------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        """What is to be done is read from the yard itself: an effect only says whose turn it is."""
        for effect in effects:
            match effect:
                case Launch(slot=slot):
                    self._slots[slot.id] = slot.job
                    self._touch(slot.job)
                case CloseSlot(slot=slot_id):
                    if job_id := self._slots.pop(slot_id, ""):
                        self._touch(job_id)
                case Stop(attempts=attempts, grace_seconds=grace):
                    for attempt in attempts:
                        if not grace:
                            self._held(attempt.job).done.hurried.add(attempt)
                        self._touch(attempt.job)
                case Yield(attempts=attempts):
                    for attempt in attempts:
                        self._touch(attempt.job)
                case JobEnded(job=job_id):
                    self._touch(job_id)
                case _:
                    pass  # GPUs are whole here, and a slot has one task

    def announce(self, is_busy: bool) -> None:
        """Nobody there could bring a server back."""

    async def check(self, job: SubmittedJob) -> None:
        """Would the cluster take it? Asked of the API server itself, without keeping anything."""
        with suppress(TimeoutError):  # a server that has just come back is about to be connected
            async with asyncio.timeout(0 if self._problem else READY_SECONDS):
                await self._ready.wait()
        api = self._api
        if api is None or not self._ready.is_set():
            raise UserError(f"cluster {self._config.id} cannot be used: {self._problem or 'it does not answer'}")
        kind = kind_of(job.spec)
        config = self._config
        if job.spec.manifest or job.spec.volumes or job.spec.secrets:
            refuse_forbidden(job, config, self._own_things(api))
        await secrets.refuse_taken(api, job.spec)
        first, *_ = self._settling.build(job, UnitKey(Scope.WHOLE, 1), api.namespace)
        if kind.name != "Pod":
            async with self._beginning:
                if self._watch_of(kind) is None:
                    await self._begin_watching(api, kind)
        shape = self._shape_of(job, api.namespace)
        if time.monotonic() - self._accepted.get(shape, -ACCEPTED_SECONDS) < ACCEPTED_SECONDS:
            return  # it was asked just now, about the same under another name
        try:
            if missing := await lacking(api, _needed_by(job.spec, kind)):
                raise UserError(f"cluster {config.id}: {await sentence(api, missing)}")
            await api.create(kind.collection(api.namespace), first, dryRun="All", fieldValidation="Strict")
        except Refused as refused:
            raise UserError(f"cluster {config.id} refuses the {kind.name}: {refused}") from refused
        except Unavailable as error:
            raise UserError(f"cluster {config.id}: {error}") from error
        if len(self._accepted) >= MOST_ACCEPTED:
            self._accepted.clear()
        self._accepted[shape] = time.monotonic()

    def _own_things(self, api: Api) -> Own:
        pods = self._watches["pods"].objects.values()
        here = (pod for pod in pods if pod["metadata"].get("namespace") == api.namespace)
        return own_things(self._account, here, self._config.storage)

    def _shape_of(self, job: SubmittedJob, namespace: str) -> str:
        nameless = job._replace(spec=replace(job.spec, name="job"))
        return json.dumps(self._settling.build(nameless, UnitKey(Scope.WHOLE, 1), namespace), sort_keys=True)

    async def _begin_watching(self, api: Api, kind: Kind) -> None:
        try:
            if not await self._has(api, kind):
                raise UserError(
                    f"cluster {self._config.id} has no {kind.name}: install {kind.operator}, or ask who runs it to"
                )
            if missing := await lacking(api, rights_on(kind)):
                raise UserError(f"cluster {self._config.id}: {await sentence(api, missing)}")
        except (Refused, Unavailable) as error:
            raise UserError(f"cluster {self._config.id}: {error}") from error
        self._watch(kind.name, self._watching(kind, api.namespace))
        await self._watches[kind.name].is_complete.wait()

    def preview(self, job: SubmittedJob, launch: Launch) -> str:
        objects = self._settling.build(job, UnitKey(Scope.WHOLE, 1), self._config.namespace)
        return text_of(job, objects, self._config.queue)

    def log_path(self, attempt: AttemptId, stream: str) -> str:
        return str(self._mirror.path(attempt, stream))

    async def probe(self) -> None:
        """It is watched all the time."""

    def dismiss(self) -> None:
        """Nothing of ours serves the yard there."""

    def reconnect(self) -> None:
        """Whoever forgot everything hears of everything again."""
        self._tell_all_of_room()
        for held in self._jobs.values():
            held.forget_told()
            self._touch(held.id)

    @property
    def namespace(self) -> str:
        return self._api.namespace if self._api else self._config.namespace

    @property
    def is_tidy(self) -> bool:
        return not (self._queued or self._busy)

    def status(self) -> AgentStatus:
        address = self._api.host if self._api else ""
        return AgentStatus(self._config.id, None, "", self._ready.is_set(), self._problem, address)

    @property
    def calls(self) -> dict[str, int]:
        """How often the API server was asked for what."""
        return dict(self._api.calls) if self._api else {}


def _needed_by(spec: JobSpec, kind: Kind) -> list[Right]:
    """Rights that not every job needs. Those on what operators bring are asked for when that is first watched."""
    return [
        *(secrets.NEEDED if spec.secrets else ()),
        *(STOPPING if spec.training is not None else ()),
        *(rights_on(kind) if kind.name == "Pod" else ()),
    ]
