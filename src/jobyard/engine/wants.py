"""Requests and snapshot: which slots would each job open now, and what does the scheduler see of the yard?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from jobyard.engine.blaming import blaming
from jobyard.engine.estimates import trusted_rest
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.queries import member_of
from jobyard.engine.training import Bounds, pinned_to, running, sizes_of
from jobyard.engine.yard_state import YardState
from jobyard.model.training import Size
from jobyard.scheduling.line import Line
from jobyard.scheduling.placement import Room
from jobyard.scheduling.snapshot import HeldSlot, Member, Request, Running, Snapshot


class Wants:
    """Reads the state, and remembers what is costly to work out until it changes."""

    def __init__(self, state: YardState) -> None:
        self._state = state
        self.line = Line()  # what the jobs want, as of the last snapshot
        self._restless: dict[str, None] = {}  # jobs of which that may change though nothing happens to them
        self._held: dict[str, HeldSlot] = {}  # there may be thousands
        self._bounds: dict[str, Bounds] = {}  # of what machines ("") or the nodes of a cluster have

    def snapshot(self, now: float = 0.0) -> Snapshot:
        state = self._state
        self._follow(now)
        self._held = {slot_id: self._held_slot(job, record) for slot_id, (job, record) in state.slots.items()}
        jobs = state.jobs_with_slots()
        free = [job for job in jobs if job.id not in state.quarantined]
        training = tuple(_as_asked(each, state) for each in running(free, state.trainings, self._bounds_of, now))
        asked = (job.preemption.asked for job in jobs if job.preemption.asked and job.preemption.asked.claim)
        claims = tuple(placement for event in asked if state.jobs[event.job].is_yielding for placement in event.claim)
        nodes, held = tuple(state.places.nodes.values()), tuple(self._held.values())
        return Snapshot(nodes, held, self.line, state.places.unreached, training, claims, state.places.quotas)

    def _follow(self, now: float) -> None:
        """Bring the line up to date: only jobs that changed are asked, and those that time or a measurement changes."""
        changed, self._state.changes.wants = self._state.changes.wants, {}
        for job_id in changed | self._restless:
            job = self._state.unfinished.get(job_id)
            with blaming(job_id):
                request = self.request_of(job, now) if job is not None else None
                is_restless = job is not None and self.is_restless(job)
            if request is not None:
                self.line.put(request)
            else:
                self.line.drop(job_id)
            if is_restless:
                self._restless[job_id] = None
            else:
                self._restless.pop(job_id, None)

    def is_restless(self, job: JobRecord) -> bool:
        """May what it wants change though nothing happens to it?"""
        return self._may_want(job) and (job.is_adaptive or bool(job.times.next_start_at))

    def _may_want(self, job: JobRecord) -> bool:
        """Has it anything to start, whenever that is?"""
        if job.stop is not None or job.id in self._state.quarantined:
            return False
        return bool(len(job.tasks.pending)) and not self._state.waits_for(job)

    def _held_slot(self, job: JobRecord, record: SlotRecord) -> HeldSlot:
        """The one of the last cycle, where it still holds."""
        held = self._held.get(record.slot.id)
        if held is None or held.slot is not record.slot or held.priority != job.priority or held.age != job.age:
            held = HeldSlot(record.slot, job.priority, job.age)
        return held

    def request_of(self, job: JobRecord, now: float = 0.0) -> Request | None:
        """The slots that a job would open now, were there room; None if it has nothing to start."""
        if not self._may_want(job) or not job.may_start(now):
            return None
        spec = job.spec
        if (spec.gang or spec.elastic is not None) and (job.slots or len(job.tasks.pending) < spec.size):
            return None  # its tasks start together, once all of them wait
        # One object of a cluster starts together too; a task of it that is tried again does so alone.
        starts_together = spec.starts_together and not job.slots and len(job.tasks.pending) == job.tasks.unfinished
        allowed = job.slots_allowed - len(job.slots)
        if job.start_delay:
            allowed = min(allowed, 1)
        members = []
        for member in self._members(job):
            if allowed <= 0:
                break
            members.append(member if member.wanted <= allowed else replace(member, wanted=allowed))
            allowed -= member.wanted
        if not members:
            return None
        overcommit = spec.policy.overcommit and not spec.cluster  # Kubernetes never gives more than there is
        request = Request(
            job.id,
            job.priority,
            job.age,
            tuple(members),
            starts_together,
            spec.on,
            overcommit,
            cluster=spec.cluster,
            number=job.number,
        )
        return self._adapted(job, request, now) if job.is_adaptive else request

    def _adapted(self, job: JobRecord, request: Request, now: float) -> Request:
        """By what is known of it: where its checkpoint is, how long it will take, and the sizes that it can have."""
        state = self._state
        pin = pinned_to(job, state.places.nodes)
        if pin and not Room(state.places.nodes[pin]).instances(self._smallest(job, request.members[0]).resources):
            pin = ""  # it needs more than the node of its checkpoint has: it starts from the beginning elsewhere
        if pin:
            request = replace(request, members=(*_beside(pin, request.members[0]), *request.members[1:]))
        if (rest := trusted_rest(job, state.trainings.profile_of, now)) is not None:
            request = replace(request, gpu_seconds=rest)
        sizes = sizes_of(job, self._bounds_of(job.spec.cluster))
        largest = job.preemption.next_size
        sizes = tuple(size for size in sizes if largest is None or _fits(size, largest))
        if not sizes:
            return request
        member = replace(request.members[0], on="")  # of an elastic job there is one kind
        options = [
            _beside(pin, replace(member, wanted=size.workers, resources=replace(member.resources, gpus=size.gpus)))
            for size in reversed(sizes)
        ]
        return replace(request, members=options[0], smaller=tuple(options[1:]))

    def _smallest(self, job: JobRecord, member: Member) -> Member:
        sizes = sizes_of(job, self._bounds_of(job.spec.cluster))
        return replace(member, resources=replace(member.resources, gpus=sizes[0].gpus)) if sizes else member

    def _members(self, job: JobRecord) -> Iterator[Member]:
        """Room wanted per group, and per replica where a replica may not run all of its tasks at once."""
        open_slots = Counter((record.slot.group, record.slot.replica) for record in job.slots.values())
        for index, group in enumerate(job.spec.groups):
            limited = group.parallelism is not None and group.parallelism < group.completions and not job.spec.gang
            for replica in range(group.count) if limited else (None,):
                low, high = job.numbers_of(index, replica)
                wanted = job.tasks.pending.count_within(low, high)
                if limited and group.parallelism is not None:
                    wanted = min(wanted, group.parallelism - open_slots[(index, replica)])
                if wanted > 0:
                    device_mib = self._bounds_of(job.spec.cluster).device_mib
                    resources = self._state.trainings.resources(job, index, device_mib)
                    yield member_of(job.spec, index, resources, wanted, replica)

    def _bounds_of(self, cluster: str) -> Bounds:
        if self._state.changes.nodes:
            self._bounds.clear()
            self._state.changes.nodes = False
        if cluster not in self._bounds:
            self._bounds[cluster] = Bounds.of(self._state.places.nodes_of(cluster))
        return self._bounds[cluster]


def _as_asked(each: Running, state: YardState) -> Running:
    asked = state.jobs[each.job].preemption.asked if each.is_stopping else None
    return replace(each, stops_for=asked.stops_for, becomes=asked.size) if asked else each


def _beside(node: str, member: Member) -> tuple[Member, ...]:
    """The first task goes where its checkpoint is; the others of a gang get it from there, and go where they may."""
    if not node:
        return (member,)
    first, rest = replace(member, wanted=1, on=node), replace(member, wanted=member.wanted - 1)
    return (first, rest) if rest.wanted else (first,)


def _fits(size: Size, largest: Size) -> bool:
    return size.workers <= largest.workers and size.gpus <= largest.gpus
