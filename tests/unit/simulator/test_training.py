"""A simulated training: epochs, checkpoints, memory, and what it does when it is asked to stop."""

from __future__ import annotations

import pytest

from jobyard.model.effects import Launch, Reserve, Yield
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Size
from jobyard.simulator.fake_agent import FakeAgent
from jobyard.simulator.training import Course, Trainee, power_law

SLOT = Slot("1", "j", 0, Placement("here", Resources(gpus=1, gpu_memory_mib=1000)))
FIRST, SECOND = AttemptId("j", 0, 1), AttemptId("j", 1, 1)


def a_course(done: int = 0, epochs: int = 3, **trainee: float) -> Course:
    return Course(Trainee(epochs, **trainee), 60.0, done)  # type: ignore[arg-type]


def test_more_devices_make_shorter_epochs() -> None:
    curve = power_law(100.0, 0.5)
    assert curve(Size(1, 1)) == curve(Size(1, 0)) == 100.0
    assert curve(Size(2, 2)) == curve(Size(4, 0)) == 50.0


def test_an_epoch_counts_when_it_is_saved() -> None:
    course = a_course(done=1)
    course.arrive(10.0)
    assert (course.progress().epochs_done, course.progress().restart_seconds) == (1, 10.0)
    course.arrive(71.0)
    assert (course.progress().epochs_done, course.progress().saved_at) == (2, 71.0)
    assert not course.is_done
    course.arrive(132.0)
    assert course.is_done


def test_it_stops_between_epochs_but_not_before_the_last() -> None:
    course = a_course()
    course.is_asked = True
    course.arrive(10.0)
    assert course.yields_now
    course.arrive(70.0)
    assert course.yields_now
    course.arrive(130.0)
    assert not course.yields_now


def test_memory_grows_over_the_first_epochs() -> None:
    trainee = Trainee(5, gpu_mib=1000, gpu_ramp=(0.5, 0.9))
    assert [trainee.gpu_mib_in(epoch) for epoch in range(4)] == [500, 900, 1000, 1000]


def test_the_agent_asks_what_runs_and_gives_back_the_rest() -> None:
    agent = FakeAgent()
    agent.perform(Launch("here", SLOT, (FIRST, SECOND)))
    done = agent.perform(Yield("here", (FIRST, SECOND), 600.0, 10.0))
    assert (done.preempted, done.withdrawn, done.stopped) == ([FIRST], [SECOND], [])


def test_a_reservation_that_is_set_anew_counts() -> None:
    agent = FakeAgent()
    agent.perform(Launch("here", SLOT, (FIRST,)))
    larger = Placement("here", Resources(gpus=1, gpu_memory_mib=2000))
    agent.perform(Reserve("here", Slot("1", "j", 0, larger)))
    assert agent.placement_of(FIRST) == larger


@pytest.mark.parametrize("seconds", [20.0, 600.0])
def test_the_curve_is_measured_per_epoch(seconds: float) -> None:
    course = Course(Trainee(3), seconds, 0)
    course.arrive(0.0)
    course.arrive(seconds)
    assert course.progress().epoch_seconds == seconds
