"""Objects that users wrote, submitted as they are: they run, what they write comes home, cancel removes them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from jobyard.executors.kubernetes.pods import KEPT_SECONDS
from tests.cluster.images import SMALL
from tests.cluster.yards import ClusterYard, Object
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("jobset_operator", "training_operator")

COLLECTIONS = {
    "Pod": ("/api/v1", "pods"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "PyTorchJob": ("/apis/kubeflow.org/v1", "pytorchjobs"),
}
VERSIONS = {kind: path.removeprefix("/apis/").removeprefix("/api/") for kind, (path, _) in COLLECTIONS.items()}
KINDS = list(COLLECTIONS)
HOLD = "tail -f /dev/null"
# The worker of a PyTorchJob waits for the master's name, and the job is over with the master.
MEET = """case ${RANK:-} in
0) nc -l -p $MASTER_PORT > /dev/null ;;
1) until echo here | nc $MASTER_ADDR $MASTER_PORT; do sleep 0.2; done ;;
esac
"""


def _pod(script: str, container: str = "main", **spec: Any) -> Object:
    resources = {"requests": {"cpu": "50m", "memory": "16Mi"}}
    main = {"name": container, "image": SMALL, "command": ["sh", "-c", script], "resources": resources}
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [main], **spec}


def _job(script: str, size: int, **spec: Any) -> Object:
    parts = {"completions": size, "parallelism": size, "backoffLimit": 0}
    return {**parts, **spec, "template": {"spec": _pod(script)}}


def _spec(kind: str, script: str) -> Object:
    """Of an object with two pods; a Pod is one."""
    match kind:
        case "Pod":
            return _pod(script)
        case "Job":
            return _job(script, 2, completionMode="Indexed")
        case "JobSet":
            template = {"spec": _job(script, 1, completionMode="Indexed")}
            groups = [{"name": name, "replicas": 1, "template": template} for name in ("writer", "reader")]
            return {"failurePolicy": {"maxRestarts": 0}, "replicatedJobs": groups}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": _pod(script, "pytorch")}}
    return {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}


def _submit(yard: ClusterYard, kind: str, spec: Object) -> str:
    metadata = {"name": f"own-{kind.lower()}", "labels": {"team": "blue"}}
    made = {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}
    return yard.submit("--on", "kubernetes", yard.write(f"{kind}.yaml", yaml.safe_dump(made)))


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_of_a_user_runs_to_its_end_and_its_output_comes_home(kind: str, yard: ClusterYard) -> None:
    job = _submit(yard, kind, _spec(kind, MEET + 'echo "hello from $HOSTNAME"; echo again'))
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    tasks, pods = yard.tasks(job), yard.pods(job)
    assert len(tasks) == len(pods) == (1 if kind == "Pod" else 2)
    assert {task["unit"] for task in tasks} == {pod["metadata"]["name"] for pod in pods}
    for task in tasks:
        name = next(p["spec"].get("hostname") or task["unit"] for p in pods if p["metadata"]["name"] == task["unit"])
        assert yard.logs(job, "--task", task["label"]) == f"hello from {name}\nagain\n"
    (made,) = yard.objects(job, *COLLECTIONS[kind])
    assert made["metadata"]["labels"]["team"] == "blue"  # what the user wrote is still there
    if kind != "Pod":  # Kubernetes removes it in a week
        where = made["spec"]["runPolicy"] if kind == "PyTorchJob" else made["spec"]
        assert where["ttlSecondsAfterFinished"] == KEPT_SECONDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_cancel_removes_the_object_and_its_pods(kind: str, yard: ClusterYard) -> None:
    job = _submit(yard, kind, _spec(kind, HOLD))
    size = 1 if kind == "Pod" else 2
    until(lambda: yard.job(job)["counts"]["running"] == size)
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job, *COLLECTIONS[kind]) and not yard.pods(job) and not yard.objects(job))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_what_fails_is_told_with_its_exit_code(kind: str, yard: ClusterYard) -> None:
    job = _submit(yard, kind, _spec(kind, MEET + "echo bad luck; exit 7"))
    ended = yard.ended(job)
    assert (ended["state"], ended["reason"]) == ("FAILED", "ExitCode"), ended
    codes = {task["exit_code"] for task in yard.tasks(job) if task["state"] == "FAILED"}
    assert 7 in codes, yard.tasks(job)
    assert "bad luck" in yard.logs(job)


def test_an_object_that_reaches_into_the_node_is_refused_unless_the_cluster_allows_it(yard: ClusterYard) -> None:
    volumes = [{"name": "node", "hostPath": {"path": "/proc"}}]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "deep"}, "spec": _pod("echo in", volumes=volumes)}
    file = yard.write("deep.yaml", yaml.safe_dump(made))
    done = yard.run("submit", "--on", "kubernetes", file)
    assert (done.code, "spec.volumes[0].hostPath" in done.err) == (2, True), done.err
    yard.ok("clusters", "add", "--allow-host-path")
    assert yard.ended(yard.submit("--on", "kubernetes", file))["state"] == "SUCCEEDED"
    yard.ok("clusters", "add")
    assert yard.run("submit", "--on", "kubernetes", file).code == 2


def test_a_job_that_is_not_indexed_has_a_task_for_each_pod(yard: ClusterYard) -> None:
    job = _submit(yard, "Job", _job("echo one of three", 3, parallelism=2))
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    assert len({task["unit"] for task in yard.tasks(job)}) == 3
    assert yard.logs(job).count("one of three") == 3


def test_a_retry_of_a_users_object_is_another_object(yard: ClusterYard) -> None:
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "flaky"}, "spec": _pod("echo once; exit 1")}
    file = yard.write("flaky.yaml", yaml.safe_dump(made))
    job = yard.submit("--on", "kubernetes", "--retries", "1", file)
    assert yard.ended(job)["state"] == "FAILED"
    (task,) = yard.tasks(job)
    assert (task["attempt"], task["exit_code"]) == (2, 1)
    assert [yard.logs(job, "--attempt", str(number)) for number in (1, 2)] == ["once\n", "once\n"]
    assert len(yard.pods(job)) == 2
