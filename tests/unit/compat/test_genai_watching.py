"""When a job has completed another one grows: once for each end, whoever tells of it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from tests.unit.compat.genai_world import FORBIDDEN, UNANSWERED, FakeCluster, FakeYard, Object, a_pytorchjob, a_service

from jobyard.compat.genai.records import JobMetadata
from jobyard.compat.genai.service import Service
from jobyard.compat.genai.watching import CHANCES, Watch
from jobyard.model.job import Reason


class Grown:
    """How often somebody was to grow at a service where there is always room."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(service, "grow_next", self._use)

    def _use(self, records: list[JobMetadata]) -> str:
        self.times += 1
        return "somebody grows"


def completed(job: Object) -> None:
    job["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}


def test_each_adopted_job_that_completes_lets_somebody_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them has a key."""
    jobs = [a_pytorchjob(name, condition="Running") for name in ("one", "two", "three")]
    service = a_service(FakeYard(), FakeCluster(PyTorchJob=jobs))
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.look()
    for number, job in enumerate(jobs, 1):
        completed(job)
        watch.look()
        watch.look()
        assert grown.times == number


def test_another_job_of_the_same_name_is_another_end(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_pytorchjob(condition="Succeeded")
    service = a_service(FakeYard(), FakeCluster(PyTorchJob=[job]))
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.look()
    assert grown.times == 0  # it ended before anybody looked
    job["metadata"]["creationTimestamp"] = "2026-02-02T00:00:00Z"
    watch.look()
    assert grown.times == 1


def test_a_cluster_that_was_away_does_not_make_its_jobs_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_pytorchjob(condition="Running")
    cluster = FakeCluster(PyTorchJob=[job])
    service = a_service(FakeYard(), cluster)
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.look()
    completed(job)
    for problem in (None, UNANSWERED, None, UNANSWERED, None):
        cluster.problem = problem
        watch.look()
    assert grown.times == 1


def test_two_that_end_between_two_looks_let_two_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = FakeYard()
    jobs = [yard.put(name, 1) for name in ("a", "b")]
    service = a_service(yard)
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.look()
    for job in jobs:
        yard.end(job)
    for _ in range(4):
        watch.look()
    assert grown.times == 2


def test_an_end_that_is_told_and_seen_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = FakeYard()
    job = yard.put("a", 1)
    service = a_service(yard)
    (record,) = service.records()
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.look()
    yard.end(job)
    watch.completed(record)
    assert grown.times == 1  # at once
    watch.completed(record)
    watch.look()
    assert grown.times == 1


def test_one_that_ended_before_anybody_looked_counts_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = FakeYard()
    job = yard.put("a", 1)
    service = a_service(yard)
    (record,) = service.records()
    yard.end(job)
    grown, watch = Grown(service, monkeypatch), Watch(service)
    watch.completed(record)
    watch.completed(record)
    assert grown.times == 1


def test_telling_of_an_end_fails_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where nobody fits nor where the yard does not answer."""
    yard = FakeYard()
    job = yard.put("a", 1)
    service = a_service(yard)
    (record,) = service.records()
    watch = Watch(service)
    watch.look()
    yard.end(job)
    watch.completed(record)

    def fail() -> None:
        raise UNANSWERED

    monkeypatch.setattr(service, "look", fail)
    watch.completed(record)


def test_who_tells_while_another_looks_chooses_nobody_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In checkpoint mode two would wait for their checkpoints, for one job that ended."""
    yard = FakeYard()
    yard.free = {"a": (8, 4)}
    for name in ("x", "y"):
        yard.put(name, 1, (1, 4))
    job = yard.put("done", 1)
    service = a_service(yard)
    done = next(each for each in service.records() if each.job_name == "done")
    watch = Watch(service)
    watch.look()
    yard.end(job)
    threads = [threading.Thread(target=watch.completed, args=(done,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(service.state.is_waiting(each) for each in service.records()) == 1


def test_room_that_is_not_free_yet_is_looked_for_again_and_then_given_up() -> None:
    yard = FakeYard()
    yard.free = {"a": (4, 0)}
    yard.put("x", 1, (1, 4), saved_at=1500.0)
    job = yard.put("done", 3)
    service = a_service(yard)
    watch = Watch(service)
    watch.look()
    yard.end(job)
    watch.look()
    assert yard.scaled == []
    yard.free = {"a": (4, 3)}
    watch.look()
    assert yard.scaled == [("00000001", 4)]
    another = yard.put("another", 3)
    yard.free = {"a": (4, 0)}
    yard.end(another)
    for _ in range(CHANCES):
        watch.look()
    yard.free = {"a": (4, 3)}
    watch.look()
    assert len(yard.scaled) == 1


def test_a_turn_that_nobody_may_take_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a job of others that we may not change nor a lost cluster keeps it for ever."""
    yard = FakeYard()
    yard.free = {"a": (8, 4)}
    job = yard.put("done", 1)
    cluster = FakeCluster(PyTorchJob=[a_pytorchjob(condition="Running")])
    cluster.refused["PATCH", "PyTorchJob"] = FORBIDDEN
    service = a_service(yard, cluster, at_once=True)
    watch = Watch(service)
    watch.look()
    yard.end(job)
    for _ in range(CHANCES + 2):
        watch.look()
    assert len([each for each in cluster.asked if each.startswith("PATCH")]) == CHANCES
    asked = list[str]()

    def lose(_: list[JobMetadata]) -> str:
        asked.append("room")
        raise FORBIDDEN

    monkeypatch.setattr(service, "grow_next", lose)
    yard.end(yard.put("another", 1))
    for _ in range(CHANCES + 2):
        watch.look()
    assert len(asked) == CHANCES


def test_while_somebody_is_resized_no_chance_is_lost() -> None:
    yard = FakeYard()
    yard.free = {"a": (4, 3)}
    yard.put("x", 1, (1, 4), saved_at=1500.0)
    resized = yard.put("resized", 1, (1, 2), reason=Reason.RESIZING)
    job = yard.put("done", 1)
    service = a_service(yard)
    watch = Watch(service)
    watch.look()
    yard.end(job)
    for _ in range(CHANCES + 1):
        watch.look()
    assert yard.scaled == []
    yard.list[1] = replace(resized, reason=None)
    watch.look()
    assert [gpus for _, gpus in yard.scaled] == [4]


def test_a_checkpoint_that_the_yard_heard_of_is_a_turn_too() -> None:
    yard = FakeYard()
    yard.free = {"a": (4, 3)}
    job = yard.put("x", 1, (1, 4))
    service = a_service(yard)
    watch = Watch(service)
    watch.look()
    (record,) = service.records()
    service.state.let_wait(record)
    watch.look()
    assert yard.scaled == []
    assert job.training
    yard.list[0] = replace(job, training=replace(job.training, saved_at=2000.0))
    watch.look()
    assert yard.scaled == [(job.id, 4)]
