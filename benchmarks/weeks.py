"""Do disk and memory of a yard stay level over weeks of use? The server's own parts, with a clock that is played.

`python benchmarks/weeks.py [--weeks 3] [--jobs 10000] [--tasks 100] [--keep-mib 10240] [--json]` submits and ends so
many jobs a week, writes two files for each task and packs them as an agent does, and each played hour lets old jobs go
by the default rules. A line for each played day: what is kept then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from sqlalchemy import event

import record
from jobyard.agent_protocol.packing import pack
from jobyard.engine.handling import handle
from jobyard.engine.retention import EndedJob, RetentionRules, choose_going
from jobyard.engine.yard_state import YardState
from jobyard.model.events import (
    AttemptsFinished,
    Event,
    Finished,
    JobsForgotten,
    JobSubmitted,
    NodeJoined,
    SlotClosed,
    SlotOpened,
    TasksAssigned,
)
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.node import Node
from jobyard.model.resources import Placement, Resources
from jobyard.model.task import AttemptId, Outcome, Slot
from jobyard.server.compaction import compact
from jobyard.server.damages import Restored
from jobyard.server.database import open_database
from jobyard.server.history import History
from jobyard.server.housekeeping import rules_of
from jobyard.server.journal import Journal
from jobyard.server.recording import SNAPSHOT_EVERY_ROWS
from jobyard.server.stored_files import EndedFiles, StoredFiles
from jobyard.settings import KeepKnobs

T = TypeVar("T")
HOURS = 7 * 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=10_000, help="each week")
    parser.add_argument("--tasks", type=int, default=100, help="of each job")
    parser.add_argument("--keep-mib", type=int, default=KeepKnobs.keep_mib)
    parser.add_argument("--json", action="store_true", help="at the end a line for benchmarks/results/weeks.json")
    options = parser.parse_args()
    rules = replace(rules_of(KeepKnobs()), bytes=options.keep_mib << 20)
    with tempfile.TemporaryDirectory() as directory:
        yard = PlayedWeeks(Path(directory), rules, options.tasks)
        days = []
        for line in yard.days(options.weeks, options.jobs):
            print(json.dumps(line), flush=True)
            days.append(line)
        if options.json:
            print(record.line("weeks", ratios={}, bars={}, figures=figures(days)))


def figures(days: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Each day's, the first first."""
    names = {
        "kept jobs": "kept_jobs",
        "files": "files",
        "files, MiB": "files_mib",
        "database, MiB": "database_mib",
        "memory of the server's parts, MiB": "resident_mib",
        "hourly look, CPU s": "cpu_seconds_of_the_last_hour_pass",
    }
    return {shown: [day[key] for day in days] for shown, key in names.items()}


class PlayedWeeks:
    """A yard whose jobs succeed at once, at times that are played."""

    def __init__(self, directory: Path, rules: RetentionRules, tasks: int) -> None:
        self.directory = directory
        self.files = directory / "agent" / "jobs"
        engine = open_database(f"sqlite:///{directory / 'yard.db'}")
        event.listen(engine, "connect", lambda opened, _: opened.execute("PRAGMA synchronous=OFF"))
        engine.dispose()  # from now on no commit waits for the disk, which is not measured here, and no packer
        os.fsync = lambda fd: None
        self.journal, self.history = Journal(engine), History(engine)
        self.stored = StoredFiles(directory)
        self.rules = rules
        self.spec = JobSpec("job", (GroupSpec(Command(shell="true"), completions=tasks),), workdir="/")
        self.state = YardState()
        self.now = time.time()
        self.seq = self.append(NodeJoined(Node("here", "local", 4000, 4096), self.now))
        self.based = 0

    def append(self, *events: Event) -> int:
        for each in events:
            handle(self.state, each)
        self.state.changes.slots.clear()
        return self.journal.append(events, self.now, None)

    def days(self, weeks: int, jobs: int) -> Iterator[dict[str, float]]:
        done = 0
        for hour in range(1, weeks * HOURS + 1):
            self.now += 3600.0
            while done < jobs * hour // HOURS:
                done += 1
                self.run_job(done)
            began = time.process_time()
            self.let_go()
            seconds = time.process_time() - began
            if self.seq - self.based >= SNAPSHOT_EVERY_ROWS:
                self.based = self.seq
                compact(self.journal, self.history, Restored(self.seq, self.state, ()), run, sys.maxsize)
            if hour % 24 == 0:
                yield self.line(hour // 24, done, seconds)

    def run_job(self, number: int) -> None:
        job, tasks = f"{number:08x}", self.spec.size
        slot = Slot(str(number), job, 0, Placement("here", Resources(1000)))
        self.append(JobSubmitted(job, number, self.spec, self.now))
        self.append(SlotOpened(slot, self.now), TasksAssigned(slot.id, ((0, tasks - 1),), self.now))
        done = Outcome(self.now, self.now + 1, 0)
        ended = tuple(Finished(AttemptId(job, task, 1), done) for task in range(tasks))
        self.seq = self.append(AttemptsFinished(ended, self.now), SlotClosed(slot.id, self.now))
        own = self.files / job
        for task in range(tasks):
            bucket = own / str(task // 1000)
            bucket.mkdir(parents=True, exist_ok=True)
            for end in ("rec", "out"):
                with open(bucket / f"{task}.1.{end}", "wb") as file:
                    file.write(b"some words\n")
        pack(str(own), [(task, 1) for task in range(tasks)])

    def let_go(self) -> None:
        """As `Housekeeping` does each hour."""
        files = [EndedFiles(job.id, job.times.finished_at or 0.0, collects=True) for job in self.state.jobs.values()]
        found = self.stored.measure(files).items()
        ended = [EndedJob(job, each.finished_at, each.bytes, each.has_results) for job, each in found]
        going = tuple(each.job for each in choose_going(ended, self.rules, self.now))
        if going:
            self.history.write(self.history.new_of(self.state.jobs[job] for job in going))
            self.seq = self.append(JobsForgotten(going, self.now))
            for job in going:
                shutil.rmtree(self.files / job)

    def line(self, day: int, done: int, seconds: float) -> dict[str, float]:
        on_disk = (os.path.join(place, name) for place, _, names in os.walk(self.files) for name in names)
        blocks = [os.lstat(path).st_blocks for path in on_disk]
        database = sum(path.stat().st_size for path in self.directory.glob("yard.db*"))
        return {
            "day": day,
            "jobs": done,
            "kept_jobs": len(self.state.jobs),
            "files": len(blocks),
            "files_mib": sum(blocks) >> 11,
            "database_mib": database >> 20,
            "resident_mib": resident_mib(),
            "cpu_seconds_of_the_last_hour_pass": round(seconds, 2),
        }


def run(work: Callable[[], T]) -> T:
    return work()


def resident_mib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


if __name__ == "__main__":
    main()
