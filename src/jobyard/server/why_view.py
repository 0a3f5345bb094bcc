"""View of why: why does a job wait, what does it do instead, and why did it fail?"""

from __future__ import annotations

import time
from heapq import nsmallest
from itertools import islice

from jobyard.engine.estimates import trusted_rest
from jobyard.engine.job_record import JobRecord
from jobyard.engine.planner import Planner
from jobyard.engine.training import given_more
from jobyard.engine.yard_state import YardState
from jobyard.model.job import Reason, State
from jobyard.model.units import show_seconds
from jobyard.scheduling.ordering import position_of, queue_position
from jobyard.server.views import awaited_view, failure_view, held_up, reason_of_job, retry_delay
from jobyard.wire.views import FailureView, WhyView

NOT_IN_LINE = (Reason.DEPENDENCY, Reason.RETRY_DELAY, None)  # for these it does not wait for the scheduler
AHEAD_NAMED = 3  # of the jobs that a waiting one is behind


def _is_limited(job: JobRecord) -> bool:
    """Does its own spec limit how many of its tasks run at once?"""
    groups = ((group.parallelism, group.completions) for group in job.spec.groups)
    is_by_group = any(parallelism is not None and parallelism < completions for parallelism, completions in groups)
    return is_by_group or (job.spec.policy.limit is not None and job.spec.policy.limit < job.spec.size)


def _position(state: YardState, job: JobRecord) -> tuple[int, bool, int]:
    """Its place in the queue, as the scheduler orders it."""
    return queue_position(job.priority, trusted_rest(job, state.trainings.profile_of, time.time()), job.age)


def how_many_run(running: int, waiting: int, size: int) -> str:
    run, wait = "runs" if running == 1 else "run", "waits" if waiting == 1 else "wait"
    if size == 1:
        return "its task runs" if running else "its task waits"
    return f"{running} of {size} tasks {run} and {waiting} {wait}"


def _place_in_line(planner: Planner, job: JobRecord) -> str:
    """Of those that the scheduler has in its line it only looks at the first."""
    state, line, own = planner.state, planner.wants.line, _position(planner.state, job)
    others = [o for o in state.unfinished.values() if line.place_of(o.id) is None and not state.waits_for(o)]
    ahead: dict[str, tuple[int, ...]] = {o.id: at for o in others if (at := _position(state, o)) < own}
    count = len(ahead) + line.count_before(own)
    if not count:
        return f"it is the next in line (priority {job.priority})"
    ahead |= {each.job: its for each in islice(line, AHEAD_NAMED) if (its := position_of(each)) < own}
    first = [state.jobs[job_id] for job_id in nsmallest(AHEAD_NAMED, ahead, key=ahead.__getitem__)]
    names = ", ".join(f"{other.number} ({other.spec.name})" for other in first)
    more = f" and {count - len(first)} more" if count > len(first) else ""
    told = f"{count} unfinished job{'s are' if count != 1 else ' is'} ahead of it"
    return f"{told} (priority {job.priority}): {names}{more}"


def why_view(planner: Planner, job: JobRecord, last_lines: tuple[str, ...] = ()) -> WhyView:
    """Why it is not running, or what it is doing instead."""
    state, (reason, message) = planner.state, reason_of_job(planner, job)
    sentences = []
    if message:
        sentences.append(message)
    if job.state is State.PENDING and reason not in NOT_IN_LINE and job.id not in state.quarantined:
        sentences.append(_place_in_line(planner, job))
    if job.state is State.RUNNING:
        running = job.tasks.counts[State.RUNNING]
        waiting = job.tasks.counts[State.PENDING] + (job.tasks.counts[State.STARTING] if job.spec.cluster else 0)
        sentences.append(how_many_run(running, waiting, job.spec.size))
        if (held := held_up(state, job)) and held[1] not in sentences:
            reason = reason or held[0]
            sentences.append(held[1])
        if wait := planner.waits.get(job.id):
            reason = reason or wait.reason
            sentences.append(f"the rest: {wait.sentence}")
        elif waiting > len(job.tasks.delayed) and _is_limited(job):
            reason = reason or Reason.ARRAY_LIMIT
            sentences.append("the rest waits because the job limits how many of its tasks run at once")
        if delayed := retry_delay(job):
            reason = reason or delayed[0]
            sentences.append(delayed[1])
    if not job.may_start(time.time()) and len(job.tasks.pending) and job.stop is None:
        rest = show_seconds(job.times.next_start_at - time.time())
        sentences.append(f"its next task starts in {rest}: --delay {show_seconds(job.start_delay)}")
    if (first := job.tasks.delayed.first) is not None and job.id not in state.quarantined:
        sentences.append(f"the next attempt starts in {show_seconds(max(0.0, first.until - time.time()))}")
    if not job.is_final and (more := given_more(job)):
        sentences.append(more)
    if not sentences:
        ago = f" {show_seconds(time.time() - job.times.finished_at)} ago" if job.times.finished_at else ""
        placing = "it was just submitted and is being placed"
        if job.spec.cluster and job.tasks.active:
            given = f"{job.tasks.active} of {job.spec.size} tasks"
            placing = f"cluster {job.spec.cluster} was given {given} and starts them"
        sentences.append(f"the job {job.state.told}{ago}" if job.is_final else placing)
    return WhyView(job.id, job.state, reason, tuple(sentences), failure_view(job, last_lines), job.number)


def task_why_view(planner: Planner, job: JobRecord, number: int, last_lines: tuple[str, ...] = ()) -> WhyView:
    """The same of one task. What waits, waits with its job, and for the same reasons."""
    task = awaited_view(planner.state, job, number)
    if task.state is State.FAILED:
        return WhyView(job.id, task.state, task.reason, (task.message,), FailureView(task, last_lines), job.number)
    if task.state is State.PENDING and not job.is_final:
        whole = why_view(planner, job)
        sentences = dict.fromkeys(filter(None, (task.message, *whole.sentences)))
        return WhyView(job.id, task.state, task.reason or whole.reason, tuple(sentences), number=job.number)
    where = f" on {task.node}" if task.node else ""
    return WhyView(
        job.id, task.state, task.reason, (task.message or f"it {task.state.told}{where}",), number=job.number
    )
