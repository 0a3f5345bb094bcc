"""What may the caller make in a cluster? Pods that build images, and Secrets: with the rights of the own kubeconfig."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp

from jobyard.cli.output.text import warn
from jobyard.cli.pods.link import Link, Query, linked
from jobyard.cli.reaching import Place
from jobyard.errors import Unavailable, UserError, YardError

Answer = TypeVar("Answer")
Object = dict[str, Any]
AWAY = frozenset({429, 502, 503, 504})  # somebody answers who cannot, for the moment
UNWELCOME = frozenset({401, 403})
VERBS = {"POST": "create", "GET": "get", "DELETE": "delete"}  # as rights name them
ANSWER_SECONDS = 60.0
LINE_BYTES = 1 << 20  # longer ones are cut into several


class ReachedCluster:
    """One namespace of a cluster, asked one question at a time."""

    def __init__(self, link: Link, runner: asyncio.Runner, cluster: str) -> None:
        self._link = link
        self._runner = runner
        self._cluster = cluster

    @property
    def namespace(self) -> str:
        return self._link.namespace

    def create_pod(self, pod: Object) -> None:
        self._ask("POST", "pods", body=pod)

    def pod(self, name: str) -> Object | None:
        """None: it is gone."""
        return self._ask("GET", "pods", name)

    def remove_pod(self, name: str) -> None:
        """At once. Gone already: nothing."""
        self._ask("DELETE", "pods", name, query=[("gracePeriodSeconds", "0")])

    def create_secret(self, secret: Object) -> None:
        """It belongs to an empty ConfigMap of its name: who removes that removes both, and need not have a right to
        Secrets. Both are made, or none."""
        name = secret["metadata"]["name"]
        holder = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": secret["metadata"], "immutable": True}
        try:
            made = self._ask("POST", "configmaps", body=holder)
            assert made is not None
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}
            self._ask(
                "POST", "secrets", body={**secret, "metadata": {**secret["metadata"], "ownerReferences": [reference]}}
            )
        except BaseException:
            self.remove_secret(name)
            raise

    def remove_secret(self, name: str) -> None:
        """And its ConfigMap. What may be left behind is a warning: who calls has something else to tell."""
        for kind, plural in (("Secret", "secrets"), ("ConfigMap", "configmaps")):
            try:
                self._ask("DELETE", plural, name)
            except YardError as error:
                warn(f"{kind} {name} in namespace {self.namespace} may be left behind: {error}")

    def log(self, pod: str, container: str) -> Iterator[str]:
        """Its lines from the first one on, as they come, until the container ends or the link does. Raises UserError
        where the caller may not see them."""
        lines = self._log(pod, container)
        try:
            while (line := self._run(_next(lines))) is not None:
                yield line
        finally:
            self._run(lines.aclose())

    async def _log(self, pod: str, container: str) -> AsyncGenerator[str, None]:
        path = f"{self._path('pods', pod)}/log"
        query = [("container", container), ("follow", "true")]
        try:
            async with self._link.http.get(
                self._link.url(path, query), headers=await self._link.headers(path)
            ) as answer:
                if answer.status in UNWELCOME:
                    raise self._unwelcome("get", "pods/log", await answer.text(), answer.reason)
                if answer.status >= 400:
                    return  # it has not begun, or its pod is gone: who asks looks at the pod next
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace").rstrip("\r")
                    if len(rest) > LINE_BYTES:
                        yield rest.decode(errors="replace")
                        rest = b""
                if rest:
                    yield rest.decode(errors="replace")
        except (aiohttp.ClientError, OSError):
            return

    def _ask(
        self, method: str, plural: str, name: str = "", *, body: Object | None = None, query: Query = ()
    ) -> Object | None:
        """None: there is none of that name. Raises UserError with the API server's own words, and Unavailable."""
        return self._run(self._answer(method, plural, name, body, query))

    def _run(self, asked: Coroutine[Any, Any, Answer]) -> Answer:
        """What a signal leaves in the middle is ended first: the pod and the Secret are removed on the same loop."""
        try:
            return self._runner.run(asked)
        except (KeyboardInterrupt, SystemExit):
            self._runner.run(_end_others())
            raise

    async def _answer(self, method: str, plural: str, name: str, body: Object | None, query: Query) -> Object | None:
        path = self._path(plural, name)
        try:
            async with self._link.http.request(
                method,
                self._link.url(path, query),
                json=body,
                headers=await self._link.headers(path),
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
            ) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, OSError) as error:
            raise self._link.silent(error) from error
        if answer.status == 404 and name:
            return None
        if answer.status in AWAY:
            raise Unavailable(
                f"cluster {self._cluster} cannot answer now: {_message(text) or answer.reason}; try again"
            )
        if answer.status in UNWELCOME:
            raise self._unwelcome(VERBS[method], plural, text, answer.reason)
        if answer.status >= 400:
            raise UserError(f"cluster {self._cluster} refuses it: {_message(text) or answer.reason}")
        found: Object = json.loads(text)
        return found

    def _unwelcome(self, verb: str, resource: str, text: str, otherwise: str | None) -> UserError:
        return UserError(
            f"cluster {self._cluster} does not let you {verb} {resource} in namespace {self.namespace}: "
            f"{_message(text) or otherwise}"
        )

    def _path(self, plural: str, name: str = "") -> str:
        collection = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/{plural}"
        return f"{collection}/{quote(name, safe='')}" if name else collection


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(lines: AsyncGenerator[str, None]) -> str | None:
    return await anext(lines, None)


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message") or "")
    except (ValueError, AttributeError):
        return " ".join(text.split())[:300]


@contextmanager
def reached_cluster(place: Place) -> Iterator[ReachedCluster]:
    """Until the end of the block. Raises UserError where there is no way there."""
    with asyncio.Runner() as runner:
        opening = linked(place.cluster, place.kubeconfig, place.context, place.namespace)
        link = runner.run(opening.__aenter__())
        try:
            yield ReachedCluster(link, runner, place.cluster)
        finally:
            runner.run(opening.__aexit__(None, None, None))
