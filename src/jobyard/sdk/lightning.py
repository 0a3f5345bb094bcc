"""PyTorch Lightning callback: how does a trainer report epochs and checkpoints, and stop for a preemption?

yard = YardCallback()
trainer = Trainer(max_epochs=10, default_root_dir=yard.job.checkpoint_dir, callbacks=[yard])
trainer.fit(model, data, ckpt_path=yard.ckpt_path)
"""

from __future__ import annotations

import os
import sys
from time import perf_counter
from typing import Any

from jobyard.sdk import YardJob, yard_job

# Both names are the same library; the script's trainer wants callbacks of the one it imported.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning.callbacks import Callback, Checkpoint
else:
    try:
        from lightning.pytorch.callbacks import Callback, Checkpoint
    except ImportError:
        from pytorch_lightning.callbacks import Callback, Checkpoint


class YardCallback(Callback):  # type: ignore[misc]
    """Reports epochs, steps, metrics, and every checkpoint that training can resume from, whatever saves it.

    Asked to stop, it does so before the next epoch: by then `ModelCheckpoint` has saved what it wanted to; if that does
    not cover the last epoch, the callback saves `yard.ckpt`. `fit` then raises SystemExit with code 85.
    """

    def __init__(self, job: YardJob | None = None) -> None:
        super().__init__()
        self.job = yard_job() if job is None else job
        self.job.tell_saves()

    @property
    def ckpt_path(self) -> str | None:
        """The newest checkpoint below the job's checkpoint directory; None, and so a new start, if there is none."""
        found = [
            os.path.join(directory, name)
            for directory, _, names in os.walk(self.job.checkpoint_dir)
            for name in names
            if name.endswith(".ckpt")
        ]
        return max(found, key=os.path.getmtime, default=None)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or "save_checkpoint" in vars(trainer):
            return
        save_checkpoint = trainer.save_checkpoint

        def save_and_tell(filepath: Any, weights_only: bool | None = None, *args: Any, **options: Any) -> None:
            begun = perf_counter()
            save_checkpoint(filepath, weights_only, *args, **options)
            if not weights_only:  # training cannot resume from weights alone
                self.job.saved(perf_counter() - begun)

        trainer.save_checkpoint = save_and_tell  # Lightning's own hooks run before the file is written
        trainer.callbacks.append(_SaveAfterOthers(self.job))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            vars(trainer).pop("save_checkpoint", None)
            trainer.callbacks[:] = [each for each in trainer.callbacks if not isinstance(each, _SaveAfterOthers)]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        total = trainer.max_epochs
        self.job.plan(total if total is not None and total > 0 else None, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self.job.start_epoch()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step % trainer.log_every_n_steps == 0:
            self.job.metrics(**trainer.callback_metrics)
        self.job.measure()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.job.metrics(**trainer.callback_metrics)
        self.job.end_epoch()


class _SaveAfterOthers(Checkpoint):  # type: ignore[misc]
    """Runs last at the end of an epoch; a save at the start of the next one would count that one as half done."""

    def __init__(self, job: YardJob) -> None:
        super().__init__()
        self.job = job

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        is_asked = self.job.agrees_to_stop()
        if is_asked and not self.job.is_saved and self.job.can_stop_after(self.job.epochs_done):
            trainer.save_checkpoint(self.job.checkpoint_dir / "yard.ckpt")
