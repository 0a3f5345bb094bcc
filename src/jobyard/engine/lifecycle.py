"""Task state machine: which state follows which? MOVES is the table, `advance` the behaviour; tests compare them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from jobyard.errors import InvalidMove
from jobyard.model.job import Reason, State
from jobyard.model.task import ActiveAttempt, Outcome, PastAttempt, Task

MOVES: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.STARTING, State.CANCELLED}),
    State.STARTING: frozenset({State.RUNNING, State.PENDING, State.STOPPING, State.SUCCEEDED, State.FAILED}),
    State.RUNNING: frozenset({State.PENDING, State.STOPPING, State.SUCCEEDED, State.FAILED}),
    State.STOPPING: frozenset({State.CANCELLED, State.PENDING, State.FAILED, State.SUCCEEDED}),
    State.SUSPENDED: frozenset(),  # no task is suspended yet
    State.SUCCEEDED: frozenset({State.PENDING}),
    State.FAILED: frozenset({State.PENDING}),
    State.CANCELLED: frozenset({State.PENDING}),
}

MEANING: dict[State, tuple[str, str]] = {
    State.PENDING: ("waits for room, a dependency, its turn, or after a failure", "the scheduler, when there is room"),
    State.STARTING: ("has a slot and an attempt number; its process is not known to exist yet", "the agent"),
    State.RUNNING: ("its process exists", "the task itself, by ending"),
    State.STOPPING: (
        "was asked to stop, at once or at its next checkpoint; its process has its grace",
        "the agent, when the process is gone",
    ),
    State.SUSPENDED: ("set aside with its checkpoint (not used yet)", "the user"),
    State.SUCCEEDED: ("an attempt exited with 0", "nobody; `yard retry` runs it again"),
    State.FAILED: ("the last allowed attempt did not succeed", "nobody; `yard retry` runs it again"),
    State.CANCELLED: ("stopped on request, or never started because of others", "nobody; `yard retry` runs it again"),
}


# What can happen to a task.
@dataclass(frozen=True, slots=True)
class Assigned:
    slot: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Began:
    at: float
    unit: str = ""  # the pod that runs it


@dataclass(frozen=True, slots=True)
class Ended:
    """`wants_more`: it ran out of memory, and gets more of it next time; that does not count as a failure.

    `not_before`: where it counts as one, and another attempt is allowed, that starts no sooner."""

    outcome: Outcome
    wants_more: bool = False
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class GivenBack:
    """It was handed out but never started."""


@dataclass(frozen=True, slots=True)
class LostItsNode:
    message: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class YieldAsked:
    """Preemption: it stops at its next checkpoint, and waits again."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RetryAsked:
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class DelayPassed:
    """After a failure it has waited long enough, or a person does not want it to wait."""


Happening = Assigned | Began | Ended | GivenBack | LostItsNode | StopAsked | YieldAsked | RetryAsked | DelayPassed


class Action(Enum):
    """What a step wants of the executor."""

    NOTHING = "nothing"
    LAUNCH = "launch"
    STOP = "stop"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Step:
    task: Task
    ask: Action = Action.NOTHING


EARLIER_MOST = 5  # attempts that a task remembers beside its newest
# A task stopped for one of these waits again instead of ending.
REQUEUED = frozenset({Reason.PREEMPTED, Reason.RESIZING})


def advance(task: Task, happening: Happening, retries: int = 0) -> Step:
    """Apply one happening (see above) to one task. Pure: same task and happening, same step. Raises InvalidMove."""
    match task.state, happening:
        case State.PENDING, Assigned(slot=slot, node=node):
            active, attempt = ActiveAttempt(slot), task.attempt + 1
            begun = replace(
                task,
                state=State.STARTING,
                attempt=attempt,
                active=active,
                node=node,
                reason=None,
                message="",
                not_before=0.0,
                earlier=_earlier(task),
            )
            return Step(begun, Action.LAUNCH)
        case State.PENDING, StopAsked(reason=reason, message=message):
            return Step(replace(task, state=State.CANCELLED, reason=reason, message=message, not_before=0.0))
        case State.PENDING, DelayPassed() if task.not_before:
            return Step(replace(task, not_before=0.0))
        case State.STARTING, Began(at=at, unit=unit):
            return Step(replace(task, state=State.RUNNING, started_at=at, unit=unit or task.unit))
        case State.RUNNING | State.STOPPING, Began(at=at, unit=unit):  # reported twice, or after it was asked to stop
            started_at = at if task.started_at is None else task.started_at
            return Step(replace(task, started_at=started_at, unit=unit or task.unit))
        case State.STARTING | State.RUNNING, Ended() as ended:
            return Step(_ended(task, ended, retries))
        case State.STARTING, GivenBack():
            return Step(_waiting(task, None, ""))
        case State.STARTING | State.RUNNING, LostItsNode(message=message):
            return Step(_waiting(task, Reason.NODE_LOST, message))
        case State.STARTING | State.RUNNING, StopAsked(reason=reason, message=message):
            return Step(replace(task, state=State.STOPPING, reason=reason, message=message), Action.STOP)
        case State.STARTING | State.RUNNING, YieldAsked(reason=reason, message=message):
            stopping = replace(task, state=State.STOPPING, reason=reason, message=message)
            return Step(_yielding(stopping, True), Action.YIELD)
        case State.STOPPING, YieldAsked():
            return Step(task)
        case State.STOPPING, StopAsked(reason=reason, message=message):
            # Asked again, perhaps with force. The first reason stays, unless it was to be requeued and now must end.
            if task.reason in REQUEUED:
                task = replace(task, reason=reason, message=message)
            return Step(_yielding(task, False), Action.STOP)
        case State.STOPPING, Ended(outcome=outcome) as ended if task.is_yielding:
            if outcome.reason is Reason.PREEMPTED:
                told = "; ".join(filter(None, (task.message, outcome.message)))
                return Step(_stopped(replace(task, outcome=outcome, message=told)))
            return Step(_ended(task, ended, retries))  # it succeeded, or failed, before it could stop
        case State.STOPPING, Ended(outcome=outcome):
            return Step(_stopped(replace(task, outcome=outcome)))
        case State.STOPPING, GivenBack() | LostItsNode():
            return Step(_stopped(task))
        case State.SUCCEEDED | State.FAILED | State.CANCELLED, RetryAsked(not_before=not_before):
            return Step(replace(_waiting(task, None, ""), failures=0, not_before=not_before))
    raise InvalidMove(f"task {task.number} is {task.state}: {happening!r} cannot happen to it")


def _earlier(task: Task) -> tuple[PastAttempt, ...]:
    """With the newest attempt that ended: the next one begins. One that never began has no outcome of its own."""
    if task.outcome is None:
        return task.earlier
    past = PastAttempt(task.attempt, task.node, replace(task.outcome, progress=None))
    if task.earlier and task.earlier[-1].outcome == past.outcome:
        return task.earlier
    return (*task.earlier, past)[-EARLIER_MOST:]


def _yielding(task: Task, is_yielding: bool) -> Task:
    assert task.active is not None
    return replace(task, active=replace(task.active, is_yielding=is_yielding))


def _waiting(task: Task, reason: Reason | None, message: str) -> Task:
    return replace(task, state=State.PENDING, active=None, started_at=None, reason=reason, message=message)


def _ended(task: Task, ended: Ended, retries: int) -> Task:
    outcome = ended.outcome
    if outcome.succeeded:
        return replace(task, state=State.SUCCEEDED, outcome=outcome, active=None, reason=None, message="")
    task = replace(task, outcome=outcome)
    reason, message = reason_of(outcome)
    if reason in (Reason.NODE_LOST, Reason.PREEMPTED) or ended.wants_more:
        return _waiting(task, reason, message)
    task = replace(task, failures=task.failures + 1)
    if task.failures <= retries:
        waiting = _waiting(task, reason, f"attempt {task.attempt} failed: {message}")
        return replace(waiting, not_before=ended.not_before)
    return replace(task, state=State.FAILED, active=None, reason=reason, message=message)


def _stopped(task: Task) -> Task:
    if task.reason in REQUEUED:
        return _waiting(task, task.reason, task.message)
    if task.reason is Reason.TIMEOUT:
        return replace(task, state=State.FAILED, active=None)
    return replace(task, state=State.CANCELLED, active=None)


def reason_of(outcome: Outcome) -> tuple[Reason, str]:
    """Why an attempt that did not succeed ended, and the sentence for it."""
    told = f": {outcome.message}" if outcome.message else ""
    if outcome.reason is not None:
        return outcome.reason, outcome.message or _SENTENCES.get(outcome.reason, str(outcome.reason))
    if outcome.signal is not None:
        return Reason.SIGNAL, f"killed by signal {outcome.signal}{_SIGNAL_HINTS.get(outcome.signal, '')}{told}"
    if outcome.exit_code is not None:
        hint = told or _EXIT_HINTS.get(outcome.exit_code, "")  # a reason from the executor is better than our guess
        return Reason.EXIT_CODE, f"exited with code {outcome.exit_code}{hint}"
    return Reason.UNKNOWN, outcome.message or _SENTENCES[Reason.UNKNOWN]


_SENTENCES = {
    Reason.UNKNOWN: "its process is gone and left no exit status",
    Reason.TIMEOUT: "ran longer than its timeout",
    Reason.NODE_LOST: "its node was restarted",
    Reason.OUT_OF_MEMORY: "was killed because its memory limit was reached",
    Reason.OUT_OF_GPU_MEMORY: "ran out of GPU memory",
    Reason.PREEMPTED: "stopped at a checkpoint",
}
_SIGNAL_HINTS = {9: " (SIGKILL: often the kernel, out of memory)", 11: " (SIGSEGV)", 15: " (SIGTERM)", 6: " (SIGABRT)"}
_EXIT_HINTS = {
    126: " (the command is not executable)",
    127: " (command not found)",
    137: " (128+9: killed, often out of memory)",
    139: " (128+11: segmentation fault)",
    143: " (128+15: terminated)",
}
