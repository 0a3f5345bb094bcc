"""A yard that uses the test cluster, in a namespace of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.node import NODE
from tests.waiting import until
from tests.yards import TemporaryYard

Object = dict[str, Any]
WAITS = ("--", "sh", "-c", "trap 'exit 143' TERM; echo begin; until [ -e /tmp/go ]; do sleep 0.1; done; echo end")


class ClusterYard(TemporaryYard):
    """`--on kubernetes` is the namespace of one test."""

    def __init__(self, cluster: Cluster, namespace: str, *words: str, **env: str) -> None:
        super().__init__(**env)
        self.cluster, self.namespace = cluster, namespace
        config = cluster.api.kubeconfig()
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig = self.root / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))
        self.env["KUBECONFIG"] = str(self.kubeconfig)
        self.ok("clusters", "add", *words)

    def objects(self, job: str, path: str = "/apis/batch/v1", plural: str = "jobs") -> list[Object]:
        """Those of one job."""
        return self.cluster.api.items(self.path(path, plural), labelSelector=f"jobyard.dev/job={job}")

    def pods(self, job: str) -> list[Object]:
        return self.objects(job, "/api/v1", "pods")

    def path(self, api: str, plural: str) -> str:
        return f"{api}/namespaces/{self.namespace}/{plural}"

    def let_go(self, job: str) -> None:
        """Of a job of one task that runs WAITS: it ends now."""
        unit = self.tasks(job)[0]["unit"]
        self.cluster.kubectl("exec", f"--namespace={self.namespace}", unit, "--", "touch", "/tmp/go")

    def delete_pod(self, name: str) -> None:
        self.cluster.api.delete(f"{self.path('/api/v1', 'pods')}/{name}", gracePeriodSeconds=1)

    def owners_of_secret(self, name: str) -> list[str]:
        """The objects with which it goes."""
        holder = self.cluster.api.get(f"{self.path('/api/v1', 'configmaps')}/{name}")
        return [owner["name"] for owner in holder["metadata"].get("ownerReferences") or ()]

    def set_gpus(self, count: int) -> None:
        """On the one real node; returns when the yard knows of them."""
        self.cluster.set_gpus(count)
        until(lambda: [len(n["devices"]) for n in self.json("nodes") if n["id"] == f"kubernetes/{NODE}"] == [count])

    def ended(self, selector: str = "last", seconds: float = 120.0) -> dict[str, Any]:
        """The job once it has ended."""
        return until(lambda: found if (found := self.job(selector))["state"] in _FINAL else None, seconds)


_FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


@contextmanager
def cluster_yard(cluster: Cluster, namespace: str, *words: str, **env: str) -> Iterator[ClusterYard]:
    until(lambda: not _busy_pods(cluster, namespace), 120)  # of an earlier test, on their way out
    yard = ClusterYard(cluster, namespace, *words, **env)
    try:
        yield yard
    finally:
        yard.close()


def _busy_pods(cluster: Cluster, namespace: str) -> list[str]:
    """Of other namespaces, on the one real node."""
    pods = cluster.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}")
    others = [pod for pod in pods if pod["metadata"]["namespace"] != namespace]
    return [pod["metadata"]["name"] for pod in others if pod["status"].get("phase") not in ("Succeeded", "Failed")]
