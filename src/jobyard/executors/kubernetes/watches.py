"""Watches of a cluster: which collections are followed there, and is all that there is of a kind known?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from jobyard.errors import Unavailable
from jobyard.executors.kubernetes import names
from jobyard.executors.kubernetes.held_jobs import HeldJobs
from jobyard.executors.kubernetes.kinds import KINDS, Kind
from jobyard.executors.kubernetes.link import ClusterLink
from jobyard.executors.kubernetes.rights import kueue_version, may_list_all_pods, may_use
from jobyard.executors.kubernetes.room import ClusterRoom
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.watching import Watching
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]


class Watches:
    """They feed the room and the held jobs, and tell the link of every cut. Over a new connection they go on."""

    _group: asyncio.TaskGroup  # of the connection; they end with it

    def __init__(
        self, config: ClusterConfig, yard_id: str, link: ClusterLink, room: ClusterRoom, jobs: HeldJobs
    ) -> None:
        self._config = config
        self._yard_id = yard_id
        self._link = link
        self._room = room
        self._jobs = jobs
        self._known: dict[str, Watching] = {}  # also those of earlier connections, which go on from what they know
        self._running: list[Watching] = []
        self._returning: asyncio.Task[None] | None = None

    async def start(self, api: Api, group: asyncio.TaskGroup) -> None:
        """What is there, whole, before anything is decided."""
        self._group, namespace = group, api.namespace
        self._running.clear()
        everywhere = await may_list_all_pods(api)
        self._follow("nodes", Watching(object_path("v1", "nodes", ""), self._room.node_changed))
        self._follow("pods", Watching(object_path("v1", "pods", "" if everywhere else namespace), self.pod_changed))
        self._follow("quotas", Watching(object_path("v1", "resourcequotas", namespace), self._room.quota_changed))
        for kind in KINDS.values():
            if kind.name != "Pod" and await may_use(api, kind):
                self._follow(kind.name, self._watching(kind, namespace))
        if self._config.queue:
            path = object_path(await kueue_version(api), "workloads", namespace)
            self._follow("workloads", Watching(path, self._jobs.workload_changed))
        for watch in self._running:
            await watch.is_complete.wait()
        if self._config.queue:  # once more: some were told of before the objects that they are about
            for seen in self._known["workloads"].objects.values():
                self._jobs.workload_changed(seen, False)

    async def start_one(self, kind: Kind, namespace: str) -> None:
        """One more, of what an operator brought since; returns when all there is of it is known."""
        self._follow(kind.name, self._watching(kind, namespace))
        await self._known[kind.name].is_complete.wait()

    def has(self, kind: Kind) -> bool:
        """Is this kind watched?"""
        return self._of(kind) is not None

    def sees_all_of(self, kind: Kind) -> bool:
        """Is all that there is of this kind known? Not while its list is still to be read."""
        watch = self._of(kind)
        return watch is not None and watch.is_complete.is_set()

    def pods_in(self, namespace: str) -> Iterator[Object]:
        pods = self._known["pods"].objects.values()
        return (pod for pod in pods if pod["metadata"].get("namespace") == namespace)

    def pod_changed(self, pod: Object, gone: bool) -> None:
        self._room.pod_changed(pod, gone)
        self._jobs.pod_changed(pod, gone)

    def _of(self, kind: Kind) -> Watching | None:
        watch = self._known.get("pods" if kind.name == "Pod" else kind.name)
        return watch if watch in self._running else None

    def _watching(self, kind: Kind, namespace: str) -> Watching:
        changed = partial(self._jobs.object_changed, kind)
        return Watching(kind.collection(namespace), changed, labelSelector=f"{names.YARD}={self._yard_id}")

    def _follow(self, name: str, watch: Watching) -> None:
        """One that was running before goes on from what it knows."""
        api = self._link.api
        assert api is not None
        known = self._known.get(name)
        if known is None or known.path != watch.path:
            if known is not None:  # what it knew and is not there any more has gone
                watch.objects.update(known.objects)
            self._known[name] = known = watch
        known.is_complete.clear()
        self._running.append(known)
        self._group.create_task(self._run(known, api), name=f"watch {name} of {self._config.id}")

    async def _run(self, watch: Watching, api: Api) -> None:
        try:
            await watch.run(api, self._cut)
        except Refused as refused:
            raise Unavailable(f"the cluster does not let us watch: {refused}") from refused

    def _cut(self, problem: str) -> None:
        self._link.fail(problem)
        if self._returning is None or self._returning.done():
            with suppress(RuntimeError):
                self._returning = self._group.create_task(self._wait_until_back())

    async def _wait_until_back(self) -> None:
        while not all(watch.is_complete.is_set() for watch in self._running):
            for watch in list(self._running):
                await watch.is_complete.wait()
        self._link.back()
