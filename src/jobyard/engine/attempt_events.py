"""Attempt events: how does the state change when attempts start, wait, end, are given back, or report progress?"""

from __future__ import annotations

from dataclasses import replace

from jobyard.engine.job_record import JobRecord
from jobyard.engine.lifecycle import REQUEUED, Began, Ended, GivenBack, RetryAsked, StopAsked
from jobyard.engine.stopping import advance_task, end_job, stop_job, stop_tasks
from jobyard.engine.training import tells_of_checkpoints
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect
from jobyard.model.events import (
    AttemptsAwaited,
    AttemptsFinished,
    AttemptsMeasured,
    AttemptsProgressed,
    AttemptsStarted,
    AttemptsWithdrawn,
    UseMeasured,
)
from jobyard.model.job import Reason, State
from jobyard.model.policy import FailurePolicy
from jobyard.model.task import Task


def begin(state: YardState, event: AttemptsStarted) -> list[Effect]:
    for started in event.items:
        if found := state.current(started.attempt):
            job, task = found
            advance_task(state, job, task, Began(started.at, started.unit))
            job.times.begin(started.at)
            if job.tasks.counts[State.RUNNING] == 1:
                job.use.end_rate.begin(event.at)
    return []


def await_start(state: YardState, event: AttemptsAwaited) -> list[Effect]:
    for attempt, reason, sentence in event.items:
        found = state.current(attempt)
        if sentence and found and found[1].started_at is None:
            state.cluster_waits[attempt] = (reason, sentence)
        else:
            state.cluster_waits.pop(attempt, None)
    return []


def finish(state: YardState, event: AttemptsFinished) -> list[Effect]:
    effects: list[Effect] = []
    for attempt, outcome in event.items:
        found = state.current(attempt)
        if found is None:
            continue
        job, task = found
        if task.is_yielding and job.spec.gang and not outcome.succeeded and job.tasks.counts[State.PENDING]:
            outcome = replace(outcome, reason=Reason.PREEMPTED)  # it failed because its peers had stopped
        job.times.begin(outcome.started_at)
        group = job.spec.place_of(task.number).group
        seconds = max(0.0, outcome.finished_at - outcome.started_at)
        if outcome.reason is not Reason.PREEMPTED:
            job.use.learn_duration(group, seconds)
        job.use.busy_seconds += seconds
        job.use.peak_memory_mib = max(job.use.peak_memory_mib, outcome.peak_memory_mib)
        job.slots[task.slot].progress_at = event.at
        job.use.end_rate.note_end(event.at, len(job.slots))
        retries = 0 if job.spec.gang or job.stop is not None else job.spec.policy.retries
        state.trainings.learn_end(job, task, outcome)
        more, in_vain, not_before = False, "", 0.0
        if not outcome.succeeded:
            not_before = job.next_attempt_at(task, event.at)
            nodes = state.places.nodes_of(job.spec.cluster)
            more = state.trainings.give_more_memory(job, task, outcome, nodes)
            in_vain = "" if more else state.trainings.needs_larger_gpu(job, task, outcome, nodes)
        if in_vain:
            outcome = replace(outcome, message="; ".join(filter(None, (outcome.message, in_vain))))
        if task.is_yielding and outcome.reason is Reason.PREEMPTED:
            job.preemption.resizes += task.reason is Reason.RESIZING
            job.preemption.count += task.reason is Reason.PREEMPTED
            if outcome.message and tells_of_checkpoints(job, task.number):
                job.preemption.missed_deadline = outcome.message
        if task.is_yielding or more:
            job.slots[task.slot].is_closing = True  # the scheduler places its task anew
        step = advance_task(state, job, task, Ended(outcome, more, not_before), 0 if in_vain else retries)
        effects += after_end(state, job, step.task, outcome.finished_at, None if in_vain else not_before)
    return effects


def after_end(state: YardState, job: JobRecord, task: Task, at: float, not_before: float | None = 0.0) -> list[Effect]:
    """What the end of one attempt means for its siblings and its job. `not_before`: of a gang's retry; None: there is
    none."""
    effects: list[Effect] = []
    if task.state is State.PENDING:
        state.changes.plan = True
        if job.spec.gang and (task.reason not in REQUEUED or not _stops_together(job)):
            effects += _restart_gang(state, job, task.message or "one of its tasks was given back")
    elif task.state is State.SUCCEEDED and job.spec.gang and job.stop is None and job.tasks.counts[State.PENDING]:
        effects += _restart_gang(state, job, "a part of it was done before the rest stopped")
    elif task.state is State.FAILED:
        effects += _on_failure(state, job, task, at, not_before)
    elif task.state is State.SUCCEEDED:
        effects += _on_success(state, job, at)
    if job.is_final:
        effects += end_job(state, job, at)
    return effects


def _on_success(state: YardState, job: JobRecord, at: float) -> list[Effect]:
    """It may have been the last one that its job needs."""
    enough, done = job.spec.policy.enough_successes, job.tasks.counts[State.SUCCEEDED]
    if enough is None or done < enough or job.stop is not None or job.spec.gang:
        return []
    message = f"stopped early by --halt: {done} task{'s' if done != 1 else ''} succeeded, which is enough"
    return stop_job(state, job, Reason.ENOUGH, message, at)


def _on_failure(state: YardState, job: JobRecord, task: Task, at: float, not_before: float | None) -> list[Effect]:
    may_retry = job.spec.gang and job.stop is None and job.tasks.gang_failures < job.spec.policy.retries
    if may_retry and not_before is not None:
        job.tasks.gang_failures += 1
        return _restart_gang(state, job, f"task {job.spec.label_of(task.number)} failed: {task.message}", not_before)
    if job.tasks.first_failure is None:
        job.tasks.first_failure = task.number
    if job.stop is not None:
        return []
    label = job.spec.label_of(task.number)
    if job.spec.failure_policy is FailurePolicy.STOP:
        return stop_job(state, job, Reason.SIBLING_FAILED, f"stopped because task {label} failed", at)
    failed, most = job.tasks.counts[State.FAILED], job.spec.policy.max_fails
    if most is not None and failed > most:
        tasks = f"{failed} task{'s' if failed != 1 else ''}"
        may = "none may" if not most else f"at most {most} may"
        message = f"stopped early by --halt or --max-fails: {tasks} failed, and {may}"
        return stop_job(state, job, Reason.SIBLING_FAILED, message, at)
    return []


def _restart_gang(state: YardState, job: JobRecord, message: str, not_before: float = 0.0) -> list[Effect]:
    """All tasks of a gang begin again together: running ones stop, ended ones wait again. Where one of them is delayed,
    so are all."""
    message = f"restarting with its gang: {message}"
    for ended in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        for first, last in job.tasks.numbers_in(ended):
            for number in range(first, last + 1):
                advance_task(state, job, job.task(number), RetryAsked(not_before))
    state.changes.plan = True
    return stop_tasks(state, job, list(job.active_tasks()), StopAsked(Reason.PREEMPTED, message), 0.0)


def _stops_together(job: JobRecord) -> bool:
    """Are all other tasks of a gang being preempted, as this one is?"""
    return job.tasks.counts[State.PENDING] + job.tasks.counts[State.STOPPING] == job.spec.size


def progress(state: YardState, event: AttemptsProgressed) -> list[Effect]:
    for attempt, told in event.items:
        if found := state.current(attempt):
            job, task = found
            known = job.training.progress.get(task.number)
            if state.trainings.learn_progress(job, task, told):
                state.changes.measured[job.id] = None
                state.changes.wants[job.id] = None
                # For a job of one size another epoch changes no plan, and hundreds of reports may come in a second.
                can_yield_now = told.can_yield and not (known and known.can_yield)
                state.changes.plan = state.changes.plan or can_yield_now or bool(job.spec.elastic)
    return []


def measure(state: YardState, event: AttemptsMeasured) -> list[Effect]:
    """Measurements are not journalled. What must be kept the planner proposes, as UseMeasured."""
    for attempt, told in event.progressed:
        if found := state.current(attempt):
            job, task = found
            job.training.steps[task.number] = told.after(job.training.progress.get(task.number))
    for used in event.used:
        if found := state.current(used.attempt):
            found[0].use.measure(used, event.at)
            state.changes.measured[found[0].id] = None
    return []


def learn_use(state: YardState, event: UseMeasured) -> list[Effect]:
    job = state.jobs[event.job]
    state.trainings.learn_use(job, event.memory_mib, event.gpu_memory_mib, event.gpu_percent)
    return []


def give_back(state: YardState, event: AttemptsWithdrawn) -> list[Effect]:
    effects: list[Effect] = []
    for attempt in event.attempts:
        found = state.current(attempt)
        if found is None or found[1].state is State.RUNNING:
            continue
        job, task = found
        step = advance_task(state, job, task, GivenBack())
        if (record := job.slots.get(task.slot)) and not record.tasks:
            record.is_closing = True  # more tasks would be refused again: the scheduler places them anew
        effects += after_end(state, job, step.task, event.at)
        state.changes.plan = True
    return effects
