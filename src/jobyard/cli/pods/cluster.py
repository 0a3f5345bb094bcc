"""Cluster access for builds: how does the caller create pods and Secrets? With the rights of their own kubeconfig."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from typing import Any

from jobyard.cli.output.text import warn
from jobyard.cli.reaching import NamespaceAccess
from jobyard.errors import Unavailable, UserError, YardError
from jobyard.kubernetes.blocking import BlockingApi
from jobyard.kubernetes.call_limits import CALLERS
from jobyard.kubernetes.paths import object_path
from jobyard.kubernetes.refusals import Refused
from jobyard.model.node import ClusterConfig

Object = dict[str, Any]
BAD_GATEWAY = 502  # a proxy answers, but not the API server
VERBS = {"POST": "create", "GET": "get", "DELETE": "delete"}  # as rights name them
LINE_BYTES = 1 << 20  # longer ones are cut into several


class ReachedCluster:
    """One namespace of a cluster, asked one question at a time."""

    def __init__(self, blocking: BlockingApi, cluster: str) -> None:
        self._blocking = blocking
        self._cluster = cluster

    @property
    def namespace(self) -> str:
        return self._blocking.api.namespace

    def create_pod(self, pod: Object) -> None:
        self._ask("POST", "pods", body=pod)

    def pod(self, name: str) -> Object | None:
        """None: it is gone."""
        return self._ask("GET", "pods", name)

    def remove_pod(self, name: str) -> None:
        """At once. Does nothing if it is gone already."""
        self._ask("DELETE", "pods", name, query={"gracePeriodSeconds": "0"})

    def create_secret(self, secret: Object) -> None:
        """It is owned by an empty ConfigMap of its name: deleting that deletes both, and needs no right to
        Secrets. Both are created, or none."""
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
        """And its ConfigMap. A failure is only a warning: the caller has another error to report."""
        for kind, plural in (("Secret", "secrets"), ("ConfigMap", "configmaps")):
            try:
                self._ask("DELETE", plural, name)
            except YardError as error:
                warn(f"{kind} {name} in namespace {self.namespace} may be left behind: {error}")

    def log(self, pod: str, container: str) -> Iterator[str]:
        """Its lines from the first one on, as they come, until the container ends or the link does. Raises UserError
        where the caller may not see them."""
        return self._blocking.each(self._log(pod, container))

    async def _log(self, pod: str, container: str) -> AsyncGenerator[str, None]:
        rest = b""
        try:
            async with aclosing(self._blocking.api.log(pod, container, follow=True)) as pieces:
                async for piece in pieces:
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace").rstrip("\r")
                    if len(rest) > LINE_BYTES:
                        yield rest.decode(errors="replace")
                        rest = b""
        except Refused as refused:
            if refused.is_forbidden:
                raise self._unwelcome("get", "pods/log", refused) from refused
            return  # it has not started, or its pod is gone: the caller looks at the pod next
        except Unavailable:
            return
        if rest:
            yield rest.decode(errors="replace")

    def _ask(
        self,
        method: str,
        plural: str,
        name: str = "",
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object | None:
        """None: there is none of that name. Raises UserError with the API server's own words, and Unavailable."""
        path = object_path("v1", plural, self.namespace, name)
        try:
            return self._blocking.run(self._blocking.api.ask(method, path, body, query))
        except Refused as refused:
            if refused.is_absent and name:
                return None
            if refused.is_forbidden:
                raise self._unwelcome(VERBS[method], plural, refused) from refused
            if refused.status == BAD_GATEWAY:
                raise Unavailable(f"cluster {self._cluster} cannot answer now: {refused}; try again") from refused
            raise UserError(f"cluster {self._cluster} refuses it: {refused}") from refused

    def _unwelcome(self, verb: str, resource: str, refused: Refused) -> UserError:
        return UserError(
            f"cluster {self._cluster} does not let you {verb} {resource} in namespace {self.namespace}: {refused}"
        )


@contextmanager
def reached_cluster(access: NamespaceAccess) -> Iterator[ReachedCluster]:
    """Until the end of the block. Raises UserError where there is no way there."""
    config = ClusterConfig(access.cluster, access.kubeconfig, access.context, access.namespace)
    with closing(BlockingApi(config, CALLERS)) as blocking:
        yield ReachedCluster(blocking, access.cluster)
