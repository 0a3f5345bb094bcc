"""API client: how is a cluster asked? Plain objects and the API's own paths; the official client brings the identity.

The client's typed models are not used: they are large, and manifests are dictionaries anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from jobyard.backoff import Backoff
from jobyard.errors import Unavailable
from jobyard.kubernetes.call_limits import SERVERS, CallLimits
from jobyard.kubernetes.channels import STATUS, STDERR, STDOUT, V4, Query, exec_query, exit_code
from jobyard.kubernetes.identity import Identity, identity_for
from jobyard.kubernetes.paths import collection_in, path_of
from jobyard.kubernetes.rate_limit import RateLimit
from jobyard.kubernetes.refusals import Refused, refusal, sentence
from jobyard.model.node import ClusterConfig
from jobyard.model.units import whole_number

Object = dict[str, Any]
FIELD_MANAGER = "jobyard"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON = "application/json"
OPENED = "OPENED"
# A bookmark comes about every minute: a watch that is silent for longer may be a dead connection.
SILENT_SECONDS = 150.0
BACKOFF = Backoff(0.2, 30.0)  # between two tries of a request
HEARTBEAT_SECONDS = 20.0  # to notice a dead link, and to keep a proxy from closing an idle one
# Rate limit, as in other clients of the API server: so many requests per second, and some more at once.
QUESTIONS_PER_SECOND = 200.0
QUESTIONS_AT_ONCE = 400
# With these the API server asks for a later retry, and says when.
_LATER = frozenset({429, 503, 504})
_VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch"}
_LOST = (aiohttp.ClientError, TimeoutError, OSError)


class Api:
    """One identity at one cluster. `calls` counts requests, by verb and kind of object."""

    def __init__(self, identity: Identity, limits: CallLimits = SERVERS) -> None:
        self._identity = identity
        self._configuration = identity.configuration
        # For sockets no timeout: they last as long as their users need. Requests have timeouts of their own.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds)
        self._configuration.client_session_kwargs = {"timeout": timeout}
        self._client = ApiClient(identity.configuration)
        self._limits = limits
        self._rate_limit = RateLimit(QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE)
        self.namespace = identity.namespace
        self.host: str = identity.configuration.host
        self.calls: Counter[str] = Counter()

    @classmethod
    async def connect(cls, config: ClusterConfig, limits: CallLimits = SERVERS) -> Api:
        """Nothing is asked yet. Raises UserError where there is no way to the cluster."""
        return cls(await identity_for(config), limits)

    async def keep_identity(self) -> None:
        """Runs until cancelled; returns at once where no token expires."""
        await self._identity.keep()

    async def close(self) -> None:
        await self._client.close()

    # -- one question, one answer -----------------------------------------------------------------------------------

    async def get(self, path: str, **query: str) -> Object:
        return await self.ask("GET", path, query=query)

    async def create(self, path: str, body: Object, **query: str) -> Object:
        return await self.ask("POST", path, body, query)

    async def apply(self, path: str, body: Object, **query: str) -> Object:
        """Server-side apply: afterwards the object exists in this form, whether it existed before or not."""
        return await self.ask("PATCH", path, body, {"force": "true", **query}, kind=APPLY)

    async def patch(self, path: str, body: Object) -> Object:
        return await self.ask("PATCH", path, body)

    async def delete(self, path: str, *, grace_seconds: int | None = None) -> None:
        """With all that it owns. Does nothing if it is gone already."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self.ask("DELETE", path, options)
        except Refused as refused:
            if not refused.is_absent:
                raise

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        *,
        kind: str = "",
        accept: str = JSON,
    ) -> Object:
        """`kind` is that of the body; a PATCH merges, unless it says otherwise.

        Retries when told to, or when there was no answer, as often as its limits allow; all our requests may
        be sent twice, except those that create. Raises Refused, or Unavailable.
        """
        kind = kind or (MERGE if method == "PATCH" else JSON)
        verb = "apply" if kind == APPLY else _VERBS[method]
        query = {"fieldManager": FIELD_MANAGER, **(query or {})} if method in ("POST", "PATCH") else query
        for attempt in range(self._limits.tries):
            is_last = attempt + 1 == self._limits.tries
            pause = BACKOFF.pause(attempt)
            await self._rate_limit.turn()
            self.calls[f"{verb} {collection_in(path)}"] += 1
            try:
                seconds = self._limits.answer_seconds
                async with await self._open(method, path, body, query, kind, accept, seconds) as response:
                    data = await response.read()
            except _LOST as error:
                if is_last or verb == "create":
                    raise self._silent(error) from error
                await asyncio.sleep(pause)
                continue
            if response.status in _LATER:
                if not is_last:
                    await asyncio.sleep(whole_number(response.headers.get("Retry-After") or "") or pause)
                continue
            if response.status >= 300:
                raise refusal(response.status, data, response.reason)
            try:
                answer: Object = json.loads(data)
            except ValueError as error:  # for example a page of a proxy
                raise Unavailable(f"the cluster at {self.host} does not answer as one: {data[:80]!r}") from error
            return answer
        told = refusal(response.status, data, response.reason)
        raise Unavailable(f"the cluster at {self.host} is too busy: {told}")

    # -- what goes on -------------------------------------------------------------------------------------------------

    async def watch(self, path: str, version: str, **query: str) -> AsyncGenerator[tuple[str, Object], None]:
        """OPENED once the API server has agreed, then every change after a version, with bookmarks; ends when the API
        server ends it. Raises Refused when the version is too old (410)."""
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", **query}
        self.calls[f"watch {collection_in(path)}"] += 1
        try:
            async with await self._open("GET", path, None, query, silent_seconds=SILENT_SECONDS) as response:
                if response.status >= 300:
                    raise refusal(response.status, await response.read(), response.reason)
                yield OPENED, {}
                async for line in _lines(response):
                    event: Object = json.loads(line)
                    if event["type"] == "ERROR":
                        raise refusal(event["object"].get("code", 500), json.dumps(event["object"]).encode())
                    yield event["type"], event["object"]
        except _LOST as error:
            raise self._silent(error) from error

    async def log(self, pod: str, container: str, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """The bytes of a container's output, from its beginning."""
        path = f"{path_of('Pod', self.namespace, pod)}/log"
        query = {"container": container, **({"follow": "true"} if follow else {})}
        self.calls["get pods/log"] += 1
        try:
            async with await self._open("GET", path, None, query) as response:
                if response.status >= 300:
                    raise refusal(response.status, await response.read(), response.reason)
                async for chunk in response.content.iter_any():
                    yield chunk
        except _LOST as error:
            raise Unavailable(f"the output of pod {pod} cannot be read: {sentence(error)}") from error

    async def run(self, pod: str, container: str, command: Sequence[str], seconds: float) -> str:
        """What a command in a container writes. Raises Refused or Unavailable where it cannot be run."""
        said: list[bytes] = []
        query = exec_query(command, container, stdout=True, stderr=True)
        try:
            async with asyncio.timeout(seconds), self.socket(pod, "exec", query, (V4,)) as socket:
                async for message in socket:
                    data = message.data if isinstance(message.data, bytes) else b""
                    if data[:1] and data[0] in (STDOUT, STDERR):
                        said.append(data[1:])
                    elif data[:1] and data[0] == STATUS:
                        _raise_for_exit(json.loads(data[1:]), b"".join(said))
        except _LOST as error:
            raise Unavailable(f"nothing can be run in pod {pod}: {sentence(error)}") from error
        return b"".join(said).decode(errors="replace")

    @asynccontextmanager
    async def socket(
        self, pod: str, below: str, query: Query, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """To `exec` or `portforward` below a pod. Raises Refused in the API server's words, or Unavailable."""
        path = f"{path_of('Pod', self.namespace, pod)}/{below}"
        self.calls[f"create pods/{below}"] += 1
        try:
            opened = await self._session().ws_connect(
                self._url(path, query),
                headers=await self._headers(),
                protocols=protocols,
                heartbeat=HEARTBEAT_SECONDS,
                max_msg_size=0,
                proxy=self._configuration.proxy,
                server_hostname=self._configuration.tls_server_name or None,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise await self._no_socket(path, query, error) from error
        except _LOST as error:
            raise self._silent(error) from error
        async with opened:
            yield opened

    async def _no_socket(self, path: str, query: Query, error: aiohttp.WSServerHandshakeError) -> Refused:
        """A failed handshake has only a status; the same request without a websocket returns the message."""
        try:
            async with await self._open("GET", path, None, query, seconds=self._limits.answer_seconds) as response:
                if response.status == error.status:
                    return refusal(response.status, await response.read(), response.reason)
        except _LOST as lost:
            raise self._silent(lost) from lost
        return Refused(error.status, "", f"{error.status} {error.message}")

    # -- the wire -----------------------------------------------------------------------------------------------------

    async def _open(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | Query | None,
        kind: str = JSON,
        accept: str = JSON,
        seconds: float | None = None,
        silent_seconds: float | None = None,
    ) -> aiohttp.ClientResponse:
        return await self._session().request(
            method,
            self._url(path, query),
            headers={**await self._headers(), "Accept": accept, "Content-Type": kind},
            data=None if body is None else json.dumps(body, separators=(",", ":")),
            timeout=aiohttp.ClientTimeout(
                total=seconds, sock_connect=self._limits.connect_seconds, sock_read=silent_seconds
            ),
            proxy=self._configuration.proxy,
            server_hostname=self._configuration.tls_server_name or None,
        )

    def _url(self, path: str, query: Mapping[str, str] | Query | None) -> str:
        return f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")

    async def _headers(self) -> dict[str, str]:
        """The headers with our identity; the library renews an expired token."""
        headers: dict[str, str] = {"User-Agent": "jobyard"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        return headers

    def _session(self) -> aiohttp.ClientSession:
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    def _silent(self, error: BaseException) -> Unavailable:
        return Unavailable(f"the cluster at {self.host} does not answer: {sentence(error)}")


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _raise_for_exit(status: Object, said: bytes) -> None:
    if exit_code(status) != 0:
        words = said.decode(errors="replace").strip() or str(status.get("message", "it failed"))
        raise Refused(500, str(status.get("reason", "")), words)
