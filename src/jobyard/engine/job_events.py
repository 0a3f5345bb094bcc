"""Job events: how does the state change on submit, cancel, retry, priority, preemption (yield) and scaling?"""

from __future__ import annotations

from collections import defaultdict

from jobyard.engine import quarantine
from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.engine.lifecycle import Action, DelayPassed, RetryAsked, StopAsked, YieldAsked
from jobyard.engine.stopping import advance_task, check_dependencies, end_job, stop_job, stop_tasks
from jobyard.engine.training import tells_of_checkpoints, yield_seconds
from jobyard.engine.yard_state import YardState, own_key
from jobyard.model.effects import Effect, Yield
from jobyard.model.events import (
    CancelRequested,
    DeadlinePassed,
    JobAnnotated,
    JobQuarantined,
    JobSized,
    JobSubmitted,
    PriorityChanged,
    RetryDelayPassed,
    RetryRequested,
    ScaleRequested,
    YieldRequested,
)
from jobyard.model.job import FINAL, Reason, State
from jobyard.model.task import AttemptId


def submit(state: YardState, event: JobSubmitted) -> list[Effect]:
    job = JobRecord(event.job, event.number, event.spec, event.at)
    state.jobs[job.id] = state.unfinished[job.id] = job
    state.last_number = max(state.last_number, event.number)
    if event.key:
        state.keys[own_key(event.spec.submitter, event.key)] = job.id
    if event.asked:  # rows of older yards have none
        state.asked[job.id] = event.asked
    for dependency in event.spec.after:
        state.dependents[dependency.job].append(job.id)
    state.changes.wants[job.id] = None
    state.changes.plan = True
    return check_dependencies(state, job, event.at)


def cancel(state: YardState, event: CancelRequested) -> list[Effect]:
    job = state.jobs[event.job]
    quarantine.end(state, job)
    if job.is_final:
        return []
    asked_for = IntervalSet((*event.ranges, *((number, number) for number in event.tasks)))
    if not len(asked_for) or job.spec.gang:  # a gang stops together
        return stop_job(state, job, Reason.CANCELLED, event.message, event.at, force=event.force)
    job.cancel_untouched_among(asked_for)
    known = job.tasks.known
    tasks = [known[number] for number in sorted(known) if number in asked_for and not known[number].state.is_final]
    asked = StopAsked(Reason.CANCELLED, event.message)
    effects = stop_tasks(state, job, tasks, asked, 0.0 if event.force else job.spec.policy.grace_seconds)
    state.changes.wants[job.id] = None
    state.changes.plan = True
    return effects + (end_job(state, job, event.at) if job.is_final else [])


def pass_deadline(state: YardState, event: DeadlinePassed) -> list[Effect]:
    job, message = state.jobs[event.job], "the job ran longer than its deadline"
    return [] if job.is_final else stop_job(state, job, Reason.TIMEOUT, message, event.at)


def pass_retry_delay(state: YardState, event: RetryDelayPassed) -> list[Effect]:
    job = state.jobs[event.job]
    while (first := job.tasks.delayed.first) is not None and first.until <= event.at:
        advance_task(state, job, job.task(first.number), DelayPassed())
    state.changes.plan = True
    return []


def retry(state: YardState, event: RetryRequested) -> list[Effect]:
    """Tasks that ended wait again, and delayed ones may start. While a job stops, or a gang runs, there is nothing to
    run again yet."""
    job = state.jobs[event.job]
    asked = IntervalSet(((0, job.spec.size - 1),) if job.spec.gang else event.tasks)
    for number in [number for number in job.tasks.delayed if number in asked]:
        advance_task(state, job, job.task(number), DelayPassed())
        state.changes.plan = True
    if not job.is_final and (job.stop is not None or job.spec.gang):
        return []
    was_final = job.is_final
    state.changes.wants[job.id] = None
    job.revive_untouched_among(asked)
    for number in job.tasks.among(asked, FINAL):
        if job.task(number).state is State.SUCCEEDED:  # it runs from the beginning, not from its checkpoint
            job.training.forget(number)
        advance_task(state, job, job.task(number), RetryAsked())
    if job.is_final:
        return []  # none of them had ended
    failed = job.tasks.numbers_in(State.FAILED)
    job.tasks.first_failure = failed[0][0] if failed else None
    state.changes.plan = True
    if not was_final:
        return []  # retrying a few tasks of a running job leaves the rest as it is
    # A job that ended starts afresh: its deadline, its dependencies and its count of restarts too.
    job.stop = job.times.started_at = job.times.finished_at = None
    job.tasks.gang_failures = job.memory.requeues = 0
    job.times.next_start_at = 0.0
    state.unfinished[job.id] = job
    state.changes.wants.update(dict.fromkeys(state.dependents.get(job.id, ())))  # they wait for it again
    return check_dependencies(state, job, event.at)


def ask_to_yield(state: YardState, event: YieldRequested) -> list[Effect]:
    """Preemption: its tasks stop at their next checkpoints. Their slots close when empty; then the scheduler plans."""
    job = state.jobs[event.job]
    if job.is_final or job.stop is not None:
        return []
    if event.to_the_back:
        job.age = state.last_number + 1
    state.changes.wants[job.id] = None
    job.preemption.next_size = event.size or job.preemption.next_size
    job.preemption.asked = event
    asked = YieldAsked(event.reason, event.message)
    polite: defaultdict[tuple[str, bool], list[AttemptId]] = defaultdict(list)
    for task in list(job.active_tasks()):
        if advance_task(state, job, task, asked).ask is Action.YIELD:
            at_once = not tells_of_checkpoints(job, task.number)
            node = job.slots[task.slot].slot.placement.node
            polite[node, at_once].append(AttemptId(job.id, task.number, task.attempt))
    for record in job.slots.values():
        record.is_closing = True
    grace = job.spec.policy.grace_seconds
    return [
        Yield(node, tuple(attempts), yield_seconds(job, state.trainings.profile_of(job)), grace, at_once)
        for (node, at_once), attempts in polite.items()
    ]


def scale(state: YardState, event: ScaleRequested) -> list[Effect]:
    state.jobs[event.job].training.fixed_size = event.size
    state.changes.plan = True
    return []


def resize(state: YardState, event: JobSized) -> list[Effect]:
    state.jobs[event.job].resize(event.size)
    state.changes.wants[event.job] = None
    return []


def set_priority(state: YardState, event: PriorityChanged) -> list[Effect]:
    job = state.jobs[event.job]
    job.priority = event.priority
    state.changes.wants[job.id] = None
    state.changes.plan = True
    return []


def annotate(state: YardState, event: JobAnnotated) -> list[Effect]:
    job = state.jobs[event.job]
    now = {**job.annotations, **event.annotations}
    job.annotations = {name: value for name, value in now.items() if value is not None}
    return []


def hold(state: YardState, event: JobQuarantined) -> list[Effect]:
    quarantine.begin(state, event.job, event.message)
    return []
