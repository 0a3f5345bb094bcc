"""A yard driven by hand, for tests that tell one story: effects are kept, and the test says what the agent reports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from jobyard.engine.handling import handle
from jobyard.engine.invariants import check, check_decided
from jobyard.engine.job_record import JobRecord
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, Launch, Stop
from jobyard.model.events import AttemptsFinished, AttemptsStarted, AttemptsWithdrawn, Event, Finished, Started
from jobyard.model.job import JobSpec, State
from jobyard.model.node import Node
from jobyard.model.task import AttemptId, Outcome
from tests.builders import a_node, joined, submitted

E = TypeVar("E", bound=Effect)


def state_of(job: JobRecord) -> State:
    """A call, so that a type checker does not take it to be the same ever after."""
    return job.state


def calls_of(work: Callable[[], object]) -> int:
    """How much work it is, whatever else the machine does."""
    calls = 0

    def count(frame: FrameType, what: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


class Yard:
    def __init__(self, *nodes: Node) -> None:
        self.state = YardState()
        self.planner = Planner(self.state)
        self.now = 100.0
        self.history: list[Event] = []  # what a journal would hold
        self.effects: list[Effect] = []  # since the last event from outside
        self.apply(*(joined(node) for node in nodes or (a_node(),)))

    def apply(self, *events: Event) -> list[Effect]:
        self.effects = []
        for event in events:
            self._handle(event)
        for number, event in enumerate(self.planner.decide(self.now)):
            assert number < 100_000
            self._handle(event)
        check_decided(self.planner)
        self.effects += self.planner.withdrawals(self.now)
        return self.effects

    def _handle(self, event: Event) -> None:
        if not event.ephemeral:
            self.history.append(event)
        self.effects += handle(self.state, event)
        check(self.state)

    def submit(self, spec: JobSpec) -> JobRecord:
        number = self.state.last_number + 1
        self.apply(submitted(f"j{number}", number, spec, self.now))
        return self.state.jobs[f"j{number}"]

    def active(self, job: JobRecord, *states: State) -> list[AttemptId]:
        wanted = states or (State.STARTING, State.RUNNING, State.STOPPING)
        found = (task for task in job.active_tasks() if task.state in wanted)
        return sorted(AttemptId(job.id, task.number, task.attempt) for task in found)

    def start(self, *attempts: AttemptId) -> list[Effect]:
        return self.apply(AttemptsStarted(tuple(Started(attempt, self.now) for attempt in attempts), self.now))

    def finish(self, *attempts: AttemptId, seconds: float = 10.0, **how: Any) -> list[Effect]:
        how = how or {"exit_code": 0}
        self.now += 0.001
        items = tuple(Finished(attempt, Outcome(self.now - seconds, self.now, **how)) for attempt in attempts)
        return self.apply(AttemptsFinished(items, self.now))

    def withdraw(self, *attempts: AttemptId) -> list[Effect]:
        return self.apply(AttemptsWithdrawn(attempts, self.now))

    def launched(self) -> list[AttemptId]:
        return [attempt for effect in self.found(Launch) for attempt in effect.attempts]

    def stopped(self) -> list[AttemptId]:
        return [attempt for effect in self.found(Stop) for attempt in effect.attempts]

    def found(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def run_to_the_end(self, job: JobRecord, **how: Any) -> None:
        for _ in range(10_000):
            if job.is_final:
                return
            self.finish(*self.active(job), **how)
        raise AssertionError(f"job {job.id} does not end: {job.tasks.counts}")
