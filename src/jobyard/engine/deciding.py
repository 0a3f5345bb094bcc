"""What does the engine itself want to happen next? It proposes events; they are journalled and handled like others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jobyard.engine.job_record import STUCK_SECONDS, JobRecord
from jobyard.engine.quarantine import blaming
from jobyard.engine.training import idle_seconds, is_last_epoch, obeys_its_user
from jobyard.engine.wants import snapshot
from jobyard.model.effects import Effect, Withdraw
from jobyard.model.events import (
    CancelRequested,
    DeadlinePassed,
    Event,
    JobSized,
    SlotClosed,
    SlotOpened,
    SlotReserved,
    TasksAssigned,
    YieldRequested,
)
from jobyard.model.job import Reason, State
from jobyard.model.node import NodeState, place_of
from jobyard.model.resources import DeviceSlice, Placement
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.placement import Room
from jobyard.scheduling.sharing import reservation_mib
from jobyard.scheduling.snapshot import Opening, Snapshot

if TYPE_CHECKING:
    from jobyard.engine.yard_state import YardState

# A reservation is not set anew for less than this, so that it does not follow every breath of an allocator.
RESERVE_STEP_MIB = 256


def decide(state: YardState, now: float) -> Iterator[Event]:
    """The events that the engine itself wants. Handle each before taking the next: they build on one another."""
    # 1. Deadlines.
    for job in list(state.unfinished.values()):
        if job.quarantine:
            continue
        deadline, started = job.spec.deadline_seconds, job.started_at
        if deadline is not None and started is not None and job.stop is None and now >= started + deadline:
            yield DeadlinePassed(job.id, now)
    yield from _stop_idle(state, now)
    yield from _reserve_measured(state, now)
    while state.hungry or state.replan:
        # 2. Open slots get their next tasks, or close.
        while state.hungry:
            slot_id = next(iter(state.hungry))
            del state.hungry[slot_id]
            if slot_id in state.slots:
                with blaming(state.slots[slot_id][0].id):
                    yield from _feed(state, slot_id, now)
        # 3. The scheduler looks at what is left, when something changed.
        if state.replan:
            state.replan = False
            yield from _ask_to_yield(state, now)
            yield from _schedule(state, now)


def _feed(state: YardState, slot_id: str, now: float) -> Iterator[Event]:
    job, record = state.slots[slot_id]
    if job.quarantine:
        return
    slot = record.slot
    able = job.stop is None and slot_id not in state.yielding and _is_usable(state, slot.placement.node)
    able = able and not record.is_void
    if able and not (job.spec.gang and record.was_fed) and not record.is_stuck(now):
        backlog = job.backlog(slot.group)
        if len(record.tasks) > backlog // 2:
            return
        low, high = job.numbers_of(slot.group, slot.replica)
        waiting = job.pending.count_within(low, high)
        share = -(-waiting // job.slots_of(slot.group))
        room = 1 if job.spec.gang else min(backlog - len(record.tasks), max(1, share))
        # Nobody else can use them sooner: a slot that still runs something takes no more than its share.
        if record.tasks and share == 0:
            return
        if ranges := job.pending.first_within(low, high, room):
            yield TasksAssigned(slot_id, tuple(ranges), now)
            return
    if not record.tasks:
        yield SlotClosed(slot_id, now)


def _is_usable(state: YardState, node_id: str) -> bool:
    node = state.nodes.get(node_id)
    return node is not None and node.state is NodeState.UP


def _schedule(state: YardState, now: float) -> Iterator[Event]:
    shot = snapshot(state, now)
    try:
        decided = plan(shot, state.known_rooms)
    except Exception as error:
        _blame_one(shot)
        raise error
    state.waits = decided.waits
    for slot_id in state.yielding - decided.yielding:
        state.hungry[slot_id] = None  # it may take tasks again
    state.yielding = decided.yielding
    yield from _sized(state, decided.openings, now)
    for opening in decided.openings:
        slot = Slot(str(state.last_slot + 1), opening.job, opening.group, opening.placement, opening.replica)
        yield SlotOpened(slot, now)
    for order in decided.stops:
        state.orders[order.job] = order
        yield YieldRequested(order.job, order.reason, order.sentence, now, order.size)


def _blame_one(shot: Snapshot) -> None:
    """The plan failed. Raises Poisoned if it does so for one request alone."""
    for request in shot.requests:
        with blaming(request.job):
            plan(replace(shot, requests=(request,)))


def _sized(state: YardState, openings: Iterable[Opening], now: float) -> Iterator[Event]:
    """Elastic jobs are as large as what they were given."""
    given: defaultdict[str, list[Opening]] = defaultdict(list)
    for opening in openings:
        if state.jobs[opening.job].spec.elastic:
            given[opening.job].append(opening)
    for job_id, found in given.items():
        size = Size(len(found), found[0].placement.resources.gpus)
        if size != state.jobs[job_id].spec.training_size:
            yield JobSized(job_id, size, now)


def _ask_to_yield(state: YardState, now: float) -> Iterator[Event]:
    """What a user wants of jobs that run: to leave a node, or to have another size."""
    for job in state.jobs_with_slots():
        if job.stop is not None or not (job.fixed_size or state.drained) or job.is_yielding or job.quarantine:
            continue
        nodes = {r.slot.placement.node for r in job.slots.values()}
        leaving = (nodes | set(map(place_of, nodes))) & state.drained
        if is_last_epoch(job) or not obeys_its_user(job):
            continue
        if job.fixed_size is not None and job.fixed_size != job.spec.training_size:
            yield YieldRequested(job.id, Reason.RESIZING, f"resized to {job.fixed_size}", now, job.fixed_size)
        elif leaving:
            yield YieldRequested(job.id, Reason.PREEMPTED, f"node {', '.join(sorted(leaving))} is drained", now)


def _stop_idle(state: YardState, now: float) -> Iterator[Event]:
    """Jobs that hold a GPU and do not use it, if they asked to be stopped then."""
    for job_id in list(state.remeasured):
        job = state.jobs[job_id]
        training = job.spec.training
        if training is None or not training.idle_gpu_stop or job.stop is not None or job.quarantine:
            continue
        if idle_seconds(job, now) is not None:
            minutes = f"{training.idle_gpu_seconds / 60:g} minutes"
            yield CancelRequested(job.id, now, message=f"stopped because its GPUs were idle for {minutes}")


def _reserve_measured(state: YardState, now: float) -> Iterator[Event]:
    """Slots that share GPUs hold what their tasks were seen to need, once that is known."""
    remeasured, state.remeasured = state.remeasured, {}
    for job_id in remeasured:
        job = state.jobs[job_id]
        if job.quarantine:
            continue
        for slot_id, record in list(job.slots.items()):
            placement = record.slot.placement
            if not (placement.devices and placement.resources.gpu_memory_mib):
                continue
            with blaming(job_id):
                wanted = _wanted_mib(state, job, placement)
            if wanted:
                pieces = tuple(DeviceSlice(piece.index, wanted) for piece in placement.devices)
                resources = replace(placement.resources, gpu_memory_mib=wanted)
                yield SlotReserved(slot_id, replace(placement, resources=resources, devices=pieces), now)


def _wanted_mib(state: YardState, job: JobRecord, placement: Placement) -> int | None:
    """On each of its devices; None: as it is. It never takes what somebody else has."""
    profile, node = state.trainings.profile_of(job), state.nodes.get(placement.node)
    if profile is None or node is None or not profile.peak_gpu_memory_mib:
        return None
    sizes = {device.index: device.memory_mib for device in node.devices}
    held = placement.devices[0].memory_mib
    most = min((sizes.get(piece.index, held) for piece in placement.devices), default=held)
    wanted = reservation_mib(held, profile.peak_gpu_memory_mib, profile.is_steady, most)
    wanted = max(wanted, job.more_gpu_mib)
    if wanted > held:
        room = Room(node)
        for _, other in state.slots.values():
            if other.slot.placement.node == node.id:
                room.give(other.slot.placement)
        ours = {piece.index for piece in placement.devices}
        wanted = held + min(wanted - held, *(max(0, d.free_mib) for d in room.devices if d.index in ours))
    return wanted if abs(wanted - held) >= RESERVE_STEP_MIB else None


def withdrawals(state: YardState, now: float) -> list[Effect]:
    """What waits at agents behind a running task, in slots that must yield or are stuck: ask for it back.

    Asks again for what did not come back, but not at once.
    """
    effects: list[Effect] = []
    for slot_id, (job, record) in state.slots.items():
        if len(record.tasks) < 2 or now - record.asked_back_at < STUCK_SECONDS or job.quarantine:
            continue
        if slot_id in state.yielding or record.is_stuck(now):
            record.asked_back_at = now
            queued = (job.tasks[number] for number in sorted(record.tasks))
            attempts = tuple(AttemptId(job.id, t.number, t.attempt) for t in queued if t.state is State.STARTING)
            if attempts:
                effects.append(Withdraw(record.slot.placement.node, attempts))
    return effects


def next_deadline(state: YardState) -> float | None:
    """When `decide` should be called at the latest, for deadlines alone."""
    times = [
        job.started_at + job.spec.deadline_seconds
        for job in state.unfinished.values()
        if job.spec.deadline_seconds is not None
        and job.started_at is not None
        and job.stop is None
        and not job.quarantine
    ]
    return min(times, default=None)
