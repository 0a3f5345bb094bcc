"""Run by a Python that has HyperQueue: for each batch file named on stdin, run its lines and print the seconds it took.

hyperqueue_rounds.py PARALLEL SCRATCH
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

parallel, scratch = int(sys.argv[1]), Path(sys.argv[2])
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the server prints a banner


def run(client, batch: Path, workdir: Path) -> float:  # type: ignore[no-untyped-def]
    """Seconds from making the job to the start of its last task: the client asks for the end only once a second."""
    start = time.time()
    job = Job(workdir, max_fails=0)
    for line in batch.read_text().splitlines():
        job.program(["bash", "-c", line])  # stdout and stderr go to a file each, below the workdir
    client.wait_for_jobs([client.submit(job)])
    return max(file.stat().st_mtime for file in workdir.rglob("*.stdout")) - start


with LocalCluster(str(scratch / "server"), WorkerConfig(cores=parallel)) as cluster:
    for number, name in enumerate(sys.stdin):
        print(run(cluster.client(), Path(name.strip()), scratch / f"round-{number}"), file=answers, flush=True)
