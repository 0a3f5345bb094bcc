"""PyTorchJobs of others are resized, and what a yard left is found and removed: the calls, without a cluster."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.views import a_job_view
from tests.unit.compat.genai_world import FakeCluster, Object, a_pod_of, a_pytorchjob, an_object
from tests.unit.kubernetes.played_server import Reply, played_server

from jobyard.compat.genai import cluster as module
from jobyard.compat.genai.cluster import MOST_NAMED, NamespaceApi
from jobyard.compat.genai.errors import Conflict, NotPossible
from jobyard.errors import NotFound, Unavailable, UserError, YardError

SCALING = "jobyard.dev/scaling"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)


def marked(condition: str, suspend: bool = True, gpus: int = 3) -> Object:
    job = a_pytorchjob(condition=condition)
    job["metadata"]["annotations"][SCALING] = str(gpus)
    job["spec"]["runPolicy"] = {"suspend": suspend}
    return job


def gpus_of(job: Object) -> str:
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return str(container["resources"]["limits"]["nvidia.com/gpu"])


def test_a_suspended_job_goes_on_with_its_new_size_once_its_pods_are_gone() -> None:
    job, pod = marked("Suspended"), a_pod_of("theirs", "a")
    cluster = FakeCluster(PyTorchJob=[job], Pod=[pod])
    assert not cluster.go_on("theirs")
    pod["status"]["phase"] = "Succeeded"
    assert cluster.go_on("theirs")
    assert gpus_of(job) == "3"
    assert job["spec"]["runPolicy"] == {"suspend": False}
    assert SCALING not in job["metadata"]["annotations"]
    assert job["metadata"]["annotations"]["jobyard.dev/restarts"] == "1"


@pytest.mark.parametrize("condition", ["Succeeded", "Failed"])
def test_one_that_ended_while_it_was_scaled_is_let_be(condition: str) -> None:
    """Its operator suspends it no more: who waited for that would wait for ever."""
    job = marked(condition)
    cluster = FakeCluster(PyTorchJob=[job])
    assert cluster.go_on("theirs")
    assert SCALING not in job["metadata"]["annotations"]
    assert (gpus_of(job), job["spec"]["runPolicy"]) == ("1", {"suspend": False})
    assert "jobyard.dev/restarts" not in job["metadata"]["annotations"]


def test_who_scales_one_that_ends_meanwhile_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_pytorchjob(condition="Succeeded")
    cluster = FakeCluster(PyTorchJob=[job])
    with pytest.raises(NotPossible, match=r"job theirs has ended \(completed\)"):
        cluster.scale("theirs", 3)
    assert SCALING not in job["metadata"]["annotations"]
    monkeypatch.setattr(module, "SUSPEND_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="its pods do not end"):
        FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")]).scale("theirs", 3)


def test_one_that_its_user_lets_go_on_is_not_held_for_ever() -> None:
    job = marked("Running", suspend=False)
    assert FakeCluster(PyTorchJob=[job]).go_on("theirs")
    assert SCALING not in job["metadata"]["annotations"]
    assert gpus_of(job) == "1"


def test_a_mark_that_is_no_number_is_nobodys_scaling() -> None:
    job = marked("Running")
    job["metadata"]["annotations"][SCALING] = "many"
    cluster = FakeCluster(PyTorchJob=[job])
    assert cluster.go_on("theirs")
    assert cluster.asked == ["GET /apis/kubeflow.org/v1/namespaces/team/pytorchjobs/theirs"]


# -- what is left


def test_what_is_left_of_jobs_is_found_by_their_label_and_deleted() -> None:
    one, two = (a_job_view(name=name, id=f"{name}2345678"[:8]) for name in ("one", "two"))
    leaving: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster = FakeCluster(Pod=[an_object(one), a_pod_of("theirs", "a")], Job=[an_object(two, **leaving)])
    (left,) = cluster.left_of("Pod", [one.id, two.id])
    assert left == (one.id, "Pod", f"one-{one.id}-a1")
    assert cluster.left_of("Job", [two.id]) == []  # it goes already
    cluster.delete(left.name, left.kind)
    assert cluster.left_of("Pod", [one.id]) == []
    with pytest.raises(NotFound):
        cluster.delete(left.name, left.kind)


def test_of_very_many_jobs_all_are_asked_for_and_those_of_others_left_out() -> None:
    jobs = [a_job_view(name="many", id=f"{number:08x}") for number in range(MOST_NAMED + 1)]
    cluster = FakeCluster(Job=[an_object(job) for job in (*jobs, a_job_view(name="else", id="ffffffff"))])
    assert len(cluster.left_of("Job", {job.id for job in jobs})) == MOST_NAMED + 1
    (asked,) = cluster.asked
    assert asked.endswith("jobs?labelSelector=jobyard.dev%2Fjob")


def test_nothing_is_left_of_a_kind_that_a_cluster_does_not_know() -> None:
    cluster = FakeCluster()
    cluster.problem = NotFound("the server could not find the requested resource")
    assert cluster.left_of("JobSet", ["a"]) == []


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, NotFound), (409, Conflict), (403, UserError), (500, Unavailable), (503, Unavailable), (429, Unavailable)],
)
def test_what_a_cluster_refuses_is_told_in_its_own_words(status: int, error: type[YardError], tmp_path: Path) -> None:
    with played_server(tmp_path) as server:
        server.on("GET /apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/x", Reply(status, {"message": "so not"}))
        with closing(NamespaceApi(server.config())) as cluster, pytest.raises(error, match="so not"):
            cluster.job("x")
        assert len(server.asked) == 1


def test_only_labels_are_asked_for_and_a_change_is_merged(tmp_path: Path) -> None:
    with played_server(tmp_path) as server:
        server.on("GET /api/v1/namespaces/ml/pods", Reply(200, {"items": None}))
        server.on("PATCH /apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/x", Reply(200, {"kind": "PyTorchJob"}))
        with closing(NamespaceApi(server.config())) as cluster:
            assert cluster.left_of("Pod", ["a"]) == []
            assert cluster.annotate("x", replicas="1") == {"kind": "PyTorchJob"}
    listed, changed = server.asked
    assert "PartialObjectMetadataList" in listed.headers["Accept"]
    assert listed.query == {"labelSelector": "jobyard.dev/job in (a)"}
    assert changed.headers["Content-Type"] == "application/merge-patch+json"
