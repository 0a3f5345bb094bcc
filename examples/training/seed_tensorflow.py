"""The TensorFlow script of the KubeProfiler guide.

Changed: made-up digits instead of MNIST, which would be downloaded; for Keras 3, the checkpoint's name
ends in .weights.h5 and the model is compiled in the strategy's scope.
"""

import os

import numpy as np
import tensorflow as tf

from kubernetesdlprofile import kubeprofiler

prof = kubeprofiler.KubeProfiler()
random = np.random.default_rng(0)
x_train, y_train = random.random((prof.TRAINING_SET_SIZE, 28, 28)), random.integers(10, size=prof.TRAINING_SET_SIZE)
x_test, y_test = random.random((64, 28, 28)), random.integers(10, size=64)
# uses TF_CONFIG to initialize distributed
mirrored_strategy = tf.distribute.MirroredStrategy()
with mirrored_strategy.scope():
    model = tf.keras.models.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28)),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dropout(0.2),
            tf.keras.layers.Dense(10),
        ]
    )
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
checkpoint_filepath = os.path.join(prof.root_dir, "tf_ckpts.weights.h5")
print("checkpoint: ", checkpoint_filepath)
model_checkpoint_callback = tf.keras.callbacks.ModelCheckpoint(
    filepath=checkpoint_filepath, save_weights_only=True, monitor="accuracy", mode="max", save_best_only=True
)


class KubeProfilerCallback(tf.keras.callbacks.Callback):
    def __init__(self, prof):
        super().__init__()
        self.prof = prof

    def on_epoch_begin(self, epoch, logs=None):
        self.prof.start_epoch()

    def on_epoch_end(self, epoch, logs=None):
        self.prof.end_epoch()

    def on_train_batch_end(self, batch, logs=None):
        self.prof.measure()


kube_callback = KubeProfilerCallback(prof)
with mirrored_strategy.scope():
    model.compile(optimizer="adam", loss=loss_fn, metrics=["accuracy"])
batch_size = prof.BATCH_SIZE
epochs = prof.EPOCHS
RESTARTED = prof.RESTARTED
initial_epoch = 0
if RESTARTED:
    model.load_weights(checkpoint_filepath)
    initial_epoch = prof.EPOCHS_DONE
model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
    epochs=epochs,
    initial_epoch=initial_epoch,
    callbacks=[model_checkpoint_callback, kube_callback],
    verbose=2,
)
model.evaluate(x_test, y_test, verbose=2)
