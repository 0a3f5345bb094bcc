"""`scheduler-state [--all_users] [--nlast N] [--extended]`: which jobs are there, and how far are they?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobyard.compat.kubeprofiler import entry
from jobyard.console import (
    echo,
    eta_text,
    local_time,
    print_table,
    run_time,
    seconds_text,
    state_text,
    training_progress,
)
from jobyard.errors import UserError
from jobyard.model.units import show_mib
from jobyard.wire.views import JobView, TrainingView

PROGRAM = "scheduler-state"
HEADERS = ("JOBID", "NAME", "USER", "STATE", "EPOCHS", "SIZE", "TIME", "ETA")
MORE_HEADERS = ("PRIO", "SUBMITTED", "EPOCH", "STEP", "GPU", "GPU MEM", "STOPS", "WHY")


@dataclass(frozen=True)
class StateFlags:
    all_users: bool = False
    nlast: int | None = None
    is_extended: bool = False


def main() -> None:
    entry.main(PROGRAM, run)


def run(words: Sequence[str]) -> int:
    flags = parse_state(words)
    client = entry.session().client
    jobs = client.jobs(all=flags.nlast is not None)
    mine = [job for job in jobs if flags.all_users or job.user == entry.user()]
    shown = mine[: flags.nlast]
    if not shown:
        echo(f"{PROGRAM}: no jobs{'' if flags.all_users else ' of yours; --all_users shows all'}", err=True)
        return 0
    headers = (*HEADERS, *MORE_HEADERS) if flags.is_extended else HEADERS
    print_table(headers, [row_of(job, is_extended=flags.is_extended) for job in shown])
    return 0


def parse_state(words: Sequence[str]) -> StateFlags:
    parser = entry.Parser(prog=PROGRAM, description="List jobs, the newest first.")
    parser.add_argument("--all_users", "--all", action="store_true", help="also those of others")
    parser.add_argument("--nlast", metavar="N", help="the last N jobs, also those that ended long ago")
    parser.add_argument("--extended", action="store_true", help="more columns")
    given = parser.parse_args(list(words))
    if given.nlast is not None and (not re.fullmatch(r"[0-9]{1,9}", given.nlast) or int(given.nlast) < 1):
        raise UserError(f"--nlast: {given.nlast!r} is not a number of jobs; write for example --nlast 10")
    return StateFlags(given.all_users, None if given.nlast is None else int(given.nlast), given.extended)


def row_of(job: JobView, *, is_extended: bool) -> tuple[str, ...]:
    training = job.training or TrainingView()
    row = (
        job.id,
        job.name,
        job.user,
        state_text(job.state),
        training_progress(training).removeprefix("epoch ") or "-",
        training.size or "-",
        run_time(job),
        ("" if job.state.is_final else eta_text(training)) or "-",
    )
    if not is_extended:
        return row
    return (
        *row,
        str(job.priority),
        local_time(job.submitted_at),
        seconds_text(training.epoch_seconds) or "-",
        seconds_text(training.step_seconds) or "-",
        "-" if training.gpu_percent is None else f"{training.gpu_percent} %",
        show_mib(training.peak_gpu_memory_mib) if training.peak_gpu_memory_mib else "-",
        str(training.preemptions + training.resizes or "-"),
        job.message,
    )


if __name__ == "__main__":
    main()
