"""Queries: what do routes read of the yard? Frozen answers: no route sees a record, which the loop may change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from jobyard.engine.intervals import IntervalSet
from jobyard.engine.job_record import JobRecord
from jobyard.engine.yard_state import YardState
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.job import FINAL, State
from jobyard.model.node import NodeConfig
from jobyard.model.task import AttemptId, Task
from jobyard.model.task_ranges import task_ranges
from jobyard.server import views
from jobyard.server.finding import find_job, find_live_job
from jobyard.server.logs import last_line, log_path, tail_lines
from jobyard.server.loop import YardLoop
from jobyard.server.output_files import target_paths
from jobyard.server.why_view import task_why_view, why_view
from jobyard.wire.views import JobView, TaskView, WhyView

ENDED_SHOWN = 10  # of a list that is not asked for more


class JobFilter(NamedTuple):
    """Which jobs a list has."""

    states: Collection[State] = ()  # none: all
    user: str = ""  # none: everybody's
    only_unfinished: bool = False
    with_all_ended: bool = False  # not only those that ended last
    name: str = ""  # with `*` and `?` for any letters; none: every name
    since: float = 0.0  # those that have not ended, or ended after this

    @property
    def is_filter(self) -> bool:
        """Must each job be looked at?"""
        return bool(self.states or self.user or self.name or self.since)


class JobPage(NamedTuple):
    jobs: Sequence[str]
    next_before: int | None  # the number that the next page goes on below; None: this is the last one
    total: int  # of all that are wanted, also those that ended too long ago to be listed unasked


def submitted_job(loop: YardLoop, selector: str) -> SubmittedJob:
    job = find_job(loop.state, selector)
    return SubmittedJob(job.id, job.number, job.spec)


def task_now(loop: YardLoop, job_id: str, number: int) -> Task:
    return find_job(loop.state, job_id).task(number)


def has_ended(loop: YardLoop, job_id: str) -> bool:
    return (job := loop.state.jobs.get(job_id)) is None or job.is_final


def ended_attempts(loop: YardLoop, job_id: str, numbers: Iterable[int]) -> list[tuple[str, AttemptId]]:
    """Of these tasks, those that were tried and have ended: label and newest attempt."""
    job = find_job(loop.state, job_id)
    tasks = [task for number in numbers if (task := job.task(number)).state.is_final and task.attempt > 0]
    return [(job.spec.label_of(task.number), AttemptId(job_id, task.number, task.attempt)) for task in tasks]


def unfinished_work(loop: YardLoop) -> tuple[int, int]:
    """How many jobs have not ended, and how many tasks are with an executor."""
    unfinished = loop.state.unfinished
    return len(unfinished), sum(job.tasks.active for job in unfinished.values())


def has_job_with(loop: YardLoop, environment: str) -> bool:
    """Whether any job names this environment file; a submit asks, whose job would be the newest."""
    return any(job.spec.submitter.environment == environment for job in reversed(loop.state.jobs.values()))


def machine_config(loop: YardLoop, node: str) -> NodeConfig | None:
    """How a machine that a user added is reached."""
    return loop.state.places.configs.get(node)


# -- views of jobs -----------------------------------------------------------------------------------------------------


def shown_job(loop: YardLoop, selector: str, *, live: bool = False) -> JobView:
    return _shown(loop, (find_live_job if live else find_job)(loop.state, selector), detail=True)


def shown_jobs(loop: YardLoop, jobs: Iterable[str]) -> list[JobView]:
    """Those of them that are still known."""
    return [_shown(loop, job, detail=True) for job_id in jobs if (job := loop.state.jobs.get(job_id)) is not None]


def shown_in_list(loop: YardLoop, job_id: str) -> JobView:
    """With less detail."""
    return _shown(loop, find_job(loop.state, job_id), detail=False)


def _shown(loop: YardLoop, job: JobRecord, *, detail: bool) -> JobView:
    """Never raises: a job that cannot be shown gets a view that says so, and others are not affected."""
    try:
        lines = _last_lines(loop, job) if detail else ()
        return views.job_view(loop.planner, job, last_lines=lines, detail=detail)
    except Exception as error:
        loop.count_error("view", f"job {job.id} cannot be shown ({error!r})", error)
        return views.unshowable(job, error)


def _last_lines(loop: YardLoop, job: JobRecord) -> tuple[str, ...]:
    if job.tasks.first_failure is None:
        return ()
    failed = job.task(job.tasks.first_failure)
    return tail_lines(loop, AttemptId(job.id, failed.number, failed.attempt))


def job_page(loop: YardLoop, wanted: JobFilter, before: int | None, limit: int) -> JobPage:
    """The newest first, those below the number `before`. Where nothing is filtered only what is listed is looked at."""
    state = loop.state
    pool = _pool(state, wanted)
    if wanted.is_filter:
        pool = {job_id: job for job_id, job in pool.items() if _is_wanted(job, wanted)}
    hidden = frozenset[str]() if wanted.with_all_ended else _ended_before(state, pool)
    newest_first = sorted(pool.values(), key=attrgetter("number"), reverse=True)
    shown = (job for job in newest_first if job.id not in hidden)
    page = list(islice((job for job in shown if before is None or job.number < before), limit + 1))
    more = page[limit - 1].number if limit and len(page) > limit else None
    return JobPage([job.id for job in page[:limit]], more, len(pool))


def _pool(state: YardState, wanted: JobFilter) -> Mapping[str, JobRecord]:
    """Those in which to look for them."""
    states = set(wanted.states)
    if wanted.only_unfinished or (states and states.isdisjoint(FINAL)):
        return state.unfinished
    if states and states <= FINAL:
        return {job_id: state.jobs[job_id] for job_id in _ended(state, state.jobs)}
    return state.jobs


def _ended(state: YardState, jobs: Mapping[str, JobRecord]) -> list[str]:
    if len(state.jobs) == len(state.unfinished):
        return []
    return [job_id for job_id in jobs if job_id not in state.unfinished]


def _ended_before(state: YardState, jobs: Mapping[str, JobRecord]) -> frozenset[str]:
    """Those that have ended, but for the last ones."""
    ended = _ended(state, jobs)
    last = nlargest(ENDED_SHOWN, ended, key=lambda job_id: jobs[job_id].times.finished_at or 0.0)
    return frozenset(ended).difference(last)


def _is_wanted(job: JobRecord, wanted: JobFilter) -> bool:
    if wanted.user and job.spec.submitter.user != wanted.user:
        return False
    if wanted.name and not fnmatchcase(job.spec.name, wanted.name):
        return False
    if wanted.since and job.is_final and (job.times.finished_at or 0.0) < wanted.since:
        return False
    return not wanted.states or job.state in wanted.states


def task_numbers(
    loop: YardLoop, job_id: str, states: Iterable[State], limit: int, offset: int, tasks: str = ""
) -> list[int]:
    """`tasks` are words as in `3,7-9`; empty: all. Raises NotFound or UserError."""
    job = find_job(loop.state, job_id)
    only = IntervalSet(task_ranges(job.spec, tasks)) if tasks else None
    return views.task_numbers(job, states, limit, offset, only)


def shown_task(
    loop: YardLoop, job_id: str, number: int, *, with_last_line: bool = False, with_paths: bool = False
) -> TaskView:
    view = views.awaited_view(loop.state, find_job(loop.state, job_id), number)
    if not view.attempt:
        return view
    attempt = AttemptId(job_id, number, view.attempt)
    if with_last_line:
        view = replace(view, last_line=last_line(loop, attempt))
    return _with_paths(loop, view, attempt) if with_paths else view


def _with_paths(loop: YardLoop, view: TaskView, attempt: AttemptId) -> TaskView:
    """The files that its submitter asked for, once they are there; otherwise those of the yard."""
    asked = target_paths(find_job(loop.state, attempt.job), attempt.task)
    out, err = (str(path) if path is not None and view.state.is_final and path.is_file() else "" for path in asked)
    return replace(view, stdout=out or _path_of(loop, attempt, "out"), stderr=err or _path_of(loop, attempt, "err"))


def _path_of(loop: YardLoop, attempt: AttemptId, stream: str) -> str:
    """Empty where there is no such file: it wrote nothing, or it was packed."""
    path = log_path(loop, attempt, stream)
    return str(path) if path.is_file() else ""


def why(loop: YardLoop, job_id: str, number: int | None = None) -> WhyView:
    """Of the job, or of this task of it."""
    job = find_job(loop.state, job_id)
    if number is not None:
        return task_why_view(loop.planner, job, number, tail_lines(loop, _newest(job, number)))
    return why_view(loop.planner, job, _last_lines(loop, job))


def _newest(job: JobRecord, number: int) -> AttemptId:
    return AttemptId(job.id, number, job.task(number).attempt)
