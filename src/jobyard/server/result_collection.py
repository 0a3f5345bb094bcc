"""Result collection: where do the results of tasks on other machines go? To where their job was submitted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from jobyard.errors import YardError
from jobyard.executors.mirror import STREAMS, Mirror
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.task import AttemptId
from jobyard.staging.layout import ResultPaths, name_of, results_paths
from jobyard.staging.results import (
    clear_parts,
    copy_log,
    set_aside,
    set_log_aside,
    take_back,
    take_back_log,
    unpack_results,
)

log = logging.getLogger(__name__)


def collect_results(mirror: Mirror, job: SubmittedJob, attempt: AttemptId) -> None:
    """Unpack an attempt's results and put its output beside them; those of earlier attempts are moved aside.

    Safe to repeat, also after a crash. What cannot be put there stays in the mirror.
    """
    if not job.spec.staging.results_dir:
        return
    paths = _paths(job, attempt)
    try:
        if not mirror.is_marked(attempt):  # otherwise an earlier call was interrupted by a crash
            # The newest first: where two attempts have the same file, the existing one is from the later attempt.
            for number in range(attempt.number - 1, 0, -1):
                _make_room(mirror, attempt._replace(number=number), paths)
            mirror.mark(attempt)
        results = mirror.path(attempt, "results")
        if results.exists():
            unpack_results(results, paths.directory, attempt=attempt.number)
        else:
            paths.directory.mkdir(parents=True, exist_ok=True)
        copy_log(mirror.path(attempt, "out"), paths.out, attempt=attempt.number)
        copy_log(mirror.path(attempt, "err"), paths.err, attempt=attempt.number)
    except (OSError, YardError) as error:
        log.error("results of %s stay in %s (`yard fetch` brings them): %s", attempt, mirror.directory, error)


def tidy_up(mirror: Mirror, jobs: Callable[[str], SubmittedJob | None]) -> None:
    """When a server starts: remove what the last one had half written when it was killed.

    An attempt whose results were being collected may never be collected again: its machine may be given up.
    """
    for attempt in mirror.marked():
        job = jobs(attempt.job)
        if job is None or not job.spec.staging.results_dir:
            continue
        paths = _paths(job, attempt)
        try:
            clear_parts(paths.directory, paths.out, attempt=attempt.number)
        except OSError as error:
            log.error("results of %s: what was half written cannot be removed: %s", attempt, error)


def _paths(job: SubmittedJob, attempt: AttemptId) -> ResultPaths:
    label = job.spec.label_of(attempt.task)
    return results_paths(job.spec.staging.results_dir, job.id, job.spec, label, name=name_of(job.spec, label))


def _make_room(mirror: Mirror, attempt: AttemptId, paths: ResultPaths) -> None:
    mirror.unpack(attempt)
    out, err, results = (mirror.path(attempt, stream) for stream in STREAMS)
    if mirror.is_stray(attempt):  # a superseded attempt whose results were collected: they are not the task's
        take_back(results, paths.directory)
        take_back_log(out, paths.out)
        take_back_log(err, paths.err)
        mirror.unmark([attempt])
        return
    set_aside(results, paths.directory, attempt=attempt.number)
    set_log_aside(out, paths.out, attempt=attempt.number)
    set_log_aside(err, paths.err, attempt=attempt.number)
