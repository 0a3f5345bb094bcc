"""Gangs whose pods are made by operators: PyTorchJobs of the training operator, RayJobs of KubeRay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.node import NODE, Node
from tests.cluster.processes import Program
from tests.cluster.rays import IMAGE as RAY
from tests.cluster.rays import import_ray_stand_in
from tests.cluster.training import IMAGE, epochs_of, told_by, training_yard
from tests.cluster.yards import ClusterYard, Object
from tests.waiting import until

PYTORCHJOBS = ("/apis/kubeflow.org/v1", "pytorchjobs")
RAYJOBS = ("/apis/ray.io/v1", "rayjobs")
RAYCLUSTERS = ("/apis/ray.io/v1", "rayclusters")
GANG = ("--on", "kubernetes", "--kind", "pytorchjob", "--image", IMAGE, "-c", "0.1")
# As training does: rank 0 waits for the others. The job is over when the master is.
MEET = """case $RANK in
0) nc -l -p $MASTER_PORT > /dev/null ;;
*) until echo here | nc $MASTER_ADDR $MASTER_PORT; do sleep 0.2; done ;;
esac
"""
RAYS = ("--on", "kubernetes", "--kind", "rayjob", "--image", RAY, "-c", "0.1")


@pytest.fixture(scope="module")
def shared(cluster: Cluster, worker: Node) -> Iterator[ClusterYard]:
    import_ray_stand_in(cluster)
    with training_yard(cluster) as made:
        yield made


@pytest.fixture
def yard(shared: ClusterYard) -> Iterator[ClusterYard]:
    shared.set_gpus(2)
    yield shared
    shared.settle()
    shared.set_gpus(0)


def _owner(made: Object) -> str:
    (owner,) = made["metadata"]["ownerReferences"]
    return str(owner["kind"])


# -- PyTorchJob


@pytest.mark.long
def test_a_pytorchjob_is_preempted_at_a_checkpoint_and_goes_on_larger(
    yard: ClusterYard, training_operator: Program
) -> None:
    yard.set_gpus(1)
    secret = ("--mount-secret", f"{yard.write('token', 'for every attempt')}=/etc/app/token")
    script = "grep . /etc/app/token && exec python3 /app/train.py 30 0.9"
    words = ("--workers", "1..2", "--gpus", "1", "--epochs", "30", *secret, "--", "sh", "-c", script)
    job = yard.submit(*GANG, *words)
    until(lambda: epochs_of(yard, job) >= 2, 120)
    (pod,) = yard.pods(job)
    assert pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "master"
    assert _owner(pod) == "PyTorchJob"
    yard.set_gpus(2)
    yard.ok("scale", job, "--workers", "2")
    until(lambda: yard.job(job)["counts"]["running"] == 2, 180)
    kinds = sorted(pod["metadata"]["labels"]["training.kubeflow.org/replica-type"] for pod in yard.pods(job)[-2:])
    assert kinds == ["master", "worker"]
    ended = yard.ended(job, 240)
    assert ended["state"] == "SUCCEEDED", ended
    told = told_by(yard, job)
    assert [epoch for epoch, _ in told] == list(range(1, 31))  # each once
    assert (told[0][1], told[-1][1]) == (1, 2)
    assert yard.tasks(job)[0]["attempt"] == 2
    assert all("for every attempt" in yard.logs(job, "--task", "0", "--attempt", number) for number in "12")


@pytest.mark.long
def test_a_pytorchjob_tells_each_pod_its_rank_and_where_the_master_is(
    yard: ClusterYard, training_operator: Program
) -> None:
    say = 'echo "$YARD_TASK: $RANK of $WORLD_SIZE, $PET_NODE_RANK of $PET_NNODES, master $MASTER_ADDR"'
    job = yard.submit(*GANG, "--workers", "2", "--", "sh", "-c", MEET + say)
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    (made,) = yard.objects(job, *PYTORCHJOBS)
    master = f"{made['metadata']['name']}-master-0"
    for rank, task in enumerate(yard.tasks(job)):
        expected = f"{task['label']}: {rank} of 2, {rank} of 2, master {master}\n"
        assert yard.logs(job, "--task", task["label"]) == expected


@pytest.mark.long
def test_a_pytorchjob_whose_worker_fails_fails_and_is_tried_again_whole(
    yard: ClusterYard, training_operator: Program
) -> None:
    script = MEET + 'echo "attempt $YARD_ATTEMPT"; [ $YARD_ATTEMPT != 1 ]'
    job = yard.submit(*GANG, "--workers", "2", "--retries", "1", "--", "sh", "-c", script)
    ended = yard.ended(job)
    assert ended["state"] == "SUCCEEDED", ended
    assert {task["attempt"] for task in yard.tasks(job)} == {2}
    assert "attempt 2" in yard.logs(job)


@pytest.mark.long
def test_cancelling_a_pytorchjob_removes_it_and_its_pods(yard: ClusterYard, training_operator: Program) -> None:
    job = yard.submit(*GANG, "--workers", "2", "--", "tail", "-f", "/dev/null")
    until(lambda: yard.job(job)["counts"]["running"] == 2)
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job, *PYTORCHJOBS) and not yard.pods(job))


# -- RayJob. `ray` in the image is a stand-in: see rays.py.


def test_a_rayjob_gets_head_and_workers_from_kuberay_and_its_command_is_the_jobs(
    yard: ClusterYard, ray_operator: Program
) -> None:
    job = yard.submit(*RAYS, "--workers", "2", "--", "sh", "-c", "echo hello from ray in $YARD_JOB_NAME; echo done >&2")
    until(lambda: yard.job(job)["counts"]["running"] == 3, 180)
    tasks = {task["label"]: task["unit"] for task in yard.tasks(job)}
    pods = {pod["metadata"]["name"]: pod for pod in yard.pods(job)}
    for label, unit in tasks.items():
        assert pods[unit]["metadata"]["labels"]["ray.io/node-type"] == label.partition("/")[0]
        assert _owner(pods[unit]) == "RayCluster"
    assert len(set(tasks.values())) == 3
    ended = yard.ended(job, 240)
    assert ended["state"] == "SUCCEEDED", ended
    assert yard.logs(job, "--task", "head/0") == "hello from ray in echo\ndone\n"
    # Where KubeRay is slow to say so, the object is gone already.
    assert all(made["status"]["jobStatus"] == "SUCCEEDED" for made in yard.objects(job, *RAYJOBS))
    until(lambda: all(is_ended(pod) for pod in yard.pods(job)), 120)  # the Ray cluster is not left behind


def is_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


@pytest.mark.long
def test_a_rayjob_whose_command_fails_is_a_failed_job(yard: ClusterYard, ray_operator: Program) -> None:
    job = yard.submit(*RAYS, "--workers", "1", "--", "sh", "-c", "echo no luck; exit 3")
    ended = yard.ended(job, 240)
    assert (ended["state"], ended["reason"]) == ("FAILED", "ExitCode"), ended
    assert yard.logs(job, "--task", "head/0") == "no luck\n"


@pytest.mark.long
def test_cancelling_a_rayjob_removes_its_cluster_and_all_pods(yard: ClusterYard, ray_operator: Program) -> None:
    job = yard.submit(*RAYS, "--workers", "2", "--", "sleep", "1000")
    until(lambda: yard.job(job)["counts"]["running"] == 3, 180)
    (made,) = yard.objects(job, *RAYJOBS)
    clusters = yard.path(*RAYCLUSTERS)
    label = f"ray.io/originated-from-cr-name={made['metadata']['name']}"
    assert len(yard.cluster.api.items(clusters, labelSelector=label)) == 1
    yard.ok("cancel", job, "--force")
    assert yard.ended(job)["state"] == "CANCELLED"
    until(lambda: not yard.objects(job, *RAYJOBS) and not yard.pods(job), 120)
    until(lambda: not yard.cluster.api.items(clusters, labelSelector=label))


@pytest.mark.long
def test_a_rayjob_that_fills_a_node_runs_and_one_that_is_larger_is_refused(
    yard: ClusterYard, ray_operator: Program
) -> None:
    """The pod that hands the command to Ray needs a tenth of a core too, which comes out of the head's."""
    (node,) = (each for each in yard.json("nodes") if each["id"] == f"kubernetes/{NODE}")
    words = ("--on", "kubernetes", "--kind", "rayjob", "--image", RAY, "-c", f"{node['cpu_millis'] // 2}m")
    larger = yard.run("submit", *words, "--workers", "2", "--", "true")
    assert larger.code == 2
    assert "can never run: its 3 tasks start together and do not fit at once" in larger.err
    job = yard.submit(*words, "--workers", "1", "--", "true")
    ended = yard.ended(job, 240)
    assert ended["state"] == "SUCCEEDED", ended


@pytest.mark.long
def test_a_rayjob_that_a_user_wrote_runs_to_its_end(yard: ClusterYard, ray_operator: Program) -> None:
    container = {"name": "ray", "image": RAY, "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}
    workers = {"groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, **group}
    cluster = {"headGroupSpec": group, "workerGroupSpecs": [workers]}
    spec = {"entrypoint": "echo by hand", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    made = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "own"}, "spec": spec}
    job = yard.submit("--on", "kubernetes", yard.write("rayjob.yaml", yaml.safe_dump(made)))
    ended = yard.ended(job, 240)
    assert ended["state"] == "SUCCEEDED", ended
    assert yard.logs(job, "--task", "head/0") == "by hand\n"


@pytest.mark.long
def test_a_range_of_workers_is_what_ray_may_scale_between(yard: ClusterYard, ray_operator: Program) -> None:
    job = yard.submit(*RAYS, "--workers", "1..4", "--", "sleep", "1000")
    until(lambda: yard.job(job)["counts"]["running"] == 2, 180)
    (made,) = yard.objects(job, *RAYJOBS)
    name = made["status"]["rayClusterName"]
    cluster = yard.cluster.api.get(f"{yard.path(*RAYCLUSTERS)}/{name}")["spec"]
    assert cluster["enableInTreeAutoscaling"] is True
    (group,) = cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 4)
    head = next(pod for pod in yard.pods(job) if pod["metadata"]["labels"].get("ray.io/node-type") == "head")
    assert "autoscaler" in {container["name"] for container in head["spec"]["containers"]}
