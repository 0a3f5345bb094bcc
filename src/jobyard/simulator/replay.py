"""Simulation: what would the yard do? Whole days in seconds: a clock that jumps from event to event."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import chain, count

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.engine.handling import handle
from jobyard.engine.invariants import check, check_decided
from jobyard.engine.job_record import STUCK_SECONDS
from jobyard.engine.planner import Planner
from jobyard.engine.training import resumes_at
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, Yield
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsMeasured,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    Event,
    Finished,
    NodeLost,
    Progressed,
    Started,
    Used,
)
from jobyard.model.job import JobSpec, Reason
from jobyard.model.task import AttemptId, Outcome
from jobyard.simulator.fake_agent import FakeAgent
from jobyard.simulator.training import Course, Trainee, Trainees, untrained

# How an attempt goes: given its job's spec and its id, how long it runs and with which code it exits.
Behaviour = Callable[[JobSpec, AttemptId], tuple[float, int]]

# A process that is asked to stop is gone after this long.
STOPPING_SECONDS = 0.1


class Simulation:
    """Drives a YardState: put events on the clock with `at`, then `run`. Checks the invariants after every event.

    A NodeLost ends all that ran on the node: no report of it follows. `delay_seconds` is how long a report of an
    agent takes, so that reports of superseded attempts arrive too. Attempts that `trainees` knows
    train: epoch by epoch, from where the engine says that their checkpoint is.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        check_invariants: bool = True,
        delay_seconds: float = 0.0,
        trainees: Trainees = untrained,
    ) -> None:
        self.yard = YardState()
        self._planner = Planner(self.yard)
        self.now = 0.0
        self.history: list[Event] = []  # what a journal would hold
        self._behaviour = behaviour
        self._check = check_invariants
        self._delay = delay_seconds
        self._trainees = trainees
        self.courses: dict[AttemptId, Course] = {}  # those that train
        self._agents: dict[str, FakeAgent] = {}
        self._clock: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._wake_at = float("inf")

    def at(self, time: float, event: Event) -> None:
        """Schedule it for that time."""
        self._later(time, lambda: self.apply(event))

    def run(self, until: float = float("inf")) -> None:
        """Go on until nothing is left to happen, or the clock would pass `until`."""
        while self._clock and self._clock[0][0] <= until:
            time, _, happen = heapq.heappop(self._clock)
            self.now = max(self.now, time)
            happen()

    def apply(self, *events: Event) -> None:
        """Some events, and all that the engine decides because of them."""
        for each in chain(events, self._planner.decide(self.now)):
            if not each.ephemeral:
                self.history.append(each)
            if isinstance(each, NodeLost):
                self._agents.pop(each.node, None)
            self._carry_out(handle(self.yard, each))
            if self._check:
                check(self.yard)
        if self._check:
            check_decided(self._planner)
        self._carry_out(self._planner.withdrawals(self.now))
        self._plan_to_wake()

    def _later(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._clock, (time, next(self._order), happen))

    def _plan_to_wake(self) -> None:
        """Deadlines and stuck slots need a look at the clock though nothing else happens."""
        slots = (record for _, record in self.yard.slots.values())
        stuck = (record.progress_at + STUCK_SECONDS * 1.01 for record in slots if len(record.tasks) > 1)
        deadline = self._planner.next_deadline()
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
            if isinstance(effect, Yield):
                for attempt in done.preempted:
                    self._ask_to_yield(agent, attempt, effect)
            if done.withdrawn:
                self._tell(AttemptsWithdrawn(tuple(done.withdrawn), self.now))

    def _start(self, agent: FakeAgent, attempt: AttemptId) -> None:
        agent.began[attempt] = self.now
        self._tell(AttemptsStarted((Started(attempt, self.now),), self.now))
        if trainee := self._trainees(self.yard.jobs[attempt.job].spec, attempt):
            self._train(agent, attempt, trainee)
            return
        seconds, code = self._behaviour(self.yard.jobs[attempt.job].spec, attempt)
        self._later(self.now + seconds, lambda: self._end(agent, attempt, code))

    def _end(
        self, agent: FakeAgent, attempt: AttemptId, code: int, reason: Reason | None = None, message: str = ""
    ) -> None:
        if not self._is_alive(agent, attempt):
            return
        course = self.courses.pop(attempt, None)
        progress = course.progress() if course and course.reports else None
        peak_mib = course.peak_gpu_mib if course else 0
        began = agent.began.pop(attempt)
        outcome = Outcome(began, self.now, code, None, reason, message, peak_gpu_memory_mib=peak_mib, progress=progress)
        finished = AttemptsFinished((Finished(attempt, outcome),), self.now)
        if following := agent.end(attempt):
            self._start(agent, following)
        self._tell(finished)

    def _is_alive(self, agent: FakeAgent, attempt: AttemptId) -> bool:
        """No: its node is gone, or it ended before."""
        return agent in self._agents.values() and attempt in agent.began

    def _tell(self, event: Event) -> None:
        self.at(self.now + self._delay, event)

    # -- training -----------------------------------------------------------------------------------------------------

    def _train(self, agent: FakeAgent, attempt: AttemptId, trainee: Trainee) -> None:
        job = self.yard.jobs[attempt.job]
        first = 0 if job.spec.gang else attempt.task  # the tasks of a gang go on from where their first one is
        done = resumes_at(job, first, job.task(first).node) or 0
        seconds = trainee.epoch_seconds(job.spec.training_size)
        self.courses[attempt] = Course(trainee, seconds, done, reports=attempt.task == first)
        self._later(self.now + trainee.restart_seconds, lambda: self._begin_epoch(agent, attempt))

    def _begin_epoch(self, agent: FakeAgent, attempt: AttemptId) -> None:
        """Where the process reports its progress, and ends if it was asked to, is done, or has no memory left."""
        if not self._is_alive(agent, attempt):
            return
        course = self.courses[attempt]
        course.arrive(self.now)
        if self._runs_out_of_memory(agent, attempt):
            self._end(agent, attempt, 1, Reason.OUT_OF_GPU_MEMORY)
            return
        course.peak_gpu_mib = max(course.peak_gpu_mib, course.gpu_mib)
        if course.gpu_mib:
            used = Used(attempt, 1000, course.gpu_mib, course.trainee.gpu_percent)
            self._tell(AttemptsMeasured(self.now, used=(used,)))
        if course.is_done:
            self._end(agent, attempt, 0)
        elif course.yields_now:
            self._end(agent, attempt, PREEMPTED_EXIT_CODE, Reason.PREEMPTED)
        else:
            if course.reports:
                self._tell(AttemptsProgressed((Progressed(attempt, course.progress()),), self.now))
            until = self.now + course.seconds + course.trainee.checkpoint_seconds
            self._later(until, lambda: self._begin_epoch(agent, attempt))

    def _runs_out_of_memory(self, agent: FakeAgent, attempt: AttemptId) -> bool:
        """Do all that train on one of its devices now have more than there is, whatever they reserved?"""
        placement = agent.placement_of(attempt)
        node = self.yard.places.nodes[placement.node]
        ours = {piece.index for piece in placement.devices}
        for device in node.devices:
            users = [
                self.courses[other].gpu_mib
                for other in agent.began
                if other in self.courses and any(p.index == device.index for p in agent.placement_of(other).devices)
            ]
            if device.index in ours and sum(users) > device.memory_mib:
                return True
        return False

    def _ask_to_yield(self, agent: FakeAgent, attempt: AttemptId, effect: Yield) -> None:
        """As the agent does: a stop file, and signals after the deadline (or now, where a file means nothing)."""
        course = self.courses.get(attempt)
        if course is not None and not effect.at_once:
            course.is_asked = True
        seconds = 0.0 if effect.at_once else effect.deadline_seconds + effect.grace_seconds
        missed = "" if effect.at_once else f"did not stop at a checkpoint within {effect.deadline_seconds:g} s"
        kill = lambda: self._end(agent, attempt, 143, Reason.PREEMPTED, missed)  # noqa: E731
        self._later(self.now + seconds + STOPPING_SECONDS, kill)
