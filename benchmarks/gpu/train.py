"""A small training job: a few convolutions on made-up pictures, as somebody would try an idea with.

It uses a fraction of a large GPU, because Python launches its kernels more slowly than they run. Each `what` that
happens is a line of JSON in --log, with the time of the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from statistics import median

import torch
from torch import nn

from jobyard.sdk import yard_job

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BATCH = 64 if CUDA else 8


class Trainer:
    def __init__(self) -> None:
        torch.set_num_threads(2)
        torch.manual_seed(0)
        self.pictures = torch.randint(0, 256, (2048, 3, 32, 32), dtype=torch.uint8)
        self.labels = torch.randint(0, 10, (2048,))
        widths = (3, 32, 32, 64, 64, 128) if CUDA else (3, 8)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [
                nn.Conv2d(before, after, 3, stride=after // before if before > 3 else 1, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10)).to(DEVICE)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self) -> None:
        chosen = torch.randint(0, len(self.pictures), (BATCH,))
        pictures = self.pictures[chosen].to(DEVICE, non_blocking=True).float().div_(255)
        labels = self.labels[chosen].to(DEVICE, non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(pictures), labels).backward()
        self.optimizer.step()

    def warm_up(self) -> None:
        for _ in range(20):
            self.step()
        settle()

    def save(self, path: str) -> None:
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path + ".new")
        os.replace(path + ".new", path)

    def load(self, path: str) -> None:
        state = torch.load(path, map_location=DEVICE)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def settle() -> None:
    """What was launched is done."""
    if CUDA:
        torch.cuda.synchronize()


class Log:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, what: str, **more: float) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            print(json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **more}), file=file)


def steps(log: Log, number: int, seconds: float) -> None:
    """So many steps, or as many as fit: nothing but training."""
    trainer = Trainer()
    trainer.warm_up()
    log("begin")
    begin, done = time.monotonic(), 0
    while done < number if number else time.monotonic() - begin < seconds:
        trainer.step()
        done += 1
        if done % 50 == 0:
            settle()  # as somebody who prints the loss now and then
    settle()
    log("end", steps=done, seconds=time.monotonic() - begin, batch=BATCH)


def epochs(log: Log, number: int, seconds: float) -> None:
    """Epochs of a given length, each saved: what is asked to stop."""
    job = yard_job()
    path = os.path.join(str(job.checkpoint_dir), "state.pt")
    trainer = Trainer()
    if os.path.exists(path):
        trainer.load(path)
    trainer.warm_up()
    try:
        for epoch in job.epochs(number):
            begin = time.monotonic()
            log("epoch", number=epoch)
            while time.monotonic() - begin < seconds:
                trainer.step()
                job.step()
                settle()
            log("epoch-done", number=epoch)
            trainer.save(path)
            job.saved()
            log("saved", number=epoch)
    finally:
        log("leaves")  # what comes after is Python, torch and CUDA putting themselves away


def overhead(log: Log, blocks: int, each: int) -> None:
    """What `step()` costs: timed around each call, and as the difference of steps with and without it."""
    job = yard_job()
    trainer = Trainer()
    trainer.warm_up()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    calls: list[int] = []
    clock = time.perf_counter_ns
    job.start_epoch()
    for block in range(2 * blocks):
        reports = block % 4 in (0, 3)  # with, without, without, with: what drifts hits both alike
        begin = time.perf_counter()
        for _ in range(each):
            trainer.step()
            if reports:
                before = clock()
                job.measure()
                calls.append(clock() - before)
        settle()
        seconds[reports].append((time.perf_counter() - begin) / each)
    job.end_epoch()
    log(
        "overhead",
        step_seconds=median(seconds[False]),
        step_seconds_reporting=median(seconds[True]),
        call_seconds_mean=sum(calls) / len(calls) / 1e9,
        call_seconds_median=median(calls) / 1e9,
        call_seconds_most=max(calls) / 1e9,
        calls=len(calls),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["steps", "epochs", "overhead"])
    parser.add_argument("--log", required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    log = Log(options.log)
    log("start")
    if options.mode == "steps":
        steps(log, options.number, options.seconds)
    elif options.mode == "epochs":
        epochs(log, options.number, options.seconds)
    else:
        overhead(log, 100 if CUDA else 5, 50)


if __name__ == "__main__":
    main()
