"""LayerNorm with float32 statistics, and GroupNorm on tensors of rank 4."""

import functools

import keras
from keras import ops

from keras_vit.layers.fused import (
    ON_PYTORCH,
    CalledDirectly,
    compiled_in_training,
    layer_norm,
)


@functools.cache
def _normalization(axis, epsilon, trained):
    """Returns the function of a tensor, its scale and its shift."""

    def normalize(x, gamma, beta):
        x = ops.cast(x, "float32")
        x = x - ops.mean(x, axis=axis, keepdims=True)
        variance = ops.mean(ops.square(x), axis=axis, keepdims=True)
        return x * ops.rsqrt(variance + epsilon) * gamma + beta

    return compiled_in_training(normalize) if trained else normalize


@functools.cache
def _group_normalization(groups, epsilon, trained):
    """Returns the function of lines `(B, N, C)`, their scale and their shift."""

    def normalize(lines, gamma, beta):
        channels = lines.shape[-1]

        def group_means(x):  # From (B, N, C) to (B, 1, C).
            means = ops.reshape(ops.mean(x, axis=1), (-1, groups, channels // groups))
            means = ops.mean(means, axis=2, keepdims=True)
            return ops.reshape(ops.repeat(means, channels // groups, axis=2), (-1, 1, channels))

        x = ops.cast(lines, "float32")
        x = x - group_means(x)
        return x * (ops.rsqrt(group_means(ops.square(x)) + epsilon) * gamma) + beta

    return compiled_in_training(normalize) if trained else normalize


def _affine(layer):
    """The scale and the shift, float32 like the statistics; the policy "float16" holds less."""
    gamma, beta = layer.gamma if layer.scale else 1.0, layer.beta if layer.center else 0.0
    return ops.cast(gamma, "float32"), ops.cast(beta, "float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(CalledDirectly, keras.layers.LayerNormalization):
    """Normalises each token to mean 0 and variance 1, then scales and shifts it.

        y = (x - mean) / sqrt(variance + epsilon) * gamma + beta

    Differs from `keras.layers.LayerNormalization`: the default epsilon is 1e-6, as in the
    official code, not 1e-3; and the mean is taken off first, which is faster on CPUs and
    keeps the digits that Keras's form `x / s - mean / s` loses where the mean is large.
    Statistics are float32 under every dtype policy.

    Args:
        epsilon: Added to the variance.
        **kwargs: Passed to `keras.layers.LayerNormalization`.

    Raises:
        ValueError: If `epsilon` is not between 0 and 1.

    Call arguments:
        inputs: `(..., D)`.
        training: Whether a gradient will be taken, which TensorFlow then compiles.

    Input shape:
        `(..., D)`.

    Output shape:
        The input's.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        if not 0 < epsilon < 1:
            raise ValueError(f"epsilon must be between 0 and 1. Received: {epsilon}")
        super().__init__(epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        axis = keras.tree.flatten(self.axis)
        super().build(input_shape)
        # Keras 3.16 makes -1 the last axis of this shape; a block also normalises rows.
        self.axis: list[int] = axis

    def call(self, inputs, training=False):
        if ON_PYTORCH and self.axis == [-1] and self.scale and self.center:
            outputs = layer_norm(inputs, self.gamma, self.beta, self.epsilon)
        else:
            normalize = _normalization(tuple(self.axis), self.epsilon, bool(training))
            outputs = normalize(inputs, *_affine(self))
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """GroupNorm of a map, as Keras's, with rows and columns in one axis.

    Keras splits the channels of `(B, H, W, C)` into a fifth axis, which the integer and GPU
    units of phones do not take, and takes a third of the time of a hybrid's step on a CPU. Here the
    mean of a group is the mean of its channels' means.

    Args:
        **kwargs: Passed to `keras.layers.GroupNormalization`, such as `epsilon`.

    Call arguments:
        inputs: `(B, H, W, C)`.
        training: Whether a gradient will be taken, which TensorFlow then compiles.

    Input shape:
        `(B, H, W, C)`: a map; the groups divide C.

    Output shape:
        `(B, H, W, C)`.

    Example:
    >>> norm = GroupNorm(groups=2)
    >>> tuple(norm(keras.ops.zeros((1, 4, 4, 6))).shape)
    (1, 4, 4, 6)
    """

    def call(self, inputs, training=False):
        _, height, width, channels = inputs.shape
        if height is None or width is None:
            return super().call(inputs)
        lines = ops.reshape(inputs, (-1, height * width, channels))
        normalize = _group_normalization(self.groups, self.epsilon, bool(training))
        lines = ops.cast(normalize(lines, *_affine(self)), self.compute_dtype)
        return ops.reshape(lines, (-1, height, width, channels))
