"""Jobs of an event: which jobs does it concern? Asked before it is handled, so that an error affects only those."""

from __future__ import annotations

from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsFinished,
    AttemptsMeasured,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    Event,
    JobsForgotten,
    NodeJoined,
    NodeLost,
    NodeMeasured,
    NodeWentAway,
    QuotaMeasured,
    SlotClosed,
    SlotMoved,
    SlotOpened,
    SlotReserved,
    TasksAssigned,
)
from jobyard.model.node import cluster_of


def jobs_of(state: YardState, event: Event) -> frozenset[str] | None:
    """None: the jobs are not known, or it concerns the yard as a whole."""
    match event:
        case AttemptsStarted(items=items) | AttemptsFinished(items=items) | AttemptsProgressed(items=items):
            return frozenset(item.attempt.job for item in items)
        case AttemptsAwaited(items=awaited):
            return frozenset(item.attempt.job for item in awaited)
        case AttemptsMeasured(progressed=progressed, used=used):
            return frozenset(item.attempt.job for item in progressed) | {item.attempt.job for item in used}
        case AttemptsWithdrawn(attempts=attempts):
            return frozenset(attempt.job for attempt in attempts)
        case JobsForgotten(jobs=jobs):
            return frozenset(jobs)
        case SlotOpened(slot=slot):
            return frozenset((slot.job,))
        case SlotClosed(slot=slot_id) | TasksAssigned(slot=slot_id) | SlotReserved(slot=slot_id):
            return _of_slot(state, slot_id)
        case SlotMoved(slot=slot_id):
            return _of_slot(state, slot_id)
        case NodeJoined() | NodeWentAway() | NodeMeasured() | QuotaMeasured():
            return frozenset()  # the agent reports it again at the next connection
        case NodeLost(node=node) if cluster_of(node) or node in state.places.clusters:
            return frozenset()
        case NodeLost(node=node):
            return frozenset(job.id for job, record in state.slots.values() if record.slot.placement.node == node)
    job = getattr(event, "job", None)
    return frozenset((job,)) if isinstance(job, str) else None


def _of_slot(state: YardState, slot: str) -> frozenset[str] | None:
    found = state.slots.get(slot)
    return frozenset((found[0].id,)) if found else None
