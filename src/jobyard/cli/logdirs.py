"""Log directories: where are the logs of a job that TensorBoard reads?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from jobyard.errors import UserError
from jobyard.wire.views import JobView

USUAL_NAMES = ("lightning_logs", "runs")  # of Lightning; of SummaryWriter and the Hugging Face Trainer
EVENT_FILE = "tfevents"  # in the name of every file that TensorBoard reads
SNAPSHOTS = "YARD_SNAPSHOTS_DIR"
RESULTS = "job_results"
DEEPEST = 6
DIRECTORIES_MOST = 5000  # a tree larger than this is not searched to its end


def find_log_dir(view: JobView, agent_files: Path | None) -> str:
    """A directory on this machine, where its agent has `agent_files` (None: the yard is elsewhere).

    Raises UserError with what to do where there is none.
    """
    told = view.training.log_dir if view.training is not None else ""
    if told:
        return _told(view, told)
    roots = list(dict.fromkeys(_roots(view, agent_files)))
    for root in roots:
        if found := _search(root):
            return found
    for name in USUAL_NAMES:  # only these names: the directory may be large, and is shared
        if os.path.isdir(path := os.path.join(view.workdir, name)):
            return path
    looked = ", ".join([*roots, *(os.path.join(view.workdir, name) for name in USUAL_NAMES)])
    raise UserError(
        f"job {view.number} has no logs for TensorBoard here yet (looked in {looked}); "
        "--log-dir DIR at submit says where"
    )


def _told(view: JobView, log_dir: str) -> str:
    """As written, or in the collected results of another machine."""
    candidates = [os.path.join(view.workdir, log_dir)]
    if not os.path.isabs(log_dir):
        candidates.append(os.path.join(view.workdir, RESULTS, view.id, log_dir))
    for path in candidates:
        if os.path.isdir(path):
            return os.path.normpath(path)
    raise UserError(
        f"job {view.number} has nothing in its log dir yet: there is no directory {candidates[0]} on this machine; "
        "try again when it has written there"
    )


def _roots(view: JobView, agent_files: Path | None) -> Iterator[str]:
    """Directories of this job alone."""
    if snapshots := view.env.get(SNAPSHOTS):
        yield os.path.join(snapshots, view.id)
    if agent_files is not None:
        yield str(agent_files / "jobs" / view.id)
    yield os.path.join(view.workdir, RESULTS, view.id)


def _search(root: str) -> str:
    """The nearest directory with a usual name, or one with event files in it; empty: there is none."""
    level, seen = [root], 0
    for _ in range(DEEPEST):
        below: list[str] = []
        for directory in level:
            seen += 1
            if seen > DIRECTORIES_MOST:
                return ""
            found, names = _look(directory)
            if found:
                return found
            below += names
        level = below
    return ""


def _look(directory: str) -> tuple[str, list[str]]:
    try:
        with os.scandir(directory) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return "", []
    directories = [entry.path for entry in listed if entry.is_dir(follow_symlinks=False)]
    for path in directories:
        if os.path.basename(path) in USUAL_NAMES:
            return path, []
    has_events = any(EVENT_FILE in entry.name for entry in listed if not entry.is_dir(follow_symlinks=False))
    return (directory if has_events else ""), directories
