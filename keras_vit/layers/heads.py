"""Heads: class scores, attention pooling (MAP), and the class "unknown"."""

from __future__ import annotations

import math

import keras
from keras import ops

from keras_vit.configs.blocks import PoolingConfig
from keras_vit.layers.attention import make_projections
from keras_vit.layers.base_layers import ConfiguredLayer, arguments
from keras_vit.layers.encoder_block import MLP
from keras_vit.layers.fused import add_branch
from keras_vit.layers.norms import LayerNorm


def class_scores(x, classes: int, activation, bias: float = 0.0, name: str = "predictions"):
    """Returns the class scores of a representation by a linear layer.

    The layer starts at zero, as the paper's transfer asks (section 3.2), and computes in
    float32 under every dtype policy: a bfloat16 softmax is wrong in the second digit.

    Args:
        x: A Keras tensor `(B, D)`.
        classes: Number of classes, K.
        activation: A Keras activation, or None for logits.
        bias: Initial value of the bias.
        name: The layer's name.

    Returns:
        A Keras tensor `(B, K)`, float32.
    """
    return keras.layers.Dense(
        classes,
        activation=activation,
        kernel_initializer="zeros",
        bias_initializer=keras.initializers.Constant(bias) if bias else "zeros",
        dtype="float32",
        name=name,
    )(x)


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(ConfiguredLayer):
    """Pools a sequence by attention; the MAP head of big_vision (arXiv 2106.04560).

        x = softmax(p U_q (z U_k)^T / sqrt(D_h)) z U_v U_out        p: a learned probe
        y = x + MLP(LN(x))

    There is no norm before the attention and no residual around it. The softmax is float32
    under every dtype policy. Kernels have the shapes of the official files.

    Args:
        *fields: A `PoolingConfig`, or its fields.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`: batch, tokens, token size.

    Output shape:
        `(B, D)`.

    Raises:
        ValueError: On build, if `num_heads` does not divide D.

    Example:
    >>> pooling = AttentionPooling(num_heads=3, mlp_dim=768)
    >>> tuple(pooling(keras.ops.zeros((2, 196, 192))).shape)
    (2, 192)
    """

    config_type = PoolingConfig

    def build(self, input_shape):
        dim, config, policy = input_shape[-1], self.config, self.dtype_policy
        self.probe = self.add_weight(shape=(1, 1, dim), initializer="glorot_uniform", name="probe")
        projections = make_projections(dim, config.num_heads, policy)
        self.query, self.key, self.value, self.out = projections
        self.norm = LayerNorm(config.norm_epsilon, dtype=policy, name="norm")
        self.mlp = MLP(config.mlp, dtype=policy, name="mlp")
        for part in (self.norm, self.mlp):
            part.build((None, None, dim))

    def call(self, tokens):
        # A tensor also in eager mode; gradients of quantised layers take no variables.
        probe = ops.reshape(self.probe, self.probe.shape)
        head_dim = tokens.shape[-1] // self.config.num_heads
        query = self.query(probe) / math.sqrt(head_dim)  # (1, 1, k, D_h)
        key, value = self.key(tokens), self.value(tokens)  # (B, N, k, D_h)
        logits = ops.sum(ops.multiply(query, key), axis=-1)  # (B, N, k)
        attention = ops.softmax(ops.cast(logits, "float32"), axis=1)
        attention = ops.cast(attention, value.dtype)
        mixed = ops.sum(attention[..., None] * value, axis=1, keepdims=True)
        x = self.out(mixed)  # (B, 1, D)
        return add_branch(x, self.mlp(self.norm(x)))[:, 0]


# What the probabilities of the classes lose to "unknown" where it is the answer, so that it is the
# highest whatever they are.
REFUSED_SHARE = 2 / 3


@keras.saving.register_keras_serializable(package="keras_vit")
class Leverage(keras.layers.Layer):
    """How far an image is from the training images, in the features x of the model.

        h = |(x - center) factor|^2 = (x - center)' (X'X + l2 I)^-1 (x - center)

    with the centered features X of the training images. `center` and `factor` are weights that
    `keras-vit calibrate` computes.

    Args:
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, D)`.

    Output shape:
        `(B, 1)`, float32.
    """

    is_of_unknown = True  # Not a part of the architecture; see `keras_vit.description.abstains`.

    def __init__(self, **kwargs):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})

    def build(self, features_shape):
        dim = features_shape[-1]
        for name, shape in (("center", (dim,)), ("factor", (dim, dim))):
            weight = self.add_weight(
                name=name, shape=shape, dtype="float32", initializer="zeros", trainable=False
            )
            setattr(self, name, weight)

    def call(self, features):
        projected = ops.matmul(ops.cast(features, "float32") - self.center, self.factor)
        return ops.sum(projected * projected, axis=-1, keepdims=True)

    def compute_output_spec(self, features):
        return keras.KerasTensor((features.shape[0], 1), "float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class UnknownClass(keras.layers.Layer):
    """Calibrated probabilities of K classes, and one of "unknown" for images without an answer.

    With the logits z and the leverage h of an image, p = softmax(z / T). The class with the highest
    p is the answer if the image is not strange (its leverage is at most `largest_leverage`) and p
    is at least `threshold`; then "unknown" is 0. Else "unknown" is two thirds, and the
    probabilities of the classes share the rest, so that it is the highest.

    Args:
        temperature: T.
        threshold: The least probability of an answer.
        largest_leverage: The largest leverage of an image that is not strange; None without a
            limit, and without the second input.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        Logits `(B, K)`, and leverages `(B, 1)`.

    Output shape:
        `(B, K + 1)`, float32.
    """

    is_of_unknown = True

    def __init__(self, temperature=1.0, threshold=0.0, largest_leverage=None, **kwargs):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})
        self.temperature, self.threshold = temperature, threshold
        self.largest_leverage = largest_leverage
        self.built = True

    def call(self, logits, leverage=None):
        scaled = ops.cast(logits, "float32") / self.temperature
        probabilities = ops.softmax(scaled, axis=-1)
        highest = ops.max(probabilities, axis=-1, keepdims=True)
        is_refused = ops.logical_not(highest >= self.threshold)  # (B, 1), NaN too.
        if leverage is not None:
            is_refused = ops.logical_or(is_refused, leverage > self.largest_leverage)
        unknown = REFUSED_SHARE * ops.cast(is_refused, "float32")
        return ops.concatenate([(1.0 - unknown) * probabilities, unknown], axis=-1)

    def compute_output_spec(self, logits, leverage=None):
        batch, classes = logits.shape
        return keras.KerasTensor((batch, classes + 1), "float32")

    def get_config(self):
        names = ("temperature", "threshold", "largest_leverage")
        return {**super().get_config(), **arguments(self, *names)}
