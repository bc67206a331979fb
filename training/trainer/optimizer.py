"""Learning-rate schedules, SGD and Adam as in the official code, and Muon."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_vit.configs import CLASSIFIER_LAYERS, HEAD_LAYERS
from keras_vit.keras_private import variable_index
from keras_vit.layers.base_layers import arguments
from keras_vit.training.settings import DECAYS, WEIGHT_DECAY_TIMES

TIMESCALE = 10_000  # Steps after which "rsqrt" has fallen to 0.71, as in big_vision.
LINEAR_END = 1e-5  # The learning rate at the end of a linear decay, as in the official code.
LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule that `warmup_schedule` returns; Keras saves it by this name.

    Args:
        base_lr: See `warmup_schedule`.
        steps: See `warmup_schedule`.
        warmup_steps: See `warmup_schedule`.
        decay: See `warmup_schedule`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(
        self,
        base_lr: float,
        steps: int,
        warmup_steps: int,
        decay: str = "cosine",
    ):
        super().__init__()
        if decay not in DECAYS:
            raise ValueError(f"decay must be one of {DECAYS}. Received: decay={decay!r}")
        if not 0 <= warmup_steps < steps:
            raise ValueError(
                "The warm-up must be shorter than the run. "
                f"Received: warmup_steps={warmup_steps}, steps={steps}"
            )
        self.base_lr = float(base_lr)
        self.steps = int(steps)
        self.warmup_steps = int(warmup_steps)
        self.decay = decay

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = ops.clip((step - self.warmup_steps) / (self.steps - self.warmup_steps), 0, 1)
        learning_rate = self._decayed(step, progress)
        if self.warmup_steps:
            learning_rate = learning_rate * ops.minimum(1.0, step / self.warmup_steps)
        return ops.cast(learning_rate, "float32")

    def _decayed(self, step, progress):
        """Returns the learning rate without warm-up."""
        if self.decay == "cosine":
            return self.base_lr * 0.5 * (1 + ops.cos(math.pi * progress))
        if self.decay == "linear":
            return LINEAR_END + (self.base_lr - LINEAR_END) * (1 - progress)
        if self.decay == "rsqrt":
            past_warmup = ops.maximum(step - self.warmup_steps, 0)
            return self.base_lr / ops.sqrt(1 + past_warmup / TIMESCALE)
        return self.base_lr * ops.ones_like(progress)  # "constant"

    def get_config(self):
        return arguments(self, "base_lr", "steps", "warmup_steps", "decay")


def warmup_schedule(
    base_lr: float,
    *,
    steps: int,
    warmup_steps: int,
    decay: str = "cosine",
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns a schedule: linear warm-up from zero, then a decay; counted in optimizer steps.

    With s the step, from 0, w the warm-up, S all steps and p the progress
    min(1, max(0, (s - w) / (S - w))):

        lr(s) = decay(p) * min(1, s / w)
        cosine:     base_lr * (1 + cos(pi p)) / 2
        linear:     1e-5 + (base_lr - 1e-5) * (1 - p)
        rsqrt:      base_lr / sqrt(1 + max(0, s - w) / 10,000)
        constant:   base_lr

    Cosine and linear follow the official training code, which ends a linear decay at 1e-5
    and not at 0; the first step of a run with warm-up has a learning rate of 0. The
    reciprocal square root follows big_vision.

    Args:
        base_lr: Learning rate after warm-up.
        steps: Optimizer steps of the run, S.
        warmup_steps: Steps of linear warm-up, w; less than `steps`.
        decay: "cosine", "linear", "rsqrt" or "constant".

    Raises:
        ValueError: If a value is out of range or unknown.

    Example:
    >>> schedule = warmup_schedule(0.03, steps=500, warmup_steps=100)
    >>> [round(float(schedule(step)), 4) for step in (0, 50, 100, 300, 500)]
    [0.0, 0.015, 0.03, 0.015, 0.0]
    """
    return WarmupSchedule(base_lr, steps, warmup_steps, decay)


class DecoupledOptimizer(keras.optimizers.Optimizer):
    """Base of SGD and Adam: clipping, weight decay of named weights, a complete config.

    A subclass adds its variables in `build_state`.

    One step, with g the gradient after clipping at `global_clipnorm` and u the direction of
    SGD or Adam:

        w <- w - lr * u(g) - decay * w

    With `weight_decay_times="learning_rate"`, decay is `lr * weight_decay`, as in Keras,
    PyTorch and the paper's tables. With "schedule" it is `lr / base_lr * weight_decay`, as in
    big_vision; for a constant learning rate that is TensorFlow Addons'
    `w <- w - weight_decay * w`. Keras's own optimizers have only the first, and do not save
    which weights are excluded.

    With `layer_decay` the whole step of a weight, weight decay included, is multiplied by
    `layer_decay ** (depth + 1 - layer)`, where layer 0 is at the image and depth + 1 is the
    head; see `layer_numbers`.

    Args:
        learning_rate: A number or a schedule; with "schedule" a number or a schedule with a
            `base_lr`, such as `warmup_schedule` returns.
        weight_decay: Strength of the decay; 0 for none.
        weight_decay_times: "learning_rate" or "schedule".
        weight_decay_names: Patterns of the paths of decayed weights, as in `fnmatch`. By
            default kernels alone, as in the official code.
        global_clipnorm: Largest norm of all gradients together; None does not clip.
        layer_decay: Ratio of a layer's learning rate to the next layer's, in (0, 1]; 1 for
            equal rates.
        **kwargs: Passed to `keras.optimizers.Optimizer`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        weight_decay: float = 0.0,
        weight_decay_times: str = "learning_rate",
        weight_decay_names: Sequence[str] = ("*kernel",),
        global_clipnorm: float | None = None,
        layer_decay: float = 1.0,
        **kwargs: object,
    ):
        if isinstance(learning_rate, int):
            learning_rate = float(learning_rate)
        kwargs.setdefault("name", type(self).__name__.lower())
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, **kwargs)
        if weight_decay_times not in WEIGHT_DECAY_TIMES:
            raise ValueError(
                f"weight_decay_times must be one of {WEIGHT_DECAY_TIMES}. "
                f"Received: weight_decay_times={weight_decay_times!r}"
            )
        if weight_decay is None or weight_decay < 0:
            raise ValueError(
                f"weight_decay must not be negative. Received: weight_decay={weight_decay}"
            )
        if not 0 < layer_decay <= 1:
            raise ValueError(f"layer_decay must be in (0, 1]. Received: layer_decay={layer_decay}")
        self.layer_decay = float(layer_decay)
        # The base class's `weight_decay` stays None: it would decay every weight.
        self.decay_strength = float(weight_decay)
        self.weight_decay_times = weight_decay_times
        self.weight_decay_names = tuple(weight_decay_names)
        self.base_lr = None
        if weight_decay_times == "schedule":
            base_lr = getattr(learning_rate, "base_lr", learning_rate)
            if not isinstance(base_lr, float) or base_lr <= 0:
                raise ValueError(
                    'weight_decay_times="schedule" needs a positive learning rate that is a '
                    f"number or a schedule with a base_lr. Received: {learning_rate!r}"
                )
            self.base_lr = base_lr

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.is_decayed = [self.decays(variable.path) for variable in variables]
        self.scales = [1.0] * len(variables)
        if self.layer_decay < 1:
            layers = layer_numbers([variable.path for variable in variables])
            self.scales = [self.layer_decay ** (max(layers) - layer) for layer in layers]
        self.build_state(variables)

    def decays(self, path):
        """Returns whether the weight of this path is decayed."""
        return self.decay_strength > 0 and any(
            fnmatch.fnmatchcase(path, pattern) for pattern in self.weight_decay_names
        )

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Raises ValueError: use the argument `weight_decay_names`, which is saved."""
        raise ValueError(
            "Pass weight_decay_names, the patterns of the decayed weights, to the optimizer "
            f"instead. Received: var_list={var_list}, var_names={var_names}"
        )

    def descend(self, variable, direction, learning_rate):
        """Updates a weight; the decay uses its value before the step, as the official code."""
        index = variable_index(self, variable)
        change = direction * learning_rate
        if self.is_decayed[index]:
            strength = learning_rate * self.decay_strength
            if self.weight_decay_times == "schedule":
                strength = strength / self.base_lr
            change = change + strength * variable
        if self.scales[index] != 1:
            change = change * self.scales[index]
        self.assign_sub(variable, change)

    def get_config(self):
        names = ("weight_decay_times", "weight_decay_names", "layer_decay")
        config = {**super().get_config(), "weight_decay": self.decay_strength}
        return {**config, **arguments(self, *names)}


@keras.saving.register_keras_serializable(package="keras_vit")
class SGD(DecoupledOptimizer):
    """Stochastic gradient descent with momentum, as the official fine-tuning computes it.

        m <- momentum * m + g
        w <- w - lr * m

    Keras keeps the learning rate inside the buffer, m <- momentum * m - lr * g, which gives
    other weights as soon as the learning rate changes. The official code stores m in
    bfloat16 to save memory; here it is float32.

    Args:
        learning_rate: A number or a schedule.
        momentum: Fraction of the buffer kept, in [0, 1).
        global_clipnorm: Largest norm of all gradients together, before the buffer; None
            does not clip. 1 in the paper. It gives way to Keras's `clipnorm` or `clipvalue`.
        **kwargs: See `DecoupledOptimizer`: `weight_decay`, `weight_decay_times`,
            `weight_decay_names`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.03,
        momentum: float = 0.9,
        global_clipnorm: float | None = 1.0,
        **kwargs: Any,
    ):
        is_default = global_clipnorm == 1.0
        if is_default and (kwargs.get("clipnorm") or kwargs.get("clipvalue")):
            global_clipnorm = None  # Keras clips in one way at a time.
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1). Received: momentum={momentum}")
        self.momentum = float(momentum)

    def build_state(self, variables):
        self.momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient, variable, learning_rate):
        buffer = self.momentums[variable_index(self, variable)]
        gradient = ops.cast(gradient, buffer.dtype)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        moved = self.momentum * buffer + gradient
        self.assign(buffer, moved)
        self.descend(variable, moved, learning_rate)

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(DecoupledOptimizer):
    """Adam with decoupled weight decay, as in the paper's pre-training.

        m <- b1 * m + (1 - b1) * g
        v <- b2 * v + (1 - b2) * g^2
        w <- w - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) - decay * w

    Keras adds its epsilon of 1e-7 before the bias correction of v; the official code adds
    1e-8 after it.

    Args:
        learning_rate: A number or a schedule.
        beta_1: Fraction of m kept, b1.
        beta_2: Fraction of v kept, b2.
        epsilon: Added to the denominator.
        **kwargs: See `DecoupledOptimizer`: `weight_decay`, `weight_decay_times`,
            `weight_decay_names`, `global_clipnorm`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        if not (0 <= beta_1 < 1 and 0 <= beta_2 < 1):
            raise ValueError(
                f"beta_1 and beta_2 must be in [0, 1). Received: {beta_1} and {beta_2}"
            )
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)

    def build_state(self, variables):
        self.first_moments, self.second_moments = self.add_optimizer_variables(
            variables, ["first_moment", "second_moment"]
        )

    def update_step(self, gradient, variable, learning_rate):
        index = variable_index(self, variable)
        first, second = self.first_moments[index], self.second_moments[index]
        gradient = ops.cast(gradient, first.dtype)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        updates = ops.cast(self.iterations + 1, first.dtype)
        new_first = self.beta_1 * first + (1 - self.beta_1) * gradient
        new_second = self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient)
        corrected_first = new_first / (1 - ops.power(self.beta_1, updates))
        corrected_second = new_second / (1 - ops.power(self.beta_2, updates))
        self.assign(first, new_first)
        self.assign(second, new_second)
        direction = corrected_first / (ops.sqrt(corrected_second) + self.epsilon)
        self.descend(variable, direction, learning_rate)

    def get_config(self):
        return {**super().get_config(), **arguments(self, "beta_1", "beta_2", "epsilon")}


# The quintic a x + b x^3 + c x^5 that is applied to singular values, again and again; as published.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
# Root mean square of the numbers of a step, about as Adam's (arXiv 2502.16982).
STEP_RMS = 0.2
# Kernels of several input axes and one output axis: (heads, units of a head, D).
_JOINED_INPUTS = ("*/out/kernel",)
# Kernels of the heads.
HEADS = tuple(f"*{layer}/kernel" for layer in CLASSIFIER_LAYERS)


@keras.saving.register_keras_serializable(package="keras_vit")
class Muon(Adam):
    """Muon for the kernels of hidden layers, and Adam for all other weights.

    One step of a kernel, as a matrix with n rows and m columns, one column for each output:

        b <- momentum * b + g
        u = orthogonal(g + momentum * b)
        w <- w - lr * 0.2 * sqrt(max(n, m)) * u - decay * w

    `orthogonal` takes the singular values of its argument to about 1 by five steps of a
    Newton-Schulz iteration (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon).
    The factor gives steps the size of Adam's, so that one learning rate and one weight decay
    serve for all weights (arXiv 2502.16982).

    Differs from `keras.optimizers.Muon`: kernels of convolutions and of attention are matrices
    here, too, where Keras's takes Adam for all that have more than two axes; weight decay is of
    kernels alone; and the config is complete. The kernel of the head takes Adam's steps, as in
    the publication. The iteration is in float32. Micro-batches and replicas change no result, as
    with every optimizer here: it sees the gradients of the whole batch.

    Args:
        learning_rate: A number or a schedule, for both.
        momentum: Fraction of the buffer kept, in [0, 1).
        **kwargs: See `Adam` and `DecoupledOptimizer`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(self, learning_rate: LearningRate = 1e-3, momentum: float = 0.95, **kwargs: Any):
        super().__init__(learning_rate, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1). Received: momentum={momentum}")
        self.momentum = float(momentum)

    def build_state(self, variables):
        super().build_state(variables)
        self.matrices = [
            matrix_shape(v.path, v.shape) if self.makes_orthogonal(v.path) else None
            for v in variables
        ]

    def makes_orthogonal(self, path):
        """Returns whether the weight of this path takes orthogonal steps."""
        return fnmatch.fnmatchcase(path, "*kernel") and not any(
            fnmatch.fnmatchcase(path, pattern) for pattern in HEADS
        )

    def update_step(self, gradient, variable, learning_rate):
        index = variable_index(self, variable)
        shape = self.matrices[index]
        if shape is None:
            super().update_step(gradient, variable, learning_rate)
            return
        buffer = self.first_moments[index]
        gradient = ops.cast(gradient, buffer.dtype)
        moved = self.momentum * buffer + gradient
        self.assign(buffer, moved)
        matrix = ops.reshape(gradient + self.momentum * moved, shape)
        direction = STEP_RMS * math.sqrt(max(shape)) * orthogonal(matrix)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        self.descend(variable, ops.reshape(direction, variable.shape), learning_rate)

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


def matrix_shape(path: str, shape: Sequence[int]) -> tuple[int, int]:
    """Returns the rows and columns of a kernel: its inputs and its outputs.

    A convolution's inputs are the pixels and channels that an output sees. Query, key and value
    have outputs of several axes, `(D, k, D_h)`, and attention's output layer has such inputs.

    Args:
        path: The path of the kernel.
        shape: The shape of the kernel.
    """
    is_attention = len(shape) == 3 and not any(
        fnmatch.fnmatchcase(path, pattern) for pattern in _JOINED_INPUTS
    )
    inputs = shape[:1] if is_attention else shape[:-1]
    rows = math.prod(inputs)
    return rows, math.prod(shape) // rows


def orthogonal(matrix: keras.KerasTensor) -> keras.KerasTensor:
    """Returns a matrix with the singular vectors of another one and singular values near 1.

    Args:
        matrix: `(n, m)`, of known size.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = ops.transpose(matrix) if is_tall else matrix
    x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)  # No singular value is above 1.
    for _ in range(ITERATIONS):
        squared = ops.matmul(x, ops.transpose(x))
        x = a * x + ops.matmul(b * squared + c * ops.matmul(squared, squared), x)
    return ops.transpose(x) if is_tall else x


# Pattern of a weight's path, and the offset from the number in it to its layer. The first kind
# of block found in a model counts; everything before the blocks is layer 0.
BLOCKS = (
    ((r"(?:encoder|row|column)_block_(\d+)/", 1), (r"position_embedding_(\d+)/", 0)),
    ((r"block_(\d+)_unit_\d+/", 0),),  # A ResNet, whose blocks count from 1.
)
# Everything after the last block is layer depth + 1.
AFTER_BLOCKS = (
    "encoder_norm",
    "pooled_norm",
    "final_norm",
    "map_head",
    *HEAD_LAYERS,
    "patch_predictions",
)


def layer_numbers(paths: Sequence[str]) -> list[int]:
    """Returns the layer of each weight: 0 at the image, depth + 1 at the head.

    Patch embedding, class token, position embeddings and a hybrid's ResNet are layer 0, the
    encoder block i layer i + 1, the last norm and the head depth + 1, as in BEiT (arXiv
    2106.08254).

    Args:
        paths: The weights' paths.

    Raises:
        ValueError: If no weight is of a block.
    """
    for rules in BLOCKS:
        numbers = [_number(path, rules) for path in paths]
        if any(numbers):
            break
    else:
        raise ValueError(
            "Layer-wise decay needs the blocks of a model of keras_vit.build. Received: weights "
            f"{', '.join(paths[:5]) or 'none'} ..."
        )
    last = max(numbers) + 1
    head = re.compile(rf"(?:^|/)(?:{'|'.join(AFTER_BLOCKS)})/")
    return [
        last if head.search(path) else number for path, number in zip(paths, numbers, strict=True)
    ]


def _number(path, rules):
    for pattern, offset in rules:
        match = re.search(rf"(?:^|/){pattern}", path)
        if match:
            return int(match[1]) + offset
    return 0
