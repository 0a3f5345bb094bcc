"""Training job: how does a training script report epochs, steps and checkpoints, and learn that it must stop?"""

from __future__ import annotations

import atexit
import os
from time import perf_counter, time

from jobyard.agent_protocol.exit_codes import PREEMPTED_EXIT_CODE
from jobyard.sdk.agreement import agree, torch_ranks
from jobyard.sdk.environment import flag, is_rank_zero, number_or, rank, warn, whole_number
from jobyard.sdk.reporter import Reporter
from jobyard.sdk.saved_epochs import SavedEpochs
from jobyard.sdk.spool import as_numbers
from jobyard.sdk.step_times import StepTimes
from jobyard.sdk.stopping import LOOK_SECONDS, StopListener, listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobyard.sdk.spool import Record

HEARTBEAT_STEPS = 100


def job_from_environment() -> YardJob:
    return YardJob(
        total=whole_number("YARD_EPOCHS", least=1),
        done=number_or("YARD_EPOCHS_DONE", 0),
        resumed=flag("YARD_RESUMED"),
        heartbeat=number_or("YARD_HEARTBEAT", HEARTBEAT_STEPS, least=1),
        reports=is_rank_zero(),
    )


class YardJob:
    """One training in this process. Every call may be made on every rank; only rank 0 reports.

    Nothing is said before the first epoch or step: a process that only imports the script, as the workers of a data
    loader do, stays silent, and so does a forked copy.
    """

    def __init__(
        self,
        *,
        total: int | None = None,
        done: int = 0,
        resumed: bool = False,
        heartbeat: int = HEARTBEAT_STEPS,
        reports: bool = True,
        stops_in_first_step: bool = False,
    ) -> None:
        self.resumed = resumed
        self._total = total
        self._done = done
        self._stops_in_first_step = stops_in_first_step
        self._has_yard = bool(os.environ.get("YARD_SPOOL") or os.environ.get("YARD_STOP_FILE"))
        self._starts_epochs = False  # the script calls `start_epoch` itself
        self._has_greeted = False
        self._has_started = False
        self._look_at = 0.0
        self._metrics: dict[str, object] = {}
        self._stop_request = StopListener(os.environ.get("YARD_STOP_FILE", ""))
        self._times = StepTimes(perf_counter())
        self._saved = SavedEpochs(done)
        self._reporter = Reporter(is_rank_zero=reports, heartbeat=heartbeat)

    # ---------------------------------------------------------------------------------------------- looking

    @property
    def epochs_done(self) -> int:
        """Epochs that are over, those of earlier attempts included."""
        return self._done

    @property
    def epochs_total(self) -> int | None:
        return self._total

    @property
    def steps(self) -> int:
        """Steps of this attempt."""
        return self._times.steps

    @property
    def step_seconds(self) -> float:
        """Mean seconds of a step of this attempt; time outside epochs does not count."""
        return self._times.mean_seconds

    @property
    def rank(self) -> int:
        ranks = torch_ranks()
        return int(ranks.get_rank()) if ranks is not None else rank()

    @property
    def world_size(self) -> int:
        ranks = torch_ranks()
        return int(ranks.get_world_size()) if ranks is not None else number_or("WORLD_SIZE", 1, least=1)

    @property
    def checkpoint_dir(self) -> Path:
        """A directory that outlives this attempt. Made if it is missing; one that cannot be written is told, once."""
        from pathlib import Path  # takes longer than all else here together

        path = Path(os.environ.get("YARD_CHECKPOINT_DIR") or "checkpoints").absolute()
        if self.resumed and not path.is_dir():
            warn(f"this job was to resume, but its checkpoint directory {path} is missing; a new one is made.")
        usable_directory(str(path))
        return path

    @property
    def should_stop(self) -> bool:
        """Somebody asked this process to stop at its next checkpoint. Cheap: looks at a file once a second.

        Ranks may see it at different steps: in a gang, ask `agrees_to_stop()` on all of them instead.
        """
        return self._stop_request.look(perf_counter())

    # ---------------------------------------------------------------------------------------------- epochs

    def epochs(self, total: int | None = None, *, start: int | None = None) -> Iterator[int]:
        """The epochs still to do, counted from 0 over all attempts. Ends the process between two of them if asked to.

        `total` is what the script wants; without it, what the yard was told; without that, there is no end.
        `start` is for a checkpoint that knows better than the yard how many epochs it has.
        """
        self.plan(total, start)
        if self._total is not None and self._done > self._total:
            warn(f"{self._done} epochs are done, but only {self._total} were asked for; nothing is left to train.")
        while self._total is None or self._done < self._total:
            self.start_epoch()
            yield self._done
            if self._times.is_in_epoch:
                self.end_epoch()
        self._release()

    def plan(self, total: int | None = None, done: int | None = None) -> None:
        """How many epochs there are, and how many the loaded checkpoint has; None: as the yard was told."""
        before = self._total, self._done
        if total is not None:
            self._total = total
        if done is not None and done != self._done:
            self._done = self._saved.count = done
        self._hello(again=before != (self._total, self._done))

    def start_epoch(self) -> None:
        """An epoch begins. Here the process ends with code 85 if it was asked to stop and all that is done is saved."""
        self._starts_epochs = True
        self._hello()
        self._listen()
        self._release()
        self._leave_if_asked()
        self._begin(perf_counter())

    def measure(self) -> None:
        """One training step is done. A counter and a clock; once a second a look at the stop file, and a report."""
        times = self._times
        times.last = now = perf_counter()
        times.steps += 1
        if now >= self._look_at:
            self._look(now)

    def step(self, /, **metrics: object) -> None:
        """`metrics()` and `measure()` in one."""
        if metrics:
            self.metrics(**metrics)
        self.measure()

    def metrics(self, /, **values: object) -> None:
        """What to show beside the progress. Tensors are welcome: they are read only when a report is due."""
        for name, value in values.items():
            detach = getattr(value, "detach", None)  # otherwise the whole graph behind a loss would stay in memory
            self._metrics[name] = detach() if detach is not None else value

    report = metrics

    def end_epoch(self) -> None:
        """An epoch is over. Never ends the process: people save after it."""
        times = self._times
        if not times.is_in_epoch and self._starts_epochs:
            return
        self._hello()
        now = perf_counter()
        records = [self._steps_record()] if times.steps_in_epoch else []
        self._done += 1
        epoch: Record = {"t": "epoch", "at": time(), "done": self._done, **times.end_epoch(now)}
        epoch["metrics"] = as_numbers(self._metrics)
        self._look_at = 0.0
        self._reporter.say(records + self._saved.end_epoch(epoch, self._done, times.steps), now)

    # ---------------------------------------------------------------------------------------------- saving, stopping

    def saved(self, seconds: float | None = None) -> None:
        """A checkpoint is complete; it took so many seconds. After an epoch's last step, it covers that epoch."""
        self._hello()
        step = self._times.steps if self._times.is_in_epoch else -1
        self._reporter.say(self._saved.save(self._done, step, seconds), perf_counter())

    def tell_saves(self) -> None:
        """`saved()` will be called: until then, nothing is saved, however many epochs are over."""
        self._saved.are_told = True

    def agrees_to_stop(self) -> bool:
        """`should_stop`, agreed by all ranks of torch.distributed. To be called on all of them, equally often."""
        return self._agree_to_stop(True)

    def stop(self) -> None:
        """End the process with code 85, after `should_stop` and a checkpoint. If nobody asked, warn and go on."""
        if not self._stop_request.look(perf_counter(), at_once=True) and torch_ranks() is None:
            warn("stop() is for a job that was asked to stop, and this one was not; it goes on.")
            return
        self.leave()

    @property
    def is_saved(self) -> bool:
        """All epochs that are over are in the newest checkpoint, as far as the script tells of checkpoints."""
        return self._saved.include(self._done)

    def can_stop_after(self, epochs: int) -> bool:
        """Whether stopping with so many epochs done leaves more than the last one, which is never cut off."""
        return self._total is None or epochs < self._total - 1

    def leave(self) -> None:
        """End the process with code 85: the decision was made, and agreed on, before."""
        self._release()
        done = self._saved.count if self._saved.are_told else self._done
        self._reporter.say([{"t": "yield", "at": time(), "done": done}], perf_counter())
        raise SystemExit(PREEMPTED_EXIT_CODE)

    # ---------------------------------------------------------------------------------------------- inside

    def _leave_if_asked(self) -> None:
        if self._agree_to_stop(self.can_stop_after(self._done) and self.is_saved):
            self.leave()

    def _agree_to_stop(self, can_stop: bool) -> bool:
        return agree(self._stop_request.look(perf_counter(), at_once=True), can_stop)

    def _begin(self, now: float, *, first_step_is_done: bool = False) -> None:
        self._times.start_epoch(now, first_step_is_done=first_step_is_done)
        self._saved.start_epoch()
        self._look_at = 0.0
        if not self._has_started:
            self._has_started = True
            self._reporter.say([{"t": "start", "at": time()}], now)

    def _look(self, now: float) -> None:
        """What `measure()` does at most once a second, and at the first step of an epoch."""
        times = self._times
        if not times.is_in_epoch and not self._starts_epochs:
            self._hello()
            self._release()
            self._begin(now, first_step_is_done=True)
        self._look_at = now + LOOK_SECONDS
        self._stop_request.look(now)
        if self._stops_in_first_step and times.is_in_epoch and times.steps_in_epoch == 1:
            self._leave_if_asked()
        if self._reporter.is_due(times.steps, now):
            self._reporter.say([self._steps_record()], now)

    def _hello(self, *, again: bool = False) -> None:
        """Reported at the first sign of training, and again when the number of epochs changes."""
        if self._has_greeted and not again:
            return
        if not self._has_greeted:
            self._listen()
            atexit.register(self._at_exit)
        self._has_greeted = True
        hello: Record = {"t": "hello", "at": time(), "epochs": self._total, "done": self._done}
        self._reporter.say([{**hello, "yields": True, "resumed": self.resumed}], perf_counter())

    def _listen(self) -> None:
        """Repeated at each epoch: a framework may have set a signal handler of its own."""
        if self._has_yard and self._reporter.is_own_process:
            listen(os.environ.get("YARD_STOP_FILE", ""))

    def _release(self) -> None:
        """Report finished epochs, unless `saved()` is still to come: a script that goes on has saved what it wanted."""
        if finished := self._saved.take_unless_told():
            self._reporter.say(finished, perf_counter())

    def _at_exit(self) -> None:
        """Report the last epoch, which may not be saved: the agent counts it if the process ends well."""
        if held := self._saved.take_held():
            told = {name: held[-1][name] for name in ("at", "done", "seconds", "steps")}
            self._reporter.say([{"t": "ended", **told}], perf_counter())

    def _steps_record(self) -> Record:
        times = self._times
        self._reporter.note_steps(times.steps)
        means = {"steps": times.steps, "step_seconds": round(times.mean_seconds, 9)}
        return {"t": "steps", "at": time(), **means, "metrics": as_numbers(self._metrics)}


def usable_directory(path: str) -> bool:
    """Make it if it is missing; tell, once, if it cannot be written."""
    try:
        os.makedirs(path, exist_ok=True)
        problem = "" if os.access(path, os.W_OK | os.X_OK) else "no permission"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        warn(f"checkpoints cannot be written to {path} ({problem}); training goes on, but could not be resumed.")
    return not problem
