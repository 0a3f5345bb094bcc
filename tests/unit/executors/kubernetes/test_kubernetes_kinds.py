"""What each kind of object can do, and which pod is which task."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import a_group, a_job, with_words
from tests.unit.executors.kubernetes.written import written

from jobyard.errors import UserError
from jobyard.executors.kubernetes.kinds import KINDS, kind_of
from jobyard.manifests.kinds import with_kind
from jobyard.model.executor_kinds import PODS, kind_on_cluster
from jobyard.model.job import JobSpec, State
from jobyard.server.clusters import for_cluster

ARRAY = a_job(4)
SET = a_job(groups=(a_group("a", 2, 3), a_group("b", 1)))
RAY = with_kind(a_job(groups=(a_group("", 3),), kind="RayJob", on="kubernetes"))


def pod(**labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}}}


def in_jobset(name: str, replica: int, index: int) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": name, "jobset.sigs.k8s.io/job-index": str(replica)}
    return pod(**labels, **{"batch.kubernetes.io/job-completion-index": str(index)})


def in_pytorchjob(kind: str, index: str) -> dict[str, Any]:
    return pod(
        **{"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": index},
    )


def in_ray(node: str, group: str, **more: str) -> dict[str, Any]:
    return pod(**{"ray.io/node-type": node, "ray.io/group": group}, **more)


INDEX = {"ray.io/worker-group-replica-index": "1"}


@pytest.mark.parametrize(
    ("spec", "seen", "number"),
    [
        (ARRAY, pod(**{"batch.kubernetes.io/job-completion-index": "2"}), 2),
        (ARRAY, {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "1"}}}, 1),
        (ARRAY, pod(**{"batch.kubernetes.io/job-completion-index": "0", "jobyard.dev/task": "3"}), 3),
        (ARRAY, pod(**{"batch.kubernetes.io/job-completion-index": "4"}), None),
        (ARRAY, pod(), None),
        (SET, in_jobset("a", 1, 2), 5),
        (SET, in_jobset("b", 0, 0), 6),
        (SET, in_jobset("b", 1, 0), None),
        (SET, in_jobset("c", 0, 0), None),
        (a_job(groups=(a_group("", 2),)), in_jobset("task", 1, 0), 1),
        (a_job(3, kind="PyTorchJob", gang=True), in_pytorchjob("master", "0"), 0),
        (a_job(3, kind="PyTorchJob", gang=True), in_pytorchjob("worker", "1"), 2),
        (a_job(3, kind="PyTorchJob", gang=True), in_pytorchjob("worker", "2"), None),
        (written("PyTorchJob"), in_pytorchjob("worker", "1"), 2),
        (written("PyTorchJob"), in_pytorchjob("master", "0"), 0),
        (RAY, in_ray("head", "headgroup"), 0),
        (RAY, in_ray("worker", "worker", **INDEX), 2),
        (RAY, in_ray("worker", "worker"), None),
        (RAY, pod(**{"jobyard.dev/group": "submitter"}), None),
        (written("RayJob"), in_ray("worker", "small", **INDEX), 2),
        (written("Pod"), pod(), 0),
    ],
)
def test_a_pod_is_found_to_be_a_task_by_its_labels(spec: JobSpec, seen: dict[str, Any], number: int | None) -> None:
    assert kind_of(spec).task_of(spec, seen) == number


def test_a_job_becomes_the_kind_that_its_shape_or_its_word_asks_for() -> None:
    named = [kind_of(spec).name for spec in (ARRAY, SET, RAY, a_job(kind="PyTorchJob"), written("Pod"))]
    assert named == ["Job", "JobSet", "RayJob", "PyTorchJob", "Pod"]


def test_what_waits_is_let_in_by_a_patch_of_one_field() -> None:
    for name, patch in (
        ("Job", {"spec": {"suspend": False}}),
        ("JobSet", {"spec": {"suspend": False}}),
        ("RayJob", {"spec": {"suspend": False}}),
        ("PyTorchJob", {"spec": {"runPolicy": {"suspend": False}}}),
    ):
        assert KINDS[name].admission({}) == patch
        assert not KINDS[name].is_waiting(patch)
        assert KINDS[name].is_waiting(KINDS[name].suspended(True))
    gated = {"spec": {"schedulingGates": [{"name": "mine"}, {"name": "jobyard.dev/admission"}]}}
    assert KINDS["Pod"].is_waiting(gated)
    assert KINDS["Pod"].admission(gated) == {"spec": {"schedulingGates": [{"name": "mine"}]}}
    assert not KINDS["Pod"].is_waiting({"spec": {"schedulingGates": None}})


def test_the_api_is_told_where_each_kind_is() -> None:
    assert KINDS["Pod"].collection("a") == "/api/v1/namespaces/a/pods"
    assert KINDS["RayJob"].collection("a") == "/apis/ray.io/v1/namespaces/a/rayjobs"
    assert (KINDS["PyTorchJob"].group, KINDS["Pod"].group) == ("kubeflow.org", "")
    assert [kind.name for kind in KINDS.values() if not kind.operator] == ["Job", "Pod"]


def conditions(*true: str, reason: str = "") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": each, "status": "True", "reason": reason} for each in true]}}


@pytest.mark.parametrize(
    ("kind", "seen", "state"),
    [
        ("PyTorchJob", {}, State.STARTING),
        ("PyTorchJob", conditions("Created"), State.STARTING),
        ("PyTorchJob", conditions("Created", "Suspended"), State.PENDING),
        ("PyTorchJob", conditions("Created", "Running"), State.RUNNING),
        ("PyTorchJob", conditions("Created", "Restarting"), State.STARTING),
        ("PyTorchJob", conditions("Created", "Succeeded"), State.SUCCEEDED),
        ("PyTorchJob", conditions("Created", "Failed", reason="PyTorchJobFailed"), State.FAILED),
        ("RayJob", {}, State.STARTING),
        ("RayJob", {"status": {"jobDeploymentStatus": "Suspended"}}, State.PENDING),
        ("RayJob", {"status": {"jobDeploymentStatus": "Initializing"}}, State.STARTING),
        ("RayJob", {"status": {"jobDeploymentStatus": "Running", "jobStatus": "PENDING"}}, State.STARTING),
        ("RayJob", {"status": {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}}, State.RUNNING),
        ("RayJob", {"status": {"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}}, State.SUCCEEDED),
        ("RayJob", {"status": {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}}, State.FAILED),
        ("RayJob", {"status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "X"}}, State.FAILED),
        ("RayJob", {"status": {"jobDeploymentStatus": "ValidationFailed"}}, State.FAILED),
        ("RayJob", {"status": {"jobDeploymentStatus": "Suspending"}}, State.STOPPING),
        ("Pod", {"status": {"phase": "Running"}}, State.RUNNING),
    ],
)
def test_each_kind_says_in_its_own_way_how_it_is(kind: str, seen: dict[str, Any], state: State) -> None:
    assert KINDS[kind].meaning(seen).state == state


def test_a_ray_job_that_failed_says_why_in_the_operators_words() -> None:
    status = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded", "message": "too\n long"}
    assert KINDS["RayJob"].meaning({"status": status}).sentence == "it ran longer than its deadline: too long"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (a_job(kind="Nonsense"), "the yard writes no 'Nonsense'; choose PyTorchJob or RayJob"),
        (a_job(kind="Pod"), "the yard writes no 'Pod'; .* or give a manifest of your own"),
        (a_job(kind="Job", groups=SET.groups), "a Job has one group with count 1; leave --kind out"),
        (
            with_words(written("Pod"), kind="Nonsense"),
            "unknown kind 'Nonsense'; the yard knows .*RayJob, Pod",
        ),
    ],
)
def test_a_kind_that_nobody_knows_or_writes_is_refused_at_submit_and_wherever_it_is_asked(
    spec: JobSpec, says: str
) -> None:
    for decide in (kind_of, kind_on_cluster, lambda spec: for_cluster(spec, "lab")):
        with pytest.raises(UserError, match=f"^--kind: {says}"):
            decide(spec)


def test_every_kind_that_a_submit_takes_is_one_that_the_executor_knows() -> None:
    assert {*PODS, "Pod"} == KINDS.keys()
