"""Who makes room for whom, at what loss, and who is left alone."""

from __future__ import annotations

import pytest

from jobyard.model.job import Reason
from jobyard.model.training import Size
from jobyard.scheduling.snapshot import Member, Request
from tests.builders import a_node
from tests.unit.scheduling.yards import Yard, a_yard, ask, gpu_range, stopped, wants, wants_any, worker_range

# -- who stops ---------------------------------------------------------------------------------------------------------


def test_a_job_of_lower_priority_stops_for_one_that_waits() -> None:
    yard = a_yard(1)
    yard.runs("low", 1)
    found = yard.plan(wants("high", 2, priority=1))
    assert [(stop.job, stop.reason, stop.size) for stop in found.stops] == [("low", Reason.PREEMPTED, None)]
    assert found.stops[0].sentence == "stops at its next checkpoint to make room for job high of higher priority"
    assert not found.openings


@pytest.mark.parametrize(
    "other",
    [{"priority": 1}, {"priority": 2}, {"is_last_epoch": True}, {"can_yield": False}],
    ids=["as important", "more important", "in its last epoch", "cannot come back"],
)
def test_these_are_left_alone(other: dict[str, int | bool]) -> None:
    yard = a_yard(1)
    yard.runs("running", 1, **other)  # type: ignore[arg-type]
    assert not yard.plan(wants("high", 2, priority=1)).stops


def test_nobody_stops_while_there_is_room() -> None:
    yard = a_yard(2)
    yard.runs("low", 1)
    found = yard.plan(wants("high", 2, priority=1))
    assert [opening.job for opening in found.openings] == ["high"]
    assert not found.stops


def test_least_work_lost_per_gpu_decides() -> None:
    yard = a_yard(6)
    yard.runs("large", 1, gpus=4, lost_seconds=60)  # 240 GPU seconds, for the one GPU that is lacking
    yard.runs("dear", 2, lost_seconds=300)
    yard.runs("cheap", 3, lost_seconds=100)
    assert stopped(yard.plan(wants("high", 9, gpus=1, priority=1))) == ["cheap"]
    assert stopped(yard.plan(wants("high", 9, gpus=2, priority=1))) == ["large"]


def test_the_loss_of_a_node_is_that_of_all_who_would_stop_there() -> None:
    yard = a_yard(2, 2)
    yard.runs("a1", 1, "n1", lost_seconds=10)
    yard.runs("a2", 2, "n1", lost_seconds=500)
    yard.runs("b1", 3, "n2", lost_seconds=100)
    yard.runs("b2", 4, "n2", lost_seconds=100)
    assert sorted(stopped(yard.plan(wants("high", 9, gpus=2, priority=1)))) == ["b1", "b2"]


def test_of_equal_losses_the_least_important_and_then_the_youngest_stops() -> None:
    yard = a_yard(3)
    yard.runs("older", 1)
    yard.runs("younger", 2)
    assert stopped(yard.plan(wants("high", 9, gpus=2, priority=5))) == ["younger"]
    yard.runs("least", 0, priority=-1)
    assert stopped(yard.plan(wants("high", 9, gpus=1, priority=5))) == ["least"]


def test_nobody_is_stopped_in_vain() -> None:
    yard = a_yard(4)
    yard.runs("rigid", 1, gpus=2, can_yield=False)
    yard.runs("low", 2, gpus=2)
    found = yard.plan(wants("high", 9, gpus=4, priority=1))
    assert not found.stops
    # nor for one who comes later, and would have to wait for the same room
    assert not yard.plan(wants("high", 9, gpus=4, priority=2), wants("next", 10, gpus=2, priority=1)).stops


def test_no_more_stop_than_must() -> None:
    yard = a_yard(6)
    yard.runs("small", 1, gpus=1, lost_seconds=1)
    yard.runs("medium", 2, gpus=2, lost_seconds=3)
    yard.runs("large", 3, gpus=3, lost_seconds=5)
    assert stopped(yard.plan(wants("high", 9, gpus=1, priority=1))) == ["small"]
    assert stopped(yard.plan(wants("high", 9, gpus=2, priority=1))) == ["medium"]
    assert sorted(stopped(yard.plan(wants("high", 9, gpus=3, priority=1)))) == ["medium", "small"]
    assert stopped(yard.plan(wants("high", 9, gpus=4, priority=1))) != ["large", "medium", "small"]


def test_a_job_stops_whole_and_what_it_frees_elsewhere_is_used() -> None:
    yard = a_yard(2, 2)
    yard.runs("gang", 1, "n1", "n1", "n2", "n2", lost_seconds=10)
    found = yard.plan(wants("high", 8, gpus=2, priority=2), wants("next", 9, gpus=2, priority=1))
    assert stopped(found) == ["gang"]
    assert "job gang stops at its next checkpoint to make room" in found.waits["next"].sentence


def test_a_gang_gets_room_for_all_of_it_or_nobody_stops() -> None:
    yard = a_yard(2, 2)
    yard.runs("a", 1, "n1", gpus=2)
    yard.runs("b", 2, "n2", gpus=2)
    assert sorted(stopped(yard.plan(wants("high", 9, workers=4, priority=1)))) == ["a", "b"]
    assert not yard.plan(wants("high", 9, workers=5, priority=1)).stops


def test_an_array_gets_what_there_is_to_get() -> None:
    yard = a_yard(2)
    yard.runs("a", 1)
    yard.runs("b", 2)
    array = Request("high", 1, 9, (Member(0, ask(gpus=1), 1000),))
    assert sorted(stopped(yard.plan(array))) == ["a", "b"]


def test_only_where_the_request_may_go() -> None:
    yard = a_yard(1, 1)
    yard.runs("a", 1, "n1", lost_seconds=1)
    yard.runs("b", 2, "n2", lost_seconds=100)
    assert stopped(yard.plan(wants("high", 9, priority=1, on="n2"))) == ["b"]


def test_cores_are_made_free_as_well() -> None:
    yard = Yard(a_node("n1", cpus=4))
    yard.runs("wide", 1, resources=ask(3), devices=(), lost_seconds=10)
    yard.runs("narrow", 2, resources=ask(1), devices=(), lost_seconds=10)
    assert stopped(yard.plan(Request("high", 1, 9, (Member(0, ask(1), 1),)))) == ["narrow"]
    assert stopped(yard.plan(Request("high", 1, 9, (Member(0, ask(3), 1),)))) == ["wide"]


def test_a_share_of_a_gpu_is_made_free_by_who_holds_enough_of_it() -> None:
    yard = Yard(a_node("n1", cpus=16, gpus=1, gpu_mib=80000))
    yard.runs("thin", 1, resources=ask(1, gpus=1, gpu_mem=10000), devices=(0,), lost_seconds=10)
    yard.runs("thick", 2, resources=ask(1, gpus=1, gpu_mem=60000), devices=(0,), lost_seconds=10)
    share = Request("high", 1, 9, (Member(0, ask(1, gpus=1, gpu_mem=30000), 1),))
    assert stopped(yard.plan(share)) == ["thick"]


# -- over several cycles -----------------------------------------------------------------------------------------------


def test_nobody_is_asked_twice_and_nobody_else_meanwhile() -> None:
    yard = a_yard(2)
    yard.runs("a", 1)
    yard.runs("b", 2)
    request = wants("high", 9, priority=1)
    first = yard.plan(request)
    assert len(first.stops) == 1
    yard.obey(first)
    for _ in range(3):
        again = yard.plan(request)
        assert not again.stops
        assert f"job {first.stops[0].job} stops at its next checkpoint to make room" in again.waits["high"].sentence


def test_who_waits_says_who_makes_room_for_it() -> None:
    yard = a_yard(2)
    yard.runs("a", 1)
    yard.runs("b", 2)
    wait = yard.plan(wants("high", 9, gpus=2, priority=1)).waits["high"]
    assert wait.reason is Reason.RESOURCES
    assert wait.sentence.endswith("; jobs a, b stop at their next checkpoint to make room")


def test_a_second_request_gets_a_second_job_to_stop() -> None:
    yard = a_yard(2)
    yard.runs("a", 1)
    yard.runs("b", 2)
    yard.obey(yard.plan(wants("high", 8, priority=1)))
    found = yard.plan(wants("high", 8, priority=1), wants("higher", 9, priority=2))
    assert stopped(found) == ["a"]


def test_what_comes_back_first_is_not_counted_as_free() -> None:
    yard = a_yard(1, 1)
    yard.runs("middle", 1, "n1", priority=5, is_stopping=True)
    yard.runs("low", 2, "n2")
    assert stopped(yard.plan(wants("waiting", 9, priority=3))) == ["low"]


# -- smaller rather than stopped ---------------------------------------------------------------------------------------


def test_an_elastic_job_becomes_smaller_for_one_of_its_own_priority() -> None:
    yard = a_yard(4)
    yard.runs("elastic", 1, gpus=4, sizes=gpu_range(1, 4))
    (stop,) = yard.plan(wants("other", 2, gpus=1)).stops
    assert (stop.job, stop.reason, stop.size) == ("elastic", Reason.RESIZING, Size(1, 3))
    assert stop.sentence == "goes from 4 GPUs to 3 GPUs at its next checkpoint to make room for job other"


def test_it_does_not_for_one_of_lower_priority_nor_below_its_smallest_size() -> None:
    yard = a_yard(4)
    yard.runs("elastic", 1, gpus=4, sizes=gpu_range(2, 4))
    assert not yard.plan(wants("low", 2, gpus=1, priority=-1)).stops
    assert not yard.plan(wants("other", 2, gpus=3)).stops
    assert stopped(yard.plan(wants("high", 2, gpus=3, priority=1))) == ["elastic"]


def test_becoming_smaller_is_preferred_to_stopping() -> None:
    yard = a_yard(6)
    yard.runs("rigid", 1, gpus=2, lost_seconds=0)
    yard.runs("elastic", 2, gpus=4, sizes=gpu_range(1, 4), lost_seconds=500)
    (stop,) = yard.plan(wants("high", 9, gpus=2, priority=1)).stops
    assert (stop.job, stop.size) == ("elastic", Size(1, 2))


def test_a_gang_gives_up_workers_where_they_are_wanted() -> None:
    yard = a_yard(2, 2)
    yard.runs("elastic", 1, "n1", "n1", "n2", "n2", sizes=worker_range(1, 4))
    (stop,) = yard.plan(wants("other", 9, gpus=2, on="n1")).stops
    assert stop.size == Size(2, 1)
    (stop,) = yard.plan(wants("other", 9, gpus=2, on="n2")).stops
    assert stop.size == Size(2, 1)


def test_one_that_is_becoming_smaller_is_waited_for() -> None:
    yard = a_yard(4)
    yard.runs("elastic", 1, gpus=3, sizes=gpu_range(1, 4))
    yard.runs("low", 2, gpus=1, priority=-1)
    request = wants("other", 9, gpus=2)
    yard.obey(yard.plan(request))
    assert [each.job for each in yard.running if each.is_stopping] == ["elastic"]
    assert not yard.plan(request).stops


def test_room_that_is_kept_for_a_growing_job_goes_to_who_waits_meanwhile() -> None:
    yard = a_yard(4)
    yard.runs("elastic", 1, gpus=2, sizes=gpu_range(1, 4), epochs_left=50, epoch_seconds=((Size(1, 2), 100.0),))
    yard.runs("low", 2, gpus=1, priority=-1)
    yard.obey(yard.plan())
    assert yard.claims
    found = yard.plan(wants("other", 9, gpus=1))
    assert not found.stops
    assert not found.openings


def test_an_elastic_job_that_waits_asks_for_its_smallest_size() -> None:
    yard = a_yard(4)
    yard.runs("low", 1, gpus=2, lost_seconds=1)
    yard.runs("lower", 2, gpus=2, lost_seconds=2)
    found = yard.plan(wants_any("high", 9, *gpu_range(2, 4), priority=1))
    assert stopped(found) == ["low"]
