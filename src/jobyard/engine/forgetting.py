"""Forgetting: which jobs may leave the yard's memory, and what goes with them?"""

from __future__ import annotations

from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.model.effects import Effect
from jobyard.model.events import JobsForgotten


def why_it_stays(state: YardState, job: JobRecord) -> str:
    """What still needs this job, as a sentence with the way out. Empty: nothing does."""
    if not job.is_final:
        return f"job {job.number} is {job.state}; end it first: yard cancel {job.number}"
    if job.slots:
        return f"job {job.number} has only just ended; try again in a moment"
    for waiting in waiting_for(state, job):
        return f"job {waiting} waits for job {job.number} (`--after`); cancel it first, or wait until it has begun"
    return ""


def waiting_for(state: YardState, job: JobRecord) -> list[int]:
    """The numbers of the jobs that were submitted with `--after` this one and have not begun."""
    dependents = (state.unfinished.get(each) for each in state.dependents.get(job.id, ()))
    return [each.number for each in dependents if each is not None and each.times.started_at is None]


def forget(state: YardState, event: JobsForgotten) -> list[Effect]:
    """What is still needed stays, and what is gone already is no error. Numbers are never given again.

    Nothing is asked of executors: they compare what they store with what the yard still knows.
    """
    known = (state.jobs.get(job) for job in event.jobs)
    gone = {job.id: job for job in known if job is not None and not why_it_stays(state, job)}
    for job in gone.values():
        _drop(state, job)
    state.keys = {key: job for key, job in state.keys.items() if job not in gone}
    return []


def _drop(state: YardState, job: JobRecord) -> None:
    del state.jobs[job.id]
    state.quarantined.pop(job.id, None)
    state.asked.pop(job.id, None)
    state.changes.measured.pop(job.id, None)
    state.dependents.pop(job.id, None)
    for dependency in job.spec.after:
        others = [each for each in state.dependents.get(dependency.job, ()) if each != job.id]
        if others:
            state.dependents[dependency.job] = others
        else:
            state.dependents.pop(dependency.job, None)
