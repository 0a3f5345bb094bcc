"""Run by a Python that has HyperQueue: each line of Python on stdin adds tasks to a job; their output, as JSON.

hyperqueue_lines.py SCRATCH FILES; each job has a copy of FILES as its directory.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

scratch, files = Path(sys.argv[1]), Path(sys.argv[2])
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the server prints a banner
lines = json.load(sys.stdin)

with LocalCluster(str(scratch / "server"), WorkerConfig(cores=2)) as cluster:
    client = cluster.client()
    submitted = []
    for number, line in enumerate(lines):
        directory = scratch / f"job-{number}"
        shutil.copytree(files, directory)
        os.chdir(directory)
        job = Job(directory, max_fails=0)
        eval(line, {"job": job})
        submitted.append(client.submit(job))
    client.wait_for_jobs(submitted)
json.dump(
    [
        "".join(file.read_text() for file in sorted(scratch.glob(f"job-{number}/**/*.stdout")))
        for number in range(len(lines))
    ],
    answers,
)
