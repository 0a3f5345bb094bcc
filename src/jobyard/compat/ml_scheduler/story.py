"""Console lines: what does ml-scheduler print when a line starts, ends or fails?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jobyard.compat.ml_scheduler.batch import Line, Run
from jobyard.model.events import AttemptsFinished, AttemptsStarted, Event, SlotOpened, TasksAssigned
from jobyard.model.job import Reason, State
from jobyard.model.task import Slot
from jobyard.wire.views import TaskView


def limit_lines(machines: Sequence[str], choices: Sequence[Sequence[int]]) -> list[str]:
    limits = {machine: len(chosen) for machine, chosen in zip(machines, choices, strict=True)}
    return [f"machine limits:  {limits}", f"machine gpu choices: {[list(chosen) for chosen in choices]}"]


def skip_line(line: Line) -> str:
    return (
        f"WARNING: job results already exists for line {line.number}, skipping evaluation: delete if you wish to rerun"
    )


def export_prefix(devices: Iterable[int]) -> str:
    chosen = ",".join(map(str, devices))
    return f"export CUDA_VISIBLE_DEVICES={chosen} && " if chosen else ""


class Story:
    """Returns each line once: `hear` for an event, `unreported` at the end for what no event reported."""

    def __init__(self, runs: Mapping[str, Run], *, shows_gpus: bool) -> None:
        self._runs = runs
        self._shows_gpus = shows_gpus
        self._opened: dict[str, Slot] = {}
        self._devices: dict[tuple[str, int], tuple[int, ...]] = {}  # of tasks that were sent to a machine
        self._started: dict[tuple[str, int], int] = {}  # the newest attempt that was printed
        self._ended: set[tuple[str, int]] = set()

    @property
    def is_over(self) -> bool:
        return len(self._ended) >= sum(len(run.lines) for run in self._runs.values())

    def hear(self, event: Event) -> Iterator[str]:
        match event:
            case SlotOpened(slot=slot) if slot.job in self._runs:
                self._opened[slot.id] = slot
            case TasksAssigned(slot=slot_id, ranges=ranges) if slot_id in self._opened:
                slot = self._opened[slot_id]
                for first, last in ranges:
                    devices = tuple(piece.index for piece in slot.placement.devices)
                    self._devices.update(((slot.job, task), devices) for task in range(first, last + 1))
            case AttemptsStarted(items=items):
                for started in items:
                    if started.attempt.job in self._runs:
                        yield from self._start(started.attempt.job, started.attempt.task, started.attempt.number)
            case AttemptsFinished(items=items):
                for ended in items:
                    job, task, number = ended.attempt
                    # One that lost its machine runs again elsewhere: that is no end.
                    is_end = ended.outcome.reason is not Reason.NODE_LOST
                    if job in self._runs and is_end and number >= self._started.get((job, task), 0):
                        yield from self._start(job, task, number)
                        yield from self._end(job, task, "finished" if ended.outcome.succeeded else "failed")

    def unreported(self, job: str, tasks: Iterable[TaskView]) -> Iterator[str]:
        """The lines for ended tasks that no event reported; a task that never started has none."""
        for task in tasks:
            if task.state.is_final and task.attempt:
                self._devices.setdefault((job, task.number), task.devices)
                yield from self._start(job, task.number, task.attempt)
                yield from self._end(job, task.number, "finished" if task.state is State.SUCCEEDED else "failed")

    def _start(self, job: str, task: int, attempt: int) -> Iterator[str]:
        if self._started.get((job, task), 0) < attempt and (job, task) not in self._ended:
            self._started[(job, task)] = attempt
            line = self._runs[job].lines[task]
            prefix = export_prefix(self._devices.get((job, task), ())) if self._shows_gpus else ""
            yield f"started: {line.name};  {prefix}{line.text}"

    def _end(self, job: str, task: int, how: str) -> Iterator[str]:
        if (job, task) not in self._ended:
            self._ended.add((job, task))
            line = self._runs[job].lines[task]
            yield f"{how}: {line.name}; {line.text}"
