"""Task selectors: which jobs, and which of their tasks, do words as `17`, `3-7`, `17/3-7` and `train/3,5` name?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobyard.cli.job_ranges import each_job
from jobyard.cli.session import Session
from jobyard.errors import UserError
from jobyard.model.task_ranges import job_and_tasks
from jobyard.wire.views import JobView


@dataclass(frozen=True)
class Selected:
    """A job as it is now, and the tasks of it that are meant; none: all."""

    view: JobView
    tasks: tuple[str, ...] = ()


def selected(session: Session, words: Sequence[str], more: Sequence[str], *, is_live: bool) -> list[Selected]:
    """Each job once, in the order of the words; `more` are those of `--task`. All are looked up before the caller does
    anything, so that after a misspelt name nothing happens. Raises UserError."""
    if more:
        _refuse_several(words)  # before a server is asked
    words = each_job(session.client, words)
    if more:
        _refuse_several(words)
    found: dict[str, Selected] = {}
    for word in words:
        job, tasks = job_and_tasks(word, more)
        view = session.client.job(job, live=is_live)
        labels = tuple(label.strip() for label in tasks.split(",")) if tasks else ()
        before = found.get(view.id)
        is_whole = not labels or (before is not None and not before.tasks)
        found[view.id] = Selected(view, () if is_whole else (*(before.tasks if before else ()), *labels))
    return list(found.values())


def _refuse_several(words: Sequence[str]) -> None:
    if len(words) != 1:
        raise UserError("--task: name exactly one job whose tasks are meant, or write JOB/TASKS as in 17/3-7")
