"""Rows of jobs: what does a list, `yard ls` or `yard top`, say of each job?"""

from __future__ import annotations

from jobyard.cli.output.text import age, run_time, state_text
from jobyard.cli.output.training import training_progress
from jobyard.model.job import State
from jobyard.model.units import show_seconds
from jobyard.wire.views import JobView

JOB_HEADERS = ("JOB", "NAME", "STATE", "DONE", "FAILED", "PRIO", "AGE", "TIME", "ETA", "WHAT")
SPARE_JOB_HEADERS = ("PRIO", "TIME", "AGE", "FAILED", "ETA")  # left out on a narrow terminal


def job_row(job: JobView) -> tuple[str, ...]:
    counts, training = job.counts, job.training
    eta = job.eta_seconds if training is None or training.eta_seconds is None else training.eta_seconds
    return (
        str(job.number),
        job.name,
        state_text(job.state),
        (training_progress(training) if training else "") or f"{counts.done}/{counts.total}",
        str(counts.failed or "-"),
        str(job.priority),
        age(job.submitted_at),
        run_time(job),
        show_seconds(eta) if eta is not None and not job.state.is_final else "-",
        _what(job),
    )


def _what(job: JobView) -> str:
    """Why it waits. Of what has ended the command comes first: among many failures it tells which one this is."""
    if job.state.is_final and job.command:
        return f"{job.command} ({job.message})" if job.message else job.command
    waits = not job.state.is_active or job.state is State.STARTING
    return job.message if job.message and waits else job.command
