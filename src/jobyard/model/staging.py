"""Staging: which files travel to machines that do not share the submitter's disk, and which come back?"""

from __future__ import annotations

from dataclasses import dataclass

from jobyard.model.limits import Base64, Line, Path


@dataclass(frozen=True, slots=True)
class StagingSpec:
    """Paths are relative to the job's working directory. A snapshot of that directory is sent to the machine."""

    copy_forward: tuple[Path, ...] = ()  # what is sent; (): all of it
    no_copy: bool = False  # no code is sent, and no results are collected
    snapshot: Line = ""  # the tree that is sent along, by its content hash
    subdir: Path = ""  # where in the tree a task starts
    copy_back: tuple[Path, ...] = ()  # paths in the tree whose new or changed files are collected as results
    stdin: Base64 | None = None  # the bytes that each task reads as its standard input; None: nothing
    results_dir: Path = ""  # where collected results go, on the submitting machine
    output: Path = ""  # there too: a pattern for the file of each task's output (`model/output_pattern.py`)
    error: Path = ""  # likewise for its stderr; empty: that is written to `output` too

    @property
    def joins_streams(self) -> bool:
        """Is all that a task writes one stream, as it came? Two files could not say what came first."""
        return bool(self.output) and not self.error

    @property
    def collected(self) -> tuple[Path, ...]:
        """Whose new or changed files are results: those of the whole tree, unless `copy_back` names paths."""
        return self.copy_back or (".",)
