"""What does the yard do with a GPU? `measure.py share|oom|whole|preempt|overhead DIR`: a line of JSON for each figure.

    share     two small jobs at once on one GPU against one after the other, in samples per second
    oom       CUDA runs out of memory: how does it go on, without anybody's help?
    whole     a job that had the whole GPU and runs out of its memory: how often is that tried in vain?
    preempt   how long after the end of its epoch is a job gone that was asked to stop?
    overhead  what `measure()` costs a step of a small training

Called by run.sh, which says where things are. Without a GPU it runs with fake ones, to see that it runs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, TypeVar

import record

HERE = Path(__file__).resolve().parent
MIB_SMALL = 8192  # what a small job declares: its own memory, torch's cache and CUDA's context
T = TypeVar("T")


class Yard:
    """A yard of its own, by the command line alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "yard").mkdir(parents=True)  # a verb that only looks makes none
        self.python = os.environ.get("TASK_PYTHON", sys.executable)
        not_ours = ("YARD_", "CUDA_VISIBLE_DEVICES")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(not_ours)}
        self.env |= {"YARD_DIR": str(directory / "yard"), "HOME": str(directory), "XDG_RUNTIME_DIR": str(directory)}
        self.env |= {"JOBYARD_RESERVATIONS_DIR": str(directory / "reservations")}
        if not has_gpu():
            self.env.setdefault("JOBYARD_FAKE_GPUS", "1x16GiB")
            self.env["JOBYARD_FAKE_GPU_DIR"] = str(directory / "fake-gpus")

    def __call__(self, *words: str, seconds: float | None = 60.0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "jobyard.cli.main", *words],
            env=self.env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        say(f"yard {' '.join(words)} -> {done.returncode} {done.stderr.strip()[-500:]}")
        if done.returncode != 0:
            raise SystemExit(f"yard {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))

    def train(self, log: str, *words: str, flags: tuple[str, ...]) -> str:
        """The id of a job that runs train.py; what it logs is in our directory."""
        command = (self.python, str(HERE / "train.py"), *words, "--log", str(self.directory / log))
        return self("submit", "-q", "--cpus", "0", *flags, "--", *command).strip()

    def log(self, name: str) -> list[dict[str, Any]]:
        path = self.directory / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def job(self, job: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.json("show", job)
        return shown

    def succeeded(self, *jobs: str) -> None:
        """Wait for all; each must succeed."""
        try:
            self("wait", *jobs, seconds=None)  # run.sh ends a part that takes too long
        except SystemExit:
            for job in jobs:
                say(self.quietly("show", job) + self.quietly("logs", job, "--tail", "30"))
            raise

    def close(self) -> None:
        """Keep what was written, then end everything of this yard."""
        out = os.environ.get("OUT")
        if out:
            with open(Path(out) / "yard.log", "a", encoding="utf-8") as target:
                for path in (*self.directory.glob("*.jsonl"), self.directory / "yard/server.log"):
                    if path.exists():
                        target.write(f"== {path}\n{path.read_text(errors='replace')[-100_000:]}\n")
                for words in (["ls", "--all"], ["nodes"]):
                    target.write(f"== yard {' '.join(words)}\n{self.quietly(*words)}\n")
        self.quietly("cancel", "--all", "--force")
        self.quietly("server", "stop", "--force")

    def quietly(self, *words: str) -> str:
        command = [sys.executable, "-m", "jobyard.cli.main", *words]
        try:
            done = subprocess.run(command, env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            return "it did not answer"
        return done.stdout + done.stderr


# -- the figures


def share(yard: Yard, rounds: int = 2) -> None:
    """Each job does the same number of steps; the clock runs from the first step of either to the last of both."""
    seconds = 10.0 if has_gpu() else 2.0
    yard.succeeded(yard.train("calibration.jsonl", "steps", "--seconds", "5", flags=("--gpus", "1")))
    (calibrated,) = (line for line in yard.log("calibration.jsonl") if line["what"] == "end")
    number = max(1, int(seconds * calibrated["steps"] / calibrated["seconds"]))
    figures: dict[str, list[float]] = {"one after the other": [], "shared": []}
    walls: dict[str, list[float]] = {name: [] for name in figures}
    ways = {"one after the other": ("--gpus", "1"), "shared": ("--gpus", "1", "--gpu-mem", f"{MIB_SMALL}MiB")}
    for turn in range(rounds):
        for way, flags in ways.items():
            names = [f"{way.replace(' ', '-')}.{turn}.{each}.jsonl" for each in range(2)]
            begin = time.time()
            jobs = [yard.train(name, "steps", "--number", str(number), flags=flags) for name in names]
            yard.succeeded(*jobs)
            walls[way].append(round(time.time() - begin, 3))
            spans = [(first(yard.log(name), "begin")["at"], first(yard.log(name), "end")["at"]) for name in names]
            if way == "shared":
                busy = max(end for _, end in spans) - min(start for start, _ in spans)
            else:
                busy = sum(end - start for start, end in spans)
            figures[way].append(round(2 * number * calibrated["batch"] / busy, 1))
    ratio = median(figures["shared"]) / median(figures["one after the other"])
    tell("share", {"shared": ratio}, {"shared": 1.5}, figures, unit="samples/s", wall_seconds=walls, steps=number)


def oom(yard: Yard) -> None:
    """A neighbour holds 70 % of the device; a job declares 15 % and takes 45 %: it runs out, and nobody helps it."""
    device = yard.json("nodes")[0]["devices"][0]["memory_mib"]
    hold = (yard.python, str(HERE / "hold.py"))
    declared, needed = device * 15 // 100, device * 45 // 100
    flags = ("submit", "-q", "--cpus", "0", "--gpus", "1", "--gpu-mem")
    begin = time.time()
    yard(*flags, f"{device * 70 // 100}MiB", "--", *hold, str(device * 68 // 100), "40")
    until(lambda: (yard.json("nodes")[0]["devices"][0]["used_mib"] or 0) >= device * 67 // 100, 0.5)
    job = yard(*flags, f"{declared}MiB", "--epochs", "1", "--", *hold, str(needed), "3").strip()
    yard.succeeded(job)
    ended = time.time()
    attempts = yard.json("show", job, "--tasks")
    number = max(task["attempt"] for task in tasks_of(attempts))
    logs = [yard("logs", job, "--attempt", str(each), "--stream", "out") for each in range(1, number + 1)]
    reserved = [int(found) for log in logs for found in re.findall(r"^reserved (\d+) MiB", log, re.MULTILINE)]
    tell(
        "oom",
        {"MiB reserved": reserved[-1] / declared},
        {"MiB reserved": 1.0},
        {"MiB reserved": reserved, "attempts": [number], "seconds to success": [round(ended - begin, 1)]},
        device_mib=device,
        declared_mib=declared,
        needed_mib=needed,
        state=yard.job(job)["state"],
    )


def whole(yard: Yard) -> None:
    """A job takes a tenth more than the only device has. No further attempt can help it, and it says what it needs."""
    device = yard.json("nodes")[0]["devices"][0]["memory_mib"]
    hold = (yard.python, str(HERE / "hold.py"), str(device * 11 // 10), "3")
    job = yard("submit", "-q", "--cpus", "0", "--gpus", "1", "--epochs", "1", "--", *hold).strip()
    until(lambda: yard.job(job)["state"] == "FAILED", 0.5)
    shown = yard.json("show", job, "--tasks")
    (task,) = tasks_of(shown)
    tell(
        "whole",
        {"attempts": 1 / task["attempt"]},
        {"attempts": 1.0},
        {"attempts": [task["attempt"]]},
        device_mib=device,
        reason=task["reason"],
        message=task["message"],
    )


def preempt(yard: Yard, rounds: int = 4) -> None:
    """Asked in the middle of an epoch; the process is gone when /proc says so, its CUDA context with it."""
    seconds = 3.0
    job = yard.train("epochs.jsonl", "epochs", "--number", "40", "--seconds", str(seconds), flags=training_flags(40))
    late: list[float] = []
    rest: list[float] = []
    save: list[float] = []
    leave: list[float] = []
    back: list[float] = []
    for turn in range(rounds):
        known = len(yard.log("epochs.jsonl"))

        def middle(known: int = known) -> dict[str, Any] | None:
            new = yard.log("epochs.jsonl")[known:]
            return new[-1] if sum(line["what"] == "epoch" for line in new) >= 2 and new[-1]["what"] == "epoch" else None

        epoch = until(middle, 0.05)
        time.sleep(seconds / 4)
        asked = time.time()
        yard("cancel", "--checkpoint", job)
        gone = until(lambda pid=epoch["pid"]: None if is_alive(pid) else time.time(), 0.005)  # type: ignore[misc]
        mine = [line for line in yard.log("epochs.jsonl") if line["pid"] == epoch["pid"]]
        done = [line for line in mine if line["what"] == "epoch-done"][-1]
        saved = [line for line in mine if line["what"] == "saved"][-1]
        rest.append(round(done["at"] - asked, 3))
        late.append(round(gone - done["at"], 3))
        save.append(round(saved["at"] - done["at"], 3))
        leave.append(round(gone - first(mine, "leaves")["at"], 3))
        new = until(lambda pid=epoch["pid"]: after(yard.log("epochs.jsonl"), pid), 0.05)  # type: ignore[misc]
        back.append(round(new["at"] - gone, 3))
        say(f"turn {turn}: asked, {rest[-1]} s to the end of the epoch, gone {late[-1]} s later, back in {back[-1]} s")
    yard("cancel", job)
    figures = {"after the epoch": late, "of that, to save": save, "of that, Python and CUDA end": leave}
    figures |= {"rest of the epoch": rest, "first epoch again": back}
    tell("preempt", {"after the epoch": 1.0 / max(late)}, {"after the epoch": 1.0}, figures, unit="s")


def overhead(yard: Yard) -> None:
    job = yard.train("overhead.jsonl", "overhead", flags=training_flags(1))
    yard.succeeded(job)
    found = first(yard.log("overhead.jsonl"), "overhead")
    share_of_step = found["call_seconds_mean"] / found["step_seconds"]
    figures = {
        "measure() in microseconds": [round(found["call_seconds_mean"] * 1e6, 3)],
        "its median": [round(found["call_seconds_median"] * 1e6, 3)],
        "its longest": [round(found["call_seconds_most"] * 1e6, 1)],
        "a step in microseconds": [round(found["step_seconds"] * 1e6, 1)],
        "a step that reports": [round(found["step_seconds_reporting"] * 1e6, 1)],
        "percent of a step": [round(100 * share_of_step, 4)],
    }
    tell(
        "overhead",
        {"percent of a step": 0.001 / share_of_step},
        {"percent of a step": 1.0},
        figures,
        calls=found["calls"],
    )


# -- what they share


def training_flags(epochs: int) -> tuple[str, ...]:
    return ("--gpus", "1", "--gpu-mem", f"{MIB_SMALL}MiB", "--epochs", str(epochs))


def tell(part: str, ratios: record.Ratios, bars: record.Ratios, figures: dict[str, Any], **more: Any) -> None:
    line = json.loads(record.line(f"gpu-{part}", ratios=ratios, bars=bars, figures=figures, gpu=gpu_name(), **more))
    line["command"] = "bash benchmarks/gpu/run.sh"
    carried = record.REPOSITORY / ".carry/commit"
    if line["commit"] == "uncommitted" and carried.exists():
        line["commit"] = carried.read_text().strip()
    print(json.dumps(line), flush=True)


def gpu_name() -> str:
    done = shell("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return done or "none: a fake one, figures mean nothing"


def has_gpu() -> bool:
    return bool(shell("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))


def shell(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first(lines: list[dict[str, Any]], what: str) -> dict[str, Any]:
    return next(line for line in lines if line["what"] == what)


def after(lines: list[dict[str, Any]], pid: int) -> dict[str, Any] | None:
    """The first epoch of the process that came after this one."""
    last = max(number for number, line in enumerate(lines) if line["pid"] == pid)
    return next((line for line in lines[last + 1 :] if line["what"] == "epoch"), None)


def tasks_of(shown: Any) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = shown["tasks"] if isinstance(shown, dict) else shown
    return tasks


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def until(look: Callable[[], T | None], pause: float) -> T:
    """run.sh ends a part that waits too long."""
    while not (found := look()):
        time.sleep(pause)
    return found


def say(text: str) -> None:
    print(f"{time.strftime('%T')} {text}", file=sys.stderr, flush=True)


def give_up(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit("it took too long")


def main() -> None:
    signal.signal(signal.SIGTERM, give_up)
    part, directory = sys.argv[1], Path(sys.argv[2])
    known = (share, oom, whole, preempt, overhead)
    parts: dict[str, Callable[[Yard], None]] = {each.__name__: each for each in known}
    yard = Yard(directory)
    try:
        parts[part](yard)
    finally:
        yard.close()


if __name__ == "__main__":
    main()
