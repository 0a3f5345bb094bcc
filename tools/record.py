"""Record docs/display.svg and docs/top.svg: `yard run` and `yard top` on a terminal, in a yard that is made for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from recorder import record, svg

DOCS = Path(__file__).resolve().parents[1] / "docs"
TRAIN = """\
import os, random, sys, time
random.seed(int(os.environ["YARD_TASK"]))
for step in range(4):
    time.sleep(random.uniform(0.1, 0.3))
    print(f"step {step}: loss {random.uniform(0.2, 2):.3f}", flush=True)
if os.environ["YARD_TASK"] == "17":
    sys.exit("ValueError: fold 17 is empty")
"""
CIFAR = """\
import random, time
from jobyard.sdk import yard_job
job = yard_job()
for epoch in job.epochs(20):
    time.sleep(1)
    job.measure()
    job.saved()
"""
RUN = ["yard", "run", "-a", "0-99", "--cpus", "0.2", "--", "python", "train.py"]
TOP_JOBS = [
    ["-n", "sweep", "-a", "0-199", "--cpus", "0.2", "-p", "-1", "--", "python", "train.py"],
    ["-n", "cifar", "-c", "0.2", "-G", "2", "--epochs", "20", "--", "python", "cifar.py"],
    ["-n", "evaluate", "-c", "0.2", "-G", "1", "--gpu-mem", "8G", "-a", "0-3", "--", "sleep", "8"],
    ["-n", "large", "-p", "-5", "-G", "4", "--", "python", "cifar.py"],
]


class Stage:
    """A yard, and the directory of someone who uses it."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        (self.work / "train.py").write_text(TRAIN)
        (self.work / "cifar.py").write_text(CIFAR)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("YARD_", "XDG_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "YARD_DIR": str(root / "yard"),
            "XDG_RUNTIME_DIR": str(root),
            "JOBYARD_FAKE_GPUS": "4x24GiB",
            "JOBYARD_RESERVATIONS_DIR": str(root / "reservations"),  # other yards of this machine hold nothing here
        }

    def yard(self, *words: str) -> None:
        subprocess.run(["yard", *words], cwd=self.work, env=self.env, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="yard-") as root:
        stage = Stage(Path(root))
        stage.yard("server", "start")
        try:
            frames = record(RUN, size=(100, 24), env=stage.env, cwd=stage.work)
            (DOCS / "display.svg").write_text(svg(frames, "yard run, live", before=f"$ {' '.join(RUN)}"))
            for words in TOP_JOBS:
                stage.yard("submit", *words)
            keys = [(5, "s"), (8, "/"), (8.5, "ci"), (9, "\r"), (11, "\x1b"), (14, "q")]
            frames = record(["yard", "top"], size=(112, 24), env=stage.env, cwd=stage.work, keys=keys)
            (DOCS / "top.svg").write_text(svg(frames, "yard top, live", before="$ yard top"))
        finally:
            stage.yard("cancel", "--all", "--force")
            stage.yard("server", "stop", "--force")


if __name__ == "__main__":
    main()
