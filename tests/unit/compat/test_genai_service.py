"""The service: who grows, what is listed, what is deleted, and how much is asked for that."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.compat.genai_world import (
    CLUSTER,
    FORBIDDEN,
    UNANSWERED,
    FakeCluster,
    FakeYard,
    Object,
    a_pod_of,
    a_pytorchjob,
    a_service,
    an_object,
)

from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.listing import CLEARED_SECONDS, KEPT_SECONDS, SEEN_SECONDS
from jobyard.compat.genai.service import Service
from jobyard.errors import NotFound, Unavailable, UserError, YardError
from jobyard.model.job import Reason, State

DAY = KEPT_SECONDS


def names(service: Service) -> list[str]:
    return [each.job_name for each in service.records()]


# -- who grows


def two_on_two_nodes() -> FakeYard:
    """The first in order saved last, and its node is full; the other one's has room."""
    yard = FakeYard()
    yard.free = {"a": (8, 0), "b": (4, 2)}
    yard.put("x", 4, (1, 8), saved_at=2000.0, node="a")
    yard.put("y", 2, (1, 4), saved_at=1900.0, node="b")
    return yard


def test_the_first_candidate_that_fits_grows_and_not_only_the_first() -> None:
    yard = two_on_two_nodes()
    service = a_service(yard, at_once=True)
    assert service.grow_next(service.records()) == "y goes from 2 to 4 GPUs at its next checkpoint"
    assert yard.scaled == [("00000002", 4)]
    assert a_service(two_on_two_nodes()).scale() == "y goes from 2 to 4 GPUs at its next checkpoint"


def test_nobody_waits_for_a_checkpoint_who_could_not_grow_then() -> None:
    yard = two_on_two_nodes()
    for index, job in enumerate(yard.list):
        assert job.training
        yard.list[index] = replace(job, training=replace(job.training, saved_at=None))
    service = a_service(yard)
    x, y = service.records()
    assert service.grow_next([x, y]) == "y grows after its next checkpoint"
    assert (service.state.is_waiting(x), service.state.is_waiting(y)) == (False, True)
    assert yard.scaled == []
    assert service.has_saved(x) == ""
    assert service.has_saved(y) == "y goes from 2 to 4 GPUs"
    assert service.has_saved(y) == ""


def test_where_there_is_no_room_any_more_it_is_the_next_ones_turn() -> None:
    yard = two_on_two_nodes()
    service = a_service(yard)
    x, _ = service.records()
    service.state.let_wait(x)  # when there was
    assert service.has_saved(x) == "y goes from 2 to 4 GPUs at its next checkpoint"
    yard.free = {"a": (8, 0), "b": (4, 0)}
    service.state.let_wait(x)
    assert service.has_saved(x) == "nobody grows: job x has 4 of 8 GPUs, and there is no room for more"


def test_where_nobody_fits_the_reason_of_the_first_is_told() -> None:
    yard = two_on_two_nodes()
    yard.free = {"a": (8, 0), "b": (4, 0)}
    service = a_service(yard)
    with pytest.raises(NotPossible, match="job x has 4 of 8 GPUs, and there is no room for more"):
        service.grow_next(service.records())
    with pytest.raises(NotPossible, match="job x has 4 of 8 GPUs"):
        service.scale()
    with pytest.raises(NotPossible, match="there is no job to scale: none runs"):
        a_service(FakeYard()).scale()


def test_one_that_the_yard_refuses_to_resize_stands_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = two_on_two_nodes()
    yard.free = {"a": (8, 4), "b": (4, 2)}

    def refuse(selector: str, *, gpus: int | None = None) -> None:
        if selector == "00000001":
            raise UserError("it cannot")
        yard.scaled.append((selector, gpus))

    monkeypatch.setattr(yard, "scale_job", refuse)
    service = a_service(yard, at_once=True)
    service.grow_next(service.records())
    assert yard.scaled == [("00000002", 4)]


@pytest.mark.parametrize("what", [("PATCH", "PyTorchJob"), ("GET", "Pod")])
def test_one_of_others_that_cannot_be_changed_or_seen_stands_in_nobodys_way(what: tuple[str, str]) -> None:
    yard = two_on_two_nodes()
    yard.free = {"a": (8, 4), "b": (4, 2)}
    cluster = FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")])
    cluster.refused[what] = FORBIDDEN
    service = a_service(yard, cluster, at_once=True)
    theirs = next(each for each in service.records() if not each.is_ours)
    theirs = replace(theirs, last_checkpoint_time=3000)
    assert service.grow_next([theirs, *(each for each in service.records() if each.is_ours)]).startswith("x goes")
    with pytest.raises(NotPossible, match="jobyard may not do that"):
        service.grow_next([theirs])
    service.state.let_wait(theirs)
    assert service.has_saved(theirs).startswith("x goes")  # the checkpoint of one lets another one grow


def test_where_it_is_not_known_whether_one_was_resized_no_other_is_given_the_same() -> None:
    yard = two_on_two_nodes()
    cluster = FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")])
    cluster.refused["PATCH", "PyTorchJob"] = UNANSWERED
    service = a_service(yard, cluster, at_once=True)
    records = [
        replace(each, last_checkpoint_time=each.last_checkpoint_time if each.is_ours else 9**10)
        for each in service.records()
    ]
    with pytest.raises(Unavailable):
        service.grow_next(records)
    assert yard.scaled == []


def adopted(condition: str, mark: str = "") -> Object:
    job = a_pytorchjob(condition=condition)
    if mark:
        job["metadata"]["annotations"]["jobyard.dev/scaling"] = mark
        job["spec"]["runPolicy"] = {"suspend": True}
    return job


def test_while_one_is_being_resized_nobody_else_is_chosen() -> None:
    yard = two_on_two_nodes()
    service = a_service(yard, FakeCluster(PyTorchJob=[adopted("Running", "3")]), at_once=True)
    assert service.grow_next(service.records()) == ""
    assert yard.scaled == []


def test_an_adopted_job_that_ended_while_it_was_scaled_stands_in_nobodys_way() -> None:
    yard, job = two_on_two_nodes(), adopted("Succeeded", "3")
    service = a_service(yard, FakeCluster(PyTorchJob=[job]), at_once=True)
    assert service.grow_next(service.records()).startswith("y goes from 2 to 4")
    service.tidy(service.records())
    assert "jobyard.dev/scaling" not in job["metadata"]["annotations"]
    with pytest.raises(NotPossible, match=r"job theirs has ended \(completed\)"):
        service.scale("theirs")


def test_one_that_waited_is_not_taken_for_the_next_job_of_its_name() -> None:
    yard = two_on_two_nodes()
    service = a_service(yard)
    first = next(each for each in service.records() if each.job_name == "y")
    service.state.let_wait(first)
    assert not service.state.is_waiting(replace(first, key="other"))
    assert not service.state.take(replace(first, job_arrival_time=9999))
    assert service.state.take(first)


def test_a_job_that_cannot_go_on_holds_up_nobody_else_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gone_on, told = list[str](), list[str]()

    def go_on(name: str) -> bool:
        if name == "bad":
            raise Unavailable("refused")
        gone_on.append(name)
        return True

    jobs = [a_pytorchjob(name, condition="Suspended") for name in ("bad", "good")]
    for job in jobs:
        job["metadata"]["annotations"]["jobyard.dev/scaling"] = "2"
    cluster = FakeCluster(PyTorchJob=jobs)
    monkeypatch.setattr(cluster, "go_on", go_on)
    service = a_service(FakeYard(), cluster, warn=told.append)
    service.tidy(service.records())
    service.tidy(service.records())
    assert gone_on == ["good", "good"]
    assert told == ["job bad could not be resized or resumed yet: refused"]


# -- what is asked


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


def questions(cluster: FakeCluster, kind: str) -> int:
    """What was asked about what is left."""
    return len([each for each in cluster.asked if f"/{kind}?" in each])


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


# -- what is deleted


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
