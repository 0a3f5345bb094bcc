"""Keras callback: how does `fit` report epochs and checkpoints, and stop for a preemption?

yard = YardCallback()
backup = keras.callbacks.BackupAndRestore(yard.job.checkpoint_dir)
model.fit(data, epochs=10, callbacks=[backup, yard])
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

from keras.callbacks import Callback

from jobyard.sdk import YardJob, yard_job

SAVES = ("save", "save_weights")


class YardCallback(Callback):  # type: ignore[misc]
    """Reports epochs, steps, metrics, and every checkpoint that the model writes of itself.

    Those are `model.save` and `model.save_weights`, which `ModelCheckpoint` and `BackupAndRestore` call. A script that
    saves in another way calls `saved()`. Asked to stop, `fit` raises SystemExit with code 85 before the next epoch, if
    all epochs done are saved; no `on_train_end` is called, in which `BackupAndRestore` would remove what it saved.
    """

    def __init__(self, job: YardJob | None = None) -> None:
        super().__init__()
        self.job = yard_job() if job is None else job
        self.job.tell_saves()

    def saved(self, seconds: float | None = None) -> None:
        """A checkpoint is complete that was written in another way."""
        self.job.saved(seconds)

    def on_train_begin(self, logs: Any = None) -> None:
        for name in SAVES:
            if name not in vars(self.model):
                # Not by assignment, which Keras watches: this is no part of the model.
                object.__setattr__(self.model, name, self._telling(getattr(self.model, name)))

    def on_train_end(self, logs: Any = None) -> None:
        for name in SAVES:
            if name in vars(self.model):
                object.__delattr__(self.model, name)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.job.plan((self.params or {}).get("epochs"), epoch)
        self.job.start_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.job.step(**(logs or {}))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.job.metrics(**(logs or {}))
        self.job.end_epoch()

    def _telling(self, save: Any) -> Any:
        def save_and_tell(*args: Any, **options: Any) -> Any:
            begun = perf_counter()
            result = save(*args, **options)
            self.job.saved(perf_counter() - begun)
            return result

        return save_and_tell
