"""How long does a yard with a long past take to open? From its first row, and from a base and the rows after it.

`python benchmarks/reopen.py [--events 1000000]` writes a journal of so many starts and ends of tasks, in jobs of 500,
and reads it in both ways. Seconds of CPU, because others use these machines too; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsFinished,
    AttemptsStarted,
    Event,
    Finished,
    JobSubmitted,
    NodeJoined,
    SlotClosed,
    SlotOpened,
    Started,
    TasksAssigned,
)
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.node import Node
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.server.compaction import base_data
from jobyard.server.damages import Restored, from_base, replay
from jobyard.server.database import open_database
from jobyard.server.journal import Journal

T = TypeVar("T")
TASKS = 500  # of a job
REST = 0.01  # of the rows come after the base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000, help="starts and ends of tasks")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), options.events)
    print(json.dumps(found) if options.json else told(found))


def measure(directory: Path, events: int) -> dict[str, float]:
    journal = Journal(open_database(f"sqlite:///{directory / 'yard.db'}"))
    jobs = events // (2 * TASKS)
    late = max(1, int(jobs * REST))
    journal.append([NodeJoined(Node("here", "local", 4000, 4096), 1.0)], 1.0)
    for number in range(1, jobs - late + 1):
        write_job(journal, number)
    covers = replay(journal, 0, YardState())
    journal.append_base(covers.seq, base_data(covers), 1.0)
    base_mb = (directory / "yard.db").stat().st_size / 1e6
    for number in range(jobs - late + 1, jobs + 1):
        write_job(journal, number)
    whole, from_first = timed(lambda: replay(journal, 0, YardState()))
    opened, by_base = timed(lambda: opened_by_base(journal))
    assert [job.id for job in opened.state.jobs.values()] == [job.id for job in whole.state.jobs.values()]
    return {
        "events": float(events),
        "rows": float(whole.seq),
        "from_first_row_seconds": from_first,
        "from_base_seconds": by_base,
        "ratio": from_first / by_base,
        "database_mb": base_mb,
    }


def opened_by_base(journal: Journal) -> Restored:
    base = from_base(journal)
    return replay(journal, base.seq, base.state)


def write_job(journal: Journal, number: int) -> None:
    """Four rows, as a server would write them."""
    job, slot = f"{number:08x}", str(number)
    group = GroupSpec(Command(shell="true"), completions=TASKS, resources=Resources(100))
    spec = JobSpec(name="job", groups=(group,), workdir="/")
    attempts = [AttemptId(job, task, 1) for task in range(TASKS)]
    ended = Outcome(1.0, 2.5, 0, peak_memory_mib=7)
    rows: list[list[Event]] = [
        [JobSubmitted(job, number, spec, 1.0)],
        [
            SlotOpened(Slot(slot, job, 0, Placement("here", Resources(100))), 1.0),
            TasksAssigned(slot, ((0, TASKS - 1),), 1.0),
        ],
        [AttemptsStarted(tuple(Started(attempt, 1.0) for attempt in attempts), 1.0)],
        [AttemptsFinished(tuple(Finished(attempt, ended) for attempt in attempts), 2.0), SlotClosed(slot, 2.0)],
    ]
    for events in rows:
        journal.append(events, 1.0, [job])


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


def told(found: dict[str, float]) -> str:
    return (
        f"{found['events']:.0f} events in {found['rows']:.0f} rows ({found['database_mb']:.0f} MB):"
        f" from the first row {found['from_first_row_seconds']:.1f} s,"
        f" from a base and the rest {found['from_base_seconds']:.1f} s, {found['ratio']:.1f} times faster"
    )


if __name__ == "__main__":
    main()
