"""By which clock, and in which order, does the yard hear what an agent reports?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from jobyard.executors.machine_room import MachineRoom
from jobyard.executors.observations import Observations
from jobyard.executors.result_collector import ResultCollector
from jobyard.model.events import AttemptsFinished, AttemptsProgressed, AttemptsStarted, AttemptsWithdrawn, Event
from jobyard.model.job import Reason
from jobyard.model.task import AttemptId, Outcome

HOUR = 3600.0
ENDED = ["j.0.1", {"started_at": 100.0, "finished_at": 105.0, "exit_code": 3}]


class PlayedCollector:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def ended(self, events: Sequence[Event], finished: Any) -> None:
        self.events += events


class Machine:
    """Observations, and what they lead to."""

    def __init__(self, *, is_elsewhere: bool) -> None:
        self.told: list[Event] = []
        self.room = MachineRoom("a", "ssh")
        self.collector = PlayedCollector()
        collector = cast(ResultCollector, self.collector) if is_elsewhere else None
        self.observations = Observations(self.room, self.told.extend, collector)

    def outcome(self) -> Outcome:
        events = [*self.told, *self.collector.events]
        (ended,) = [event for event in events if isinstance(event, AttemptsFinished)]
        return ended.items[0].outcome


@pytest.mark.parametrize(
    ("is_elsewhere", "ahead", "corrected"),
    [(True, HOUR, HOUR), (True, -HOUR, -HOUR), (True, 0.5, 0.0), (False, HOUR, 0.0)],
)
def test_what_a_machine_tells_is_told_by_our_clock(is_elsewhere: bool, ahead: float, corrected: float) -> None:
    machine = Machine(is_elsewhere=is_elsewhere)
    now = time.time()
    machine.observations.connected({"now": now + ahead}, now)
    machine.observations.attempts({"started": [["j.0.1", 100.0]]})
    (started,) = machine.told
    assert isinstance(started, AttemptsStarted)
    assert started.items[0].at == pytest.approx(100.0 - corrected, abs=1.0)
    machine.observations.attempts({"finished": [ENDED]})
    assert machine.outcome().finished_at == pytest.approx(105.0 - corrected, abs=1.0)


def test_nothing_ends_before_it_began() -> None:
    machine = Machine(is_elsewhere=False)
    machine.observations.attempts({"finished": [["j.0.1", {"started_at": 100.0, "finished_at": 90.0}]]})
    assert machine.outcome().finished_at == 100.0


def test_all_that_is_known_of_an_end_is_told() -> None:
    machine = Machine(is_elsewhere=False)
    more = {"signal": 9, "reason": "OutOfMemory", "message": "too much", "peak_memory_mib": 7, "progress": {}}
    machine.observations.attempts({"finished": [["j.0.1", {**cast(dict[str, Any], ENDED[1]), **more}]]})
    outcome = machine.outcome()
    assert (outcome.exit_code, outcome.signal, outcome.reason) == (3, 9, Reason("OutOfMemory"))
    assert (outcome.message, outcome.peak_memory_mib, outcome.progress) == ("too much", 7, None)


def test_an_end_waits_for_results_that_have_to_come_home_and_a_beginning_does_not() -> None:
    machine = Machine(is_elsewhere=True)
    machine.observations.attempts({"started": [["j.0.1", 100.0]]})
    machine.observations.attempts({"finished": [ENDED]})
    assert [type(event) for event in machine.told] == [AttemptsStarted]
    assert [type(event) for event in machine.collector.events] == [AttemptsFinished]


def test_while_room_is_refused_what_is_given_back_is_not_told() -> None:
    machine = Machine(is_elsewhere=False)
    machine.observations.attempts({"withdrawn": ["j.0.1"]})
    machine.room.refused()
    machine.observations.attempts({"withdrawn": ["j.1.1"]})
    (event,) = machine.told
    assert isinstance(event, AttemptsWithdrawn)
    assert event.attempts == (AttemptId("j", 0, 1),)


def test_after_a_new_link_a_milestone_is_told_again() -> None:
    machine = Machine(is_elsewhere=False)
    message = {"attempts": {"j.0.1": {"epochs_done": 1}}}
    for _ in range(2):
        machine.observations.progress(message)
    machine.observations.connected({}, time.time())
    machine.observations.progress(message)
    assert len([event for event in machine.told if isinstance(event, AttemptsProgressed)]) == 2
