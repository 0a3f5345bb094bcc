"""Four epochs with Keras; `model` as an argument: a ModelCheckpoint after the yard's callback, no backup before."""

import sys
from typing import Any

import keras

from jobyard.sdk.keras import YardCallback
from tests.training.callbacks.asking import ask_in_second_epoch


class Ask(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        ask_in_second_epoch(self.epoch)


keras.utils.set_random_seed(0)
yard = YardCallback()
path = yard.job.checkpoint_dir / "model.keras"
if path.exists():
    model = keras.models.load_model(path)
else:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
if "model" in sys.argv:
    callbacks = [yard, keras.callbacks.ModelCheckpoint(str(path)), Ask()]
    first = yard.job.epochs_done
else:
    callbacks = [keras.callbacks.BackupAndRestore(str(yard.job.checkpoint_dir / "backup")), yard, Ask()]
    first = 0
inputs = keras.random.normal((40, 4), seed=0)
sums = keras.ops.sum(inputs, axis=1)
fit = model.fit(
    inputs, sums, epochs=4, initial_epoch=first, batch_size=8, shuffle=False, callbacks=callbacks, verbose=0
)
print("result", fit.epoch[-1], float(fit.history["loss"][-1]).hex())
