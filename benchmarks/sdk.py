"""What does a training step pay for being measured? By the SDK, and by a thread per step, as KubeProfiler does it."""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import record
from jobyard.sdk.job import YardJob
from kubernetesdlprofile.kubeprofiler import KubeProfiler

BAR_MICROSECONDS = 2.0
BAR_IMPORT_MILLISECONDS = 20.0
STEPS = 20_000


class ThreadPerStep:
    """The way of the original: each measure() starts a thread, which keeps the mean. Its HTTP is left out."""

    def __init__(self) -> None:
        self.iterations = 0
        self.mean = 0.0
        self.last_time: datetime.datetime | None = None

    def measure(self) -> None:
        threading.Thread(target=self._measure).start()

    def _measure(self) -> None:
        now = datetime.datetime.now()
        if self.last_time is not None:
            self.iterations += 1
            self.mean += ((now - self.last_time).total_seconds() - self.mean) / self.iterations
        self.last_time = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="times each is measured (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    figures = measure(options.rounds)
    middle = {name: median(each) for name, each in figures.items()}
    ratios = {
        "measure": BAR_MICROSECONDS / middle["measure"],
        "drop-in": BAR_MICROSECONDS / middle["drop-in"],
        "thread per step": middle["thread per step"] / middle["measure"],
        "import": BAR_IMPORT_MILLISECONDS * 1000 / middle["import"],
    }
    bars = {"measure": 1.0, "drop-in": 1.0, "thread per step": 10.0, "import": 1.0}
    if options.json:
        print(record.line("sdk", ratios=ratios, bars=bars, figures=figures))
    else:
        for name, each in middle.items():
            print(f"{name:<16} {each:10.3f} us   ratio {ratios.get(name, 1.0):8.2f}   (bar {bars.get(name, '-')})")


def measure(rounds: int) -> dict[str, list[float]]:
    """Microseconds: of the middle call in each round, and of the quickest of five imports."""
    figures: dict[str, list[float]] = {"measure": [], "drop-in": [], "thread per step": [], "import": []}
    with a_spool():
        for _ in range(rounds):
            job, profiler = YardJob(heartbeat=100), KubeProfiler()
            for start in (job.start_epoch, profiler.start_epoch):
                start()
            figures["measure"].append(microseconds(job.measure, STEPS))
            figures["drop-in"].append(microseconds(profiler.measure, STEPS))
            figures["thread per step"].append(microseconds(ThreadPerStep().measure, STEPS // 10))
            figures["import"].append(import_microseconds())
    return figures


def microseconds(call: Callable[[], None], times: int) -> float:
    """Of the middle one; what the clock itself takes is in it."""
    clock = time.perf_counter_ns
    taken = []
    for _ in range(times):
        before = clock()
        call()
        taken.append(clock() - before)
    return round(median(taken) / 1000, 4)


def import_microseconds() -> float:
    """From a fresh interpreter, as `python -X importtime` counts it; the quickest of five, for others use the cores."""
    command = [sys.executable, "-X", "importtime", "-c", "import jobyard.sdk"]
    runs = (subprocess.run(command, capture_output=True, text=True, check=True).stderr for _ in range(5))
    return min(float(run.splitlines()[-1].split("|")[1]) for run in runs)


@contextmanager
def a_spool() -> Iterator[None]:
    """What a yard sets, so that reports are really written and the stop file is really looked for."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        os.environ["YARD_SPOOL"], os.environ["YARD_STOP_FILE"] = str(here / "spool"), str(here / "stop")
        os.environ["YARD_CHECKPOINT_DIR"] = directory
        yield


if __name__ == "__main__":
    main()
