"""What would the yard do? Whole days in seconds: a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import chain, count

from jobyard.engine.invariants import check, check_settled
from jobyard.engine.job_record import STUCK_SECONDS
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    AttemptsWithdrawn,
    Event,
    Finished,
    NodeLost,
    Started,
)
from jobyard.model.job import JobSpec
from jobyard.model.task import AttemptId, Outcome
from jobyard.simulator.fake_agent import FakeAgent

# How an attempt goes: given its job's spec and its id, how long it runs and with which code it exits.
Behaviour = Callable[[JobSpec, AttemptId], tuple[float, int]]

# A process that is asked to stop is gone after this long.
STOPPING_SECONDS = 0.1


class Simulation:
    """Drives a YardState: put events on the clock with `at`, then `run`. Checks the invariants after every event.

    A NodeLost ends all that ran on the node: nothing of it is heard of again. `delay_seconds` is how long word from an
    agent is under way, so that events of attempts that no longer count arrive too.
    """

    def __init__(self, behaviour: Behaviour, *, check_invariants: bool = True, delay_seconds: float = 0.0) -> None:
        self.yard = YardState()
        self.now = 0.0
        self.history: list[Event] = []  # what a journal would hold
        self._behaviour = behaviour
        self._check = check_invariants
        self._delay = delay_seconds
        self._agents: dict[str, FakeAgent] = {}
        self._clock: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._wake_at = float("inf")

    def at(self, time: float, event: Event) -> None:
        """Let it happen at that time (or as soon as the clock gets there)."""
        self._later(time, lambda: self.apply(event))

    def run(self, until: float = float("inf")) -> None:
        """Go on until nothing is left to happen, or the clock would pass `until`."""
        while self._clock and self._clock[0][0] <= until:
            time, _, happen = heapq.heappop(self._clock)
            self.now = max(self.now, time)
            happen()

    def apply(self, *events: Event) -> None:
        """Some events, and all that the engine decides because of them."""
        for each in chain(events, self.yard.decide(self.now)):
            if not each.ephemeral:
                self.history.append(each)
            if isinstance(each, NodeLost):
                self._agents.pop(each.node, None)
            self._carry_out(self.yard.handle(each))
            if self._check:
                check(self.yard)
        if self._check:
            check_settled(self.yard)
        self._carry_out(self.yard.withdrawals(self.now))
        self._plan_to_wake()

    def _later(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._clock, (time, next(self._order), happen))

    def _plan_to_wake(self) -> None:
        """Deadlines and stuck slots need a look at the clock though nothing else happens."""
        slots = (record for _, record in self.yard.slots.values())
        stuck = (record.progress_at + STUCK_SECONDS * 1.01 for record in slots if len(record.tasks) > 1)
        deadline = self.yard.next_deadline()
        wake_at = min((time for time in chain(stuck, [deadline]) if time is not None and time > self.now), default=None)
        if wake_at is not None and not self.now < self._wake_at <= wake_at:
            self._wake_at = wake_at
            self._later(wake_at, self.apply)

    # -- agents -------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            agent = self._agents.setdefault(effect.node, FakeAgent())
            done = agent.perform(effect)
            for attempt in done.started:
                self._start(agent, attempt)
            for attempt in done.stopped:
                self._later(self.now + STOPPING_SECONDS, lambda a=agent, t=attempt: self._end(a, t, 143))  # type: ignore[misc]
            if done.withdrawn:
                self._tell(AttemptsWithdrawn(tuple(done.withdrawn), self.now))

    def _start(self, agent: FakeAgent, attempt: AttemptId) -> None:
        agent.began[attempt] = self.now
        seconds, code = self._behaviour(self.yard.jobs[attempt.job].spec, attempt)
        self._later(self.now + seconds, lambda: self._end(agent, attempt, code))
        self._tell(AttemptsStarted((Started(attempt, self.now),), self.now))

    def _end(self, agent: FakeAgent, attempt: AttemptId, code: int) -> None:
        if agent not in self._agents.values() or attempt not in agent.began:
            return  # its node is gone, or it ended before
        outcome = Outcome(agent.began.pop(attempt), self.now, code)
        finished = AttemptsFinished((Finished(attempt, outcome),), self.now)
        if following := agent.end(attempt):
            self._start(agent, following)
        self._tell(finished)

    def _tell(self, event: Event) -> None:
        self.at(self.now + self._delay, event)
