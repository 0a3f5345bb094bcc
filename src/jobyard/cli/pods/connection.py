"""How is a pod asked? Through the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aiohttp

from jobyard.cli.pods.link import Link, Query, linked
from jobyard.cli.reaching import Target
from jobyard.errors import UserError

Object = dict[str, Any]
HEARTBEAT_SECONDS = 20.0  # a link that died shows, and one that idles is not cut by a proxy
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
ENDED = ("Succeeded", "Failed")
PAUSE_SECONDS = 1.0  # between two watches


class Pod:
    """One pod. Raises UserError where it is gone or the caller may not, Unavailable where nobody answers."""

    def __init__(self, link: Link, target: Target) -> None:
        self._link = link
        self._container = target.unit.container
        self._task = target.name
        self.name = target.unit.pod

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self._link.namespace, safe='')}/pods"

    async def look(self) -> Object:
        """As it is now; it runs."""
        async with self._get(f"{self._pods}/{quote(self.name, safe='')}") as answer:
            if answer.status == 404:
                raise UserError(self._gone("is gone"))
            found: Object = await self._good(answer)
        phase = found.get("status", {}).get("phase", "")
        if phase in ENDED:
            raise UserError(self._gone(f"has ended ({phase})"))
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
            if await self._watch(version):
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _watch(self, version: str) -> bool:
        """From there on; without it nobody would tell of a pod that is gone already. False: the watch has ended."""
        query = [("watch", "1"), ("fieldSelector", f"metadata.name={self.name}"), ("resourceVersion", version)]
        async with self._get(self._pods, query) as answer:
            if answer.status >= 400:
                await asyncio.Event().wait()
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":  # its object is no pod
                    return False
                phase = event["object"].get("status", {}).get("phase", "")
                if event["type"] == "DELETED" or phase in ENDED:
                    return True
        return False

    @asynccontextmanager
    async def socket(
        self, below: str, query: Query, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        path = f"{self._pods}/{quote(self.name, safe='')}/{below}"
        url, headers = self._link.url(path, query), await self._link.headers(path)
        try:
            opened = await self._link.http.ws_connect(
                url, headers=headers, protocols=protocols, heartbeat=HEARTBEAT_SECONDS, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            async with self._get(path, query) as answer:  # a handshake brings a number only; this brings the words
                if answer.status == error.status:
                    await self._good(answer)
            raise UserError(f"pod {self.name} cannot be reached for {below}: {error.status} {error.message}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._link.silent(error) from error
        async with opened:
            yield opened

    @asynccontextmanager
    async def _get(self, path: str, query: Query = ()) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            url, headers = self._link.url(path, query), await self._link.headers(path)
            async with self._link.http.get(url, headers=headers) as answer:
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise self._link.silent(error) from error

    async def _good(self, answer: aiohttp.ClientResponse) -> Any:
        text = await answer.text()
        try:
            content = json.loads(text)
        except ValueError:
            content = {"message": text.strip() or answer.reason}
        if answer.status == 404:
            raise UserError(self._gone("is gone"))
        if answer.status >= 400:
            raise UserError(f"pod {self.name}: {content.get('message') or answer.reason}")
        return content

    def _gone(self, how: str) -> str:
        return f"pod {self.name} of {self._task} {how}; `yard show` says what became of it, `yard logs` what it wrote"


@asynccontextmanager
async def reached(target: Target) -> AsyncIterator[Pod]:
    """The pod with a connection for it, until the end of the block."""
    unit = target.unit
    async with linked(unit.cluster, target.kubeconfig, target.context, unit.namespace) as link:
        yield Pod(link, target)
