"""Growing: which job of genai-workload-manager gets the GPUs that are free?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.compat.genai_world import (
    FORBIDDEN,
    UNANSWERED,
    FakeCluster,
    FakeYard,
    a_pytorchjob,
    a_service,
    adopted,
)

from jobyard.compat.genai.errors import NotPossible
from jobyard.compat.genai.listing import KEPT_SECONDS
from jobyard.errors import Unavailable, UserError

DAY = KEPT_SECONDS


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
