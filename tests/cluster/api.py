"""The API server in a few words: objects are plain dictionaries, paths are those of the API itself."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.cluster.certificates import Pair
from tests.waiting import PATIENCE_SECONDS

Object = dict[str, Any]
IDLE_SECONDS = 10.0
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server's own words, with its status code and reason."""

    def __init__(self, code: int, body: bytes) -> None:
        try:
            status: Object = json.loads(body)
        except ValueError:
            status = {"message": body.decode(errors="replace")}
        super().__init__(f"{code}: {status.get('message')}")
        self.code = code
        self.reason = str(status.get("reason", ""))


class Api:
    """One identity at one API server. Safe to use from several threads: each has a connection of its own."""

    def __init__(self, url: str, authority: Path, pair: Pair) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.url, self.host, self.port = url, parts.hostname, parts.port
        self.authority, self.pair = authority, pair
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.load_cert_chain(pair.certificate, pair.key)
        self._mine = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """No connection stays open; the next question opens a new one."""
        for connection in self._opened:
            connection.close()

    def kubeconfig(self) -> Object:
        """For kubectl and every other client; the certificates are inside, so the file can travel."""
        cluster = {"server": self.url, "certificate-authority-data": _encoded(self.authority)}
        user = {"client-certificate-data": _encoded(self.pair.certificate), "client-key-data": _encoded(self.pair.key)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
            "current-context": "test",
        }

    # -- one question, one answer

    def get(self, path: str, **query: str) -> Object:
        answer: Object = json.loads(self.raw("GET", path, query=query))
        return answer

    def items(self, path: str, **query: str) -> list[Object]:
        items: list[Object] = self.get(path, **query)["items"]
        return items

    def create(self, path: str, body: Object) -> Object:
        answer: Object = json.loads(self.raw("POST", path, body))
        return answer

    def patch(self, path: str, body: Object | list[Object], kind: str = MERGE) -> Object:
        answer: Object = json.loads(self.raw("PATCH", path, body, kind=kind))
        return answer

    def delete(self, path: str, **options: Any) -> None:
        """Gone already: nothing. `propagationPolicy` and the like are options."""
        try:
            self.raw("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except Refused as refusal:
            if refusal.code != 404:
                raise

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> bytes:
        """The body of the answer. Raises Refused for a refusal, OSError when nobody answers."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            connection = self._connection()
            try:
                connection.request(method, target, data, {"Content-Type": kind, "Accept": "application/json, */*"})
                response = connection.getresponse()
                answer = response.read()
                break
            except (OSError, http.client.HTTPException) as failure:
                connection.close()
                # A connection that was kept may have been closed by the other side; only a fresh one tells.
                if attempt == 2 or method == "POST":  # which may have been heard
                    raise OSError(f"no answer from {self.url}: {failure}") from failure
        if response.status >= 300:
            raise Refused(response.status, answer)
        return answer

    # -- waiting

    def watch(self, path: str, seconds: float = PATIENCE_SECONDS, **query: str) -> Iterator[tuple[str, Object]]:
        """The objects that are there (as ADDED), then every change, until `seconds` are over.

        When the API server breaks off, it begins again: what is there comes as ADDED once more.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            yield from self._watch_once(path, left, query)

    def _watch_once(self, path: str, seconds: float, query: Mapping[str, str]) -> Iterator[tuple[str, Object]]:
        options = {**query, "watch": "1", "timeoutSeconds": str(max(1, int(seconds)))}
        connection = http.client.HTTPSConnection(self.host, self.port, context=self._tls, timeout=seconds)
        try:
            connection.request("GET", f"{path}?{urlencode(options)}", headers={"Accept": "application/json"})
            response = connection.getresponse()
            if response.status >= 300:
                raise Refused(response.status, response.read())
            while line := response.readline():
                event: Object = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]
        except (TimeoutError, http.client.IncompleteRead):
            return
        finally:
            connection.close()

    def until(
        self, path: str, is_so: Callable[[Object], Any], seconds: float = PATIENCE_SECONDS, *, gone: bool = False
    ) -> Object:
        """The object at `path` once it is so; it need not exist yet. With `gone`, its last form when it is deleted."""
        collection, name = path.rsplit("/", 1)
        last: Object = {}
        for kind, seen in self.watch(collection, seconds, fieldSelector=f"metadata.name={name}"):
            last = seen
            if kind == "DELETED" if gone else kind != "DELETED" and is_so(seen):
                return seen
        raise AssertionError(f"{path} did not become so in {seconds:.0f} s: {json.dumps(last.get('status', last))}")

    def until_all(
        self, path: str, is_so: Callable[[Object], Any], count: int, seconds: float = PATIENCE_SECONDS, **query: str
    ) -> dict[str, Object]:
        """The objects of a collection by name, once `count` of them are so at the same time."""
        matching: dict[str, Object] = {}
        for kind, seen in self.watch(path, seconds, **query):
            name = seen["metadata"]["name"]
            if kind != "DELETED" and is_so(seen):
                matching[name] = seen
            else:
                matching.pop(name, None)
            if len(matching) >= count:
                return matching
        raise AssertionError(f"{len(matching)} of {count} at {path} became so in {seconds:.0f} s")

    def until_none(self, path: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Returns when a collection is empty."""
        there: set[str] = {item["metadata"]["name"] for item in self.items(path)}
        for kind, seen in self.watch(path, seconds) if there else ():
            (there.discard if kind == "DELETED" else there.add)(seen["metadata"]["name"])
            if not there and not self.items(path):
                return
        assert not there, f"{', '.join(sorted(there))} at {path} did not go in {seconds:.0f} s"

    def _connection(self) -> http.client.HTTPSConnection:
        """One that nobody used for a while may be closed on the other side: on a bare machine operators are built for
        many minutes."""
        found: http.client.HTTPSConnection | None = getattr(self._mine, "connection", None)
        now = time.monotonic()
        if found is not None and now - self._mine.used > IDLE_SECONDS:
            found.close()  # it opens again by itself
        self._mine.used = now
        if found is None:
            found = http.client.HTTPSConnection(self.host, self.port, context=self._tls, timeout=PATIENCE_SECONDS)
            self._mine.connection = found
            self._opened.append(found)
        return found


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
