"""Learning-rate schedules with the official formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.training.settings import DECAYS


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from zero, then a decay; counted in optimizer steps.

    With s the step, from 0, w the warm-up, S all steps and p the progress
    min(1, max(0, (s - w) / (S - w))):

        lr(s) = decay(p) * min(1, s / w)
        cosine:     base_lr * (1 + cos(pi p)) / 2
        linear:     linear_end + (base_lr - linear_end) * (1 - p)
        rsqrt:      base_lr / sqrt(1 + max(0, s - w) / timescale)
        staircase:  base_lr * factor^(boundaries that s has passed)
        constant:   base_lr

    Cosine and linear follow the official training code, which ends a linear decay at 1e-5
    and not at 0; the first step of a run with warm-up has a learning rate of 0. The
    reciprocal square root and its cool-down, the factor min(1, (S - s) / cooldown_steps),
    follow big_vision, the staircase BiT.

    Args:
        base_lr: Learning rate after warm-up.
        steps: Optimizer steps of the run, S.
        warmup_steps: Steps of linear warm-up, w; less than `steps`.
        decay: "cosine", "linear", "rsqrt", "staircase" or "constant".
        linear_end: Learning rate at the end of a linear decay.
        timescale: Steps after which "rsqrt" has fallen to 0.71.
        cooldown_steps: Steps at the end over which "rsqrt" falls to 0.
        boundaries: Steps after which "staircase" is multiplied by `factor`.
        factor: See `boundaries`.

    Raises:
        ValueError: If a value is out of range or unknown.

    Example:
    >>> schedule = WarmupSchedule(0.03, steps=500, warmup_steps=100)
    >>> [round(float(schedule(step)), 4) for step in (0, 50, 100, 300, 500)]
    [0.0, 0.015, 0.03, 0.015, 0.0]
    """

    def __init__(
        self,
        base_lr: float,
        steps: int,
        warmup_steps: int,
        decay: str = "cosine",
        linear_end: float = 1e-5,
        timescale: float = 10_000,
        cooldown_steps: int = 0,
        boundaries: Sequence[int] = (),
        factor: float = 0.1,
    ):
        super().__init__()
        if decay not in DECAYS:
            raise ValueError(f"decay must be one of {DECAYS}. Received: decay={decay!r}")
        if not 0 <= warmup_steps < steps:
            raise ValueError(
                "The warm-up must be shorter than the run. "
                f"Received: warmup_steps={warmup_steps}, steps={steps}"
            )
        if cooldown_steps and decay != "rsqrt":
            raise ValueError(
                'cooldown_steps is for decay="rsqrt"; the other decays have their own end. '
                f"Received: decay={decay!r}, cooldown_steps={cooldown_steps}"
            )
        if not 0 <= cooldown_steps <= steps - warmup_steps:
            raise ValueError(
                "The cool-down must fit between the warm-up and the end. Received: "
                f"cooldown_steps={cooldown_steps}, warmup_steps={warmup_steps}, steps={steps}"
            )
        if bool(boundaries) != (decay == "staircase"):
            raise ValueError(
                'decay="staircase" needs boundaries, the other decays take none. '
                f"Received: decay={decay!r}, boundaries={tuple(boundaries)}"
            )
        self.base_lr = float(base_lr)
        self.steps = int(steps)
        self.warmup_steps = int(warmup_steps)
        self.decay = decay
        self.linear_end = float(linear_end)
        self.timescale = float(timescale)
        self.cooldown_steps = int(cooldown_steps)
        self.boundaries = tuple(boundaries)
        self.factor = float(factor)

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = ops.clip((step - self.warmup_steps) / (self.steps - self.warmup_steps), 0, 1)
        learning_rate = self._decayed(step, progress)
        if self.warmup_steps:
            learning_rate = learning_rate * ops.minimum(1.0, step / self.warmup_steps)
        if self.cooldown_steps:
            left = ops.maximum(self.steps - step, 0) / self.cooldown_steps
            learning_rate = learning_rate * ops.minimum(1.0, left)
        return ops.cast(learning_rate, "float32")

    def _decayed(self, step, progress):
        """Returns the learning rate without warm-up and cool-down."""
        if self.decay == "cosine":
            return self.base_lr * 0.5 * (1 + ops.cos(math.pi * progress))
        if self.decay == "linear":
            return self.linear_end + (self.base_lr - self.linear_end) * (1 - progress)
        if self.decay == "rsqrt":
            past_warmup = ops.maximum(step - self.warmup_steps, 0)
            return self.base_lr / ops.sqrt(1 + past_warmup / self.timescale)
        if self.decay == "staircase":
            passed = ops.cast(step > ops.convert_to_tensor(self.boundaries, "float32"), "float32")
            return self.base_lr * ops.power(self.factor, ops.sum(passed))
        return self.base_lr * ops.ones_like(progress)  # "constant"

    def get_config(self):
        return {
            "base_lr": self.base_lr,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "decay": self.decay,
            "linear_end": self.linear_end,
            "timescale": self.timescale,
            "cooldown_steps": self.cooldown_steps,
            "boundaries": self.boundaries,
            "factor": self.factor,
        }


def warmup_schedule(
    base_lr: float, *, steps: int, warmup_steps: int, decay: str = "cosine", **options: Any
) -> WarmupSchedule:
    """Returns a learning-rate schedule with linear warm-up; see `WarmupSchedule`.

    Args:
        base_lr: Learning rate after warm-up.
        steps: Optimizer steps of the run.
        warmup_steps: Steps of linear warm-up; less than `steps`.
        decay: "cosine", "linear", "rsqrt", "staircase" or "constant".
        **options: The other arguments of `WarmupSchedule`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """
    return WarmupSchedule(base_lr, steps, warmup_steps, decay, **options)
