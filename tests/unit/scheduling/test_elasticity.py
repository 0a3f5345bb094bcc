"""Elastic jobs: how large they start, when they grow, and whether that pays."""

from __future__ import annotations

from typing import Any

import pytest

from jobyard.model.job import Reason
from jobyard.model.resources import DeviceSlice
from jobyard.model.training import Size
from jobyard.scheduling.elasticity import pays, predict_epoch_seconds
from jobyard.scheduling.snapshot import Member, Request, Running
from tests.builders import a_node
from tests.unit.scheduling.yards import Yard, a_yard, ask, gpu_range, stopped, wants, wants_any, worker_range


def trains(gpus: int = 2, **other: Any) -> dict[str, Any]:
    """Half-way through a long training, measured at the size that it has."""
    measured = {"epochs_left": 50.0, "epoch_seconds": ((Size(1, gpus), 100.0),), "restart_seconds": 30.0}
    return measured | {"gpus": gpus, "sizes": gpu_range(1, 8)} | other


# -- how large it starts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "expected"), [(8, 6), (6, 6), (5, 5), (2, 2)])
def test_it_starts_as_large_as_there_is_room(free: int, expected: int) -> None:
    (opening,) = a_yard(free).plan(wants_any("e", 1, *gpu_range(2, 6))).openings
    assert opening.placement.resources.gpus == len(opening.placement.devices) == expected


def test_a_gang_starts_with_as_many_workers_as_fit() -> None:
    found = a_yard(2, 3).plan(wants_any("e", 1, *worker_range(2, 8)))
    assert len(found.openings) == 5


def test_one_that_does_not_fit_keeps_a_place_for_its_smallest_size_and_says_so() -> None:
    yard = a_yard(4)
    yard.runs("rigid", 1, gpus=3, can_yield=False)
    found = yard.plan(wants_any("e", 2, *gpu_range(2, 4)), wants("later", 3, gpus=1))
    assert not found.openings
    assert found.waits["e"].sentence == "needs 1 cpu, 2 GPUs; n1 has 1 free GPUs of 4"
    assert found.waits["later"].reason is Reason.PRIORITY


def test_others_of_its_priority_get_theirs_before_it_takes_more() -> None:
    found = a_yard(4).plan(wants_any("e", 1, *gpu_range(1, 4)), wants("rigid", 2, gpus=2), wants("low", 3, priority=-1))
    assert {o.job: o.placement.resources.gpus for o in found.openings} == {"rigid": 2, "e": 2}


def test_several_take_turns() -> None:
    found = a_yard(8).plan(wants_any("a", 1, *gpu_range(1, 8)), wants_any("b", 2, *gpu_range(1, 3)))
    assert {o.job: o.placement.resources.gpus for o in found.openings} == {"a": 5, "b": 3}


def test_it_takes_nothing_that_an_earlier_job_waits_for() -> None:
    yard = a_yard(8, 2)
    yard.runs("rigid", 1, "n1", gpus=2, can_yield=False)
    found = yard.plan(wants("large", 2, gpus=8), wants_any("e", 3, *gpu_range(1, 8)))
    assert {o.job: (o.placement.node, o.placement.resources.gpus) for o in found.openings} == {"e": ("n2", 2)}


# -- when it grows -----------------------------------------------------------------------------------------------------


def test_it_grows_into_free_room_on_its_own_node() -> None:
    yard = a_yard(4, 8)
    yard.runs("e", 1, **trains(2))
    (stop,) = yard.plan().stops
    assert (stop.job, stop.reason, stop.size) == ("e", Reason.RESIZING, Size(1, 4))
    assert [(each.node, each.resources.gpus) for each in stop.claim] == [("n1", 2)]
    assert stop.claim[0].devices == (DeviceSlice(2, 80000), DeviceSlice(3, 80000))
    assert stop.claim[0].resources.cpu_millis == 0
    assert stop.sentence == "goes from 2 GPUs to 4 GPUs at its next checkpoint: there is room for it"


def test_it_grows_by_workers_on_its_nodes() -> None:
    yard = a_yard(2, 4, 4)
    own: dict[str, Any] = {"sizes": worker_range(1, 10), "epochs_left": 50.0, "epoch_seconds": ((Size(2, 1), 100.0),)}
    yard.runs("e", 1, "n1", "n2", **own)
    (stop,) = yard.plan().stops
    assert stop.size == Size(6, 1)
    assert sorted(each.node for each in stop.claim) == ["n1", "n2", "n2", "n2"]
    assert {each.resources for each in stop.claim} == {ask(gpus=1)}


def test_what_is_claimed_is_given_to_nobody_else() -> None:
    yard = a_yard(4)
    yard.runs("e", 1, **trains(2))
    yard.obey(yard.plan())
    found = yard.plan(wants("other", 2))
    assert not found.openings
    assert not found.stops


def test_one_at_a_time_higher_priority_first_then_who_saved_last() -> None:
    yard = a_yard(8)
    yard.runs("long ago", 1, **trains(1, lost_seconds=90.0))
    yard.runs("just now", 2, **trains(1, lost_seconds=5.0))
    assert stopped(yard.plan()) == ["just now"]
    yard.runs("important", 3, priority=1, **trains(1, lost_seconds=300.0))
    assert stopped(yard.plan()) == ["important"]


@pytest.mark.parametrize(
    "other", [{"is_last_epoch": True}, {"is_stopping": True}, {"epoch_seconds": ()}, {"sizes": ()}]
)
def test_these_do_not_grow(other: dict[str, Any]) -> None:
    yard = a_yard(4)
    yard.runs("e", 1, **trains(2, **other))
    assert not yard.plan().stops


def test_it_does_not_grow_while_somebody_waits_for_that_room() -> None:
    yard = a_yard(8)
    yard.runs("e", 1, priority=5, **trains(2))
    assert stopped(yard.plan()) == ["e"]
    yard.runs("rigid", 2, gpus=4, can_yield=False)
    assert not yard.plan(wants("large", 3, gpus=4)).stops
    assert stopped(yard.plan(wants("never", 3, gpus=100))) == ["e"]
    assert stopped(yard.plan(wants("plain", 3, gpus=0, on="nowhere"))) == ["e"]


def test_a_job_that_became_smaller_does_not_grow_back_while_the_other_waits() -> None:
    yard = a_yard(4)
    yard.runs("e", 1, **trains(3))  # it had 4; the other wants 2, and one more has to become free
    yard.runs("rigid", 2, gpus=0, can_yield=False)
    found = yard.plan(wants("other", 3, gpus=2, priority=-1))
    assert not found.stops


def test_a_shared_gpu_is_not_counted_twice_for_one_task() -> None:
    yard = Yard(a_node("n1", cpus=16, gpus=2, gpu_mib=80000))
    share = ask(1, gpus=1, gpu_mem=10000)
    sizes: dict[str, Any] = {"sizes": gpu_range(1, 4), "epochs_left": 50.0, "epoch_seconds": ((Size(1, 1), 100.0),)}
    yard.runs("e", 1, resources=share, devices=(0,), **sizes)
    (stop,) = yard.plan().stops
    assert stop.size == Size(1, 2)
    assert stop.claim[0].devices == (DeviceSlice(1, 10000),)


# -- whether it pays ---------------------------------------------------------------------------------------------------


def a_training(**other: Any) -> Running:
    own: dict[str, Any] = {
        "epochs_left": 11.0,
        "epoch_seconds": ((Size(1, 1), 100.0),),
        "restart_seconds": 60.0,
        "sizes": gpu_range(1, 8),
    }
    return Running("e", 0, 1, ("1",), Size(1, 1), **(own | other))


def test_it_pays_if_the_epochs_left_save_more_than_twice_the_restart() -> None:
    assert pays(a_training(), Size(1, 2))  # ten epochs save 46 s each
    assert not pays(a_training(epochs_left=3.0), Size(1, 2))
    assert not pays(a_training(restart_seconds=240.0), Size(1, 2))


def test_the_epoch_that_runs_gains_nothing() -> None:
    assert not pays(a_training(epochs_left=1.0, restart_seconds=0.0), Size(1, 2))


def test_a_size_that_was_measured_to_be_no_faster_does_not_pay() -> None:
    slower = ((Size(1, 1), 100.0), (Size(1, 2), 101.0))
    assert not pays(a_training(epoch_seconds=slower), Size(1, 2))
    assert not pays(a_training(epoch_seconds=slower), Size(1, 8))


def test_nothing_is_promised_before_this_size_was_measured_or_the_end_is_known() -> None:
    assert not pays(a_training(epoch_seconds=((Size(1, 4), 30.0),)), Size(1, 8))
    assert not pays(a_training(epochs_left=None), Size(1, 8))


def test_epoch_times_are_predicted_by_a_power_law() -> None:
    one = [(Size(1, 1), 100.0)]
    assert predict_epoch_seconds(one, Size(1, 1)) == 100.0
    assert predict_epoch_seconds(one, Size(1, 2)) == pytest.approx(100 / 2**0.9)
    two = [(Size(1, 1), 100.0), (Size(1, 4), 50.0)]  # exponent 0.5
    assert predict_epoch_seconds(two, Size(1, 16)) == pytest.approx(25.0)
    assert predict_epoch_seconds([(Size(1, 1), 100.0), (Size(1, 2), 10.0)], Size(1, 4)) == pytest.approx(5.0)
    assert predict_epoch_seconds([(Size(2, 0), 100.0)], Size(4, 0)) == pytest.approx(100 / 2**0.9)
    assert predict_epoch_seconds([], Size(1, 1)) is None


def test_the_first_task_of_a_gang_goes_to_its_checkpoint_and_the_others_anywhere() -> None:
    first, rest = Member(0, ask(gpus=1), 1, on="n2"), Member(0, ask(gpus=1), 3)
    gang = Request("gang", 0, 1, (first, rest), gang=True)
    found = a_yard(3, 1).plan(gang)
    assert [opening.placement.node for opening in found.openings] == ["n2", "n1", "n1", "n1"]
    assert not a_yard(8).plan(gang).openings
