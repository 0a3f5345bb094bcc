"""A training with the original library: kubeprofiler_script.py seed|later DIRECTORY [HOST]. It saves after end_epoch().

Each epoch begins when there is a file `go-EPOCH` in DIRECTORY. There it also leaves its marks: `begins-EPOCH` before
that; in `attempt-N` an `answered-N` for each answer to has_to_stop, and `over` at the end; in `trained` each epoch.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import time
from pathlib import Path

from kubeprofiler_client import KubeProfiler, LaterKubeProfiler  # type: ignore[import-not-found]

Version = {"seed": KubeProfiler, "later": LaterKubeProfiler}[sys.argv[1]]
directory = Path(sys.argv[2])
marks = directory / f"attempt-{os.environ['YARD_ATTEMPT']}"
marks.mkdir()
answered = threading.Semaphore(0)


class Profiler(Version):  # type: ignore[misc,valid-type]
    """Its epochs are long enough for an answer to come: the first step waits for it."""

    def ask(self, now: datetime.datetime) -> None:
        super().ask(now)
        (marks / f"answered-{len(os.listdir(marks))}").touch()
        answered.release()


def train(prof: KubeProfiler) -> None:
    saved = Path(prof.root_dir) / "saved"
    done = int(saved.read_text()) if prof.RESTARTED else 0
    print(f"begins with {done} epochs saved, told {prof.EPOCHS_DONE}", flush=True)
    for epoch in range(prof.EPOCHS_DONE + 1, prof.EPOCHS + 1):
        (directory / f"begins-{epoch}").touch()
        while not (directory / f"go-{epoch}").exists():
            time.sleep(0.02)
        prof.start_epoch()
        answered.acquire()
        for _ in range(prof.TRAINING_SET_SIZE // prof.BATCH_SIZE):
            prof.measure()
        with open(directory / "trained", "a") as trained:
            trained.write(f"{epoch}\n")
        prof.end_epoch()
        saved.write_text(str(epoch))
    print("trained to its end", flush=True)


try:
    train(Profiler(*sys.argv[3:], *sys.argv[3:]))
finally:
    (marks / "over").touch()
