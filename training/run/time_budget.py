"""The time of a run: expected before it begins, and the steps that fit into some minutes."""

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
from keras_vit.models.build import build
from keras_vit.prediction import predict_batch
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.fields import required
from keras_vit.utils.progress import ProgressBar

from .folder import Checkpoints
from .transfer import dtype_policy

_MIN_EXECUTIONS = 4  # After the first one, which compiles.
_MAX_SECONDS = 10.0  # The longest measurement, and its largest share of the time:
_MAX_SHARE = 0.05
_USED = 0.97  # Share of the time that is left; steps vary.
_DEPTH = 2  # Blocks of a model that shows the rate of this machine,
_OPERATIONS = 3e10  # and the operations of its answers.
# Operations of a step in units of an answer's: the backward pass takes two, for the gradients of
# activations and of weights.
_PASSES = {"all": 3, "lora": 2, "head": 1}


def time_text(seconds: float) -> str:
    """Returns a time as "1 h 5 min" or "5 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def passes_of(settings: Settings) -> int:
    """Returns the operations of a step's images, in units of the operations of their answers."""
    return _PASSES[getattr(settings, "train", "all")] + int(settings.remat)


def expected_time(settings: Settings, config: Any, steps: int, evaluated: int) -> str:
    """Returns the expected time of a run on one device, for a dry run, as "about 12 min ...".

    It is the time of the operations at the rate of the model's first blocks. Reading images,
    augmentation and compiling come in addition.

    Args:
        settings: Resolved settings.
        config: The model's config.
        steps: Steps that are left.
        evaluated: Images that are evaluated in the run, counted every time.
    """
    shape = (*required(settings.image_size, "image_size"), 3)
    images = passes_of(settings) * steps * settings.batch_size + evaluated
    operations = images * describe(config, input_shape=shape).flops
    rate = answer_rate(config, shape, settings)
    return (
        f"about {time_text(operations / rate)}: {operations:.2g} operations at "
        f"{rate / 1e9:.2g} GFLOP/s, measured on the model's first blocks; more for reading, "
        "compiling and augmentation"
    )


def answer_rate(config: Any, shape: tuple[int, int, int], settings: Settings) -> float:
    """Returns the operations per second of a model's answers on the first device.

    A model of at most two of its blocks, with random weights, answers a few images.

    Args:
        config: The model's config.
        shape: `(H, W, 3)`.
        settings: Resolved settings.
    """
    if getattr(config, "depth", 0) > _DEPTH:
        config = dataclasses.replace(config, depth=_DEPTH)
    flops = describe(config, input_shape=shape).flops
    with dtype_policy(settings.precision):
        model = build(config, weights=None, input_shape=shape)
    count = max(1, min(settings.micro_batch_size, round(_OPERATIONS / flops)))
    images = np.zeros((count, *shape), "float32")
    predict_batch(model, images)  # Compiles.

    def seconds():
        began = time.perf_counter()
        predict_batch(model, images)
        return time.perf_counter() - began

    return count * flops / min(seconds() for _ in range(3))


class ExpectedTime(keras.callbacks.Callback):
    """Reports the expected time of a run after its first steps.

    Args:
        log: Receives the line.
        settings: Resolved settings.
        start_step: Steps that were done before.
        evaluated: Images that are evaluated in the run, counted every time.
    """

    def __init__(
        self, log: Callable[[str], object], settings: Settings, start_step: int, evaluated: int
    ):
        super().__init__()
        self.log, self.settings, self.evaluated = log, settings, evaluated
        self.steps = required(settings.steps, "steps") - start_step
        self.times = [time.monotonic()]

    def on_train_batch_end(self, batch, logs=None):
        if len(self.times) > _MIN_EXECUTIONS + 1:
            return
        float(logs["loss"])  # Waits for the device.
        self.times.append(time.monotonic())
        if len(self.times) == _MIN_EXECUTIONS + 2:
            # The median, as a validation may be among them.
            step = statistics.median(np.diff(self.times)[1:]) / self.settings.steps_per_execution
            image = step / self.settings.batch_size / passes_of(self.settings)
            seconds = self.times[1] - self.times[0] + self.steps * step + self.evaluated * image
            with ProgressBar.external_write_mode():
                self.log(
                    f"expected {time_text(seconds)}: {self.steps} steps of {step:.3g} s, measured "
                    f"on the first ones, and {self.evaluated:,} images to evaluate"
                )


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
        return {
            "value": self.minutes,
            "from": f"{self.steps} steps of {self.times.step:.3g} s, measured; expected "
            f"{time_text(self.expected)}",
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
