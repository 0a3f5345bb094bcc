"""How is a cluster asked? Plain objects in and out, paths of the API itself; the official client brings the identity.

The client's typed models are not used: they are large, and manifests are dictionaries anyway.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.stream.ws_client import ERROR_CHANNEL, STDERR_CHANNEL, STDOUT_CHANNEL, get_websocket_url

from jobyard.errors import Rejected, Unavailable, UserError
from jobyard.model.node import ClusterConfig
from jobyard.model.units import whole_number
from jobyard.yaml_text import check_files

log = logging.getLogger(__name__)

Object = dict[str, Any]
FIELD_MANAGER = "jobyard"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
OPENED = "OPENED"
ANSWER_SECONDS = 30.0
# A bookmark comes about every minute: a watch that is silent for longer may be a connection that nobody holds any more.
SILENT_SECONDS = 150.0
# As other clients of the API server: so many questions in a second, and some more at once.
QUESTIONS_PER_SECOND = 200.0
QUESTIONS_AT_ONCE = 400
# After these the API server asks to come again later, and says when.
_LATER = frozenset({429, 503, 504})
_TRIES = 5
_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Refused(Rejected):
    """The API server's own words, with its status code and its reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def is_absent(self) -> bool:
        return self.status == 404

    @property
    def is_there_already(self) -> bool:
        return self.reason == "AlreadyExists"

    @property
    def is_forbidden(self) -> bool:
        return self.status in (401, 403)

    @property
    def is_final(self) -> bool:
        """Is it about what was asked, and not about who asked, or a server that is not well?"""
        return not self.is_forbidden and self.status < 500 and (self.status != 409 or self.is_there_already)


class Api:
    """One identity at one cluster. `calls` counts what was asked, by verb and kind of object."""

    def __init__(self, configuration: Configuration, namespace: str, loader: Any = None) -> None:
        configuration.connection_pool_maxsize = 0  # any number: watches and logs hold theirs for long
        self._client = ApiClient(configuration)
        self._loader = loader  # of a kubeconfig
        self._pace = _Pace(QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE)
        self.namespace = namespace
        self.host: str = configuration.host
        self.calls: Counter[str] = Counter()

    @classmethod
    async def connect(cls, config: ClusterConfig) -> Api:
        """Nothing is asked yet. Raises UserError where there is no way to the cluster."""
        configuration = Configuration()
        loader = None
        try:
            if config.kubeconfig:
                await asyncio.to_thread(_check_paths, config)
                loader = await kube_config.load_kube_config(
                    config.kubeconfig, config.context or None, configuration, persist_config=False
                )
                own = (loader.current_context.get("context") or {}).get("namespace")
            else:
                kube_config.load_incluster_config(client_configuration=configuration)
                own = (_IN_POD / "namespace").read_text().strip()
        except (ConfigException, OSError) as error:
            raise UserError(
                f"cluster {config.id} cannot be used: {_sentence(error)};"
                " give a kubeconfig with yard clusters add --kubeconfig FILE"
            ) from error
        return cls(configuration, config.namespace or own or "default", loader)

    async def keep_identity(self) -> None:
        """Until cancelled: programs that a kubeconfig names for tokens are asked again before these run out."""
        if getattr(self._loader, "token", None):  # others have certificates, or nothing at all, as behind a proxy
            await kube_config.refresh_token(self._loader, self._client.configuration)

    async def close(self) -> None:
        await self._client.close()

    # -- one question, one answer -----------------------------------------------------------------------------------

    async def get(self, path: str, **query: str) -> Object:
        return await self._ask("get", "GET", path, query=query)

    async def create(self, path: str, body: Object, **query: str) -> Object:
        return await self._ask("create", "POST", path, body, {"fieldManager": FIELD_MANAGER, **query})

    async def apply(self, path: str, body: Object, **query: str) -> Object:
        """Server-side: it is there afterwards, as it is here, whether it was there before or not."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true", **query}
        return await self._ask("apply", "PATCH", path, body, query, APPLY)

    async def patch(self, path: str, body: Object) -> Object:
        return await self._ask("patch", "PATCH", path, body, {"fieldManager": FIELD_MANAGER}, MERGE)

    async def delete(self, path: str, *, grace_seconds: int | None = None) -> None:
        """With all that it owns. Gone already: nothing."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._ask("delete", "DELETE", path, options)
        except Refused as refused:
            if not refused.is_absent:
                raise

    async def _ask(
        self,
        verb: str,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        kind: str = JSON,
    ) -> Object:
        """Asks again when told to come later, or when nobody answered; all that we ask may be asked twice."""
        for attempt in range(_TRIES):
            await self._pace.turn()
            self.calls[f"{verb} {_collection(path)}"] += 1
            try:
                async with await self._open(method, path, body, query, kind, ANSWER_SECONDS) as response:
                    data = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if attempt + 1 == _TRIES or verb == "create":
                    raise Unavailable(f"the cluster at {self.host} does not answer: {_sentence(error)}") from error
                await asyncio.sleep(0.2 * 2**attempt)
                continue
            if response.status in _LATER:
                await asyncio.sleep(_seconds(response.headers.get("Retry-After")) or 0.2 * 2**attempt)
                continue
            if response.status >= 300:
                raise _refusal(response.status, data)
            try:
                answer: Object = json.loads(data)
            except ValueError as error:  # a proxy's page, say
                raise Unavailable(f"the cluster at {self.host} does not answer as one: {data[:80]!r}") from error
            return answer
        raise Unavailable(f"the cluster at {self.host} is too busy: {_refusal(response.status, data)}")

    # -- what goes on -------------------------------------------------------------------------------------------------

    async def watch(self, path: str, version: str, **query: str) -> AsyncIterator[tuple[str, Object]]:
        """OPENED once the API server has agreed, then every change after a version, with bookmarks; ends when the API
        server ends it. Raises Refused when the version is too old (410)."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", **query}
        self.calls[f"watch {_collection(path)}"] += 1
        try:
            async with await self._open("GET", path, None, query, JSON, None, SILENT_SECONDS) as response:
                if response.status >= 300:
                    raise _refusal(response.status, await response.read())
                yield OPENED, {}
                async for line in _lines(response):
                    event: Object = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _refusal(event["object"].get("code", 500), json.dumps(event["object"]).encode())
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the cluster at {self.host} does not answer: {_sentence(error)}") from error

    async def log(self, pod: str, container: str, *, follow: bool) -> AsyncIterator[bytes]:
        """The bytes of a container's output, from its beginning."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        query = {"container": container, **({"follow": "true"} if follow else {})}
        self.calls["get pods/log"] += 1
        try:
            async with await self._open("GET", path, None, query, JSON, None) as response:
                if response.status >= 300:
                    raise _refusal(response.status, await response.read())
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the output of pod {pod} cannot be read: {_sentence(error)}") from error

    async def run(self, pod: str, container: str, command: Sequence[str], seconds: float) -> str:
        """What a command in a container writes. Raises Refused or Unavailable where it cannot be run."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/exec"
        words = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", w) for w in command)]
        headers = {**await self._identity(), "sec-websocket-protocol": "v4.channel.k8s.io"}
        self.calls["create pods/exec"] += 1
        said: list[bytes] = []
        try:
            async with asyncio.timeout(seconds):
                session = self._session()
                url = get_websocket_url(f"{self.host}{path}?{urlencode(words)}")
                async with session.ws_connect(url, headers=headers, proxy=self._client.configuration.proxy) as socket:
                    async for message in socket:
                        data = message.data if isinstance(message.data, bytes) else b""
                        if data[:1] and data[0] in (STDOUT_CHANNEL, STDERR_CHANNEL):
                            said.append(data[1:])
                        elif data[:1] and data[0] == ERROR_CHANNEL:
                            _raise_for_exit(data[1:], b"".join(said))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"nothing can be run in pod {pod}: {_sentence(error)}") from error
        return b"".join(said).decode(errors="replace")

    # -- the wire -----------------------------------------------------------------------------------------------------

    async def _open(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | None,
        kind: str,
        seconds: float | None,
        silent_seconds: float | None = None,
    ) -> aiohttp.ClientResponse:
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {**await self._identity(), "Accept": JSON, "Content-Type": kind}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10, sock_read=silent_seconds)
        data = None if body is None else json.dumps(body, separators=(",", ":"))
        return await self._session().request(
            method,
            url,
            headers=headers,
            data=data,
            timeout=timeout,
            proxy=self._client.configuration.proxy,
            **({"server_hostname": name} if (name := self._client.configuration.tls_server_name) else {}),
        )

    async def _identity(self) -> dict[str, str]:
        """The headers that say who we are; a token that has run out is fetched anew by the library."""
        headers: dict[str, str] = {"User-Agent": "jobyard"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        return headers

    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session


def _check_paths(config: ClusterConfig) -> None:
    paths = config.kubeconfig.split(os.pathsep)
    if not any(os.path.exists(path) for path in paths):
        raise UserError(
            f"cluster {config.id}: there is no kubeconfig {paths[0]};"
            f" name another: yard clusters add {config.id} --kubeconfig FILE"
        )
    check_files(paths)


class _Pace:
    """So many turns in a second, and at most so many saved up."""

    def __init__(self, per_second: float, most: int) -> None:
        self._per_second, self._most = per_second, most
        self._left, self._at = float(most), time.monotonic()

    async def turn(self) -> None:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._per_second)
        self._at = now
        self._left -= 1
        if self._left < 0:
            await asyncio.sleep(-self._left / self._per_second)


def object_path(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """Of one object, or without a name of all of a namespace; without a namespace of the whole cluster."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    inside = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{quote(name)}" if name else "")


def _collection(path: str) -> str:
    """`pods` of `/api/v1/namespaces/x/pods/y`: by which calls are counted."""
    words = path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return words[0] if words else path


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _refusal(status: int, data: bytes) -> Refused:
    try:
        said: Object = json.loads(data)
        return Refused(status, str(said.get("reason", "")), str(said.get("message", "")) or f"HTTP {status}")
    except ValueError:
        return Refused(status, "", data.decode(errors="replace").strip()[:300] or f"HTTP {status}")


def _raise_for_exit(status: bytes, said: bytes) -> None:
    told: Object = json.loads(status)
    if told.get("status") != "Success":
        words = said.decode(errors="replace").strip() or str(told.get("message", "it failed"))
        raise Refused(500, str(told.get("reason", "")), words)


def _seconds(text: str | None) -> float | None:
    return whole_number(text or "")


def _sentence(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words or type(error).__name__
