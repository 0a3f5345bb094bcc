"""Removing: which jobs may a user remove, and what does the yard say of those that stay?"""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.engine.forgetting import why_it_stays
from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.errors import NotAllowed, UserError
from jobyard.model.events import JobsForgotten
from jobyard.server.finding import find_job
from jobyard.server.rights import Caller, TokenKind
from jobyard.server.rounds import Command
from jobyard.wire.kept import RemovedJob


def removable(state: YardState, selectors: Sequence[str], caller: Caller) -> list[JobRecord]:
    """All of these jobs, each once. Raises NotFound, or UserError if any of them is still needed."""
    found = list({job.id: job for job in (find_job(state, selector) for selector in selectors)}.values())
    for job in found:
        if caller.kind is not TokenKind.ADMIN and job.spec.submitter.submitted_with != caller.token:
            raise NotAllowed(f"job {job.number} was not submitted with the token of {caller.name!r}; ask an admin")
        if why := why_it_stays(state, job):
            raise UserError(why)
    return found


def forget(jobs: Sequence[str], by: str = "") -> Command[tuple[str, ...]]:
    """Answers with those that go: some may have been tried again meanwhile, or are gone already."""

    def command(state: YardState, now: float) -> tuple[list[JobsForgotten], tuple[str, ...]]:
        known = (state.jobs.get(job) for job in jobs)
        gone = tuple(job.id for job in known if job is not None and not why_it_stays(state, job))
        return [JobsForgotten(gone, now, by)] if gone else [], gone

    return command


def removed_view(job: JobRecord, bytes: int | None = None, why: str = "") -> RemovedJob:
    return RemovedJob(job.id, job.number, job.spec.name, job.times.finished_at, bytes, why)
