"""`scheduler-cancel-job JOBID`: as `yard cancel`."""

from __future__ import annotations

from collections.abc import Sequence

from jobyard.cli.commands.cancel import command
from jobyard.compat.kubeprofiler import entry

PROGRAM = "scheduler-cancel-job"


def main() -> None:
    entry.main(PROGRAM, run)


def run(words: Sequence[str]) -> int:
    job = entry.job_argument(PROGRAM, "Stop a job.", words)
    return int(command.main([job], prog_name=PROGRAM, standalone_mode=False) or 0)


if __name__ == "__main__":
    main()
