"""History (accounting): what is kept of a job that has ended? One line, for simulations, after its rows are gone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, delete, insert, select

from jobyard.engine.job_record import JobRecord
from jobyard.model.codec import decode, encode
from jobyard.model.job import State
from jobyard.model.resources import Resources
from jobyard.model.training import Elastic, Training
from jobyard.server.schema import history

KEPT_SECONDS = 400 * 86400.0
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PastGroup:
    resources: Resources
    count: int
    completions: int
    parallelism: int | None


@dataclass(frozen=True, slots=True)
class PastJob:
    """What a simulation needs of it; no variables, no commands, no names."""

    job: str
    number: int
    user: str
    priority: int
    state: State
    submitted_at: float
    started_at: float | None
    finished_at: float
    groups: tuple[PastGroup, ...]
    task_seconds: Mapping[str, float] = field(default_factory=dict)  # by group: how long an attempt ran, on average
    busy_seconds: float = 0.0
    gang: bool = False
    training: Training | None = None
    elastic: Elastic | None = None
    peak_memory_mib: int = 0
    preemptions: int = 0
    resizes: int = 0


class History:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def new_of(self, jobs: Iterable[JobRecord]) -> list[dict[str, Any]]:
        """Rows of those that have ended and are not written down yet, or with another end: they were tried again."""
        ended = {job.id: (at, job) for job in jobs if job.is_final and (at := job.times.finished_at) is not None}
        if not ended:
            return []
        query = select(history.c.job, history.c.finished_at)
        with self._engine.connect() as connection:
            since = min(at for at, _ in ended.values())
            known = {
                row.job: row.finished_at for row in connection.execute(query.where(history.c.finished_at >= since))
            }
        return [row_of(job) for name, (at, job) in ended.items() if known.get(name) != at]

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            with self._engine.begin() as connection:
                connection.execute(insert(history).prefix_with("OR REPLACE"), list(rows))

    def knows(self, jobs: Collection[str]) -> set[str]:
        """Those of them that it has a line of: they were in this yard, and had ended."""
        names, found = list(jobs), set[str]()
        with self._engine.connect() as connection:
            for begin in range(0, len(names), _AT_ONCE):
                some = history.c.job.in_(names[begin : begin + _AT_ONCE])
                found.update(connection.scalars(select(history.c.job).where(some)))
        return found

    def forget(self, before: float) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(history).where(history.c.finished_at < before))

    def jobs(self, since: float = 0.0) -> Iterator[PastJob]:
        """All of them, in the order in which they ended."""
        query = select(history.c.body).where(history.c.finished_at >= since).order_by(history.c.finished_at)
        with self._engine.connect() as connection:
            for body in connection.execution_options(yield_per=_AT_ONCE).scalars(query):
                yield decode(PastJob, json.loads(body))


def past_job(job: JobRecord) -> PastJob:
    spec = job.spec
    return PastJob(
        job.id,
        job.number,
        spec.submitter.user,
        job.priority,
        job.state,
        job.times.submitted_at,
        job.times.started_at,
        job.times.finished_at or job.times.submitted_at,
        tuple(PastGroup(each.resources, each.count, each.completions, each.parallelism) for each in spec.groups),
        {str(group): seconds for group, seconds in job.use.mean_seconds.items()},
        job.use.busy_seconds,
        spec.gang,
        spec.training,
        spec.elastic,
        job.use.peak_memory_mib,
        job.preemption.count,
        job.preemption.resizes,
    )


def row_of(job: JobRecord) -> dict[str, Any]:
    """Made where the record cannot change meanwhile."""
    past = past_job(job)
    body = json.dumps(encode(past), separators=(",", ":"))
    return {"job": past.job, "finished_at": past.finished_at, "body": body}
