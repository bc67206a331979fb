"""Plans of training runs, for all tests."""

import os
import signal

import keras

from keras_vit.training.data.spec import data_spec
from keras_vit.training.run import finetune
from keras_vit.training.run.start import start
from keras_vit.training.settings import FineTuning, RunOptions
from makers import tiny_config


def tiny_settings(**changes):
    """Settings of a run of a few steps from random weights."""
    few = {"image_size": (12, 8), "steps": 12, "batch_size": 6, "accumulate": 1, "validation": 0.2}
    given = {"model": tiny_config(), "weights": None, "learning_rate": 0.1, "samples": "none"}
    given |= few | changes  # Without samples there are no pictures to make for the page.
    return FineTuning(**given)


class SignalAt(keras.callbacks.Callback):
    """Sends this process a signal before a step."""

    def __init__(self, step, number=signal.SIGINT):
        super().__init__()
        self.step, self.number = step, number

    def on_train_batch_begin(self, batch, logs=None):
        if batch + 1 == self.step:
            os.kill(os.getpid(), self.number)


def silent(text):
    """Prints nothing."""


def run_of(data, output, settings, **options):
    """Returns the run that `finetune` would start.

    Args:
        data: As for `finetune`.
        output: The folder to write.
        settings: The settings.
        **options: Fields of `RunOptions`.
    """
    return start(data_spec(data), RunOptions(output, **{"log": silent, **options}), settings)


def plan_of(data, output, settings):
    """Returns the plan of the run that `finetune` would start."""
    return finetune.plan_of(run_of(data, output, settings))


def begin(data, output, settings):
    """Leaves a run that was stopped before its first step."""
    started = run_of(data, output, settings)
    objective = finetune.objective_of(started.settings)
    with started.running():
        plan = finetune.plan_of(started)
        started.add(plan.record)
        model, _ = objective.build(plan)
        objective.begin(started, plan, started.check_unchanged(plan.source, model), 0)


def build_model(plan):
    """Returns the model of a plan, and a text on its weights."""
    return finetune.objective_of(plan.all_settings).build(plan)
