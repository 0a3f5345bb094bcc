"""Write docs/benchmarks.md and its chart from the lines of JSON in benchmarks/results/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

import chart
from record import REPOSITORY

RESULTS = REPOSITORY / "benchmarks/results"
PAGE = REPOSITORY / "docs/benchmarks.md"
CHART = REPOSITORY / "docs/benchmarks.svg"

HEAD = """\
# Benchmarks

![{chart}](benchmarks.svg)

Each task is a line that does nothing, or one `echo` over SSH. xargs keeps no status and one file of output for all
tasks; the others keep both for each.

Written by `benchmarks/report.py` from `benchmarks/results/`; `make bench` measures again. A ratio above 1 means that
the yard is better; the bar is the least we promise.
"""

ABOUT = {
    "throughput": """\
Tasks per second on lines that do nothing (`/bin/true`, run by bash, output captured), the same number at once for all.
`xargs` is the floor: one output file for all tasks, and no status is kept. In the yard each task has a process group,
output files and a status of its own, which survive a crash of everything else; the time is that of the whole
`yard run`, its start included. HyperQueue's cluster is up before and its clock stops when its last task starts.""",
    "sdk": """\
Microseconds of the middle call of 20 000: `measure()` of the SDK and of the `kubernetesdlprofile` drop-in, with reports
written and the stop file looked for, against the 2 µs we promise; and of a reporter that starts a thread for each step,
as KubeProfiler does, without its HTTP, against ours. `import` is `import jobyard.sdk`, against 20 ms.""",
    "startup": """\
Seconds until the prompt is back: `yard --help`; `yard run -- true` with a server up (warm); the same in a yard that did
not exist before, with its server and agent started on the way (cold).""",
    "gpu-share": """\
Samples per second of two small trainings on one NVIDIA GPU, one after the other and shared by memory (`--gpu-mem`),
their start included.""",
    "gpu-oom": """\
A job that declares a third of the GPU memory that it will take, beside a neighbour: MiB reserved in each attempt until
it succeeds, with nobody watching.""",
    "gpu-whole": """\
A job with a whole GPU that takes a tenth more memory than it has: attempts until the yard gives up, against one.""",
    "gpu-preempt": """\
Seconds from the end of the epoch in which a job was asked to stop until its GPU is free, against one second; nearly all
of it is Python and CUDA ending. The yard had asked some two seconds before (`rest of the epoch`).""",
    "gpu-overhead": """\
What `measure()` costs a step of 3.6 ms, in percent of it, timed around each call (the clock's own time included),
against 0.1 %; a step with and without it, in balanced blocks.""",
    "kubernetes": """\
Jobs per second through a real control plane (Kubernetes 1.36) with 1,000 nodes x 8 GPUs that KWOK plays, from the first
submit until the last Job is done: one `kubectl create` of all Jobs, and the same Jobs through the yard, submitted eight
at a time, asked about in one dry run for all of a kind, and made when the yard's scheduler lets them in. All share the
two cores. The API server counts the yard's calls; the bar is six per job.""",
    "scale": """\
An array of a million tasks that do nothing, run for as long as the command says: its submit, `yard ls` meanwhile,
growth of the server's memory, and what is stored (journal and files) once the agent has packed what ended, as bytes for
each task and for a million of them. Jobs that wait behind one that holds all cores, submitted by eight clients at once:
the rate, and what one more, `yard ls`, `yard why` and a plan take then. CPU seconds to open a yard with so many starts
and ends of tasks in its journal. The bar is a limit: it is met where the ratio is 1 or more.""",
    "weeks": """\
A yard over weeks of use by the default rules of what goes, on a clock that is played: 10,000 jobs of 100 tasks each
week, a million tasks, of which each leaves a record and some words of output. The figures are those of each day's end.
The server's own parts do the work (engine, journal, compaction, packing, retention); nothing is started, and no file
is forced to the disk.""",
    "ssh": """\
Seconds for 200 `echo` lines on three machines reached by SSH (namespaces with an sshd each, on the same two cores):
`yard run` and GNU parallel at equal slots, both logged in before; `tree` is the yard with 20 MB sent along and 200
results brought home; `warm` is one task on a warm yard, from its submit until a client hears that it ended.""",
}
UNITS = {
    "sdk": "µs",
    "kubernetes": "Jobs/s",
    "throughput": "tasks/s",
    "startup": "s",
    "ssh": "s",
    "gpu-preempt": "s",
    "gpu-share": "samples/s",
}


def main() -> None:
    records = [json.loads(line) for path in sorted(RESULTS.glob("*.json")) for line in path.read_text().splitlines()]
    found = list(chart.groups(records))
    CHART.write_text(chart.svg(found))
    head = HEAD.replace("{chart}", chart.words(found))
    PAGE.write_text("\n".join([head, *("\n".join(section(record)) for record in records)]))


def where(record: dict[str, Any]) -> str:
    return ", ".join(filter(None, (record["machine"], record.get("gpu"))))


def section(record: dict[str, Any]) -> Iterator[str]:
    name = record["benchmark"]
    unit = UNITS.get(name, "")
    yield f"## {name.capitalize()}\n"
    if name in ABOUT:
        yield f"{ABOUT[name]}\n"
    yield f"| | median {unit} | all rounds | ratio | bar |\n|---|---|---|---|---|"
    for key, values in record["figures"].items():
        rounds = ", ".join(f"{value:g}" for value in values)
        ratio, bar = (record[part].get(key, "") for part in ("ratios", "bars"))
        yield f"| {key} | {median(values):.4g} | {rounds} | {ratio} | {bar} |"
    yield f"\n`{record['command']}` at commit {record['commit']}, {record['date']}, on {where(record)}.\n"
    if note := record.get("note"):
        yield f"{note}\n"


if __name__ == "__main__":
    main()
