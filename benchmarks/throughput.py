"""How many tasks that do nothing run per second? xargs, GNU parallel, HyperQueue and `yard run`, side by side.

One task is one line `/bin/true`, run by bash, its output captured. Rounds are interleaved, so that a busy moment of the
machine hits all alike; a ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import record
from contestants import Contestant, all_contestants

BARS = {"xargs": 0.7, "parallel": 1.5, "hyperqueue": 1.5}


def main() -> None:
    options = parse_arguments()
    with ExitStack() as stack:
        batch = write_batch(Path(stack.enter_context(tempfile.TemporaryDirectory())), options.tasks)
        warm_up = write_batch(batch.parent, 10)
        contestants = all_contestants(options.parallel, stack)
        for contestant in contestants:
            contestant.seconds(warm_up)
        figures = measure(contestants, batch, options.tasks, options.rounds)
    rates = {name: median(each) for name, each in figures.items()}
    ratios = {name: rates["yard"] / rates[name] for name in BARS}
    if options.json:
        size = {"tasks": options.tasks, "parallel": options.parallel}
        print(record.line("throughput", ratios=ratios, bars=BARS, figures=figures, **size))
    else:
        print_table(rates, ratios)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=5000, help="lines in the batch (default: 5000)")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--parallel", type=int, default=cores, help="tasks at once (default: the cores)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser.parse_args()


def write_batch(directory: Path, tasks: int) -> Path:
    path = directory / f"{tasks}.txt"
    path.write_text("/bin/true\n" * tasks)
    return path


def measure(contestants: list[Contestant], batch: Path, tasks: int, rounds: int) -> dict[str, list[float]]:
    """Tasks per second of each contestant in each round."""
    figures: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants:
            rate = tasks / contestant.seconds(batch)
            figures[contestant.name].append(round(rate, 1))
            print(f"round {number + 1}: {contestant.name} {rate:.0f} tasks/s", file=sys.stderr)
    return figures


def print_table(rates: dict[str, float], ratios: dict[str, float]) -> None:
    for name, rate in rates.items():
        against = f"   yard is {ratios[name]:.2f} x this (bar {BARS[name]})" if name in ratios else ""
        print(f"{name:<12} {rate:7.0f} tasks/s{against}")


if __name__ == "__main__":
    main()
