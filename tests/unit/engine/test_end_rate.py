"""How fast the tasks of a job end, and what follows for the rest."""

from __future__ import annotations

import pytest

from jobyard.engine.end_rate import EndRate
from tests.builders import a_job, a_node
from tests.unit.engine.driving import Yard


def an_end_rate(*ends: float, at_once: int = 1) -> EndRate:
    end_rate = EndRate()
    end_rate.begin(0.0)
    for at in ends:
        end_rate.note_end(at, at_once)
    return end_rate


def test_a_large_array_is_told_by_the_rate_that_is_seen() -> None:
    """600 tasks a second and a million to go: 27 minutes."""
    end_rate = an_end_rate(*(number / 600 for number in range(30_000)), at_once=16)
    assert end_rate.seconds_left(972_000, 16, 50.0) == pytest.approx(27 * 60, rel=0.01)


def test_nothing_is_said_before_each_slot_has_ended_a_task() -> None:
    assert an_end_rate(10.0, 11.0, 12.0, at_once=4).seconds_left(4, 4, 12.0) is None
    assert an_end_rate(10.0, 10.0, 10.0, 10.0, at_once=4).seconds_left(4, 4, 10.0) == 10.0
    assert an_end_rate(1.0, 2.0).seconds_left(8, 1, 2.0) is None
    assert EndRate().seconds_left(8, 1, 2.0) is None


def test_the_rest_becomes_less_between_two_ends_and_unknown_after_a_long_silence() -> None:
    end_rate = an_end_rate(10.0, 10.0, 10.0, 10.0, at_once=4)
    assert [end_rate.seconds_left(8, 4, now) for now in (10.0, 15.0, 60.0)] == [20.0, 15.0, None]


def test_a_change_of_rate_is_seen_and_what_is_old_is_forgotten() -> None:
    end_rate = an_end_rate(*range(1, 101), *(100 + number / 10 for number in range(1, 1001)))
    assert end_rate.seconds_left(100, 1, 200.0) == pytest.approx(10.0)


def test_after_a_pause_it_is_measured_anew() -> None:
    end_rate = an_end_rate(1.0, 2.0, 3.0, 4.0)
    end_rate.begin(5.0)
    assert end_rate.seconds_left(10, 1, 5.0) == pytest.approx(9.0), "a gap between two tasks is no pause"
    end_rate.begin(5000.0)
    for at in (5002.0, 5004.0, 5006.0):
        end_rate.note_end(at, 1)
    assert end_rate.seconds_left(10, 1, 5006.0) == 20.0


def test_the_tasks_of_a_job_are_what_is_measured() -> None:
    yard = Yard(a_node(cpus=2))
    job = yard.submit(a_job(20))
    for _ in range(3):
        attempts = yard.active(job)
        yard.start(*attempts)
        yard.now += 5
        yard.finish(*attempts)
    assert job.use.end_rate.seconds_left(job.tasks.unfinished, len(job.slots), yard.now) == pytest.approx(
        job.tasks.unfinished * 2.5, rel=0.5
    )
