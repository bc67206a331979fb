"""Schedule, optimizer, loss and trainer from settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import keras

from keras_vit.description.class_labels import MULTICLASS
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.losses import (
    SigmoidCrossentropy,
    SoftmaxCrossentropy,
    label_accuracy,
)
from keras_vit.training.trainer.optimizer import SGD, Adam, DecoupledOptimizer, Muon, WarmupSchedule
from keras_vit.training.trainer.trainer import Trainer

T = TypeVar("T", bound=Trainer)


def make_schedule(settings: Settings) -> WarmupSchedule:
    """Returns the learning rate by step.

    Args:
        settings: Resolved settings.

    Raises:
        ValueError: If warm-up, cool-down or boundaries do not fit the run or the decay.
    """
    return WarmupSchedule(
        settings.learning_rate,
        settings.steps,
        settings.warmup_steps,
        settings.decay,
        timescale=settings.timescale,
        cooldown_steps=settings.cooldown_steps,
        boundaries=settings.boundaries or (),
    )


def make_optimizer(settings: Settings) -> DecoupledOptimizer:
    """Returns the optimizer with its schedule.

    Args:
        settings: Resolved settings.

    Raises:
        ValueError: If a value is out of range.
    """
    schedule = make_schedule(settings)
    options: dict[str, Any] = {
        "weight_decay": settings.weight_decay,
        "weight_decay_times": settings.weight_decay_times,
        "global_clipnorm": settings.clip_norm,
        "layer_decay": settings.layer_decay,
    }
    if settings.optimizer == "sgd":
        return SGD(schedule, settings.momentum, **options)
    if settings.optimizer == "muon":
        return Muon(schedule, settings.momentum, **options)
    return Adam(schedule, **options)


def make_loss(
    settings: Settings, class_weights: Sequence[float] | None = None
) -> keras.losses.Loss:
    """Returns the loss of logits, for class numbers, multi-hot labels or mixup's shares."""
    if settings.loss == "sigmoid":
        return SigmoidCrossentropy(class_weights=class_weights)
    return SoftmaxCrossentropy(settings.label_smoothing, class_weights=class_weights)


def make_metric(task: str) -> str | keras.metrics.Metric:
    """Returns the metric that a task shows in addition to the loss."""
    if task == MULTICLASS:
        return "accuracy"
    return keras.metrics.MeanMetricWrapper(label_accuracy, name=label_accuracy.__name__)


def make_trainer(
    model: keras.Model,
    settings: Settings,
    trainer_type: type[T] = Trainer,
    *,
    loss: keras.losses.Loss | None = None,
    metric: str | keras.metrics.Metric = "accuracy",
    **options: Any,
) -> T:
    """Returns a compiled trainer that takes the recipe's steps.

    Args:
        model: A model that gives logits.
        settings: Resolved settings.
        trainer_type: `Trainer`, or a subclass with another objective.
        loss: By default the settings' loss of classes.
        metric: The metric that is shown in addition to the loss.
        **options: Passed to `trainer_type`.

    Raises:
        ValueError: If a value is out of range.
    """
    trainer = trainer_type(
        model,
        **options,
        accumulation_steps=settings.accumulate or 1,
        averaging=settings.averaging,
        skip_nonfinite_steps=settings.skip_nonfinite_steps,
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
