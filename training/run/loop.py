"""Training of a run: its schedule, optimizer and loss, and the loop with validation and stops."""

from __future__ import annotations

import contextlib
import csv
import functools
import math
import pathlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import keras

from keras_vit import configs
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, SCORES
from keras_vit.layers import SelfAttention
from keras_vit.training.evaluation.predictions import NonFiniteScores
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import ResolvedSettings, Settings
from keras_vit.training.trainer.devices import backend_devices
from keras_vit.training.trainer.losses import (
    SigmoidCrossentropy,
    SoftmaxCrossentropy,
    label_accuracy,
)
from keras_vit.training.trainer.optimizer import SGD, Adam, DecoupledOptimizer, Muon, WarmupSchedule
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import HISTORY, append_csv, write_csv
from keras_vit.utils.progress import progress_bar

from .folder import RunFolder

T = TypeVar("T", bound=Trainer)

HEAD_PATH = re.compile(rf"(?:^|/)(?:{'|'.join(configs.HEAD_LAYERS)})/")


def choose_trained(model: keras.Model, part: str = "all", lora_rank: int = 8) -> None:
    """Sets the trainable weights of a model; call it before the trainer is made.

    "head" trains the head alone, a linear probe. "lora" (arXiv 2106.09685) trains the head
    and a product of two small arrays that is added to the kernels of query and value,
    `(D, k, D_h)`, as in `keras.layers.EinsumDense.enable_lora`:

        W + A B,    A: (D, k, rank), B: (rank, D_h)

    B starts at zero, so that the outputs do not change before training. Saving adds the
    product to the kernel: the loaded model is a plain model.

    Args:
        model: A model of `keras_vit.build` with a head.
        part: "all", "head" or "lora".
        lora_rank: Columns of A for each head.

    Raises:
        ValueError: If the model has no self-attention.
    """
    if part == "all":
        return
    for weight in model.trainable_variables:
        weight.trainable = bool(HEAD_PATH.search(weight.path))
    if part == "lora":
        parts = [getattr(layer, "attention", None) for layer in model.layers]
        attentions = [part for part in parts if isinstance(part, SelfAttention)]
        if not attentions:
            raise ValueError(
                "LoRA needs the self-attention of a Vision Transformer. "
                f"Received: {model.name}, without any"
            )
        for attention in attentions:
            attention.query.enable_lora(lora_rank)
            attention.value.enable_lora(lora_rank)


def make_schedule(settings: Settings) -> WarmupSchedule:
    """Returns the learning rate by step.

    Args:
        settings: Resolved settings.

    Raises:
        ValueError: If the warm-up does not fit the run.
    """
    return WarmupSchedule(
        settings.learning_rate, settings.steps, settings.warmup_steps, settings.decay
    )


def make_optimizer(settings: ResolvedSettings) -> DecoupledOptimizer:
    """Returns the optimizer with its schedule.

    Args:
        settings: Resolved settings.

    Raises:
        ValueError: If a value is out of range.
    """
    schedule = make_schedule(settings)
    make: Callable[..., DecoupledOptimizer] = functools.partial(Adam, schedule)
    if settings.optimizer == "sgd":
        make = functools.partial(SGD, schedule, settings.momentum)
    elif settings.optimizer == "muon":
        make = functools.partial(Muon, schedule, settings.momentum)
    return make(
        weight_decay=settings.weight_decay,
        weight_decay_times=settings.weight_decay_times,
        global_clipnorm=settings.global_clipnorm,
        layer_decay=settings.layer_decay,
    )


def make_loss(
    settings: ResolvedSettings, class_weight: Sequence[float] | None = None
) -> keras.losses.Loss:
    """Returns the loss of logits, for class numbers, multi-hot labels or mixup's shares."""
    if settings.loss == "sigmoid":
        return SigmoidCrossentropy(class_weight=class_weight)
    return SoftmaxCrossentropy(settings.label_smoothing, class_weight=class_weight)


def make_metric(task: str) -> str | keras.metrics.Metric:
    """Returns the metric that a task shows in addition to the loss."""
    if task == MULTICLASS:
        return "accuracy"
    return keras.metrics.MeanMetricWrapper(label_accuracy, name=label_accuracy.__name__)


def make_trainer(
    model: keras.Model,
    settings: ResolvedSettings,
    make: Callable[..., T] = Trainer,
    *,
    loss: keras.losses.Loss | None = None,
    metric: str | keras.metrics.Metric = "accuracy",
) -> T:
    """Returns a compiled trainer that takes the recipe's steps.

    Args:
        model: A model that gives logits.
        settings: Resolved settings.
        make: `Trainer`, or what makes one with another objective of the same arguments.
        loss: By default the settings' loss of classes.
        metric: The metric that is shown in addition to the loss.

    Raises:
        ValueError: If a value is out of range.
    """
    trainer = make(
        model,
        gradient_accumulation_steps=settings.accumulate or 1,
        ema_momentum=settings.ema_momentum,
        seed=settings.seed,
    )
    optimizer: keras.optimizers.Optimizer = make_optimizer(settings)
    if settings.precision == "mixed_float16":  # Gradients underflow without a loss scale.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    trainer.compile(
        optimizer,
        loss or make_loss(settings),
        metrics=[metric],
        steps_per_execution=settings.steps_per_execution,
        jit_compile="auto" if settings.jit_compile is None else settings.jit_compile,
    )
    return trainer


def classifier_trainer(
    model: keras.Model,
    settings: ResolvedSettings,
    task: str,
    class_weight: Sequence[float] | None = None,
    make: Callable[..., T] = Trainer,
) -> T:
    """Returns the compiled trainer of a classifier, by `make_trainer`.

    Args:
        model: A model that gives logits.
        settings: Resolved settings.
        task: "multiclass" or "multilabel".
        class_weight: The weight of each class in the loss; None for equal ones.
        make: See `make_trainer`.
    """
    loss = make_loss(settings, class_weight)
    return make_trainer(model, settings, make, loss=loss, metric=make_metric(task))


# The metric of training images in addition to the loss.
METRICS = {MULTICLASS: "accuracy", MULTILABEL: "label_accuracy"}


def history_columns(task: str = MULTICLASS) -> tuple[str, ...]:
    """Returns the columns of `history.csv`, which name the metrics of the task."""
    evaluated = [
        f"{of}_{what}" for of in ("validation", "averaged") for what in ("loss", SCORES[task])
    ]
    return ("step", "loss", METRICS[task], "learning_rate", "images_per_second", *evaluated)


class Interrupted(KeyboardInterrupt):
    """A signal stopped a run, after its state was saved.

    Args:
        message: The step and the folder of the saved state.
        signal_number: SIGINT or SIGTERM.
    """

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number


def train(
    trainer: Trainer,
    batches: Iterable,
    run: RunFolder,
    settings: ResolvedSettings,
    *,
    start_step: int = 0,
    validate: Callable[[], EvaluationReport] | None = None,
    task: str = MULTICLASS,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> list[dict[str, str]]:
    """Trains to the last step, then gives the trainer's model its best weights.

    The best weights have the lowest loss on the validation images, among those whose score is not
    clearly below the highest seen, by two standard errors: of a few images the highest score is
    chance. Without validation images these are the last weights. A trainer that keeps averages
    validates both weights and averages, and the averages are the ones kept. With `patience` a run
    ends early, after so many validations in a row that did not become the best.

    Args:
        trainer: A compiled trainer, at `start_step`.
        batches: `(images, labels)` from that step on, without an end.
        run: The folder for checkpoints and logs.
        settings: Resolved settings.
        start_step: Optimizer steps that were done before.
        validate: Function that evaluates the trainer's model on the validation images. Its result
            has a `score`, the higher the better, and a `loss`, which decides between equal scores.
        task: Names the metrics in the history, see `history_columns`.
        callbacks: Called after the run's own callback, which adds the results of a validation
            to their logs as `val_loss` and so on. One that sets `model.stop_training` ends the
            run with a last validation.

    Returns:
        The rows of the history.

    Raises:
        Interrupted: On Ctrl-C or SIGTERM, after saving.
        NonFiniteError: If the loss is not finite, a ValueError.
        ValueError: If a micro-batch does not fit into memory.
    """
    last_step = settings.steps
    history = read_history(run.path / HISTORY, start_step)
    bar = progress_bar(last_step, "train", unit="steps", initial=start_step, disable=not run.writes)
    try:
        with catch_signals() as received:
            steps = _StepCallback(run, settings, start_step, validate, history, bar, received, task)
            if start_step < last_step and not steps.is_out_of_patience():
                trainer.fit(
                    batches,
                    steps_per_epoch=last_step - start_step,
                    verbose=0,
                    callbacks=[steps, *callbacks],
                )
    except Exception as error:
        if not backend_devices().is_out_of_memory(error):
            raise
        raise ValueError(
            "A micro-batch must fit into memory: accumulate more of them (--accumulate), or "
            f"recompute activations (--remat). Received: {settings.micro_batch_size} images in "
            f"each of {settings.accumulate}"
        ) from error
    finally:
        bar.close()
    if steps.stopped_at is not None:
        raise Interrupted(
            f"Stopped after step {steps.stopped_at} of {last_step}; everything is saved in "
            f"{run.shared}.",
            received[0],
        )
    take_best(trainer, run, settings)
    return history


def take_best(trainer: Trainer, run: RunFolder, settings: ResolvedSettings) -> None:
    """Gives a trainer's model the weights that a run ends with: the best ones, or the averages.

    Args:
        trainer: The trainer, at the run's last step.
        run: The run.
        settings: Resolved settings.
    """
    if settings.keep == "best" and run.best_score() is not None:
        run.load_best(trainer.model)
    elif trainer.averages:
        with trainer.averaged_weights() as model:
            averaged = model.get_weights()
        trainer.model.set_weights(averaged)


class _StepCallback(keras.callbacks.Callback):
    """Logs, validates, saves and stops, after each execution of one or more steps."""

    highest = -math.inf  # The highest validation score so far, as the history has it.

    def __init__(self, run, settings, start_step, validate, history, bar, received, task):
        super().__init__()
        self.run = run
        self.settings = settings
        self.step = start_step
        self.validate = validate
        self.history = history
        self.bar = bar
        self.received = received  # Signals.
        self.executed = settings.steps_per_execution
        self.evaluate_every = settings.evaluate_every
        self.log_every = max(1, min(50, self.evaluate_every) // self.executed) * self.executed
        self.schedule = make_schedule(settings)
        self.stopped_at: int | None = None
        self.metric, self.score = METRICS[task], SCORES[task]
        self.columns = history_columns(task)
        column = f"{'averaged' if settings.ema_momentum else 'validation'}_{self.score}"
        scores = [float(row[column]) for row in history if row[column]]
        self.highest = max(scores, default=-math.inf)
        self.is_written = False  # The history on disk is this run's.
        self.validation = "-"
        self.validated = start_step  # The step of the last row that was added after a validation.
        self.logs_before: dict[str, keras.KerasTensor] | None = None
        self.row: dict[str, float] = {}
        self.row_logs: dict[str, float] = {}
        self._start_interval()

    def is_out_of_patience(self) -> bool:
        """Returns whether the last `patience` validations brought no improvement."""
        best = self.run.best_score()
        patience = self.settings.patience
        if patience is None or best is None:
            return False
        return self.step - best[0] >= patience * self.evaluate_every

    def on_train_begin(self, logs=None):
        # What training starts from, if it is not random, is a candidate of the best weights.
        has_weights = self.settings.weights is not None
        if self.step == 0 and self.validate and has_weights and self.settings.keep == "best":
            self._record({"step": 0, **self._validate()})
            self.run.checkpoints.save(self.model)

    def on_train_batch_end(self, batch, logs=None):
        step = self.step + self.executed
        stops = self._is_stopping(step) and step != self.settings.steps
        validates = step == self.settings.steps or step % self.evaluate_every == 0
        adds_row = stops or validates or step % self.log_every == 0
        # To read a loss is to wait for its step. Between two rows it is the previous step's,
        # so that the device has the next one.
        shown, self.logs_before = logs if adds_row else self.logs_before or logs, logs
        loss, accuracy = float(shown["loss"]), float(shown[self.metric])
        if not math.isfinite(loss):
            return  # The trainer stops here, with the weights of the step before.
        self.step = step
        self.bar.set_postfix(
            {
                "loss": f"{loss:.4f}",
                self.metric.replace("_", " "): f"{accuracy:.4f}",
                "images/s": f"{self._images_per_second():.1f}",
                "validation" + (" mAP" if self.score == "mAP" else ""): self.validation,
            },
            refresh=False,
        )
        self.bar.update(self.executed)
        if adds_row:
            self._add_row(logs, validates=validates, stops=stops)

    def _is_stopping(self, step):
        """Whether a signal arrived here; several processes of JAX stop at the same step."""
        number = self.received[0] if self.received else 0
        number = backend_devices().agreed_signal(number, step // self.executed)
        if number and not self.received:
            self.received.append(number)  # Another process got it.
        return bool(number)

    def on_epoch_end(self, epoch, logs=None):
        # Another callback has stopped the run, maybe at a step that has a row already.
        if self.step != self.validated and self.stopped_at is None:
            self._add_row(logs, validates=True)
        logs.update(self.row_logs)

    def _add_row(self, logs, *, validates, stops=False):
        """Adds a row to the history, after a validation if it is time for one.

        If the step has a row, the validation is added to it.
        """
        self.model.synchronize()
        if self.step != self.interval_start:
            last = int(keras.ops.convert_to_numpy(self.model.optimizer.iterations)) - 1
            self.row = {
                "step": self.step,
                "loss": float(logs["loss"]),
                self.metric: float(logs[self.metric]),
                "learning_rate": float(self.schedule(max(last, 0))),
                "images_per_second": self._images_per_second(),
            }
        validation = self._validate() if validates and self.validate is not None else {}
        row = {**self.row, **validation}
        if validates:
            self.validated = self.step
        # For the callbacks after this one, under the names of `keras.Model.fit`.
        validation = {name.replace("validation_", "val_"): v for name, v in validation.items()}
        self.row_logs = {name: row[name] for name in ("loss", self.metric)} | validation
        logs.update(self.row_logs)
        self._record(row)
        if validates or stops:
            self.run.checkpoints.save(self.model)
        if stops:
            self.stopped_at = self.step
        if stops or (validates and self.is_out_of_patience()):
            self.model.stop_training = True
        # The trainer's metrics are means since the last reset.
        self.model.reset_metrics()
        self._start_interval()

    def _record(self, row):
        """Writes a row, in place of the last one if it is of the same step."""
        text = {name: _number(row.get(name, "")) for name in self.columns}
        replaces = bool(self.history) and self.history[-1]["step"] == text["step"]
        if replaces:
            self.history.pop()
        self.history.append(text)
        path = self.run.path / HISTORY
        if self.is_written and not replaces:
            append_csv(path, text.values())
            return
        # The file of a resumed run may have later rows.
        cells = ([row.get(name, "") for name in self.columns] for row in self.history)
        write_csv(path, [self.columns, *cells])
        self.is_written = True

    def _validate(self):
        """Returns the columns of a validation, and saves the weights if they are the best."""
        try:
            report = self.validate()
            row = {"validation_loss": report.loss, f"validation_{self.score}": report.score}
            if not self.model.averages:
                self._save_if_best(report)
                return row
            with self.model.averaged_weights():
                report = self.validate()
                self._save_if_best(report)
            return row | {"averaged_loss": report.loss, f"averaged_{self.score}": report.score}
        except NonFiniteScores:
            return {"validation_loss": math.nan}  # Training stops at the next step.

    def _save_if_best(self, report):
        """Saves the weights with the lowest loss among the scores that may be the highest."""
        # A resumed run reads the highest score in the history, where it has six digits.
        self.highest = max(self.highest, float(_number(report.score)))
        lowest = self.highest - 2 * standard_error(self.highest, report.count)
        best = self.run.best_score()
        is_best = best is None or best[1] < lowest or report.loss < best[2]
        if report.score >= lowest and is_best:
            self.run.save_best(self.model.model, self.step, report.score, report.loss)
        self.validation = f"{report.score:.4f}"

    def _images_per_second(self):
        images = (self.step - self.interval_start) * self.settings.batch_size
        return images / max(time.monotonic() - self.interval_began, 1e-9)

    def _start_interval(self):
        self.interval_start = self.step
        self.interval_began = time.monotonic()


@contextlib.contextmanager
def catch_signals() -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM in a list, so that a run can save before it stops.

    A second signal raises KeyboardInterrupt at once.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python handles signals in the main thread only.
        return

    def handle(number, frame):
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_history(path: pathlib.Path, last_step: float = math.inf) -> list[dict[str, str]]:
    """Returns the rows of a history up to a step: a resumed run writes the later ones again.

    A row that a full disk or a power failure cut off ends the history; the run writes on behind it.

    Args:
        path: The CSV file, which need not exist.
        last_step: The last step.
    """
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    rows: list[dict[str, str]] = []
    for row in csv.DictReader(text[: text.rfind("\n") + 1].splitlines()):
        is_whole = None not in row and None not in row.values()
        if not is_whole or not row.get("step", "").isdecimal() or int(row["step"]) > last_step:
            break
        rows.append(row)
    return rows


def standard_error(score: float, count: int) -> float:
    """Returns the standard error of a share, with two images more, one of them right.

    Of few images all may be right by chance.

    Args:
        score: The share.
        count: The images.
    """
    share = (score * count + 1) / (count + 2)
    return math.sqrt(share * (1 - share) / count)


def _number(value):
    return f"{value:.6g}" if isinstance(value, float) else str(value)
