"""A run that may be killed and started again: `python resumable.py FOLDER STEPS PAUSE`.

With TF_CONFIG it is one of several workers. With the PAUSE "step" it prints "here" at step 5 and
waits to be killed; "none" runs to the end and writes the weights to FOLDER/final.npz.
"""

import contextlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.training import Adam, Checkpoints, SoftmaxCrossentropy, Trainer, warmup_schedule

folder, steps, pause = sys.argv[1], int(sys.argv[2]), sys.argv[3]


# First of all: it must come before any other use of TensorFlow.
scope = contextlib.nullcontext()
if keras.backend.backend() == "tensorflow":
    from keras_vit.training import strategy

    scope = strategy("auto", verbose=False).scope()
with scope:
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(4, 16, 2, 32, 2, dropout_rate=0.1)
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=4, classifier_activation=None)
    trainer = Trainer(model, gradient_accumulation_steps=2, ema_momentum=0.9)
    schedule = warmup_schedule(0.01, steps=steps, warmup_steps=2)
    trainer.compile(Adam(schedule, weight_decay=0.1, global_clipnorm=1.0), SoftmaxCrossentropy())
checkpoints = Checkpoints(folder)
start = checkpoints.restore(trainer)
rng = np.random.default_rng(0)
images = rng.standard_normal((steps * 2, 4, 8, 8, 3)).astype("float32")
labels = rng.integers(0, 4, (steps * 2, 4))


def batches():
    return tf.data.Dataset.from_tensor_slices((images[start * 2 :], labels[start * 2 :]))


class Pause(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        trainer.synchronize()
        if pause == "step" and int(trainer.step.numpy()) == 5:
            print("here", flush=True)
            time.sleep(600)


# Two epochs where nothing stops it; the evaluation of step 5 comes after the first.
ends = [end for end in (5, steps) if end > start]
for end in ends:
    trainer.fit(
        batches(),
        steps_per_epoch=end - start,
        verbose=0,
        validation_data=(images[0], labels[0]),
        callbacks=[Pause(), checkpoints.callback(every=2 if pause == "step" else 1)],
    )
    start = end
state = [np.asarray(v) for v in trainer.state_variables()]
np.savez(f"{folder}/final.npz", *state)
