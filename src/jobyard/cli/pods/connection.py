"""Pod connection: how is one pod looked at and waited for? Through the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import aiohttp

from jobyard.cli.reaching import Target
from jobyard.errors import Unavailable, UserError
from jobyard.kubernetes.api import Api
from jobyard.kubernetes.call_limits import CALLERS
from jobyard.kubernetes.channels import Query
from jobyard.kubernetes.paths import path_of
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.states import is_over, phase_of
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
PAUSE_SECONDS = 1.0  # between two watches


class ReachedPod:
    """One pod. Raises UserError where it is gone or access is denied, Unavailable where the API does not answer."""

    def __init__(self, api: Api, target: Target) -> None:
        self._api = api
        self._container = target.unit.container
        self._task = target.name
        self.name = target.unit.pod

    async def look(self) -> Object:
        """As it is now; it runs."""
        try:
            found = await self._api.get(path_of("Pod", self._api.namespace, self.name))
        except Refused as refused:
            raise self._refused(refused) from refused
        if is_over(found):
            raise UserError(self._gone(f"has ended ({phase_of(found)})"))
        return found

    def container_in(self, pod: Object) -> str:
        """The task's own: the one that the yard made, else the one that kubectl would take."""
        names = [str(container["name"]) for container in pod["spec"]["containers"]]
        annotations = pod["metadata"].get("annotations") or {}
        wanted = (self._container, annotations.get(DEFAULT_CONTAINER))
        return next((name for name in wanted if name in names), names[0])

    async def end(self) -> None:
        """Returns when it has ended or is gone; never where the caller may not watch."""
        while True:
            try:
                version = (await self.look())["metadata"]["resourceVersion"]
            except UserError:
                return
            if await self._has_ended_since(version):
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _has_ended_since(self, version: str) -> bool:
        """Watch from that version on: otherwise a pod's earlier end would be missed. False: the watch has ended."""
        path = path_of("Pod", self._api.namespace)
        events = self._api.watch(path, version, fieldSelector=f"metadata.name={self.name}")
        try:
            async with aclosing(events):
                async for kind, pod in events:
                    if kind == "DELETED" or is_over(pod):
                        return True
        except Refused as refused:
            if refused.is_forbidden:
                await asyncio.Event().wait()
        except Unavailable:
            pass  # the next look finds out whether the API answers
        return False

    @asynccontextmanager
    async def socket(
        self, below: str, query: Query, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self._api.socket(self.name, below, query, protocols))
            except Refused as refused:
                raise self._refused(refused) from refused
            yield opened

    def _refused(self, refused: Refused) -> UserError:
        return UserError(self._gone("is gone") if refused.is_absent else f"pod {self.name}: {refused}")

    def _gone(self, how: str) -> str:
        return f"pod {self.name} of {self._task} {how}; `yard show` says what became of it, `yard logs` what it wrote"


@asynccontextmanager
async def reached(target: Target) -> AsyncIterator[ReachedPod]:
    """The pod with a connection for it, until the end of the block."""
    unit = target.unit
    api = await Api.connect(ClusterConfig(unit.cluster, target.kubeconfig, target.context, unit.namespace), CALLERS)
    try:
        yield ReachedPod(api, target)
    finally:
        await api.close()
