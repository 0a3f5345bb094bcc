"""How is a pod asked? Through the API server, by the official client's reading of a kubeconfig."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from jobyard.cli.reaching import Target
from jobyard.errors import Unavailable, UserError

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]
HEARTBEAT_SECONDS = 20.0  # a link that died shows, and one that idles is not cut by a proxy
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
ENDED = ("Succeeded", "Failed")


class Pod:
    """One pod. Raises UserError where it is gone or the caller may not, Unavailable where nobody answers."""

    def __init__(self, client: ApiClient, http: aiohttp.ClientSession, target: Target, namespace: str) -> None:
        self._client = client
        self._http = http
        self._container = target.unit.container
        self._task = target.name
        self.name = target.unit.pod
        self.namespace = namespace

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"

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
        query = [("watch", "1"), ("fieldSelector", f"metadata.name={self.name}")]
        while True:
            async with self._get(self._pods, query) as answer:
                if answer.status >= 400:
                    await asyncio.Event().wait()
                async for line in answer.content:
                    event = json.loads(line)
                    phase = event["object"].get("status", {}).get("phase", "")
                    if event["type"] == "DELETED" or phase in ENDED:
                        return

    @asynccontextmanager
    async def socket(
        self, below: str, query: Query, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        path = f"{self._pods}/{quote(self.name, safe='')}/{below}"
        url, headers = self._url(path, query), await self._headers(path)
        try:
            opened = await self._http.ws_connect(
                url, headers=headers, protocols=protocols, heartbeat=HEARTBEAT_SECONDS, max_msg_size=0
            )
        except aiohttp.WSServerHandshakeError as error:
            async with self._get(path, query) as answer:  # a handshake brings a number only; this brings the words
                if answer.status == error.status:
                    await self._good(answer)
            raise UserError(f"pod {self.name} cannot be reached for {below}: {error.status} {error.message}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._silent(error) from error
        async with opened:
            yield opened

    @asynccontextmanager
    async def _get(self, path: str, query: Query = ()) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._http.get(self._url(path, query), headers=await self._headers(path)) as answer:
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise self._silent(error) from error

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

    def _silent(self, error: Exception) -> Unavailable:
        return Unavailable(f"the API server {self._client.configuration.host} does not answer ({error}); try again")

    def _url(self, path: str, query: Query) -> str:
        return f"{self._client.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}"

    async def _headers(self, path: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
        return headers


def _own_namespace() -> str:
    return IN_POD.read_text().strip()


@asynccontextmanager
async def reached(target: Target) -> AsyncIterator[Pod]:
    """The pod with a connection for it, until the end of the block."""
    configuration = Configuration()
    paths = target.kubeconfig.split(os.pathsep)
    if target.kubeconfig and not any(map(os.path.exists, paths)):  # the library would only warn
        raise UserError(f"cluster {target.unit.cluster} cannot be reached from here: there is no {', '.join(paths)}")
    try:
        if target.kubeconfig:
            loader = await kube_config.load_kube_config(
                target.kubeconfig, target.context or None, configuration, persist_config=False
            )
            own = (loader.current_context.get("context") or {}).get("namespace")
        else:
            kube_config.load_incluster_config(client_configuration=configuration)
            own = _own_namespace()
    except (ConfigException, OSError) as error:
        raise UserError(f"cluster {target.unit.cluster} cannot be reached from here: {error}") from error
    client = ApiClient(configuration)
    connector = aiohttp.TCPConnector(ssl=client.rest_client.ssl_context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, proxy=configuration.proxy) as http:
            yield Pod(client, http, target, target.unit.namespace or own or "default")
    finally:
        await client.close()
