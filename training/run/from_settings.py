"""What settings stand for in training: schedule, optimizer, loss and trainer."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import keras

from keras_vit.training.settings import Settings
from keras_vit.training.trainer.losses import LOSSES
from keras_vit.training.trainer.optimizer import SGD, Adam, DecoupledOptimizer
from keras_vit.training.trainer.schedule import WarmupSchedule
from keras_vit.training.trainer.trainer import Trainer

from .required import required

T = TypeVar("T", bound=Trainer)


def _sgd(schedule, settings, **options):
    return SGD(schedule, settings.momentum, **options)


def _adam(schedule, settings, **options):
    return Adam(schedule, settings.beta_1, settings.beta_2, **options)


# Name: the optimizer, from its schedule, the settings and what all have in common.
OPTIMIZERS = {"sgd": _sgd, "adam": _adam}


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
    return OPTIMIZERS[settings.optimizer](
        make_schedule(settings),
        settings,
        weight_decay=settings.weight_decay,
        weight_decay_times=settings.weight_decay_times,
        global_clipnorm=settings.clip_norm,
        layer_decay=settings.layer_decay,
    )


def make_loss(settings: Settings) -> keras.losses.Loss:
    """Returns the loss of logits, of class numbers or of mixup's shares."""
    options = {"label_smoothing": settings.label_smoothing} if settings.label_smoothing else {}
    return LOSSES[settings.loss](**options)


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
        trainer_type: `Trainer`, or one with an objective of its own.
        loss: The settings' loss of classes by default.
        metric: What is told beside the loss.
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
    trainer.compile(
        _with_loss_scale(make_optimizer(settings), settings),
        loss or make_loss(settings),
        metrics=[metric],
        steps_per_execution=settings.steps_per_execution,
        jit_compile="auto" if settings.jit_compile is None else settings.jit_compile,
    )
    return trainer


def _with_loss_scale(optimizer, settings):
    """Returns an optimizer for the precision: float16 underflows without a loss scale."""
    if settings.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def not_decayed(trainer: Trainer) -> list[str]:
    """Returns the names of the trained weights that weight decay leaves out.

    Of the blocks one name stands for all: "encoder_block_*/norm_1/gamma".

    Args:
        trainer: A compiled trainer.

    Returns:
        The names in order, each once.
    """
    compiled = required(trainer.optimizer, "optimizer")
    optimizer = getattr(compiled, "inner_optimizer", compiled)
    paths = [v.path for v in trainer.trainable_variables if not optimizer.decays(v.path)]
    return list(dict.fromkeys(re.sub(r"block_\d+|unit\d+", _starred, path) for path in paths))


def _starred(match):
    return re.sub(r"\d+", "*", match.group())
