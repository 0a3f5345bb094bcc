"""Stopping: how are a task, a job, and the jobs that depend on its success stopped or cancelled?"""

from __future__ import annotations

from collections import defaultdict

from jobyard.engine.job_record import JobRecord
from jobyard.engine.lifecycle import Action, Ended, GivenBack, Happening, LostItsNode, Step, StopAsked, advance
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect, JobEnded, Stop
from jobyard.model.job import Reason, State
from jobyard.model.task import AttemptId, Task

OF_POLICY = (Reason.SIBLING_FAILED, Reason.ENOUGH)  # why a job stops by itself, because of how its tasks ended


def advance_task(state: YardState, job: JobRecord, task: Task, happening: Happening, retries: int = 0) -> Step:
    """A task that would wait again has no job to wait for, where that stops and lets what runs end."""
    step = advance(task, happening, retries)
    if (
        job.stop is not None
        and step.task.state is State.PENDING
        and isinstance(happening, Ended | GivenBack | LostItsNode)
    ):
        step = advance(step.task, StopAsked(*job.stop))
    if job.put(step.task):
        state.changes.wants[job.id] = None
    is_over = task.active is not None and step.task.active is None
    if state.cluster_waits and (step.task.active is None or step.task.started_at is not None):
        state.cluster_waits.pop(AttemptId(job.id, task.number, task.attempt), None)
    if is_over and (record := job.slots.get(task.slot)):
        record.tasks.discard(task.number)
        state.changes.slots[task.slot] = None
    return step


def stop_tasks(state: YardState, job: JobRecord, tasks: list[Task], asked: StopAsked, grace: float) -> list[Effect]:
    by_node: defaultdict[str, list[AttemptId]] = defaultdict(list)
    for task in tasks:
        step = advance_task(state, job, task, asked)
        if step.ask is Action.STOP:
            node = job.slots[task.slot].slot.placement.node
            by_node[node].append(AttemptId(job.id, task.number, task.attempt))
    return [Stop(node, tuple(attempts), grace) for node, attempts in by_node.items()]


def stop_job(
    state: YardState, job: JobRecord, reason: Reason, message: str, at: float, *, force: bool = False
) -> list[Effect]:
    """No more of its tasks start, and those that run are asked to stop. Repeated with force, they are killed.

    For a reason of its policy's own those that run may end, where the policy says so; so may what waits behind them at
    an agent, which is half a second's work at most.
    """
    if job.stop is None:
        job.stop = (reason, message)
        job.cancel_untouched()
        state.changes.wants[job.id] = None
    grace = 0.0 if force else job.spec.policy.grace_seconds
    stopped = [] if job.spec.policy.lets_running_end and reason in OF_POLICY else list(job.active_tasks())
    effects = stop_tasks(state, job, stopped, StopAsked(reason, message), grace)
    state.changes.plan = True
    return effects + (end_job(state, job, at) if job.is_final else [])


def end_job(state: YardState, job: JobRecord, at: float) -> list[Effect]:
    if state.unfinished.pop(job.id, None) is None:
        return []
    job.times.finished_at = at
    for slot_id in job.slots:
        state.changes.slots[slot_id] = None  # to be closed
    effects: list[Effect] = [JobEnded(job.spec.cluster, job.id)] if job.spec.cluster else []
    for dependent in state.dependents.get(job.id, ()):
        state.changes.wants[dependent] = None
        effects += check_dependencies(state, state.jobs[dependent], at)
    state.changes.plan = True
    return effects


def check_dependencies(state: YardState, job: JobRecord, at: float) -> list[Effect]:
    """A job whose `afterok` can no longer be met is cancelled, unless it has begun already."""
    if job.is_final or job.stop is not None or job.times.started_at is not None:
        return []
    for dependency in job.spec.after:
        needed = state.jobs.get(dependency.job)
        if needed and dependency.needs_success and needed.is_final and needed.state is not State.SUCCEEDED:
            message = f"job {needed.number} {needed.state.told}, and this one runs only after its success"
            return stop_job(state, job, Reason.DEPENDENCY, message, at)
    return []
