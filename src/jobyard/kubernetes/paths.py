"""API paths: where in the API of a cluster is an object, or a collection of them?"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class ApiResource(NamedTuple):
    """A kind of object (group, version, resource). RBAC grants rights to the group of `api_version` and `plural`."""

    api_version: str
    plural: str


# The kinds that a job can be.
RESOURCES = {
    "Pod": ApiResource("v1", "pods"),
    "Job": ApiResource("batch/v1", "jobs"),
    "JobSet": ApiResource("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "PyTorchJob": ApiResource("kubeflow.org/v1", "pytorchjobs"),
    "RayJob": ApiResource("ray.io/v1", "rayjobs"),
}


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Of one object of a kind above, or without a name of all of a namespace."""
    return object_path(*RESOURCES[kind], namespace, name)


def object_path(api_version: str, plural: str, namespace: str, name: str = "") -> str:
    """Of one object, or without a name of all of a namespace; without a namespace of the whole cluster."""
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{quote(name, safe='')}" if name else "")


def collection_in(path: str) -> str:
    """`pods` of `/api/v1/namespaces/x/pods/y`: by which calls are counted."""
    words = path.partition("?")[0].strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    if words[:1] == ["namespaces"] and len(words) > 2:
        words = words[2:]
    return words[0] if words else path
