"""Runs examples/digits.py on Keras's backend: `python digits_losses.py OUTPUT [PRETRAINED]`.

Prints a line of JSON: its accuracies, and the losses of the first steps of its two jobs, from the
same weights on every backend: random ones from a seed, and the classifier PRETRAINED (by default
the one that this run trains).
"""

import contextlib
import dataclasses
import json
import pathlib
import runpy
import sys

import keras
import numpy as np

from keras_vit.training import finetune, pretrain
from keras_vit.training.run import classes

DIGITS = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "digits.py"))
STEPS = 10
OUTPUT = pathlib.Path(sys.argv[1])
PRETRAINED = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else OUTPUT / "pretrained")


class FirstSteps(keras.callbacks.Callback):
    """Records the loss of each of the first steps, and stops after them."""

    def __init__(self):
        super().__init__()
        self.sums = [0.0]

    def on_train_batch_end(self, batch, logs=None):
        # The mean of the steps until now: no row of the history comes before the last of them.
        self.sums.append(float(logs["loss"]) * len(self.sums))
        self.model.stop_training = len(self.sums) > STEPS

    @property
    def losses(self):
        return np.diff(self.sums).tolist()


def build_from_seed(plan, build=classes.build_classifier):
    """Replaces random weights by those that NumPy draws."""
    model, origin = build(plan)
    if origin == "random":
        rng = np.random.default_rng(0)
        for variable in model.trainable_variables:
            if not variable.path.endswith("gamma"):
                variable.assign(rng.normal(0, 0.05, variable.shape))
    return model, origin


def first_losses(train, part, settings):
    first = FirstSteps()
    output = OUTPUT / f"first_{train.__name__}"
    train(OUTPUT / "images" / part, output, settings, callbacks=[first], log=lambda line: None)
    return first.losses


with contextlib.redirect_stdout(sys.stderr):
    accuracies = DIGITS["main"](OUTPUT)
transfer = dataclasses.replace(DIGITS["TRANSFER"], weights=str(PRETRAINED))
classes.build_classifier = build_from_seed
outcome = {
    "backend": keras.backend.backend(),
    "pretraining": first_losses(pretrain, DIGITS["FIRST"], DIGITS["PRETRAINING"]),
    "transfer": first_losses(finetune, DIGITS["SECOND"], transfer),
    "accuracies": accuracies,
}
print(json.dumps(outcome))
