"""Event handling: what does one event do to the yard? Only here the state changes: live, simulated and in a replay.

Each kind of event has one function, which changes the state and answers with effects. None of them reads a clock, or
what is only measured or planned: the same events always make the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobyard.engine import attempt_events, forgetting, job_events, place_events, quarantine, slot_events
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug
from jobyard.model import events
from jobyard.model.effects import Effect
from jobyard.model.events import Event

HANDLERS: dict[type[Event], Callable[[YardState, Any], list[Effect]]] = {
    events.JobSubmitted: job_events.submit,
    events.CancelRequested: job_events.cancel,
    events.RetryRequested: job_events.retry,
    events.DeadlinePassed: job_events.pass_deadline,
    events.RetryDelayPassed: job_events.pass_retry_delay,
    events.PriorityChanged: job_events.set_priority,
    events.JobAnnotated: job_events.annotate,
    events.ScaleRequested: job_events.scale,
    events.JobSized: job_events.resize,
    events.YieldRequested: job_events.ask_to_yield,
    events.JobQuarantined: job_events.hold,
    events.JobsForgotten: forgetting.forget,
    events.SlotOpened: slot_events.open_slot,
    events.TasksAssigned: slot_events.assign,
    events.SlotReserved: slot_events.reserve,
    events.SlotMoved: slot_events.move,
    events.SlotClosed: slot_events.close,
    events.AttemptsStarted: attempt_events.begin,
    events.AttemptsAwaited: attempt_events.await_start,
    events.AttemptsFinished: attempt_events.finish,
    events.AttemptsWithdrawn: attempt_events.give_back,
    events.AttemptsProgressed: attempt_events.progress,
    events.AttemptsMeasured: attempt_events.measure,
    events.UseMeasured: attempt_events.learn_use,
    events.NodeAdded: place_events.add_node,
    events.NodeJoined: place_events.join,
    events.NodeDrained: place_events.drain,
    events.NodeResumed: place_events.resume,
    events.NodeWentAway: place_events.go_away,
    events.NodeMeasured: place_events.measure,
    events.NodeLost: place_events.lose_node,
    events.NodeRemoved: place_events.remove_node,
    events.ClusterAdded: place_events.add_cluster,
    events.ClusterRemoved: place_events.remove_cluster,
    events.QuotaMeasured: place_events.measure_quota,
}


def handle(state: YardState, event: Event) -> list[Effect]:
    """Apply one event. Events about attempts that no longer count change nothing, nor do those about jobs in
    quarantine, but for a cancel."""
    left = quarantine.what_is_left(state, event) if state.quarantined else event
    if left is None:
        return []
    if (handler := HANDLERS.get(type(left))) is None:
        raise Bug(f"no handler for {type(left).__name__}")
    return handler(state, left)
