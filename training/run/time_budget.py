"""The time of a run: the least before it begins, and the steps that fit into some minutes."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_vit.description import describe
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.fields import required

from .folder import Checkpoints

_MIN_EXECUTIONS = 4  # After the first one, which compiles.
_MAX_SECONDS = 10.0  # The longest measurement, and its largest share of the time:
_MAX_SHARE = 0.05
_USED = 0.97  # Share of the time that is left; steps vary.
_SIDE = 1024  # Rows of the matrices whose product shows the rate of this machine.
# Operations of a step in units of an answer's: the backward pass takes two, for the gradients of
# activations and of weights.
_PASSES = {"all": 3, "lora": 2, "head": 1}


def least_time(
    settings: Settings, config: Any, steps: int, evaluated: int, devices: int = 1
) -> str:
    """Returns the least time of a run on this machine, for the plan, as "at least 12 min ...".

    It is the time of the operations at the rate of a matrix product, which no step exceeds. Reading
    images, augmentation, compiling and all that is no matrix product come in addition.

    Args:
        settings: Resolved settings.
        config: The model's config.
        steps: Steps that are left.
        evaluated: Images that are evaluated in the run, counted every time.
        devices: Devices that share a batch.
    """
    cost = describe(config, input_shape=(*required(settings.image_size, "image_size"), 3))
    passes = _PASSES[getattr(settings, "train", "all")] + settings.remat
    images = passes * steps * settings.batch_size + evaluated
    rate = devices * matrix_rate(settings.precision.removeprefix("mixed_"))
    operations, seconds = images * cost.flops, round(images * cost.flops / rate)
    hours, minutes = divmod(seconds // 60, 60)
    time_text = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"
    return (
        f"at least {time_text}: {operations:.2g} operations at {rate / 1e9:.0f} GFLOP/s, now the "
        "rate of a matrix product; more for reading, compiling and augmentation"
    )


def matrix_rate(dtype: str) -> float:
    """Returns the operations per second of a product of two matrices on the first device.

    Args:
        dtype: "float32", "bfloat16" or "float16".
    """
    matrix = keras.ops.ones((_SIDE, _SIDE), dtype)

    def seconds():
        began = time.perf_counter()
        keras.ops.convert_to_numpy(keras.ops.matmul(matrix, matrix)[0, 0])  # Waits for the device.
        return time.perf_counter() - began

    return 2 * _SIDE**3 / min(seconds() for _ in range(5))


@dataclasses.dataclass(frozen=True)
class MeasuredTimes:
    """The seconds of the parts of a run on this machine.

    Args:
        start: Reading the list of images, making the model, and the first execution, which
            compiles.
        end: The first evaluation of a model, which compiles, and reading the classifier again.
        step: An optimizer step.
        save: Writing a state.
        image: Evaluating an image.
    """

    start: float
    end: float
    step: float
    save: float
    image: float


class _Clock(keras.callbacks.Callback):
    """Ends `fit` as soon as enough executions are timed."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.times = [time.monotonic()]

    def on_train_batch_end(self, batch, logs=None):
        float(logs["loss"])  # Waits for the device.
        self.times.append(time.monotonic())
        enough = len(self.times) > _MIN_EXECUTIONS + 1
        if enough and self.times[-1] - self.times[1] > self.seconds:
            self.model.stop_training = True


def measure(
    trainer: Trainer,
    batches: Iterable,
    *,
    prepared: float,
    seconds: float,
    executed: int,
    validate: Callable[[], Any] | None,
    images: int,
) -> MeasuredTimes:
    """Trains a few steps and times them; the trainer is not to be used after that.

    Args:
        trainer: A compiled trainer.
        batches: `(images, labels)` without an end.
        prepared: Seconds of reading the list of images and making the model.
        seconds: The time of the run.
        executed: Steps that are run at once.
        validate: Function that evaluates some images, or None.
        images: The number of these images.
    """
    clock = _Clock(min(_MAX_SECONDS, _MAX_SHARE * seconds))
    trainer.fit(batches, steps_per_epoch=10**6 * executed, verbose=0, callbacks=[clock])
    durations = np.diff(clock.times).tolist()
    with tempfile.TemporaryDirectory() as scratch:
        began = time.monotonic()
        Checkpoints(pathlib.Path(scratch)).save(trainer)
        save = time.monotonic() - began
    of_image = compiling = 0.0
    if validate is not None:
        began = time.monotonic()
        validate()
        compiling, began = time.monotonic() - began, time.monotonic()
        validate()
        of_image = (time.monotonic() - began) / images
    return MeasuredTimes(
        start=prepared + durations[0] + compiling,
        end=prepared + compiling + 3 * save,  # The folder has the weights three times.
        # The mean, as short pauses recur.
        step=statistics.fmean(durations[1:]) / executed,
        save=save,
        image=of_image,
    )


@dataclasses.dataclass(frozen=True)
class TimeBudget:
    """The steps that fit, and the time that they are expected to take.

    Args:
        minutes: The time of the run.
        steps: The optimizer steps, a multiple of the steps that are run at once.
        expected: Seconds from the start of the run to its end.
        times: What was measured.
    """

    minutes: float
    steps: int
    expected: float
    times: MeasuredTimes

    @property
    def fact(self) -> dict[str, Any]:
        """The entry of `recipe.json`, which the plan and the model card print."""
        minutes, seconds = divmod(round(self.expected), 60)
        return {
            "value": self.minutes,
            "from": f"{self.steps} steps of {self.times.step:.3g} s, measured; expected "
            f"{minutes} min {seconds} s",
        }


def steps_within(
    minutes: float,
    elapsed: float,
    times: MeasuredTimes,
    *,
    executed: int,
    evaluate_every: int | None,
    validation: int,
    test: int,
) -> TimeBudget:
    """Returns the steps of a run that ends after so many minutes.

    Args:
        minutes: The time of the run from its start.
        elapsed: Seconds that have passed since.
        times: What was measured.
        executed: Steps that are run at once.
        evaluate_every: Steps between two validations; None for a tenth of the run.
        validation: Images of a validation, of weights and averages together.
        test: Images that are evaluated at the end.

    Raises:
        ValueError: If not one execution fits.
    """
    pause = times.save + validation * times.image
    fixed = times.start + test * times.image + times.end
    step = times.step
    if evaluate_every is None:
        fixed += 10 * pause
    else:
        step += pause / evaluate_every
    left = _USED * (60 * minutes - elapsed) - fixed
    steps = math.floor(left / step / executed) * executed if left > 0 else 0
    if steps < executed:
        needed = (elapsed + (fixed + step * executed) / _USED) / 60
        raise ValueError(
            "The time must be enough for a step, its validations and the evaluation, "
            f"{needed:.1f} minutes on this machine. Received: minutes={minutes:g}"
        )
    return TimeBudget(minutes, steps, elapsed + fixed + steps * step, times)
