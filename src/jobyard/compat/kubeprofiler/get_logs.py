"""`scheduler-get-logs JOBID`: as `yard logs`."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.compat.kubeprofiler import entry
from jobyard.console import run_verb

PROGRAM = "scheduler-get-logs"


def main() -> None:
    entry.main(PROGRAM, run)


def run(words: Sequence[str]) -> int:
    job = entry.job_argument(PROGRAM, "Show what a job wrote so far.", words)
    return run_verb("logs", [job], PROGRAM)


if __name__ == "__main__":
    main()
