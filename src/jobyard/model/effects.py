"""Effects: what does the engine want done? Imperative values that executors carry out; safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.model.task import AttemptId, Slot


@dataclass(frozen=True, slots=True)
class Effect:
    node: str


@dataclass(frozen=True, slots=True)
class Launch(Effect):
    """Run these attempts in this slot, in this order, one after another."""

    slot: Slot
    attempts: tuple[AttemptId, ...]


@dataclass(frozen=True, slots=True)
class Stop(Effect):
    """End these attempts: SIGTERM, the grace period, SIGKILL. An attempt that has not started never will."""

    attempts: tuple[AttemptId, ...]
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Yield(Effect):
    """Ask these attempts to stop at their next checkpoint; after the deadline they are ended as by Stop (preemption).

    One that has not started never will. One that cannot stop by itself (`at_once`) is ended as by Stop, now.
    """

    attempts: tuple[AttemptId, ...]
    deadline_seconds: float
    grace_seconds: float
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Reserve(Effect):
    """An open slot now holds this."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Withdraw(Effect):
    """Give these attempts back if they have not started; leave them alone otherwise."""

    attempts: tuple[AttemptId, ...]


@dataclass(frozen=True, slots=True)
class JobEnded(Effect):
    """On a cluster: its objects may be deleted now, also where none of its tasks has a slot."""

    job: str


@dataclass(frozen=True, slots=True)
class Forget(Effect):
    """Delete what is stored there of these jobs and trees of files; what something there still uses stays."""

    jobs: tuple[str, ...]
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseSlot(Effect):
    slot: str
