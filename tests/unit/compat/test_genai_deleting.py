"""Deleting: what goes with a job of genai-workload-manager, and what is said of it?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.compat.genai_world import (
    CLUSTER,
    FORBIDDEN,
    UNANSWERED,
    FakeCluster,
    FakeYard,
    a_pod_of,
    a_pytorchjob,
    a_service,
    an_object,
    names,
    questions,
)

from jobyard.compat.genai.listing import KEPT_SECONDS
from jobyard.compat.genai.service import Service
from jobyard.errors import NotFound, Unavailable, UserError, YardError
from jobyard.model.job import Reason, State

DAY = KEPT_SECONDS


def test_delete_of_a_job_that_ended_removes_its_object_for_everybody() -> None:
    yard = FakeYard()
    pod, job = yard.put("pod", 1), yard.put("job", 1, kind="Job")
    yard.end(pod)
    yard.end(job, State.FAILED)
    cluster = FakeCluster(Pod=[an_object(pod), a_pod_of("theirs", "a")], Job=[an_object(job)])
    assert a_service(yard, cluster).delete("pod") == (
        f"pod had ended (completed); removed from the cluster: Pod pod-{pod.id}-a1"
    )
    assert names(a_service(yard, cluster)) == ["job"]  # as another process sees it
    mine = a_service(yard, cluster)
    assert mine.delete("job").startswith("job had ended (failed); removed from the cluster: Job job-")
    assert names(mine) == []
    assert list(cluster.objects) == [("Pod", "theirs-master-0")]
    with pytest.raises(NotFound):
        mine.delete("job")


def test_delete_removes_what_is_left_of_earlier_jobs_of_the_name() -> None:
    yard = FakeYard()
    old = yard.put("a", 1)
    yard.end(old)
    yard.put("a", 1)
    cluster = FakeCluster(Pod=[an_object(old)])
    assert a_service(yard, cluster).delete("a") == "a is stopped and deleted"
    assert cluster.objects == {}
    assert names(a_service(yard, cluster)) == []


def test_delete_asks_once_for_all_of_a_name_and_not_for_what_is_gone() -> None:
    yard = FakeYard()
    jobs = [yard.put("a", 1) for _ in range(5)]
    for job in jobs:
        yard.end(job)
    cluster = FakeCluster(Pod=[an_object(job) for job in jobs[1:]])
    service = a_service(yard, cluster)
    assert names(service) == ["a"]  # and the first one is gone for good
    cluster.asked.clear()
    assert service.delete("a").count(" Pod ") == 4
    assert cluster.objects == {}
    assert questions(cluster, "pods") == 1
    assert jobs[0].id not in next(each for each in cluster.asked if "/pods?" in each)


def test_a_kind_that_may_not_be_looked_at_is_not_what_a_job_left() -> None:
    """Of a job with several tasks that nobody gave a kind; where it has one, that is in the way."""
    yard = FakeYard()
    job, jobset = yard.put("a", 1, kind=""), yard.put("b", 1, kind="JobSet")
    yard.end(job, total=2)
    yard.end(jobset, total=2)
    cluster = FakeCluster(Job=[an_object(job)], JobSet=[an_object(jobset)])
    cluster.refused["GET", "JobSet"] = FORBIDDEN
    service = a_service(yard, cluster)
    assert service.delete("a") == f"a had ended (completed); removed from the cluster: Job a-{job.id}-a1"
    with pytest.raises(UserError, match="jobyard may not do that"):
        service.delete("b")
    assert names(service) == ["b"]


@pytest.mark.parametrize("what", [("GET", "Pod"), ("DELETE", "Pod")])
@pytest.mark.parametrize("problem", [FORBIDDEN, UNANSWERED])
def test_who_is_stopped_is_so_whatever_becomes_of_earlier_ones(what: tuple[str, str], problem: YardError) -> None:
    yard = FakeYard()
    old, job = yard.put("a", 1), yard.put("a", 1, kind="Job")
    yard.end(old)
    yard.end(yard.put("a", 1, kind="Job"))
    newest = yard.put("a", 1, kind="Job")
    cluster = FakeCluster(Pod=[an_object(old)], Job=[an_object(job)])
    cluster.refused[what] = problem
    said = a_service(yard, cluster).delete("a")
    assert said == f"a is stopped; what earlier jobs of its name left is not all removed: {problem}"
    assert next(each for each in yard.list if each.id == newest.id).state is State.CANCELLED


def test_what_cannot_be_removed_keeps_nothing_else_from_being_so() -> None:
    yard = FakeYard()
    old, new = yard.put("a", 1), yard.put("a", 1, kind="Job")
    yard.end(old)
    yard.end(new)
    cluster = FakeCluster(Pod=[an_object(old)], Job=[an_object(new)])
    cluster.refused["DELETE", "Pod"] = FORBIDDEN
    with pytest.raises(UserError, match="jobyard may not do that"):
        a_service(yard, cluster).delete("a")
    assert [kind for kind, _ in cluster.objects] == ["Pod"]


def test_delete_of_what_left_nothing_says_so_and_lists_it_no_more() -> None:
    yard = FakeYard()
    yard.end(yard.put("machine", 1, (1, 2), cluster=""))
    service = a_service(yard)
    assert service.delete("machine") == "machine had ended (completed); nothing of it was left to delete"
    assert names(service) == []


@pytest.mark.parametrize(
    ("state", "where"),
    [(State.FAILED, {}), (State.SUCCEEDED, {"kind": "Job"}), (State.SUCCEEDED, {"cluster": ""})],
    ids=["failed", "with an object", "on machines"],
)
def test_what_one_process_deletes_is_gone_from_the_lists_of_others_at_once(state: State, where: dict[str, Any]) -> None:
    yard = FakeYard()
    old, job = (yard.put("a", 1, (1, 2), **where) for _ in range(2))
    yard.end(old, state)
    yard.end(job, state)
    cluster = FakeCluster(Job=[an_object(job)] if "kind" in where else [])
    other = a_service(yard, cluster)
    assert names(other) == ["a"]
    a_service(yard, cluster).delete("a")
    assert names(other) == names(a_service(yard, cluster)) == []
    yard.end(job, state, at=9.0**10)  # it was retried, and has ended again
    assert names(a_service(yard, FakeCluster(Job=[an_object(job)]))) == ["a"]


def test_a_job_that_is_being_stopped_by_delete_is_gone_before_its_pods_are(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = FakeYard()
    job, yielding = yard.put("a", 1), yard.put("b", 1, state=State.STOPPING, reason=Reason.RESIZING)

    def begin_to_stop(selector: str, *, message: str) -> None:
        yard.list[0] = replace(job, state=State.STOPPING, reason=Reason.CANCELLED)

    monkeypatch.setattr(yard, "cancel", begin_to_stop)
    other = a_service(yard)
    assert names(other) == ["a", "b"]
    assert a_service(yard).delete("a") == "a is stopped and deleted"
    assert names(other) == [yielding.name]
    with pytest.raises(NotFound):
        other.delete("a")


def test_a_pytorchjob_of_others_that_is_about_to_go_is_not_listed() -> None:
    going = a_pytorchjob(condition="Running", deletionTimestamp="2026-01-01T00:00:09Z")
    assert names(a_service(FakeYard(), FakeCluster(PyTorchJob=[going]))) == []


def test_what_the_yard_cannot_write_down_is_not_said_to_be_deleted() -> None:
    yard = FakeYard()
    yard.end(yard.put("machine", 1, (1, 2), cluster=""))
    yard.problem = UNANSWERED
    service = a_service(yard)
    with pytest.raises(Unavailable):
        service.delete("machine")
    assert names(service) == ["machine"]


def test_what_cannot_be_removed_is_not_said_to_be() -> None:
    yard, cluster = FakeYard(), FakeCluster()
    yard.end(yard.put("a", 1))
    cluster.problem = UNANSWERED
    service = a_service(yard, cluster)
    with pytest.raises(Unavailable):
        service.delete("a")
    assert names(service) == ["a"]


def test_of_a_cluster_that_the_yard_has_no_more_nothing_is_left() -> None:
    yard = FakeYard()
    yard.end(yard.put("a", 1), State.FAILED)
    yard.views = []
    assert a_service(yard).delete("a") == "a had ended (failed); nothing of it was left to delete"


def test_one_of_several_clusters_is_chosen_by_its_name() -> None:
    yard = FakeYard()
    asked: list[Any] = []

    def reach(view: Any) -> FakeCluster:
        asked.append(view.id)
        return FakeCluster()

    yard.views = [replace(yard.views[0], id="other"), *yard.views]
    Service(lambda: yard, CLUSTER, reach=reach).records()  # type: ignore[arg-type, return-value]
    assert asked == [CLUSTER]
    with pytest.raises(UserError, match="GENAI_CLUSTER: the yard has no cluster 'none'; it has other, kubernetes"):
        a_service(yard, cluster_name="none").cluster()
