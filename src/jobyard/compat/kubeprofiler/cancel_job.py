"""`scheduler-cancel-job JOBID`: as `yard cancel`."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.compat.kubeprofiler import entry
from jobyard.console import run_verb

PROGRAM = "scheduler-cancel-job"


def main() -> None:
    entry.main(PROGRAM, run)


def run(words: Sequence[str]) -> int:
    job = entry.job_argument(PROGRAM, "Stop a job.", words)
    return run_verb("cancel", [job], PROGRAM)


if __name__ == "__main__":
    main()
