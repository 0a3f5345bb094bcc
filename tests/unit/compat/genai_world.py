"""A yard and a cluster for the views of genai-workload-manager: what is asked is counted, what is done is kept."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from fastapi import FastAPI
from tests.unit.client.views import a_job_view

from jobyard.client.api import YardClient
from jobyard.compat.genai.cluster import NamespaceApi
from jobyard.compat.genai.service import Service
from jobyard.errors import NotFound, Unavailable, UserError, YardError
from jobyard.model.job import State
from jobyard.model.node import NodeState
from jobyard.model.resources import Resources
from jobyard.wire.views import ClusterView, Counts, DeviceView, GroupView, JobView, NodeView, TaskView, TrainingView

Object = dict[str, Any]
CLUSTER = "kubernetes"
COLLECTIONS = {
    "pods": "Pod",
    "jobs": "Job",
    "jobsets": "JobSet",
    "pytorchjobs": "PyTorchJob",
    "resourcequotas": "Quota",
}


def a_device_view(index: int, is_free: bool) -> DeviceView:
    return DeviceView(index, "GPU", 16000, 0 if is_free else 16000, 0, fake=True)


def a_cluster_node_view(name: str, gpus: int, free: int) -> NodeView:
    devices = tuple(a_device_view(index, index < free) for index in range(gpus))
    return NodeView(f"{CLUSTER}/{name}", CLUSTER, NodeState.UP, 8000, 0, 0, 8000, 0, 0, 0, devices)


def a_group(gpus: int) -> GroupView:
    return GroupView("", 1, 1, None, Resources(gpus=gpus), "x")


class FakeYard:
    """As far as the service asks a yard: jobs on nodes of one cluster."""

    def __init__(self) -> None:
        self.list: list[JobView] = []
        self.places: dict[str, str] = {}
        self.free: dict[str, tuple[int, int]] = {}  # GPUs of a node, and how many of them are free
        self.views = [ClusterView(CLUSTER, namespace="team")]
        self.asked: Counter[str] = Counter()
        self.scaled: list[tuple[str, int | None]] = []
        self.problem: YardError | None = None  # with what is written on jobs

    def put(
        self,
        name: str,
        gpus: int,
        span: tuple[int, int] | None = None,
        saved_at: float | None = None,
        node: str = "a",
        **changes: Any,
    ) -> JobView:
        """One that runs; with a range it trains."""
        number = len(self.list) + 1
        training = TrainingView(gpus=gpus, gpus_range=span, saved_at=saved_at) if span else None
        said: dict[str, Any] = {"submitted_at": 1000.0 + number, "kind": "Pod", "cluster": CLUSTER, **changes}
        job = a_job_view(name=name, id=f"{number:08x}", number=number, training=training, **said)
        self.list.append(job)
        self.places[job.id] = f"{CLUSTER}/{node}"
        return job

    def end(self, job: JobView, state: State = State.SUCCEEDED, at: float | None = None, total: int = 1) -> None:
        index = next(index for index, each in enumerate(self.list) if each.id == job.id)
        ended_at = time.time() if at is None else at
        self.list[index] = replace(self.list[index], state=state, finished_at=ended_at, counts=Counts(total=total))

    def nodes(self) -> tuple[NodeView, ...]:
        self.asked["nodes"] += 1
        return tuple(a_cluster_node_view(name, *count) for name, count in self.free.items())

    def jobs(self, **_: Any) -> tuple[JobView, ...]:
        self.asked["jobs"] += 1
        return tuple(replace(job, groups=()) for job in self.list)

    def job(self, selector: str) -> JobView:
        self.asked["job"] += 1
        found = next(job for job in self.list if job.id == selector)
        return replace(found, groups=(a_group(1),))

    def tasks(self, selector: str, **_: Any) -> tuple[TaskView, ...]:
        self.asked["tasks"] += 1
        return (TaskView(0, "0", State.RUNNING, node=self.places[selector]),)

    def clusters(self) -> tuple[ClusterView, ...]:
        self.asked["clusters"] += 1
        return tuple(self.views)

    def scale_job(self, selector: str, *, gpus: int | None = None) -> None:
        self.scaled.append((selector, gpus))

    def annotate(self, selector: str, annotations: dict[str, str]) -> None:
        if self.problem is not None:
            raise self.problem
        index = next(index for index, job in enumerate(self.list) if job.id == selector)
        job = self.list[index]
        self.list[index] = replace(job, annotations={**job.annotations, **annotations})

    def cancel(self, selector: str, *, message: str = "") -> None:
        self.end(next(job for job in self.list if job.id == selector), State.CANCELLED)


class FakeCluster(NamespaceApi):
    """The real class, above an API that is a dictionary."""

    def __init__(self, **objects: list[Object]) -> None:
        self.namespace = "team"
        self.objects: dict[tuple[str, str], Object] = {}
        self.asked: list[str] = []
        self.problem: YardError | None = None
        self.refused: dict[tuple[str, str], YardError] = {}  # by method and kind
        for kind, made in objects.items():
            for each in made:
                self.objects[kind, each["metadata"]["name"]] = each

    def _ask(self, method: str, path: str, body: Any = None, accept: str = "") -> Object:
        self.asked.append(f"{method} {path}")
        if self.problem is not None:
            raise self.problem
        parts = urlsplit(path)
        collection, name = _split(parts.path)
        if (method, collection) in self.refused:
            raise self.refused[method, collection]
        if not name:
            selector = parse_qs(parts.query).get("labelSelector", [""])[0]
            found = [each for (of, _), each in self.objects.items() if of == collection and _fits(each, selector)]
            none: list[Object] | None = None if accept else []  # seen on 1.36: null, where only labels are asked for
            return {"items": json.loads(json.dumps(found)) or none}
        if (collection, name) not in self.objects:
            raise NotFound(f"{collection} {name} not found")
        if method == "DELETE":
            return self.objects.pop((collection, name))
        if method == "PATCH":
            _merge(self.objects[collection, name], body)
        answer: Object = json.loads(json.dumps(self.objects[collection, name]))
        return answer


def _split(path: str) -> tuple[str, str]:
    words = path.split("/")
    if words[-1] in COLLECTIONS:
        return COLLECTIONS[words[-1]], ""
    return COLLECTIONS[words[-2]], words[-1]


def _fits(made: Object, selector: str) -> bool:
    labels = made["metadata"].get("labels") or {}
    if " in (" in selector:
        key, _, values = selector.partition(" in (")
        return labels.get(key) in values.rstrip(")").split(",")
    key, _, value = selector.partition("=")
    return not selector or (key in labels and value in ("", labels[key]))


def _merge(into: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def an_object(job: JobView, **metadata: Any) -> Object:
    """What the yard made for it."""
    labels = {"jobyard.dev/yard": "y", "jobyard.dev/job": job.id}
    return {"metadata": {"name": f"{job.name}-{job.id}-a1", "labels": labels, **metadata}}


def a_pytorchjob(name: str = "theirs", gpus: int = 1, condition: str = "", **changes: Any) -> Object:
    """Of other hands, with the annotations by which it is adopted."""
    container = {
        "name": "pytorch",
        "image": "x",
        "command": ["sh", "-c", "accelerate launch --num_processes=1 train.py"],
        "args": ["--num_processes", "1"],
        "env": [{"name": "NGPU", "value": "1"}, {"name": "OTHER", "value": "1"}],
        "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    metadata = {
        "name": name,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "resourceVersion": "1",
        "annotations": {"replicas": "1", "request": "1", "limit": "3", "podtype": "x"},
    }
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}}
    conditions = {"conditions": [{"type": condition, "status": "True"}]} if condition else {}
    return {"metadata": {**metadata, **changes}, "spec": spec, "status": conditions}


def a_pod_of(name: str, node: str, phase: str = "Running") -> Object:
    labels = {"training.kubeflow.org/job-name": name}
    return {
        "metadata": {"name": f"{name}-master-0", "labels": labels},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def a_service(yard: FakeYard, cluster: FakeCluster | None = None, **how: Any) -> Service:
    return Service(lambda: cast(YardClient, yard), reach=lambda _: cluster or FakeCluster(), **how)


TOKEN = "secret"


async def answer_of(app: FastAPI, method: str, path: str, body: Any) -> tuple[int, Any]:
    """What a program that has the token is answered by an app that runs."""
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())],
        "client": ("127.0.0.1", 1),
    }
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    return said[0]["status"], json.loads(b"".join(each.get("body", b"") for each in said[1:]))


FORBIDDEN = UserError("jobyard may not do that")
UNANSWERED = Unavailable("the cluster does not answer: no route")


def adopted(condition: str, mark: str = "") -> Object:
    job = a_pytorchjob(condition=condition)
    if mark:
        job["metadata"]["annotations"]["jobyard.dev/scaling"] = mark
        job["spec"]["runPolicy"] = {"suspend": True}
    return job


def questions(cluster: FakeCluster, kind: str) -> int:
    """What was asked about what is left."""
    return len([each for each in cluster.asked if f"/{kind}?" in each])


def names(service: Service) -> list[str]:
    return [each.job_name for each in service.records()]
