"""Yard state: what is the whole yard? Facts that events have made; only `handling` changes them.

A replay of the journal rebuilds everything except `cluster_waits` and the measurements of jobs, nodes and quotas:
these come again with the next measurement. What a planner works out is not here: it can be thrown away at any time.
"""

from __future__ import annotations

from collections import defaultdict

from jobyard.engine.changes import Changes
from jobyard.engine.job_record import JobRecord, SlotRecord
from jobyard.engine.places import Places
from jobyard.engine.training import Trainings
from jobyard.model.job import Reason
from jobyard.model.submitter import Submitter
from jobyard.model.task import AttemptId, Task


def own_key(submitter: Submitter, key: str) -> str:
    """A submitter's key, as nobody else can have it."""
    return f"{submitter.submitted_with}/{key}"


class YardState:
    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.unfinished: dict[str, JobRecord] = {}
        self.quarantined: dict[str, str] = {}  # jobs of which nothing is started or stopped, and why
        self.dependents: defaultdict[str, list[str]] = defaultdict(list)
        self.keys: dict[str, str] = {}  # submitters' keys, as `own_key` has them -> jobs
        self.asked: dict[str, str] = {}  # jobs with a key -> digests of what was asked for
        self.slots: dict[str, tuple[JobRecord, SlotRecord]] = {}
        self.places = Places()
        self.trainings = Trainings()
        self.last_number = 0
        self.last_slot = 0
        # Measured: why attempts that were handed to a cluster do not run yet, in the cluster's words.
        self.cluster_waits: dict[AttemptId, tuple[Reason | None, str]] = {}
        self.changes = Changes()  # for the planner

    def current(self, attempt: AttemptId) -> tuple[JobRecord, Task] | None:
        """The task whose current attempt this is; None where it was superseded, ended or never heard of."""
        job = self.jobs.get(attempt.job)
        task = job.tasks.known.get(attempt.task) if job else None
        if job is None or task is None or task.attempt != attempt.number or not task.state.is_active:
            return None
        return job, task

    def waits_for(self, job: JobRecord) -> list[str]:
        """The jobs that it must wait for, of those named in `after`. Once it has begun it waits for none."""
        if job.times.started_at is not None:
            return []
        return [d.job for d in job.spec.after if d.job in self.jobs and not self.jobs[d.job].is_final]

    def jobs_with_slots(self) -> list[JobRecord]:
        return list({job.id: job for job, _ in self.slots.values()}.values())
