"""Objects as users write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from jobyard.kubernetes.paths import RESOURCES
from jobyard.manifests.context import SubmitContext
from jobyard.manifests.documents import parse_documents
from jobyard.manifests.objects import spec_from_object
from jobyard.manifests.overrides import Overrides
from jobyard.model.job import JobSpec

HERE = Path(__file__).parent


def template(container: str = "main", **more: Any) -> dict[str, Any]:
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": container, "image": "x", **more}]}}


def _ray() -> dict[str, Any]:
    workers = {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {}}
    return {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {}, "template": template()},
            "workerGroupSpecs": [{**workers, "template": template()}],
        },
    }


def body(kind: str) -> dict[str, Any]:
    indexed = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": template()}
    match kind:
        case "Pod":
            return template()["spec"]  # type: ignore[no-any-return]
        case "Job":
            return indexed
        case "JobSet":
            return {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": indexed}}]}
        case "PyTorchJob":
            replicas: dict[str, Any] = {"Master": {"template": template("pytorch")}}
            replicas["Worker"] = {"replicas": 2, "template": template("pytorch")}
            return {"pytorchReplicaSpecs": replicas}
        case _:
            return _ray()


def written(kind: str, spec: dict[str, Any] | None = None, **metadata: Any) -> JobSpec:
    """The job of such an object; `metadata` beside its name."""
    made = {"apiVersion": RESOURCES[kind].api_version, "kind": kind, "metadata": {"name": "mine", **metadata}}
    return from_text(yaml.safe_dump({**made, "spec": spec or body(kind)}))


def from_text(text: str) -> JobSpec:
    (document,) = parse_documents(text, "mine.yaml")
    spec = spec_from_object(document, Overrides(on="kubernetes"), SubmitContext("/project", {}, "ada"))
    return replace(spec, cluster="kubernetes")
