"""Fake agent: what does an agent do with its effects? The promises of the real one, without processes or a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from jobyard.model.effects import CloseSlot, Effect, Launch, Reserve, Stop, Withdraw, Yield
from jobyard.model.resources import Placement
from jobyard.model.task import AttemptId


@dataclass
class EffectResult:
    """The result of an effect: attempts that started, that were asked to stop while they ran, that will never start.

    `preempted` are asked to stop at their next checkpoint.
    """

    started: list[AttemptId] = field(default_factory=list)
    stopped: list[AttemptId] = field(default_factory=list)
    withdrawn: list[AttemptId] = field(default_factory=list)
    preempted: list[AttemptId] = field(default_factory=list)


@dataclass(eq=False)
class FakeAgent:
    """Runs the attempts of a slot one after another, each at most once. The driver says when they end."""

    queues: dict[str, deque[AttemptId]] = field(default_factory=dict)  # by slot: what waits
    running: dict[str, AttemptId] = field(default_factory=dict)  # by slot
    began: dict[AttemptId, float] = field(default_factory=dict)  # for the driver: when each that runs did
    placements: dict[str, Placement] = field(default_factory=dict)  # by slot: what it holds
    _slots: dict[AttemptId, str] = field(default_factory=dict)  # every attempt that it ever got

    def perform(self, effect: Effect) -> EffectResult:
        match effect:
            case Launch(slot=slot, attempts=attempts):
                self.placements[slot.id] = slot.placement
                fresh = [attempt for attempt in attempts if attempt not in self._slots]
                self._slots.update(dict.fromkeys(fresh, slot.id))
                self.queues.setdefault(slot.id, deque()).extend(fresh)
                following = self._start_next(slot.id)
                return EffectResult(started=[following] if following else [])
            case Stop(attempts=attempts):
                running = [attempt for attempt in attempts if self.is_running(attempt)]
                return EffectResult(stopped=running, withdrawn=self._withdraw(attempts))
            case Yield(attempts=attempts):
                running = [attempt for attempt in attempts if self.is_running(attempt)]
                return EffectResult(preempted=running, withdrawn=self._withdraw(attempts))
            case Reserve(slot=slot):
                self.placements[slot.id] = slot.placement
            case Withdraw(attempts=attempts):
                return EffectResult(withdrawn=self._withdraw(attempts))
            case CloseSlot(slot=slot_id):
                self.queues.pop(slot_id, None)
                if slot_id not in self.running:
                    self.placements.pop(slot_id, None)
        return EffectResult()

    def refuse(self, launch: Launch) -> None:
        """Start none of these, now or ever."""
        self._slots.update(dict.fromkeys(launch.attempts, launch.slot.id))

    def placement_of(self, attempt: AttemptId) -> Placement:
        return self.placements[self._slots[attempt]]

    def is_running(self, attempt: AttemptId) -> bool:
        return self.running.get(self._slots.get(attempt, "")) == attempt

    def end(self, attempt: AttemptId) -> AttemptId | None:
        """It ended; the attempt that starts in its place, if any waits."""
        slot_id = self._slots[attempt]
        del self.running[slot_id]
        return self._start_next(slot_id)

    def _start_next(self, slot_id: str) -> AttemptId | None:
        queue = self.queues.get(slot_id)
        if not queue or slot_id in self.running:
            return None
        attempt = self.running[slot_id] = queue.popleft()
        return attempt

    def _withdraw(self, attempts: Iterable[AttemptId]) -> list[AttemptId]:
        given = []
        for attempt in attempts:
            queue = self.queues.get(self._slots.get(attempt, ""), deque())
            if attempt in queue:
                queue.remove(attempt)
                given.append(attempt)
        return given
