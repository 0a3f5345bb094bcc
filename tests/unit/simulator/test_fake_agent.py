"""The promises of the real agent, kept by the fake one."""

from __future__ import annotations

from jobyard.model.effects import CloseSlot, Launch, Stop, Withdraw
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Slot
from jobyard.simulator.fake_agent import FakeAgent

SLOT = Slot("1", "j", 0, Placement("here", Resources()))
FIRST, SECOND, THIRD = (AttemptId("j", task, 1) for task in range(3))


def launch(*attempts: AttemptId) -> Launch:
    return Launch("here", SLOT, attempts)


def test_it_runs_a_slot_one_after_another() -> None:
    agent = FakeAgent()
    assert agent.perform(launch(FIRST, SECOND)).started == [FIRST]
    assert agent.perform(launch(THIRD)).started == []
    assert agent.end(FIRST) == SECOND
    assert agent.end(SECOND) == THIRD
    assert agent.end(THIRD) is None


def test_it_starts_an_attempt_at_most_once() -> None:
    agent = FakeAgent()
    agent.perform(launch(FIRST))
    assert agent.perform(launch(FIRST)).started == []
    agent.end(FIRST)
    assert agent.perform(launch(FIRST)).started == []


def test_it_gives_back_only_what_has_not_started() -> None:
    agent = FakeAgent()
    agent.perform(launch(FIRST, SECOND))
    assert agent.perform(Withdraw("here", (FIRST, SECOND, THIRD))).withdrawn == [SECOND]
    assert agent.perform(Withdraw("here", (SECOND,))).withdrawn == []
    assert agent.end(FIRST) is None


def test_it_stops_what_runs_and_gives_back_the_rest() -> None:
    agent = FakeAgent()
    agent.perform(launch(FIRST, SECOND))
    done = agent.perform(Stop("here", (FIRST, SECOND), 5.0))
    assert (done.stopped, done.withdrawn) == ([FIRST], [SECOND])


def test_a_refused_attempt_never_starts() -> None:
    agent = FakeAgent()
    agent.refuse(launch(FIRST))
    assert agent.perform(launch(FIRST)).started == []


def test_a_closed_slot_runs_out() -> None:
    agent = FakeAgent()
    agent.perform(launch(FIRST))
    agent.perform(CloseSlot("here", "1"))
    assert agent.is_running(FIRST)
    assert agent.end(FIRST) is None
