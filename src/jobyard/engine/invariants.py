"""Invariants: what holds after every event? Checked by the tests and the simulator; a broken one is a bug of ours."""

from __future__ import annotations

from collections import Counter, defaultdict

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.engine.planner import Planner
from jobyard.engine.yard_state import YardState
from jobyard.errors import Bug
from jobyard.model.job import JobSpec, State
from jobyard.model.node import Node, cluster_of
from jobyard.model.resources import Placement
from jobyard.scheduling.devices import percent_most
from jobyard.scheduling.placement import CORES_OVERCOMMITTED_MILLIS


class BrokenInvariant(Bug):
    code = "broken_invariant"


def check(yard: YardState, *, finished_too: bool = False) -> None:
    """Raises BrokenInvariant with a sentence if anything that must always hold does not."""
    jobs = {job.id: job for job, _ in yard.slots.values()} | yard.unfinished
    for job in (yard.jobs if finished_too else jobs).values():
        _books_agree(job)
        _slots_and_tasks_agree(yard, job)
        _limits_are_kept(job)
        _gang_is_together(job)
        if job.is_final == (job.id in yard.unfinished):
            listed = "" if job.is_final else "not "
            raise BrokenInvariant(f"job {job.id} is {job.state} and {listed}listed as unfinished")
    _nobody_is_overbooked(yard)


def check_decided(planner: Planner) -> None:
    """What holds when `decide` proposes nothing more: no slot idles, and every unfinished job can still move."""
    yard = planner.state
    for job, record in yard.slots.values():
        if not record.tasks:
            raise BrokenInvariant(f"slot {record.slot.id} of job {job.id} is open and empty")
    for job in yard.unfinished.values():
        is_idle = not (job.tasks.active or len(job.tasks.delayed))
        if is_idle and planner.wants.request_of(job, job.times.next_start_at) is None and not yard.waits_for(job):
            raise BrokenInvariant(f"job {job.id} is {job.state}, and nothing will ever move it")
        if job.id not in yard.changes.begun and any(planner.deadlines.of(job)):
            raise BrokenInvariant(f"job {job.id} has a deadline, and is not looked at for one")
        _its_request_is_known(planner, job)


def _its_request_is_known(planner: Planner, job: JobRecord) -> None:
    wants = planner.wants
    if job.id in planner.state.changes.wants or wants.is_restless(job):
        return  # it is asked again in the next cycle
    place = wants.line.place_of(job.id)
    if wants.request_of(job) != (place.request if place else None):
        raise BrokenInvariant(f"job {job.id}: its request is out of date")


def _books_agree(job: JobRecord) -> None:
    tasks, counts = job.tasks, job.tasks.counts
    by_task = Counter(task.state for task in tasks.known.values())
    delayed = {number: task.not_before for number, task in tasks.known.items() if task.not_before}
    if delayed != {number: tasks.delayed.until(number) for number in tasks.delayed}:
        raise BrokenInvariant(f"job {job.id}: {delayed} are delayed, and the book has {list(tasks.delayed)}")
    together = IntervalSet()
    for state, book, others in (
        (State.PENDING, tasks.pending, len(delayed)),
        (State.SUCCEEDED, tasks.succeeded, 0),
        (State.CANCELLED, tasks.cancelled, 0),
    ):
        kept = sum(task.number in book for task in tasks.known.values() if task.state is state) + others
        if kept != by_task[state] or len(book) + others != counts[state]:
            raise BrokenInvariant(f"job {job.id}: the book of {state} has {len(book)}, counted {counts[state]}")
        for first, last in book.ranges():
            together.add(first, last)
    if len(together) != len(tasks.pending) + len(tasks.succeeded) + len(tasks.cancelled):
        raise BrokenInvariant(f"job {job.id}: a task is in two books")
    for state in (State.STARTING, State.RUNNING, State.STOPPING, State.FAILED):
        if by_task[state] != counts[state]:
            raise BrokenInvariant(f"job {job.id}: {by_task[state]} tasks are {state}, counted {counts[state]}")
    if sum(counts.values()) != job.spec.size or any(count < 0 for count in counts.values()):
        raise BrokenInvariant(f"job {job.id}: counts {dict(counts)} do not add up to {job.spec.size}")
    if twice := tasks.known.keys() & tasks.attempts.keys():
        raise BrokenInvariant(f"job {job.id}: tasks {sorted(twice)} are remembered twice")


def _slots_and_tasks_agree(yard: YardState, job: JobRecord) -> None:
    held = {number: slot_id for slot_id, record in job.slots.items() for number in record.tasks}
    for task in job.tasks.known.values():
        if task.state.is_active != (task.active is not None):
            raise BrokenInvariant(f"job {job.id}: task {task.number} is {task.state}, and has {task.active}")
    active = {task.number: task.slot for task in job.tasks.known.values() if task.active is not None}
    if held != active:
        raise BrokenInvariant(f"job {job.id}: slots hold {held}, tasks say {active}")
    for slot_id in job.slots:
        if yard.slots.get(slot_id, (None,))[0] is not job:
            raise BrokenInvariant(f"slot {slot_id} is known to job {job.id} only")


def _limits_are_kept(job: JobRecord) -> None:
    if len(job.slots) > job.slots_allowed:
        raise BrokenInvariant(f"job {job.id}: {len(job.slots)} slots, allowed {job.slots_allowed}")
    per_replica: Counter[tuple[int, int]] = Counter()
    for record in job.slots.values():
        for number in record.tasks:
            place = job.spec.place_of(number)
            if place.group != record.slot.group or record.slot.replica not in (None, place.replica):
                raise BrokenInvariant(f"job {job.id}: task {number} runs in a slot of another group or replica")
        if record.slot.replica is not None:
            per_replica[(record.slot.group, record.slot.replica)] += 1
    for (group, replica), count in per_replica.items():
        parallelism = job.spec.groups[group].parallelism
        if parallelism is not None and count > parallelism:
            raise BrokenInvariant(f"job {job.id}: replica {replica} has {count} slots, parallelism {parallelism}")


def _gang_is_together(job: JobRecord) -> None:
    if not job.spec.gang:
        return
    if any(len(record.tasks) > 1 for record in job.slots.values()):
        raise BrokenInvariant(f"gang {job.id}: two tasks share a slot")
    waiting = sum(not record.was_fed for record in job.slots.values())
    counts, pending = job.tasks.counts, job.tasks.counts[State.PENDING]
    if counts[State.STARTING] + counts[State.RUNNING] and waiting != pending:
        raise BrokenInvariant(f"gang {job.id}: {pending} tasks wait while others run, {waiting} with a slot")


def _nobody_is_overbooked(yard: YardState) -> None:
    held: defaultdict[str, list[tuple[JobSpec, Placement]]] = defaultdict(list)
    for job, record in yard.slots.values():
        if not cluster_of(record.slot.placement.node):  # there Kubernetes decides, and our accounting follows
            held[record.slot.placement.node].append((job.spec, record.slot.placement))
    for node_id, found in held.items():
        if len(found) > 1 and any(placement.resources.whole_node for _, placement in found):
            raise BrokenInvariant(f"node {node_id}: a task that was given all of it is not alone")
        if node := yard.places.nodes.get(node_id):
            _node_is_not_overbooked(node, found)


def _node_is_not_overbooked(node: Node, held: list[tuple[JobSpec, Placement]]) -> None:
    cpu_millis = sum(placement.resources.cpu_millis for _, placement in held)
    memory_mib = sum(placement.resources.memory_mib for _, placement in held)
    overcommits = any(spec.policy.overcommit for spec, _ in held)
    if cpu_millis > node.cpu_millis + CORES_OVERCOMMITTED_MILLIS * overcommits or memory_mib > node.memory_mib:
        raise BrokenInvariant(f"node {node.id}: {cpu_millis} millicpus and {memory_mib} MiB are reserved")
    for device in node.devices:
        users = [(spec, p.resources) for spec, p in held if any(piece.index == device.index for piece in p.devices)]
        mib = sum(piece.memory_mib for _, p in held for piece in p.devices if piece.index == device.index)
        if mib > device.memory_mib:
            raise BrokenInvariant(f"node {node.id}: device {device.index} is overbooked")
        if len(users) > 1 and not all(resources.shares_gpus for _, resources in users):
            raise BrokenInvariant(f"node {node.id}: device {device.index} is shared with one who asked for all of it")
        percent = sum(resources.gpu_percent for _, resources in users)
        if percent > percent_most(overcommit=any(spec.policy.overcommit for spec, r in users if r.gpu_percent)):
            raise BrokenInvariant(f"node {node.id}: {percent} % of device {device.index} are promised")
