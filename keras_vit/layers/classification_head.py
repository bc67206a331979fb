"""Heads: class scores of a representation, and attention pooling (MAP)."""

import math

import keras
from keras import ops

from keras_vit.configs.blocks import PoolingConfig, documented_by
from keras_vit.layers.attention import make_projections
from keras_vit.layers.base_layers import CompositeLayer, ConfiguredLayer
from keras_vit.layers.encoder_block import MLP
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
@documented_by(PoolingConfig)
class AttentionPooling(CompositeLayer, ConfiguredLayer):
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
        self.query, self.key, self.value, self.out = make_projections(
            dim, self.config.num_heads, policy
        )
        self.norm = LayerNorm(config.norm_epsilon, dtype=policy, name="norm")
        self.mlp = MLP(config.mlp, dtype=policy, name="mlp")
        for part in (self.norm, self.mlp):
            part.build((None, None, dim))

    def call(self, tokens):
        # A tensor also in eager mode; gradients of quantised layers take no variables.
        probe = ops.reshape(self.probe, self.probe.shape)
        query = self.query(probe) / math.sqrt(
            tokens.shape[-1] // self.config.num_heads
        )  # (1, 1, k, D_h)
        key, value = self.key(tokens), self.value(tokens)  # (B, N, k, D_h)
        logits = ops.sum(query * key, axis=-1)  # (B, N, k)
        attention = ops.softmax(ops.cast(logits, "float32"), axis=1)
        attention = ops.cast(attention, value.dtype)
        mixed = ops.sum(attention[..., None] * value, axis=1, keepdims=True)
        x = self.out(mixed)  # (B, 1, D)
        return (x + self.mlp(self.norm(x)))[:, 0]
