"""Quarantine: what may still happen to a job after an error of ours or a damaged row? It may only be cancelled.

Its slots keep their resources, and its running tasks are left alone, because its true state is not known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsFinished,
    AttemptsMeasured,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    CancelRequested,
    Event,
    JobQuarantined,
    SlotClosed,
    SlotMoved,
    SlotOpened,
    SlotReserved,
    TasksAssigned,
)
from jobyard.model.job import Command, GroupSpec, JobSpec

LOST = "(damaged)"  # the name of a job whose submission cannot be read


def begin(state: YardState, job_id: str, message: str) -> None:
    """Also for an unknown job: the row of its submission is damaged."""
    job = state.jobs.get(job_id)
    if job is None:
        job = _lost(state, job_id)
    if job.is_final or job_id in state.quarantined:
        return
    state.quarantined[job_id] = message
    state.changes.wants[job_id] = None
    state.changes.plan = True


def end(state: YardState, job: JobRecord) -> None:
    """From here on the job is handled like any other."""
    if state.quarantined.pop(job.id, None) is not None:
        state.changes.slots.update(dict.fromkeys(job.slots))
        state.changes.wants[job.id] = None
        state.changes.plan = True


def what_is_left(state: YardState, event: Event) -> Event | None:
    """The event without its parts about jobs in quarantine; None: nothing is left of it."""
    held = state.quarantined
    match event:
        case AttemptsStarted() | AttemptsFinished() | AttemptsProgressed() | AttemptsAwaited():
            left: Any = tuple(item for item in event.items if item.attempt.job not in held)
            return replace(event, items=left)
        case AttemptsMeasured(progressed=progressed, used=used):
            steps = tuple(item for item in progressed if item.attempt.job not in held)
            return replace(event, progressed=steps, used=tuple(item for item in used if item.attempt.job not in held))
        case AttemptsWithdrawn(attempts=attempts):
            return replace(event, attempts=tuple(attempt for attempt in attempts if attempt.job not in held))
        case SlotOpened(slot=slot):
            return None if slot.job in held else event
        case SlotClosed(slot=name) | SlotReserved(slot=name) | SlotMoved(slot=name) | TasksAssigned(slot=name):
            return None if name in state.slots and state.slots[name][0].id in held else event
        case CancelRequested() | JobQuarantined():
            return event
    return None if getattr(event, "job", None) in held else event


def _lost(state: YardState, job_id: str) -> JobRecord:
    """A stand-in for a job that is lost: it has a number, and can be shown and cancelled."""
    spec = JobSpec(name=LOST, groups=(GroupSpec(Command(argv=("true",))),), workdir="/")
    state.last_number += 1
    before = next(reversed(state.jobs.values()), None)
    job = JobRecord(job_id, state.last_number, spec, before.times.submitted_at if before else 0.0)
    state.jobs[job_id] = state.unfinished[job_id] = job
    return job
