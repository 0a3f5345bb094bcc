"""Cluster queries: what does the yard not know? PyTorchJobs of others, objects that jobs left behind, quotas."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from jobyard.compat.genai.errors import Conflict, NotPossible
from jobyard.compat.genai.foreign import (
    SCALING,
    Object,
    annotations_of,
    is_held,
    is_marked,
    resized,
    status_of,
)
from jobyard.compat.genai.records import ENDED
from jobyard.errors import NotFound, Unavailable, UserError, YardError
from jobyard.kubernetes.call_limits import CallLimits
from jobyard.kubernetes.gpus import GPU
from jobyard.kubernetes.labels import JOB, POD_OF_PYTORCHJOB
from jobyard.kubernetes.paths import object_path, path_of
from jobyard.kubernetes.refusals import Refused
from jobyard.kubernetes.states import has_condition, is_over
from jobyard.model.node import ClusterConfig

if TYPE_CHECKING:
    from jobyard.kubernetes.blocking import BlockingApi

JSON = "application/json"
LABELS_ALONE = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
MOST_NAMED = 100  # jobs in one question; beyond that, all are asked for
CALL_LIMITS = CallLimits(tries=1, answer_seconds=20.0, connect_seconds=20.0)  # a caller waits, and may ask again
SUSPEND_SECONDS = 120.0  # pods may take their grace, which is 30 s unless they say more
POLL_SECONDS = 0.5


class Left(NamedTuple):
    """An object that a yard made for a job, and that is still there."""

    job: str
    kind: str
    name: str


class NamespaceApi:
    """The API of one namespace. Safe to use from several threads. Raises one sentence."""

    def __init__(self, config: ClusterConfig) -> None:
        """Nothing is asked yet. Raises UserError where there is no way to the cluster."""
        try:
            blocking = import_module("jobyard.kubernetes.blocking")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("jobyard"):
                raise
            raise UserError("the kubernetes library is not installed; run: pip install 'jobyard[kubernetes]'") from None
        self._blocking: BlockingApi = blocking.BlockingApi(config, CALL_LIMITS)
        atexit.register(self.close)
        self.namespace = self._blocking.api.namespace

    def close(self) -> None:
        """Repeatable."""
        atexit.unregister(self.close)
        self._blocking.close()

    # -- PyTorchJobs

    def jobs(self) -> list[Object]:
        """Those of the namespace that are not being deleted; none where the training operator is not installed."""
        try:
            items: list[Object] = self._ask("GET", self._path("PyTorchJob"))["items"]
        except NotFound:
            return []
        return [each for each in items if "deletionTimestamp" not in each["metadata"]]

    def job(self, name: str) -> Object:
        """Raises NotFound."""
        return self._ask("GET", self._path("PyTorchJob", name))

    def annotate(self, name: str, **values: str | None) -> Object:
        """None removes an annotation."""
        return self._change(name, {"metadata": {"annotations": values}})

    def scale(self, name: str, gpus: int) -> None:
        """Suspend it, give it another size, resume it. If we die in between, `go_on` finishes it.

        Raises NotPossible where it has ended meanwhile, or was resumed by a user.
        """
        body = {"metadata": {"annotations": {SCALING: str(gpus)}}, "spec": {"runPolicy": {"suspend": True}}}
        job = self._change(name, body)
        deadline = time.monotonic() + SUSPEND_SECONDS
        while not self._has_gone_on(job):
            if time.monotonic() >= deadline:
                raise Unavailable(f"PyTorchJob {name} is suspended and its pods do not end; it goes on when they have")
            time.sleep(POLL_SECONDS)
            job = self.job(name)
        if (status := status_of(job)) in ENDED:
            raise NotPossible(f"job {name} has ended ({status})")
        if is_marked(job) and not is_held(job):
            raise NotPossible(f"somebody else resumed job {name} before it had its new size")

    def go_on(self, name: str) -> bool:
        """Resume a job that was suspended to be scaled; False: its pods are not gone yet. Repeatable."""
        return self._has_gone_on(self.job(name))

    def _has_gone_on(self, job: Object) -> bool:
        name = job["metadata"]["name"]
        if not is_marked(job):
            return True
        if status_of(job) in ENDED or not is_held(job):  # it ended first, or a user resumed it unchanged
            body = {"metadata": {"annotations": {SCALING: None}}, "spec": {"runPolicy": {"suspend": False}}}
            self._change(name, body)
            return True
        if not has_condition(job, "Suspended") or self.nodes_of(name):
            return False
        try:
            self._change(name, _new_size(job, resized(job, int(annotations_of(job)[SCALING]))))
        except Conflict:  # its operator wrote to it at the same time
            return False
        return True

    def nodes_of(self, name: str) -> list[str]:
        """One for each of its pods; empty text: it is on none yet."""
        query = urlencode({"labelSelector": f"{POD_OF_PYTORCHJOB}={name}"})
        pods = self._ask("GET", f"{self._path('Pod')}?{query}")["items"]
        return [pod["spec"].get("nodeName", "") for pod in pods if not is_over(pod)]

    # -- whatever is there

    def left_of(self, kind: str, jobs: Collection[str]) -> list[Left]:
        """Existing objects of one kind, for some of the yard's jobs, that are not being deleted."""
        names = f"{JOB} in ({','.join(sorted(jobs))})" if len(jobs) <= MOST_NAMED else JOB
        query = urlencode({"labelSelector": names})
        try:
            items = self._ask("GET", f"{self._path(kind)}?{query}", accept=LABELS_ALONE)["items"]
        except NotFound:  # its operator is not installed
            return []
        # Where only labels are asked for, the API server writes null for none.
        staying = [each["metadata"] for each in items or () if "deletionTimestamp" not in each["metadata"]]
        found = [Left(each["labels"][JOB], kind, each["name"]) for each in staying]
        return [each for each in found if each.job in jobs]

    def delete(self, name: str, kind: str = "PyTorchJob") -> None:
        """With its pods. Raises NotFound."""
        self._ask("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})

    # -- quota

    def quota(self, namespace: str) -> tuple[str, str]:
        """Limit and use of GPUs, of the first quota of the namespace that has them. Raises NotFound."""
        items = self._ask("GET", object_path("v1", "resourcequotas", namespace))["items"]
        for each in items:
            status, key = each.get("status") or {}, f"requests.{GPU}"
            if key in (status.get("hard") or {}):
                return str(status["hard"][key]), str((status.get("used") or {}).get(key, "0"))
        raise NotFound(f"namespace {namespace} has no ResourceQuota for requests.{GPU}")

    # -- below

    def _path(self, kind: str, name: str = "") -> str:
        return path_of(kind, self.namespace, name)

    def _change(self, name: str, body: Object) -> Object:
        """Of a PyTorchJob. Raises NotFound, or Conflict."""
        return self._ask("PATCH", self._path("PyTorchJob", name), body)

    def _ask(self, method: str, path: str, body: Any = None, accept: str = JSON) -> Object:
        """`path` with its query."""
        asked = self._blocking.api.ask(method, path, body, accept=accept)
        try:
            return self._blocking.run(asked)
        except Refused as refused:
            kinds: dict[int, Callable[[str], YardError]] = {404: NotFound, 409: Conflict}
            otherwise = Unavailable if refused.status >= 500 else UserError
            raise kinds.get(refused.status, otherwise)(str(refused)) from refused


def _new_size(job: Object, made: Object) -> Object:
    """Refused (conflict) where it was changed since it was read."""
    metadata = {
        "resourceVersion": job["metadata"]["resourceVersion"],
        "annotations": {SCALING: None, **annotations_of(made)},
    }
    return {"metadata": metadata, "spec": made["spec"]}
