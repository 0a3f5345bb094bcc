"""Views: what do people and programs see of jobs and tasks? Made from the state on demand."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.lifecycle import reason_of
from jobyard.engine.planner import Planner
from jobyard.engine.training import given_more, idle_seconds
from jobyard.engine.yard_state import YardState
from jobyard.model.job import Command, GroupSpec, JobSpec, Reason, State
from jobyard.model.node import Node, place_of
from jobyard.model.own_command import own_command, own_values
from jobyard.model.resources import Resources
from jobyard.model.task import AttemptId, PastAttempt, Task
from jobyard.model.units import show_seconds
from jobyard.server.asked_view import asked_view
from jobyard.server.eta import eta_seconds
from jobyard.server.training_view import training_view
from jobyard.wire.views import (
    AttemptView,
    Counts,
    DeviceView,
    FailureView,
    GroupView,
    JobView,
    NodeView,
    TaskView,
)

# Secrets by name: MYSQL_PWD but not OLDPWD, any KEY but no KEYBOARD, AUTH but not AUTHOR, a TOKEN but no TOKENIZER.
SECRET_NAME = re.compile(
    r"SECRET|TOKEN(?!IZE)|PASSW|PASSPHRASE|CREDENTIAL|(?:API|PRIVATE|ACCESS)_?KEY"
    r"|(?:PASS|DBPWD|(?:^|_)(?:PWD|KEYS?|AUTH))(?:_|\d*$)",
    re.IGNORECASE,
)

AGAIN = "it waits to be tried again"
COMMAND_MOST = 4096  # characters of a task's command: a page has a thousand tasks


LIST_TEXT_MOST = 500  # characters: of a page of a thousand jobs some megabytes in all


def counts_of(job: JobRecord) -> Counts:
    by_name = {state.lower(): count for state, count in job.tasks.counts.items()}
    return Counts(total=job.spec.size, **by_name)


def job_view(planner: Planner, job: JobRecord, *, last_lines: tuple[str, ...] = (), detail: bool = True) -> JobView:
    spec = job.spec
    state, (reason, message) = planner.state, reason_of_job(planner, job)
    only = job.task(0) if spec.size == 1 else None
    view = JobView(
        id=job.id,
        number=job.number,
        name=spec.name,
        user=spec.submitter.user,
        state=job.state,
        reason=reason,
        message=message,
        priority=job.priority,
        submitted_at=job.times.submitted_at,
        started_at=job.times.started_at,
        finished_at=job.times.finished_at,
        counts=counts_of(job),
        command=str(spec.groups[0].command) if detail else _beginning(spec.groups[0].command),
        workdir=spec.workdir,
        source=spec.submitter.source,
        gang=spec.gang,
        groups=_groups(spec) if detail else (),
        after=tuple(f"{'afterok' if d.needs_success else 'afterany'}:{called(state, d.job)}" for d in spec.after)
        if detail
        else (),
        retries=spec.policy.retries,
        max_fails=spec.policy.max_fails,
        limit=spec.policy.limit,
        timeout_seconds=spec.policy.timeout_seconds,
        env={name: shown(name, value) for name, value in spec.env.items()} if detail else {},
        notes=spec.submitter.notes if detail else (),
        eta_seconds=eta_seconds(job, state.trainings.profile_of),
        exit_code=only.outcome.exit_code if only and only.outcome else None,
        first_failure=failure_view(job, last_lines),
        training=training_view(state, job, detail=detail),
        cluster=spec.cluster,
        kind=spec.kubernetes.kind,
        image=spec.container.image,
        container=spec.container.on_machines,
        git=replace(spec.container.git, diff="") if spec.container.git is not None else None,
        asked=asked_view(spec) if detail else {},
        annotations=job.annotations,
        first_started_at=job.times.first_started_at,
        given_more=given_more(job),
        is_owners=not spec.submitter.submitted_with,
    )
    return view if detail else _with_short_texts(view)


def _groups(spec: JobSpec) -> tuple[GroupView, ...]:
    return tuple(
        GroupView(g.name, g.count, g.completions, g.parallelism, _amounts(g), str(g.command)) for g in spec.groups
    )


def _beginning(command: Command) -> str:
    """Enough of a command for a list, without making the whole of it."""
    most = LIST_TEXT_MOST + 1
    argv = tuple(word[:most] for word in command.argv[:most])
    return str(replace(command, argv=argv, shell=command.shell[:most]))


def _with_short_texts(view: JobView) -> JobView:
    failure = view.first_failure
    if failure is not None:
        task = failure.task
        failure = replace(failure, task=replace(task, message=_short(task.message), command=_short(task.command)))
    return replace(
        view,
        message=_short(view.message),
        command=_short(view.command),
        workdir=_short(view.workdir),
        image=_short(view.image),
        first_failure=failure,
    )


def _short(text: str) -> str:
    return text if len(text) <= LIST_TEXT_MOST else f"{text[: LIST_TEXT_MOST - 1]}…"


def _amounts(group: GroupSpec) -> Resources:
    """With how much memory its GPUs have at least, which a job says of a group."""
    least = max(group.least_device_mib, group.resources.least_device_mib)
    return replace(group.resources, least_device_mib=least)


def failure_view(job: JobRecord, last_lines: tuple[str, ...]) -> FailureView | None:
    first = job.tasks.first_failure
    return None if first is None else FailureView(task_view(job, job.task(first)), last_lines)


def unshowable(job: JobRecord, error: Exception) -> JobView:
    """Replaces a view that failed: only what is certain."""
    sentence = f"this job cannot be shown ({type(error).__name__}: {error}); the server's log has the details"
    return JobView(
        id=job.id,
        number=job.number,
        name=job.spec.name,
        user=job.spec.submitter.user,
        state=job.state,
        reason=Reason.UNKNOWN,
        message=sentence,
        priority=job.priority,
        submitted_at=job.times.submitted_at,
        started_at=job.times.started_at,
        finished_at=job.times.finished_at,
        counts=Counts(total=job.spec.size),
        command="",
        workdir=job.spec.workdir,
        source=job.spec.submitter.source,
        gang=job.spec.gang,
    )


def shown(name: str, value: str) -> str:
    """The value of a variable that sounds like a secret is hidden."""
    return "(hidden)" if SECRET_NAME.search(name) else value


def reason_of_job(planner: Planner, job: JobRecord) -> tuple[Reason | None, str]:
    """Why it is as it is, and the sentence for it."""
    if held := planner.state.quarantined.get(job.id):
        return Reason.HELD, f"{held}; nothing of it is begun or ended until `yard cancel {job.number}`"
    if job.stop is not None and (job.state is not State.SUCCEEDED or job.stop[0] is Reason.ENOUGH):
        first = job.tasks.first_failure
        if job.stop[0] is Reason.SIBLING_FAILED and first is not None:
            return job.task(first).reason, f"task {job.spec.label_of(first)} {job.task(first).message}; {job.stop[1]}"
        return job.stop
    if job.state is State.FAILED and job.tasks.first_failure is not None:
        first_task = job.task(job.tasks.first_failure)
        if job.spec.size == 1:
            return first_task.reason, first_task.message
        label = job.spec.label_of(job.tasks.first_failure)
        failed = job.tasks.counts[State.FAILED]
        first_words = f": task {label}" if failed == 1 else f"; the first, {label},"
        return first_task.reason, f"{failed} of {job.spec.size} tasks failed{first_words} {first_task.message}"
    if job.is_yielding:
        return next((task.reason, task.message) for task in job.active_tasks() if task.is_yielding)
    if (idle := idle_seconds(job, time.time())) is not None:
        return None, f"its GPUs have been idle for {show_seconds(idle)}; `yard cancel {job.number}` gives them back"
    state = planner.state
    if (said := held_up(state, job)) and not job.tasks.counts[State.RUNNING]:
        return said
    if job.state is State.PENDING:
        if awaited := awaited_jobs(state, job):
            return Reason.DEPENDENCY, awaited
        if wait := planner.waits.get(job.id):
            return wait.reason, wait.sentence
        if delayed := retry_delay(job):
            return delayed
        if job.spec.size == 1 and (message := job.task(0).message):
            return job.task(0).reason, message
    return None, ""


def retry_delay(job: JobRecord) -> tuple[Reason, str] | None:
    """Why its failed tasks are not tried again yet. No time is in it: who follows the job hears of each change."""
    count = len(job.tasks.delayed)
    if not count:
        return None
    if job.spec.gang:
        return Reason.RETRY_DELAY, f"one of its tasks failed; {AGAIN}"
    if job.spec.size == 1:
        return Reason.RETRY_DELAY, f"{job.task(0).message}; {AGAIN}"
    return Reason.RETRY_DELAY, f"{count} failed task{' waits' if count == 1 else 's wait'} to be tried again"


def held_up(state: YardState, job: JobRecord) -> tuple[Reason | None, str] | None:
    """What the cluster says about tasks that were handed to it and do not run yet: the most frequent sentence."""
    if not job.spec.cluster or job.is_final:
        return None
    found = Counter(
        said
        for task in job.active_tasks()
        if (said := state.cluster_waits.get(AttemptId(job.id, task.number, task.attempt))) and said[1]
    )
    if not found:
        return None
    (reason, sentence), count = found.most_common(1)[0]
    if job.spec.size == 1:
        return reason, sentence
    return reason, f"{count} of {job.spec.size} tasks wait{'s' if count == 1 else ''} on {job.spec.cluster}: {sentence}"


def task_view(job: JobRecord, task: Task) -> TaskView:
    placement = job.slots[task.slot].slot.placement if task.active is not None else None
    outcome, reason, message = task.outcome, task.reason, task.message
    if task.not_before:
        reason, message = Reason.RETRY_DELAY, "; ".join(filter(None, (message, AGAIN)))
    return TaskView(
        number=task.number,
        label=job.spec.label_of(task.number),
        state=task.state,
        attempt=task.attempt,
        reason=reason,
        message=message,
        node=task.node,
        unit=task.unit,
        devices=tuple(piece.index for piece in placement.devices) if placement else (),
        exit_code=outcome.exit_code if outcome else (0 if task.state is State.SUCCEEDED else None),
        signal=outcome.signal if outcome else None,
        started_at=task.started_at or (outcome.started_at if outcome else None) or None,
        finished_at=outcome.finished_at if outcome and task.state.is_final else None,
        peak_memory_mib=(outcome.peak_memory_mib or None) if outcome else None,
        peak_gpu_memory_mib=(outcome.peak_gpu_memory_mib or None) if outcome else None,
        command=_cut(own_command(job.spec, task.number)),
        earlier=tuple(attempt_view(past) for past in task.earlier),
        values={name: _cut(value) for name, value in own_values(job.spec, task.number).items()},
    )


def attempt_view(past: PastAttempt) -> AttemptView:
    outcome, (reason, message) = past.outcome, reason_of(past.outcome)
    return AttemptView(
        past.number,
        past.node,
        outcome.started_at,
        outcome.finished_at,
        None if outcome.succeeded else reason,
        "" if outcome.succeeded else message,
        outcome.exit_code,
        outcome.signal,
    )


def _cut(command: str) -> str:
    return command if len(command) <= COMMAND_MOST else f"{command[:COMMAND_MOST]}…"


def task_numbers(
    job: JobRecord, states: Iterable[State], limit: int, offset: int, only: IntervalSet | None = None
) -> list[int]:
    """The tasks in these states (none: all), in order, from the offset on. It costs ranges and what it answers, not the
    offset. With `only`, those of them that are in it."""
    asked = IntervalSet([(0, job.spec.size - 1)]) if only is None else only
    chosen = job.tasks.among(asked, wanted) if (wanted := list(states)) else asked
    found: list[int] = []
    for first, last in chosen.ranges():
        begin = first + offset
        offset = max(0, begin - last - 1)
        found.extend(range(begin, min(last + 1, begin + limit - len(found))))
        if len(found) >= limit:
            break
    return found


def awaited_view(state: YardState, job: JobRecord, number: int) -> TaskView:
    """A task, with the cluster's words where it was handed over and does not run yet."""
    view = task_view(job, job.task(number))
    reason, sentence = state.cluster_waits.get(AttemptId(job.id, number, view.attempt), (None, ""))
    return replace(view, reason=reason, message=sentence) if sentence and view.state.is_active else view


Held = Mapping[str, Sequence[SlotRecord]]


def slots_by_place(state: YardState) -> Held:
    """The slots on each node, and on all nodes of a cluster together. Computed once for a list of nodes."""
    found: defaultdict[str, list[SlotRecord]] = defaultdict(list)
    for _, record in state.slots.values():
        node = record.slot.placement.node
        for place in {node, place_of(node)}:
            found[place].append(record)
    return found


def node_view(state: YardState, node: Node, held: Held | None = None) -> NodeView:
    cpus = memory = tasks = 0
    devices: defaultdict[int, int] = defaultdict(int)
    percents: defaultdict[int, int] = defaultdict(int)
    for record in (slots_by_place(state) if held is None else held).get(node.id, ()):
        placement = record.slot.placement
        cpus += placement.resources.cpu_millis
        memory += placement.resources.memory_mib
        tasks += bool(record.tasks)
        for piece in placement.devices:
            devices[piece.index] += piece.memory_mib
            percents[piece.index] += placement.resources.gpu_percent
    use = {device.index: device for device in node.device_use}
    taken = set(devices) | set(node.foreign.whole_devices)
    foreign, foreign_percents = dict(node.foreign.device_mib), dict(node.foreign.device_percent)
    return NodeView(
        id=node.id,
        executor=node.executor,
        state=node.state,
        cpu_millis=node.cpu_millis,
        cpu_millis_reserved=cpus,
        cpu_millis_foreign=node.foreign.cpu_millis,
        memory_mib=node.memory_mib,
        memory_mib_reserved=memory,
        memory_mib_foreign=node.foreign.memory_mib,
        tasks=tasks,
        devices=tuple(
            DeviceView(
                d.index,
                d.name,
                d.memory_mib,
                devices[d.index],
                d.memory_mib if d.index in node.foreign.whole_devices else foreign.get(d.index, 0),
                d.fake,
                use[d.index].used_mib if d.index in use else None,
                use[d.index].percent if d.index in use else None,
                percents[d.index],
                foreign_percents.get(d.index, 0),
                d.index in taken,
            )
            for d in node.devices
        ),
        labels=node.labels,
        holders=node.foreign.holders,
        doubts=node.foreign.doubts,
        load=node.load,
        runtime=node.runtime,
        runtime_problem=node.runtime_problem,
    )


def called(state: YardState, job_id: str) -> str:
    """As people call it: by its number, or by its id where it is forgotten."""
    return str(state.jobs[job_id].number) if job_id in state.jobs else job_id


def awaited_jobs(state: YardState, job: JobRecord) -> str:
    """`waits for job 1 to succeed and for job 2 to end`; empty where it waits for no other job."""
    waiting = set(state.waits_for(job))
    parts = []
    for needs_success, how in ((True, "succeed"), (False, "end")):
        wanted = [each.job for each in job.spec.after if each.job in waiting and each.needs_success is needs_success]
        if wanted:
            named = ", ".join(called(state, each) for each in wanted)
            parts.append(f"for job{'s' if len(wanted) > 1 else ''} {named} to {how}")
    return f"waits {' and '.join(parts)}" if parts else ""
