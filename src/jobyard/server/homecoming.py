"""Where do the results of tasks on other machines end up? Where their job was submitted, beside what is there."""

from __future__ import annotations

import logging

from jobyard.errors import YardError
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.task import AttemptId
from jobyard.staging.layout import ResultPaths, name_of, results_paths
from jobyard.staging.results import copy_log, take_back, take_back_log, unpack_results

log = logging.getLogger(__name__)


def bring_home(mirror: Mirror, job: SubmittedJob, attempt: AttemptId) -> None:
    """Unpack an attempt's results and put its output beside them. What cannot be put there stays in the mirror."""
    spec = job.spec
    if not spec.results_dir:
        return
    label = spec.label_of(attempt.task)
    paths = results_paths(spec.results_dir, job.id, spec, label, name=name_of(spec, label))
    try:
        for number in range(1, attempt.number):
            _take_back(mirror, attempt._replace(number=number), paths)
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


def _take_back(mirror: Mirror, attempt: AttemptId, paths: ResultPaths) -> None:
    """Of an attempt that was given up when its results were at home already: they are not the task's."""
    if not mirror.is_stray(attempt):
        return
    take_back(mirror.path(attempt, "results"), paths.directory)
    take_back_log(mirror.path(attempt, "out"), paths.out)
    take_back_log(mirror.path(attempt, "err"), paths.err)
    mirror.unmark([attempt])
