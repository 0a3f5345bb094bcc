"""Is a yard still quick and small with a million tasks, and with a hundred thousand jobs that wait?

`python benchmarks/scale.py [--tasks N] [--seconds N] [--pending N] [--events N] [--only PART] [--json]`

array: one array is submitted and runs to its end, or for so many seconds; the rest is cancelled, and the figures for
each task are of those that ended. What is stored is counted once the agent has packed it. pending: so many jobs are
submitted by eight clients at once, behind one that holds all cores. reopen: the server reads a journal of so many
starts and ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import record
import reopen
from jobyard.client.api import YardClient
from jobyard.client.local import connect
from jobyard.model.job import Command, GroupSpec, JobSpec
from jobyard.model.resources import Resources
from jobyard.settings import ClientKnobs, knobs
from temporary_yard import Yard, temporary_yard

PARTS = ("array", "pending", "reopen")
CLIENTS = 8
LOOK_SECONDS = 10.0
PACK_SECONDS = 300.0  # at most, until all that has ended is packed
CORE = 1000
# The least that we promise; a ratio is limit / figure.
LIMITS = {
    "array submitted, s": 2.0,
    "ls meanwhile, s": 0.5,
    "server growth, MB": 200.0,
    "stored of a million tasks, MB": 500.0,
    "inodes of a million tasks": 1000.0,
    "opening the yard, CPU s": 30.0,
    "ls with pending jobs, s": 0.5,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000, help="of the array")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for which the array runs at most")
    parser.add_argument("--pending", type=int, default=100_000, help="jobs that wait")
    parser.add_argument("--events", type=int, default=1_000_000, help="starts and ends of tasks in the journal")
    parser.add_argument("--only", choices=PARTS, action="append", help="may be repeated; default: all")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    figures: dict[str, list[float]] = {}
    load = os.getloadavg()[0]
    for part in options.only or PARTS:
        figures |= globals()[f"measure_{part}"](options)
    ratios = {name: limit / median(figures[name]) for name, limit in LIMITS.items() if figures.get(name)}
    if options.json:
        about = {"tasks": options.tasks, "pending": options.pending, "load": [load, os.getloadavg()[0]]}
        bars = dict.fromkeys(ratios, 1.0)
        print(record.line("scale", ratios=ratios, bars=bars, figures=figures, **about))
    else:
        for name, values in figures.items():
            print(f"{name}: {', '.join(f'{value:g}' for value in values)}")


# -- one array ---------------------------------------------------------------------------------------------------------


def measure_array(options: argparse.Namespace) -> dict[str, list[float]]:
    with temporary_yard() as yard:
        yard.run("run", "--", "true")
        client, before = client_of(yard), memory_mb(yard)
        submitted = seconds(lambda: yard.run("submit", "-a", f"0-{options.tasks - 1}", "--", "true"))
        began, done, looks, rates = time.monotonic(), 0, [], []
        while True:
            time.sleep(min(LOOK_SECONDS, max(0.1, began + options.seconds - time.monotonic())))
            looks.append(seconds(lambda: yard.run("ls")))
            now, job = time.monotonic() - began, client.job("last")
            rates.append(round((job.counts.succeeded - done) / LOOK_SECONDS, 1))
            done = job.counts.succeeded
            if job.state.is_final or now > options.seconds:
                break
        growth = memory_mb(yard) - before
        if not job.state.is_final:
            yard.run("cancel", "last")
            subprocess.run([yard.command, "wait", "last"], env=yard.env, capture_output=True)
        done = client.job("last").counts.succeeded
        await_packs(yard)
        size, inodes, journal = stored(yard.directory / "yard")
        files = size - journal
        scaled = 1e6 / done
        return {
            "array submitted, s": [submitted],
            "tasks ended": [done],
            "tasks per second": [round(done / now, 1)],
            "tasks per second, each ten seconds": rates,
            "ls meanwhile, s": looks,
            "server growth, MB": [round(growth, 1)],
            "bytes per task, journal": [round(journal / done, 1)],
            "bytes per task, files": [round(files / done, 1)],
            "stored of a million tasks, MB": [round(size * scaled / 1e6, 1)],
            "inodes of a million tasks": [inodes],
        }


def await_packs(yard: Yard) -> None:
    deadline = time.monotonic() + PACK_SECONDS
    while time.monotonic() < deadline and any((yard.directory / "yard/agent/jobs").glob("*/*/*.out")):
        time.sleep(1)


def stored(directory: Path) -> tuple[int, int, int]:
    """Bytes on the disk and inodes of all below it, and how many of the bytes are the journal's."""
    size, inodes, journal = 0, 0, 0
    for path, found in walk(directory):
        size, inodes = size + found.st_blocks * 512, inodes + 1
        if os.path.basename(path).startswith("yard.db"):
            journal += found.st_blocks * 512
    return size, inodes, journal


def walk(directory: Path | str) -> Iterator[tuple[str, os.stat_result]]:
    for entry in os.scandir(directory):
        yield entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)


# -- many jobs ---------------------------------------------------------------------------------------------------------


def measure_pending(options: argparse.Namespace) -> dict[str, list[float]]:
    with temporary_yard() as yard:
        cores = os.cpu_count() or 1
        yard.run("submit", "--cpus", str(cores), "--", "sleep", "100000")
        before, rates = memory_mb(yard), []
        spec = JobSpec(
            name="waits", groups=(GroupSpec(Command(shell="true"), resources=Resources(CORE * cores)),), workdir="/"
        )
        pieces = [options.pending // 10] * 10
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [client_of(yard) for _ in range(CLIENTS)]
            for piece in pieces:
                began = time.monotonic()
                some = [pool.submit(submit_many, client, spec, piece // CLIENTS) for client in clients]
                for each in some:
                    each.result()
                rates.append(round(piece // CLIENTS * CLIENTS / (time.monotonic() - began), 1))
        return {
            "jobs submitted per second, each tenth": rates,
            "memory of pending jobs, MB": [round(memory_mb(yard) - before, 1)],
            "ls with pending jobs, s": [seconds(lambda: yard.run("ls")) for _ in range(5)],
            "one more submitted, s": [seconds(lambda: yard.run("submit", "--", "true")) for _ in range(5)],
            "plan of one more, s": [seconds(lambda: clients[0].plan(spec)) for _ in range(5)],
            "why of the last, s": [seconds(lambda: yard.run("why", "last")) for _ in range(3)],
        }


def submit_many(client: YardClient, spec: JobSpec, count: int) -> None:
    for _ in range(count):
        client.submit(spec)


# -- a long past -------------------------------------------------------------------------------------------------------


def measure_reopen(options: argparse.Namespace) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as directory:
        found = reopen.measure(Path(directory), options.events)
    return {
        "opening the yard, CPU s": [round(found["from_base_seconds"], 2)],
        "opening the yard from its first row, CPU s": [round(found["from_first_row_seconds"], 2)],
    }


# -- looking -----------------------------------------------------------------------------------------------------------


def client_of(yard: Yard) -> YardClient:
    return connect(str(yard.directory / "yard"), knobs(ClientKnobs), lambda sentence: None)


def memory_mb(yard: Yard) -> float:
    """Of the server, as the kernel counts it."""
    status = Path(f"/proc/{client_of(yard).server().pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return round(time.perf_counter() - began, 3)


if __name__ == "__main__":
    main()
