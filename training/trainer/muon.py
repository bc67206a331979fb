"""Muon, which makes the steps of hidden weight matrices orthogonal."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.configs import CLASSIFIER_LAYERS
from keras_vit.keras_private import variable_index

from .optimizer import Adam, LearningRate

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
        not_orthogonal: Patterns of the paths of kernels that take Adam's steps, as in `fnmatch`.
        **kwargs: See `Adam` and `DecoupledOptimizer`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 1e-3,
        momentum: float = 0.95,
        not_orthogonal: Sequence[str] = HEADS,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1). Received: momentum={momentum}")
        self.momentum = float(momentum)
        self.not_orthogonal = tuple(not_orthogonal)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.matrices = [
            matrix_shape(v.path, v.shape) if self.makes_orthogonal(v.path) else None
            for v in variables
        ]

    def makes_orthogonal(self, path):
        """Returns whether the weight of this path takes orthogonal steps."""
        return fnmatch.fnmatchcase(path, "*kernel") and not any(
            fnmatch.fnmatchcase(path, pattern) for pattern in self.not_orthogonal
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
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "not_orthogonal": self.not_orthogonal,
        }


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


def orthogonal(matrix: Any) -> Any:
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
