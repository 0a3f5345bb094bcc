"""Slot events: how does the state change when a slot opens, gets tasks, moves, is measured or closes?"""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.job_record import SlotRecord
from jobyard.engine.lifecycle import Assigned
from jobyard.engine.pod_gpus import devices_for
from jobyard.engine.stopping import advance_task
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import CloseSlot, Effect, Launch, Reserve
from jobyard.model.events import SlotClosed, SlotMoved, SlotOpened, SlotReserved, TasksAssigned
from jobyard.model.node import place_of
from jobyard.model.task import AttemptId


def open_slot(state: YardState, event: SlotOpened) -> list[Effect]:
    slot = event.slot
    job = state.jobs[slot.job]
    job.slots[slot.id] = record = SlotRecord(slot)
    job.preemption.next_size = job.preemption.asked = None
    state.changes.wants[job.id] = None
    state.slots[slot.id] = (job, record)
    state.last_slot = max(state.last_slot, int(slot.id))
    state.changes.slots[slot.id] = state.changes.begun[job.id] = None
    return []


def assign(state: YardState, event: TasksAssigned) -> list[Effect]:
    job, record = state.slots[event.slot]
    attempts = []
    record.was_fed = True
    if not record.tasks:
        record.progress_at = event.at
    if delay := job.start_delay:
        job.times.next_start_at = event.at + delay
        state.changes.plan = True  # what it wants changes with the clock
    for first, last in event.ranges:
        for number in range(first, last + 1):
            if job.training.progress and not state.trainings.can_go_on(job, number, record.slot.placement.node):
                job.training.forget(number)
            step = advance_task(state, job, job.task(number), Assigned(event.slot, record.slot.placement.node))
            record.tasks.add(number)
            attempts.append(AttemptId(job.id, number, step.task.attempt))
    return [Launch(record.slot.placement.node, record.slot, tuple(attempts))]


def reserve(state: YardState, event: SlotReserved) -> list[Effect]:
    if event.slot not in state.slots:
        return []
    _, record = state.slots[event.slot]
    record.slot = replace(record.slot, placement=event.placement)
    state.changes.plan = True
    return [Reserve(event.placement.node, record.slot)]


def move(state: YardState, event: SlotMoved) -> list[Effect]:
    """A cluster put it elsewhere; our accounting follows, even if the node is then overbooked."""
    found = state.slots.get(event.slot)
    if found is None:
        return []
    job, record = found
    placement = record.slot.placement
    if event.node == placement.node or place_of(event.node) != place_of(placement.node):
        return []
    others = (other.slot.placement for _, other in state.slots.values())
    devices = devices_for(placement.resources, state.places.nodes.get(event.node), others)
    record.slot = replace(record.slot, placement=replace(placement, node=event.node, devices=devices))
    for number in record.tasks:
        job.put(replace(job.tasks.known[number], node=event.node))
    state.changes.plan = True
    return []


def close(state: YardState, event: SlotClosed) -> list[Effect]:
    return close_slot(state, event.slot)


def close_slot(state: YardState, slot_id: str) -> list[Effect]:
    job, record = state.slots.pop(slot_id)
    del job.slots[slot_id]
    state.changes.wants[job.id] = None
    state.changes.slots.pop(slot_id, None)
    state.changes.plan = True
    return [CloseSlot(record.slot.placement.node, slot_id)]
