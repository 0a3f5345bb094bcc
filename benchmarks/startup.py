"""How long does a person wait? For `yard --help`, for `yard run -- true` with a server up (warm) and without (cold)."""

from __future__ import annotations

import argparse
from statistics import median

import record
from contestants import timed
from temporary_yard import temporary_yard

BARS_SECONDS = {"help": 0.25, "warm": 0.6, "cold": 2.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="times each is measured (default: 10)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    figures = measure(options.rounds)
    seconds = {name: median(each) for name, each in figures.items()}
    ratios = {name: bar / seconds[name] for name, bar in BARS_SECONDS.items()}
    if options.json:
        bars = dict.fromkeys(BARS_SECONDS, 1.0)
        print(record.line("startup", ratios=ratios, bars=bars, figures=figures, bar_seconds=BARS_SECONDS))
    else:
        for name, bar in BARS_SECONDS.items():
            print(f"{name:<5} {seconds[name]:6.3f} s   (bar {bar} s)")


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds of each in each round; every round has a fresh yard, so that the first `run` finds nothing at all."""
    figures: dict[str, list[float]] = {name: [] for name in BARS_SECONDS}
    for _ in range(rounds):
        with temporary_yard() as yard:
            figures["help"].append(timed(yard.run, "--help"))
            figures["cold"].append(timed(yard.run, "run", "--", "true"))
            figures["warm"].append(timed(yard.run, "run", "--", "true"))
    return figures


if __name__ == "__main__":
    main()
