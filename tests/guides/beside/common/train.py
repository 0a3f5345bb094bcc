"""A training of no time, which stops at a checkpoint where it is asked to."""

import argparse
import time
from pathlib import Path

from jobyard.sdk import yard_job

flags = argparse.ArgumentParser()
flags.add_argument("--epochs", type=int, default=3)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--lr", type=float, default=0.1)
flags.add_argument("--seconds", type=float, default=0.0)  # of an epoch
flags.add_argument("--out", type=Path)
options = flags.parse_args()

job = yard_job()
for epoch in job.epochs(options.epochs):
    print(f"epoch {epoch + 1} of {options.epochs}", flush=True)
    time.sleep(options.seconds)
    job.saved()
if options.out:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "model.pt").write_text("weights")
