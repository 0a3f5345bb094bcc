"""What would each job open now, and what does the scheduler get to see of the yard?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.quarantine import blaming
from jobyard.engine.training import Bounds, gpu_seconds, pinned_to, running, sizes_of
from jobyard.model.job import JobSpec
from jobyard.model.node import Node, NodeConfig, cluster_of
from jobyard.model.resources import Resources
from jobyard.model.training import Size
from jobyard.scheduling import explain
from jobyard.scheduling.placement import Room
from jobyard.scheduling.snapshot import HeldSlot, Member, Request, Running, Snapshot, StopOrder
from jobyard.scheduling.where import needs_of

if TYPE_CHECKING:
    from jobyard.engine.yard_state import YardState


def snapshot(state: YardState, now: float = 0.0) -> Snapshot:
    held = tuple(_held(job, record) for job, record in state.slots.values())
    requests = []
    for job in state.unfinished.values():
        with blaming(job.id):
            request = request_of(state, job, now)
        if request:
            requests.append(request)
    nodes = tuple(state.nodes.values())
    state.orders = {job: order for job, order in state.orders.items() if state.jobs[job].is_yielding}
    training = running(state.jobs_with_slots(), state.trainings, partial(bounds_of, state), now)
    if state.orders:
        training = (_as_asked(each, state.orders.get(each.job)) for each in training)
    claims = tuple(placement for order in state.orders.values() for placement in order.claim)
    return Snapshot(nodes, held, tuple(requests), awaited(state), tuple(training), claims, state.quotas)


def _as_asked(each: Running, order: StopOrder | None) -> Running:
    return replace(each, stops_for=order.stops_for, becomes=order.size) if order else each


def _held(job: JobRecord, record: SlotRecord) -> HeldSlot:
    """The one of the last cycle, where it still holds: there may be thousands."""
    held = record.held
    if held is None or held.slot is not record.slot or held.priority != job.priority or held.age != job.age:
        held = record.held = HeldSlot(record.slot, job.priority, job.age)
    return held


def awaited(state: YardState) -> tuple[NodeConfig, ...]:
    """Machines that were added and of which nothing is known yet."""
    return tuple(config for name, config in state.configs.items() if name not in state.nodes)


def request_of(state: YardState, job: JobRecord, now: float = 0.0) -> Request | None:
    """The slots that a job would open now, were there room; None if it has nothing to start."""
    if job.stop is not None or job.quarantine or not len(job.pending) or state.waits_for(job):
        return None
    if job.is_adaptive:
        return new_request(state, job, now)
    if job.request is None:
        job.request = new_request(state, job)
    return job.request


def new_request(state: YardState, job: JobRecord, now: float = 0.0) -> Request | None:
    """The same, worked out afresh, for a job that may start tasks."""
    spec = job.spec
    if (spec.gang or spec.elastic is not None) and (job.slots or len(job.pending) < spec.size):
        return None  # its tasks start together, when all of them wait
    # One object of a cluster starts together too; a task of it that is tried again does so alone.
    starts_together = spec.starts_together and not job.slots and len(job.pending) == job.unfinished
    allowed = job.slots_allowed - len(job.slots)
    members = []
    for member in _members(state, job):
        if allowed <= 0:
            break
        members.append(member if member.wanted <= allowed else replace(member, wanted=allowed))
        allowed -= member.wanted
    if not members:
        return None
    overcommit = spec.overcommit and not spec.cluster  # Kubernetes never gives more than there is
    request = Request(
        job.id, job.priority, job.age, tuple(members), starts_together, spec.on, overcommit, cluster=spec.cluster
    )
    return _adapted(state, job, request, now) if job.is_adaptive else request


def _adapted(state: YardState, job: JobRecord, request: Request, now: float) -> Request:
    """By what is known of it: where its checkpoint is, how long it will take, and the sizes that it can have."""
    pin = pinned_to(job, state.nodes)
    if pin and not Room(state.nodes[pin]).instances(_smallest(state, job, request.members[0]).resources):
        pin = ""  # it needs more than there is where its checkpoint is: it begins anew elsewhere
    if pin:
        request = replace(request, members=(*_beside(pin, request.members[0]), *request.members[1:]))
    if job.spec.training is not None and job.age == job.number:  # one that was sent to the back goes to the back
        request = replace(request, gpu_seconds=gpu_seconds(job, state.trainings.profile_of(job), now))
    sizes = sizes_of(job, bounds_of(state, job.spec.cluster))
    sizes = tuple(size for size in sizes if job.next_size is None or _fits(size, job.next_size))
    if not sizes:
        return request
    member = replace(request.members[0], on="")  # of an elastic job there is one kind
    options = [
        _beside(pin, replace(member, wanted=size.workers, resources=replace(member.resources, gpus=size.gpus)))
        for size in reversed(sizes)
    ]
    return replace(request, members=options[0], smaller=tuple(options[1:]))


def _smallest(state: YardState, job: JobRecord, member: Member) -> Member:
    sizes = sizes_of(job, bounds_of(state, job.spec.cluster))
    return replace(member, resources=replace(member.resources, gpus=sizes[0].gpus)) if sizes else member


def _beside(node: str, member: Member) -> tuple[Member, ...]:
    """The first task goes where its checkpoint is; the others of a gang get it from there, and go where they may."""
    if not node:
        return (member,)
    first, rest = replace(member, wanted=1, on=node), replace(member, wanted=member.wanted - 1)
    return (first, rest) if rest.wanted else (first,)


def _members(state: YardState, job: JobRecord) -> Iterator[Member]:
    """Room wanted per group, and per replica where a replica may not run all of its tasks at once."""
    open_slots = Counter((record.slot.group, record.slot.replica) for record in job.slots.values())
    for index, group in enumerate(job.spec.groups):
        limited = group.parallelism is not None and group.parallelism < group.completions and not job.spec.gang
        for replica in range(group.count) if limited else (None,):
            low, high = job.numbers_of(index, replica)
            wanted = job.pending.count_within(low, high)
            if limited and group.parallelism is not None:
                wanted = min(wanted, group.parallelism - open_slots[(index, replica)])
            if wanted > 0:
                resources = state.trainings.resources(job, index, bounds_of(state, job.spec.cluster).device_mib)
                yield member_of(job.spec, index, resources, wanted, replica)


def member_of(
    spec: JobSpec, group: int, resources: Resources | None = None, wanted: int = 1, replica: int | None = None
) -> Member:
    """Room for tasks of one group. On a cluster GPUs are whole: Kubernetes counts them, and knows no shares."""
    resources = resources or spec.groups[group].resources
    if not spec.cluster:
        if (least := spec.groups[group].least_device_mib) > resources.least_device_mib and resources.gpus:
            resources = replace(resources, least_device_mib=least)
        with_token = bool(spec.submitted_with)
        return Member(group, resources, wanted, replica, in_container=spec.container, with_token=with_token)
    if resources.shares_gpus or resources.least_device_mib:
        resources = replace(resources, gpu_memory_mib=0, gpu_percent=0, least_device_mib=0)
    labels, tolerations = needs_of(spec.groups[group])
    return Member(group, resources, wanted, replica, labels=labels, tolerations=tolerations)


def members_together(spec: JobSpec) -> tuple[Member, ...]:
    """All that must be there at once for a job that starts together."""
    at_once = [
        group.size if spec.gang else group.count * min(group.completions, group.parallelism or group.completions)
        for group in spec.groups
    ]
    return tuple(member_of(spec, index, wanted=wanted) for index, wanted in enumerate(at_once) if wanted)


def nodes_of(state: YardState, cluster: str) -> list[Node]:
    """The machines, or the nodes of a cluster; a queue is no node."""
    return [node for node in state.nodes.values() if cluster_of(node.id) == cluster and not node.is_queue]


def bounds_of(state: YardState, cluster: str = "") -> Bounds:
    if cluster not in state.bounds:
        state.bounds[cluster] = Bounds.of(nodes_of(state, cluster))
    return state.bounds[cluster]


def why_never(
    state: YardState, job_groups: Iterable[Member], on: str, overcommit: bool = False, cluster: str = ""
) -> str | None:
    """A sentence if some member could run on no node at all, however empty, or `on` names what is not there."""
    nodes = list(state.nodes.values())
    if cluster:
        return _why_never_on_cluster(state, job_groups, cluster)
    if unknown := explain.why_unknown(nodes, awaited(state), on, state.clusters):
        return unknown
    if any(explain.may_match(config, on) for config in awaited(state)):
        return None  # nobody knows yet what it has
    whys = (explain.why_never(nodes, m.resources, m.where(on, cluster), overcommit) for m in job_groups)
    return next(filter(None, whys), None)


def _why_never_on_cluster(state: YardState, job_groups: Iterable[Member], cluster: str) -> str | None:
    nodes = [node for node in state.nodes.values() if cluster_of(node.id) == cluster]
    if not nodes and cluster not in state.clusters:
        return f"there is no cluster {cluster!r}; known: {', '.join(sorted(state.clusters)) or 'none'}"
    if not nodes:
        return None  # nobody knows yet what it has
    return next(filter(None, (explain.why_never(nodes, m.resources, m.where("", cluster)) for m in job_groups)), None)


def _fits(size: Size, largest: Size) -> bool:
    return size.workers <= largest.workers and size.gpus <= largest.gpus
