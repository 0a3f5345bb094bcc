"""Results layout: where do the results and the output of a task go on the submitting machine?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from jobyard.model.job import JobSpec


class ResultPaths(NamedTuple):
    directory: Path
    out: Path
    err: Path


def results_paths(
    results_dir: str | os.PathLike[str], job_id: str, spec: JobSpec, label: str, *, name: str = ""
) -> ResultPaths:
    """`JOB/`, `JOB.out` and `JOB.err` in `results_dir` (a `job_results`); of one task among many `JOB/LABEL/`, ...

    A `name` takes the place of all that: `execute_batch` calls its tasks `FILE.LINE`.
    """
    parent = Path(results_dir)
    if name:
        stem = _file_name(name)
    elif spec.size == 1:
        stem = _file_name(job_id)
    else:
        parent, stem = parent / _file_name(job_id), _file_name(label)
    return ResultPaths(parent / stem, parent / f"{stem}.out", parent / f"{stem}.err")


def name_of(spec: JobSpec, label: str) -> str:
    """What ml-scheduler's commands call a task: a batch has the line's number after its name. Empty for other jobs."""
    if spec.submitter.source != "ml-scheduler":
        return ""
    return spec.name if spec.groups[0].array is None else f"{spec.name}.{label}"


def _file_name(text: str) -> str:
    name = text.replace("/", "_").replace("\0", "_")
    return "_" * len(name) if name in ("", ".", "..") else name
