"""Where Kueue decides who runs: its words are told, its decisions followed, and its flag is never written by us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Object
from tests.cluster.cluster import GPU, Cluster
from tests.cluster.images import SMALL
from tests.cluster.node import Node
from tests.cluster.objects import a_job
from tests.cluster.processes import Program
from tests.cluster.yards import WAITS, ClusterYard, cluster_yard
from tests.waiting import until

API = "/apis/kueue.x-k8s.io/v1beta2"
QUEUE = "ours"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
ON = ("--on", "kubernetes", "--image", SMALL, "-c", "0.1", "--mem", "16M")
FOREVER = ("tail", "-f", "/dev/null")


def made(kind: str, name: str, **rest: object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **rest}


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node, jobset_operator: Program, kueue: Program) -> Iterator[ClusterYard]:
    """Two GPUs in all; who has a higher priority takes them from others."""
    api = cluster.api
    cluster.set_gpus(4)
    with cluster.namespace() as namespace:
        amounts = {"cpu": "100", "memory": "100Gi", GPU: "2"}
        flavor = {"name": namespace, "resources": [{"name": n, "nominalQuota": q} for n, q in amounts.items()]}
        spec = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceGroups": [{"coveredResources": list(amounts), "flavors": [flavor]}],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        api.create(f"{API}/resourceflavors", made("ResourceFlavor", namespace))
        api.create(f"{API}/clusterqueues", made("ClusterQueue", namespace, spec=spec))
        api.create(f"{API}/workloadpriorityclasses", made("WorkloadPriorityClass", namespace, value=1000))
        queues = f"{API}/namespaces/{namespace}/localqueues"
        api.create(queues, made("LocalQueue", QUEUE, spec={"clusterQueue": namespace}))
        try:
            with cluster_yard(cluster, namespace, "--queue", QUEUE) as yard:
                yield yard
        finally:
            for path in ("clusterqueues", "resourceflavors", "workloadpriorityclasses"):
                api.delete(f"{API}/{path}/{namespace}")


def owners_of_suspend(seen: Object) -> set[str]:
    """Who wrote the flag last, by the API server's own books."""
    return {
        entry["manager"]
        for entry in seen["metadata"]["managedFields"]
        if "f:suspend" in entry.get("fieldsV1", {}).get("f:spec", {})
    }


def test_a_job_is_let_in_by_kueue_and_not_by_us(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-G", "1", "--", "echo", "hello")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert yard.logs(job) == "hello\n"
    (seen,) = yard.objects(job)
    assert seen["metadata"]["labels"][QUEUE_LABEL] == QUEUE
    assert seen["spec"]["suspend"] is False
    assert owners_of_suspend(seen)
    assert not [owner for owner in owners_of_suspend(seen) if owner.startswith("jobyard")]
    assert yard.tasks(job)[0]["node"].startswith("kubernetes/")
    assert yard.tasks(job)[0]["node"] != "kubernetes/queue"


def test_what_does_not_fit_waits_and_kueues_words_are_told(yard: ClusterYard) -> None:
    first = yard.submit(*ON, "-G", "2", "--", *FOREVER)
    yard.wait_state(first, "RUNNING")
    second = yard.submit(*ON, "-G", "2", "--", "echo", "at last")
    why = until(lambda: text if "Kueue" in (text := yard.ok("why", second).out) else None)
    assert "insufficient unused quota" in why
    (seen,) = yard.objects(second)
    assert seen["spec"]["suspend"] is True
    assert yard.pods(second) == []
    yard.ok("cancel", first, "--force")
    assert yard.ended(second)["state"] == "SUCCEEDED"
    assert not [owner for owner in owners_of_suspend(yard.objects(second)[0]) if owner.startswith("jobyard")]


@pytest.mark.long
def test_an_array_runs_with_as_many_at_once_as_kueue_has_room_for(yard: ClusterYard) -> None:
    job = yard.submit(*ON, "-G", "1", "-a", "0-4", "--", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    assert [yard.logs(job, "--task", str(number)) for number in range(5)] == [f"{number}\n" for number in range(5)]
    (seen,) = yard.objects(job)
    assert seen["spec"]["parallelism"] == 2
    assert [task["attempt"] for task in yard.tasks(job)] == [1] * 5


@pytest.mark.long
def test_workers_that_start_together_are_let_in_as_a_whole(yard: ClusterYard) -> None:
    held = yard.submit(*ON, "-G", "1", "--", *FOREVER)
    yard.wait_state(held, "RUNNING")
    job = yard.submit(*ON, "-G", "1", "--workers", "2", "--", "sh", "-c", "echo $RANK")
    until(lambda: "Kueue" in yard.ok("why", job).out)
    assert yard.pods(job) == []
    yard.ok("cancel", held, "--force")
    assert yard.ended(job)["state"] == "SUCCEEDED"
    (seen,) = yard.objects(job, "/apis/jobset.x-k8s.io/v1alpha2", "jobsets")
    assert not [owner for owner in owners_of_suspend(seen) if owner.startswith("jobyard")]
    assert sorted(yard.logs(job, "--task", number).strip() for number in ("0", "1")) == ["0", "1"]


def test_whom_kueue_evicts_waits_again_and_does_not_fail(yard: ClusterYard) -> None:
    # 1. Ours runs; somebody with a higher priority comes.
    job = yard.submit(*ON, "-G", "2", *WAITS)
    yard.wait_state(job, "RUNNING")
    foreign = a_job("urgent", *FOREVER, gpus=2, suspend=True)
    foreign["metadata"]["labels"] = {QUEUE_LABEL: QUEUE, "kueue.x-k8s.io/priority-class": yard.namespace}
    jobs = yard.path("/apis/batch/v1", "jobs")
    yard.cluster.api.create(jobs, foreign)
    try:
        # 2. Kueue takes ours out, and the yard says why it waits.
        yard.cluster.api.until(f"{jobs}/urgent", lambda seen: seen["status"].get("ready") == 1)
        why = until(lambda: text if "Kueue" in (text := yard.ok("why", job).out) else None)
        assert "reempted" in why or "insufficient unused quota" in why
        assert yard.tasks(job)[0]["state"] in ("PENDING", "STARTING"), yard.tasks(job)
    finally:
        yard.cluster.api.delete(f"{jobs}/urgent", propagationPolicy="Background")
    # 3. It runs again when there is room.
    until(lambda: (task := yard.tasks(job)[0])["attempt"] == 2 and task["state"] == "RUNNING")
    yard.let_go(job)
    assert yard.ended(job)["state"] == "SUCCEEDED"
    (task,) = yard.tasks(job)
    assert task["attempt"] == 2
    assert yard.logs(job) == "begin\nend\n"
    for seen in yard.objects(job):
        assert not [owner for owner in owners_of_suspend(seen) if owner.startswith("jobyard")]


@pytest.mark.long
def test_cancelling_what_waits_in_the_queue_removes_it(yard: ClusterYard) -> None:
    first = yard.submit(*ON, "-G", "2", "--", *FOREVER)
    yard.wait_state(first, "RUNNING")
    second = yard.submit(*ON, "-G", "2", "--", *FOREVER)
    until(lambda: yard.objects(second))
    yard.ok("cancel", second)
    assert yard.ended(second)["state"] == "CANCELLED"
    until(lambda: not yard.objects(second))
    yard.ok("cancel", first, "--force")
    until(lambda: not yard.objects(first) and not yard.pods(first))
