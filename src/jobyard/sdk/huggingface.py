"""Hugging Face callback: how does a `Trainer` report epochs and checkpoints, and stop for a preemption?

yard = YardCallback()
args = TrainingArguments(output_dir=str(yard.job.checkpoint_dir), save_strategy="epoch", ...)
trainer = Trainer(model, args, train_dataset=data, callbacks=[yard])
trainer.train(resume_from_checkpoint=last_complete_checkpoint(args.output_dir))
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from jobyard.sdk import YardJob, yard_job


def last_complete_checkpoint(directory: str) -> str | None:
    """The newest checkpoint of a Trainer that is whole; None: there is none.

    The Trainer writes `trainer_state.json` last. A process that was killed before that left half a checkpoint, and
    `get_last_checkpoint` of transformers names that one.
    """
    complete = [state.parent for state in Path(directory).glob("checkpoint-*/trainer_state.json")]
    steps = {int(number): path for path in complete if (number := path.name.rpartition("-")[2]).isdigit()}
    return str(steps[max(steps)]) if steps else None


class YardCallback(TrainerCallback):  # type: ignore[misc]
    """Reports epochs, steps, metrics, and every checkpoint that training can go on from.

    Asked to stop, it has the trainer save at the end of the epoch, and `train` raises SystemExit with code 85 after the
    next save, this or an earlier one. Not at the end of training, where the trainer may remove all but the best.
    """

    def __init__(self, job: YardJob | None = None) -> None:
        self.job = yard_job() if job is None else job
        self.job.tell_saves()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        epochs = int(state.num_train_epochs)  # of a dataset without a length the trainer does not know: sys.maxsize
        self.job.plan(epochs if 0 < epochs < sys.maxsize else None, int(state.epoch or 0))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.job.start_epoch()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.job.measure()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.job.metrics(**(logs or {}))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.epoch is None or abs(state.epoch - round(state.epoch)) > 1e-6:
            return  # the epoch was left before its end
        self.job.end_epoch()
        if self.job.agrees_to_stop() and self.job.can_stop_after(self.job.epochs_done):
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if getattr(args, "save_only_model", False):
            return  # training cannot resume from weights alone
        self.job.saved()
        if self.job.agrees_to_stop() and self.job.can_stop_after(self.job.epochs_done):
            self.job.leave()
