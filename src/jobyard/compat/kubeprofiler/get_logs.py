"""`scheduler-get-logs JOBID`: as `yard logs`."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.cli.commands.logs import command
from jobyard.compat.kubeprofiler import entry

PROGRAM = "scheduler-get-logs"


def main() -> None:
    entry.main(PROGRAM, run)


def run(words: Sequence[str]) -> int:
    job = entry.job_argument(PROGRAM, "Show what a job wrote so far.", words)
    return int(command.main([job], prog_name=PROGRAM, standalone_mode=False) or 0)


if __name__ == "__main__":
    main()
