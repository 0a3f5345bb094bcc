"""Record docs/display.svg, attach.svg and top.svg: `yard run`, `attach` and `top` on a terminal, in their own yard."""

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
SWEEP = """\
import os, random, sys, time
for step in range(10):
    time.sleep(random.uniform(0.2, 0.6))
    print(f"step {step}: loss {random.uniform(0.2, 2):.3f}", flush=True)
    if os.environ["YARD_TASK"] in ("1", "4") and step == 5:
        sys.exit("ValueError: loss is nan")
"""
RUN = ["yard", "run", "-a", "0-99", "--cpus", "0.2", "--", "python", "train.py"]
SWEEP_JOB = ["-n", "sweep", "-c", "0.2", "--sweep", "lr=0.1,0.01,0.001", "--sweep", "seed=0..9", "--", "python"]
SWEEP_JOB += ["sweep.py", "--lr", "{lr}", "--seed", "{seed}"]
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
        (self.work / "sweep.py").write_text(SWEEP)
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
            stage.yard("submit", *SWEEP_JOB)
            keys = [(7, "c"), (9.5, "n"), (12, "q")]
            frames = record(["yard", "attach", "last"], size=(100, 20), env=stage.env, cwd=stage.work, keys=keys)
            (DOCS / "attach.svg").write_text(svg(frames, "yard attach, live", before="$ yard attach last"))
            stage.yard("cancel", "last", "--force")
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
