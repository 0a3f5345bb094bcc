"""How is a cluster asked about what the yard did not make: PyTorchJobs of other hands, and quotas?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jobyard.compat.genai.foreign import GPU, SCALING, Object, annotations_of, has_condition, resized
from jobyard.errors import NotFound, Unavailable, UserError, YardError

JOBS = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
JOB_LABEL = "training.kubeflow.org/job-name"
NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")  # of the pod that we run in
MERGE = "application/merge-patch+json"
ANSWER_SECONDS = 20.0
SUSPEND_SECONDS = 120.0  # pods may take their grace, which is 30 s unless they say more
POLL_SECONDS = 0.5


class Conflict(YardError):
    """Somebody else has changed it meanwhile."""


class Cluster:
    """The API of one namespace. Safe to use from several threads. Raises one sentence."""

    def __init__(self, kubeconfig: str = "", context: str = "", namespace: str = "") -> None:
        """`kubeconfig` as in KUBECONFIG; empty: the service account of the pod that we run in."""
        try:
            kubernetes = import_module("kubernetes")
        except ImportError:
            raise UserError("the kubernetes library is not installed; run: pip install 'jobyard[kubernetes]'") from None
        settings = kubernetes.client.Configuration()
        try:
            if kubeconfig:
                kubernetes.config.load_kube_config(kubeconfig, context or None, settings, persist_config=False)
            else:
                kubernetes.config.load_incluster_config(settings)
        except kubernetes.config.ConfigException as error:
            raise UserError(f"the cluster cannot be reached: {error}; see `yard clusters`") from None
        self.namespace = namespace or _own_namespace()
        self._client = kubernetes.client.ApiClient(settings)

    # -- PyTorchJobs

    def jobs(self) -> list[Object]:
        """Those of the namespace; none where the training operator is not installed."""
        try:
            items: list[Object] = self._ask("GET", JOBS.format(self.namespace))["items"]
        except NotFound:
            return []
        return items

    def job(self, name: str) -> Object:
        """Raises NotFound."""
        return self._ask("GET", self._path(name))

    def annotate(self, name: str, **values: str | None) -> Object:
        """None takes an annotation away."""
        return self._ask("PATCH", self._path(name), {"metadata": {"annotations": values}}, MERGE)

    def delete(self, name: str) -> None:
        """With its pods. Raises NotFound."""
        self._ask("DELETE", self._path(name), {"propagationPolicy": "Background"})

    def scale(self, name: str, gpus: int) -> None:
        """Stop its pods, give it another size, let it go on. If we die in between, `go_on` finishes it."""
        body = {"metadata": {"annotations": {SCALING: str(gpus)}}, "spec": {"runPolicy": {"suspend": True}}}
        self._ask("PATCH", self._path(name), body, MERGE)
        deadline = time.monotonic() + SUSPEND_SECONDS
        while not self.go_on(name):
            if time.monotonic() >= deadline:
                raise Unavailable(f"PyTorchJob {name} is suspended and its pods do not end; it goes on when they have")
            time.sleep(POLL_SECONDS)

    def go_on(self, name: str) -> bool:
        """Let a job go on that was suspended to be scaled; False: its pods are not gone yet. Repeatable."""
        job = self.job(name)
        wanted = annotations_of(job).get(SCALING, "")
        if not wanted.isdigit():
            return True
        if not has_condition(job, "Suspended") or self.nodes_of(name):
            return False
        try:
            self._ask("PATCH", self._path(name), _change(job, resized(job, int(wanted))), MERGE)
        except Conflict:  # its operator wrote to it at the same time
            return False
        return True

    def nodes_of(self, name: str) -> list[str]:
        """One for each of its pods; empty text: it is on none yet."""
        query = urlencode({"labelSelector": f"{JOB_LABEL}={name}"})
        pods = self._ask("GET", f"/api/v1/namespaces/{self.namespace}/pods?{query}")["items"]
        live = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        return [pod["spec"].get("nodeName", "") for pod in live]

    # -- quota

    def quota(self, namespace: str) -> tuple[str, str]:
        """Limit and use of GPUs, of the first quota of the namespace that has them. Raises NotFound."""
        items = self._ask("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas")["items"]
        for each in items:
            status, key = each.get("status") or {}, f"requests.{GPU}"
            if key in (status.get("hard") or {}):
                return str(status["hard"][key]), str((status.get("used") or {}).get(key, "0"))
        raise NotFound(f"namespace {namespace} has no ResourceQuota for requests.{GPU}")

    # -- below

    def _path(self, name: str) -> str:
        return f"{JOBS.format(self.namespace)}/{quote(name, safe='')}"

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        headers = {"Accept": "application/json", "Content-Type": kind, "User-Agent": "jobyard"}
        call = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(*call, _request_timeout=ANSWER_SECONDS)
            data = response.read()
        except Exception as error:  # urllib3 has many kinds, and all mean this
            raise Unavailable(f"the cluster does not answer: {' '.join(str(error).split())[:200]}") from error
        return _checked(response.status, data)


def _change(job: Object, made: Object) -> Object:
    """Refused where somebody else has written to it since it was read."""
    metadata = {
        "resourceVersion": job["metadata"]["resourceVersion"],
        "annotations": {SCALING: None, **annotations_of(made)},
    }
    return {"metadata": metadata, "spec": made["spec"]}


def _own_namespace() -> str:
    try:
        return NAMESPACE.read_text().strip()
    except OSError:
        return "default"


def _checked(status: int, data: bytes) -> Object:
    try:
        answer: Object = json.loads(data)
    except ValueError:
        answer = {"message": data.decode(errors="replace")[:200]}
    if status < 300:
        return answer
    said = str(answer.get("message") or f"HTTP {status}")
    kinds: dict[int, Callable[[str], YardError]] = {404: NotFound, 409: Conflict}
    raise kinds.get(status, Unavailable if status >= 500 or status == 429 else UserError)(said)
