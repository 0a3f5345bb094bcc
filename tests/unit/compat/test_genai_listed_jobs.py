"""Listing: which jobs does genai-workload-manager show, and how often is a cluster asked for them?"""

from __future__ import annotations

import time

import pytest
from tests.unit.compat.genai_world import (
    FORBIDDEN,
    UNANSWERED,
    FakeCluster,
    FakeYard,
    a_service,
    adopted,
    an_object,
    names,
    questions,
)

from jobyard.compat.genai.listing import CLEARED_SECONDS, KEPT_SECONDS, SEEN_SECONDS
from jobyard.model.job import State

DAY = KEPT_SECONDS


def test_what_never_changes_is_asked_once_however_often_jobs_are_looked_at() -> None:
    yard, cluster = FakeYard(), FakeCluster()
    for number in range(20):
        yard.put(f"job-{number}", 1)
    service = a_service(yard, cluster)
    assert [each.gpu_req for each in service.records()] == [1] * 20
    first = yard.asked.copy()
    assert first["job"] == 20
    for _ in range(5):
        service.tidy(service.records())
    asked = yard.asked - first
    assert asked == {"nodes": 5, "jobs": 5}
    assert len(cluster.asked) == 6  # one list of PyTorchJobs for each look


# -- what is listed


def test_what_ended_on_a_cluster_is_listed_while_its_object_is_there() -> None:
    yard = FakeYard()
    kept, deleted = yard.put("kept", 1), yard.put("deleted", 1, kind="Job")
    yard.put("runs", 1)
    yard.end(kept, at=time.time() - 9 * DAY)  # a Pod stays until somebody deletes it
    yard.end(deleted)
    cluster = FakeCluster(Pod=[an_object(kept)])
    service = a_service(yard, cluster)
    assert names(service) == ["kept", "runs"]
    asked = list(cluster.asked)
    assert names(service) == ["kept", "runs"]
    assert [each for each in cluster.asked[len(asked) :] if "/jobs" in each] == []  # what is gone is gone for good


@pytest.mark.parametrize(
    ("state", "tasks", "seconds", "is_listed"),
    [
        (State.SUCCEEDED, 1, 1, False),  # its object was there when it ended: somebody deleted it
        (State.FAILED, 1, 1, True),  # the yard may have cleared it away
        (State.SUCCEEDED, 2, 1, True),
        (State.FAILED, 1, CLEARED_SECONDS + 1, False),
        (State.CANCELLED, 1, 1, False),
    ],
)
def test_without_an_object_it_depends_on_who_may_have_removed_it(
    state: State, tasks: int, seconds: float, is_listed: bool
) -> None:
    yard = FakeYard()
    yard.end(yard.put("a", 1), state, time.time() - seconds, tasks)
    assert names(a_service(yard)) == (["a"] if is_listed else [])


@pytest.mark.parametrize(("age", "is_listed"), [(DAY / 2, True), (DAY * 2, False)])
def test_what_cannot_be_seen_and_what_ended_on_machines_is_listed_for_a_day(age: float, is_listed: bool) -> None:
    yard, cluster = FakeYard(), FakeCluster()
    yard.end(yard.put("away", 1), at=time.time() - age)
    yard.end(yard.put("machine", 1, (1, 2), cluster=""), at=time.time() - age)
    cluster.problem = UNANSWERED
    service = a_service(yard, cluster)
    assert names(service) == (["away", "machine"] if is_listed else [])
    cluster.problem = None
    cluster.objects["Pod", "away"] = an_object(yard.list[0])
    assert "away" in names(service)  # that it could not be seen was not for good


def test_a_cluster_that_does_not_answer_is_asked_once_for_each_look() -> None:
    yard, cluster = FakeYard(), FakeCluster()
    for kind in ("Pod", "Job", "PyTorchJob"):
        yard.end(yard.put(kind, 1, kind=kind))
    cluster.problem = UNANSWERED
    assert len(names(a_service(yard, cluster))) == 3
    assert len(cluster.asked) == 2  # for what is left, and for those of others


def test_what_is_left_is_asked_now_and_then_and_when_others_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    yard = FakeYard()
    first, second = yard.put("first", 1), yard.put("second", 1)
    yard.end(first)
    yard.end(yard.put("gone", 1))
    cluster = FakeCluster(Pod=[an_object(first), an_object(second)])
    service = a_service(yard, cluster)
    for _ in range(5):
        assert names(service) == ["first", "second"]
    assert questions(cluster, "pods") == 1
    yard.end(second)
    for _ in range(5):
        assert names(service) == ["first", "second"]
    assert questions(cluster, "pods") == 2
    cluster.objects.clear()  # by other hands
    now[0] += SEEN_SECONDS
    assert names(service) == []
    assert questions(cluster, "pods") == 3


def test_what_may_not_be_looked_at_is_asked_no_more_often() -> None:
    yard, cluster = FakeYard(), FakeCluster()
    yard.end(yard.put("a", 1))
    cluster.refused["GET", "Pod"] = FORBIDDEN
    service = a_service(yard, cluster)
    assert [names(service) for _ in range(3)] == [["a"]] * 3
    assert questions(cluster, "pods") == 1


def test_a_job_that_runs_again_is_listed_again() -> None:
    yard = FakeYard()
    job = yard.put("again", 1)
    yard.end(job)
    service = a_service(yard)
    assert names(service) == []
    yard.list[0] = job
    assert names(service) == ["again"]


def test_who_completed_is_told_also_where_it_is_listed_no_more() -> None:
    yard = FakeYard()
    job = yard.put("a", 1)
    yard.end(job)
    look = a_service(yard, FakeCluster(PyTorchJob=[adopted("Succeeded")])).look()
    assert [each.job_name for each in look.records] == ["theirs"]
    assert look.completed == {("a", job.id, 1001), ("theirs", "", 1767225600)}
