"""Kubernetes objects for tests: a test names only what matters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.cluster.api import Object
from tests.cluster.cluster import FAKE, GPU
from tests.cluster.images import SMALL


def a_job(name: str, *command: str, size: int = 1, gpus: int = 0, fake: bool = False, **spec: Any) -> Object:
    """An Indexed Job of `size` pods; with `fake`, on KWOK's nodes."""
    limits = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    container = {"name": "main", "image": SMALL, "imagePullPolicy": "Never", "command": list(command), **limits}
    pod: Object = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    if fake:
        pod["tolerations"] = [{"key": FAKE, "operator": "Exists"}]
        pod["nodeSelector"] = {"type": "kwok"}
    parts = {"completionMode": "Indexed", "completions": size, "parallelism": size, "backoffLimit": 0}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**parts, **spec, "template": {"spec": pod}},
    }


def a_volume(namespace: str, claim: str, directory: Path, *, user: int = 0, shared: bool = False) -> Object:
    """For one claim only: a directory of the one real node, which is made; `user` may write there."""
    directory.mkdir()
    os.chown(directory, user, user)  # what `fsGroup` does where the storage can
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteMany" if shared else "ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(directory)},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    return {"metadata": {"name": f"{namespace}-{claim}"}, "spec": spec}


def has(condition: str) -> Any:
    """Whether an object has a condition, as `has("Complete")`."""

    def look(seen: Object) -> bool:
        conditions = seen.get("status", {}).get("conditions") or []
        return any(each["type"] == condition and each["status"] == "True" for each in conditions)

    return look


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"
