"""Planner: which events does the engine itself want next? It proposes them, and they are handled like any others.

What it keeps can be thrown away at any time: a new one looks at everything, and comes to the same plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from jobyard.engine.blaming import blaming
from jobyard.engine.changes import Changes
from jobyard.engine.deadlines import Deadlines
from jobyard.engine.job_record import STUCK_SECONDS, JobRecord
from jobyard.engine.training import idle_seconds, is_last_epoch, obeys_its_user
from jobyard.engine.wants import Wants
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, Withdraw
from jobyard.model.events import (
    CancelRequested,
    Event,
    JobSized,
    SlotClosed,
    SlotOpened,
    SlotReserved,
    TasksAssigned,
    UseMeasured,
    YieldRequested,
)
from jobyard.model.job import Reason, State
from jobyard.model.node import NodeState, place_of
from jobyard.model.resources import DeviceSlice, Placement
from jobyard.model.task import AttemptId, Slot
from jobyard.model.training import Size
from jobyard.scheduling.cycle import plan
from jobyard.scheduling.placement import Room
from jobyard.scheduling.rooms import KnownRooms
from jobyard.scheduling.sharing import reservation_mib
from jobyard.scheduling.snapshot import Opening, Snapshot, Wait

# Smaller changes do not update a reservation: the memory that an allocator holds goes up and down all the time.
RESERVE_STEP_MIB = 256
PERCENT_STEP = 10  # smaller changes of GPU utilisation are not journalled


class Planner:
    def __init__(self, state: YardState) -> None:
        self.state = state
        self.wants = Wants(state)
        self.waits: Mapping[str, Wait] = {}  # why jobs wait, from the last cycle
        self.draining_slots: frozenset[str] = frozenset()  # they take no more tasks, by the last cycle
        self._known_rooms = KnownRooms()
        self.deadlines = Deadlines(state)
        self._asked_back_at: dict[str, float] = {}  # by slot: when its waiting tasks were last withdrawn
        jobs = dict.fromkeys(state.unfinished)
        state.changes = Changes(dict.fromkeys(state.slots), jobs, dict(jobs), dict(jobs), nodes=True, plan=True)
        self._is_new = True

    def decide(self, now: float) -> Iterator[Event]:
        """The events that the engine itself wants. Handle each before taking the next: they build on one another."""
        state = self.state
        # 1. Deadlines, delays of retries, and what was measured.
        yield from self._pass_deadlines(now)
        measured, state.changes.measured = state.changes.measured, {}
        yield from self._stop_idle(measured, now)
        yield from self._learn_use(measured, now)
        yield from self._reserve_measured(measured, now)
        if self._is_new:  # it does not know yet which slots are draining
            self._is_new = False
            yield from self._schedule(now)
        while state.changes.slots or state.changes.plan:
            # 2. Open slots get their next tasks, or close.
            while state.changes.slots:
                slot_id = next(iter(state.changes.slots))
                del state.changes.slots[slot_id]
                if slot_id in state.slots:
                    with blaming(state.slots[slot_id][0].id):
                        yield from self._feed(slot_id, now)
            # 3. The scheduler looks at what is left, when something changed.
            if state.changes.plan:
                yield from self._schedule(now)

    def withdrawals(self, now: float) -> list[Effect]:
        """Tasks that wait at agents behind a running one, in slots that are draining or stuck: withdraw them.

        Asks again for tasks that did not come back, after a pause.
        """
        effects: list[Effect] = []
        asked, self._asked_back_at = self._asked_back_at, {}
        for slot_id, (job, record) in self.state.slots.items():
            if len(record.tasks) < 2 or job.id in self.state.quarantined:
                continue
            if not (slot_id in self.draining_slots or record.is_stuck(now)):
                continue
            self._asked_back_at[slot_id] = asked.get(slot_id, float("-inf"))
            if now - self._asked_back_at[slot_id] < STUCK_SECONDS:
                continue
            self._asked_back_at[slot_id] = now
            queued = (job.tasks.known[number] for number in sorted(record.tasks))
            attempts = tuple(AttemptId(job.id, t.number, t.attempt) for t in queued if t.state is State.STARTING)
            if attempts:
                effects.append(Withdraw(record.slot.placement.node, attempts))
        return effects

    def next_deadline(self) -> float | None:
        """When `decide` should be called at the latest, though nothing else happens."""
        return self.deadlines.next()

    def snapshot(self, now: float = 0.0) -> Snapshot:
        return self.wants.snapshot(now)

    # -- below

    def _pass_deadlines(self, now: float) -> Iterator[Event]:
        for deadline in self.deadlines:
            if now >= deadline.at and deadline.passed is not None:
                yield deadline.passed(deadline.job, now)
            elif deadline.passed is None and self.state.unfinished[deadline.job].may_start(now):
                self.deadlines.ask(deadline)

    def _feed(self, slot_id: str, now: float) -> Iterator[Event]:
        job, record = self.state.slots[slot_id]
        if job.id in self.state.quarantined:
            return
        slot = record.slot
        able = job.stop is None and slot_id not in self.draining_slots and self._is_usable(slot.placement.node)
        able = able and not record.is_closing and job.may_start(now)
        if able and not (job.spec.gang and record.was_fed) and not record.is_stuck(now):
            backlog = job.backlog(slot.group)
            if len(record.tasks) > backlog // 2:
                return
            low, high = job.numbers_of(slot.group, slot.replica)
            room = backlog - len(record.tasks)
            if backlog > 1:
                # No other slot can start them sooner: a slot that still runs something takes no more than its share.
                waiting = job.tasks.pending.count_within(low, high)
                share = -(-waiting // job.slots_of(slot.group))
                if record.tasks and share == 0:
                    return
                room = min(room, max(1, share))
            if ranges := job.tasks.pending.first_within(low, high, room):
                yield TasksAssigned(slot_id, tuple(ranges), now)
                return
        if not record.tasks:
            yield SlotClosed(slot_id, now)

    def _is_usable(self, node_id: str) -> bool:
        node = self.state.places.nodes.get(node_id)
        return node is not None and node.state is NodeState.UP

    def _schedule(self, now: float) -> Iterator[Event]:
        self.state.changes.plan = False
        yield from self._ask_to_yield(now)
        shot = self.snapshot(now)
        try:
            decided = plan(shot, self._known_rooms)
        except Exception as error:
            _blame_one(shot)
            raise error
        self.waits = decided.waits
        for slot_id in self.draining_slots - decided.draining_slots:
            self.state.changes.slots[slot_id] = None  # it may take tasks again
        self.draining_slots = decided.draining_slots
        yield from self._sized(decided.openings, now)
        for opening in decided.openings:
            slot = Slot(str(self.state.last_slot + 1), opening.job, opening.group, opening.placement, opening.replica)
            yield SlotOpened(slot, now)
        for stop in decided.stops:
            yield YieldRequested(
                stop.job,
                stop.reason,
                stop.sentence,
                now,
                stop.size,
                stops_for=stop.stops_for,
                claim=stop.claim,
            )

    def _sized(self, openings: Iterable[Opening], now: float) -> Iterator[Event]:
        """Elastic jobs get the size of what they were given."""
        given: defaultdict[str, list[Opening]] = defaultdict(list)
        for opening in openings:
            if self.state.jobs[opening.job].spec.elastic:
                given[opening.job].append(opening)
        for job_id, found in given.items():
            size = Size(len(found), found[0].placement.resources.gpus)
            if size != self.state.jobs[job_id].spec.training_size:
                yield JobSized(job_id, size, now)

    def _ask_to_yield(self, now: float) -> Iterator[Event]:
        """Preemptions that a user asked for: leave a drained node, or have another size."""
        drained = self.state.places.drained
        for job in self.state.jobs_with_slots():
            size = job.training.fixed_size
            if job.stop is not None or not (size or drained) or job.is_yielding or job.id in self.state.quarantined:
                continue
            nodes = {r.slot.placement.node for r in job.slots.values()}
            leaving = (nodes | set(map(place_of, nodes))) & drained
            if is_last_epoch(job) or not obeys_its_user(job):
                continue
            if size is not None and size != job.spec.training_size:
                yield YieldRequested(job.id, Reason.RESIZING, f"resized to {size}", now, size)
            elif leaving:
                yield YieldRequested(job.id, Reason.PREEMPTED, f"node {', '.join(sorted(leaving))} is drained", now)

    def _stop_idle(self, measured: Iterable[str], now: float) -> Iterator[Event]:
        """Stop jobs that hold an idle GPU, if they were submitted so (`idle_gpu_stop`)."""
        for job_id in measured:
            job = self.state.jobs[job_id]
            training = job.spec.training
            if training is None or not training.idle_gpu_stop or job.stop is not None:
                continue
            if job_id in self.state.quarantined:
                continue
            if idle_seconds(job, now) is not None:
                minutes = f"{training.idle_gpu_seconds / 60:g} minutes"
                yield CancelRequested(job.id, now, message=f"stopped because its GPUs were idle for {minutes}")

    def _learn_use(self, measured: Iterable[str], now: float) -> Iterator[Event]:
        """What a running job was measured to use, for its profile: the next job of its kind reserves that."""
        for job_id in measured:
            job = self.state.jobs[job_id]
            gpu_mib = max((used.gpu_memory_mib for used in job.use.used.values()), default=0)
            if not gpu_mib or job_id in self.state.quarantined:
                continue
            profile = self.state.trainings.profile_of(job)
            percent = None if job.use.gpu_percent is None else round(job.use.gpu_percent)
            is_more = profile is None or gpu_mib > profile.peak_gpu_memory_mib
            known = profile.gpu_percent if profile else None
            if is_more or (percent is not None and (known is None or abs(percent - known) >= PERCENT_STEP)):
                mib = max(used.memory_mib for used in job.use.used.values())
                yield UseMeasured(job_id, mib, gpu_mib, percent, now)

    def _reserve_measured(self, measured: Iterable[str], now: float) -> Iterator[Event]:
        """Slots that share GPUs reserve what their tasks were measured to use, once that is known."""
        for job_id in measured:
            job = self.state.jobs[job_id]
            if job_id in self.state.quarantined:
                continue
            for slot_id, record in list(job.slots.items()):
                placement = record.slot.placement
                if not (placement.devices and placement.resources.gpu_memory_mib):
                    continue
                with blaming(job_id):
                    wanted = self._wanted_mib(job, placement)
                if wanted:
                    pieces = tuple(DeviceSlice(piece.index, wanted) for piece in placement.devices)
                    resources = replace(placement.resources, gpu_memory_mib=wanted)
                    yield SlotReserved(slot_id, replace(placement, resources=resources, devices=pieces), now)

    def _wanted_mib(self, job: JobRecord, placement: Placement) -> int | None:
        """On each of its devices; None: no change. It never takes what others have."""
        profile, node = self.state.trainings.profile_of(job), self.state.places.nodes.get(placement.node)
        if profile is None or node is None or not profile.peak_gpu_memory_mib:
            return None
        sizes = {device.index: device.memory_mib for device in node.devices}
        held = placement.devices[0].memory_mib
        most = min((sizes.get(piece.index, held) for piece in placement.devices), default=held)
        wanted = reservation_mib(held, profile.peak_gpu_memory_mib, profile.is_steady, most)
        wanted = max(wanted, job.memory.gpu_mib)
        if wanted > held:
            room = Room(node)
            for _, other in self.state.slots.values():
                if other.slot.placement.node == node.id:
                    room.give(other.slot.placement)
            ours = {piece.index for piece in placement.devices}
            wanted = held + min(wanted - held, *(max(0, d.free_mib) for d in room.devices if d.index in ours))
        return wanted if abs(wanted - held) >= RESERVE_STEP_MIB else None


def _blame_one(shot: Snapshot) -> None:
    """The scheduler failed. Raises Poisoned if it also fails for one request alone."""
    for request in shot.requests:
        with blaming(request.job):
            plan(replace(shot, requests=(request,)))
