"""The encoder block of the Vision Transformer, and its MLP."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention import (
    BiasedSelfAttention,
    RelativeSelfAttention,
    SelfAttention,
    output_spec,
)
from keras_vit.layers.compiled_functions import compiled_in_training
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.norms import LayerNorm
from keras_vit.layers.quantization import QuantizedSublayers
from keras_vit.layers.random_numbers import DrawsByExample, named_seed


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """GELU in its tanh approximation, which the official code uses.

    Keras's own "gelu" is the exact form; they differ by up to 5e-4.

    Args:
        x: A tensor of any shape.
    """
    return keras.activations.gelu(x, approximate=True)


def gelu_quick(x):
    """The approximation of GELU in CLIP, `x sigmoid(1.702 x)`; differs by up to 2e-2."""
    return x * ops.sigmoid(1.702 * x)


def swiglu(x):
    """Returns the second half of the last axis, gated by SiLU of the first half."""
    gate, value = ops.split(x, 2, axis=-1)
    return ops.silu(gate) * value


GELUS = {
    "tanh": gelu_tanh,
    "exact": keras.activations.gelu,
    "quick": gelu_quick,
    "relu": keras.activations.relu,
    "swiglu": swiglu,
}
_TRAINED_GELUS = {name: compiled_in_training(gelu) for name, gelu in GELUS.items()}


class _GeluDense(keras.layers.Dense):
    """A dense layer followed by GELU.

    Both in one layer, and so under one name: TensorFlow's graph optimizer visits operations in
    the order of their names, and fuses the two in inference only if they are neighbours.
    """

    def __init__(self, units, gelu, **kwargs):
        super().__init__(units, **kwargs)
        self.gelu = gelu

    def call(self, inputs, training=False):
        return (_TRAINED_GELUS if training else GELUS)[self.gelu](super().call(inputs))

    def quantized_call(self, inputs, training=False):
        outputs = super().quantized_call(inputs, training=training)
        return (_TRAINED_GELUS if training else GELUS)[self.gelu](outputs)

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras refuses subclasses, as it does not know what they compute.
        super().quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(keras.layers.Layer):
    """Two dense layers with GELU (or another nonlinearity) between; paper, section 3.1.

    Kernels are Glorot-uniform, biases normal with standard deviation 1e-6, as in the
    official code (Keras starts biases at zero).

    Args:
        hidden_dim: Units of the first layer; half of them with "swiglu".
        dropout_rate: Share of units dropped after each dense layer, in [0, 1).
        gelu: "tanh", the approximation of the official code, "exact", Keras's default, "quick",
            "relu" or "swiglu"; see `keras_vit.ViTConfig`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size; or tokens as rows, `(B N, D)`.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.

    Output shape:
        The input's.

    Example:
    >>> mlp = MLP(hidden_dim=768)
    >>> tuple(mlp(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    def __init__(self, hidden_dim, dropout_rate=0.0, gelu="tanh", **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.dropout_rate = dropout_rate
        self.gelu = gelu

    def build(self, input_shape):
        dim = input_shape[-1]

        def options():
            return {
                "bias_initializer": keras.initializers.RandomNormal(stddev=1e-6),
                "dtype": self.dtype_policy,
            }

        units = 2 * self.hidden_dim if self.gelu == "swiglu" else self.hidden_dim
        self.dense_1 = _GeluDense(units, self.gelu, name="dense_1", **options())
        self.dense_2 = keras.layers.Dense(dim, name="dense_2", **options())
        self.dense_1.build((None, dim))
        self.dense_2.build((None, self.hidden_dim))
        self.dropout_1, self.dropout_2 = (
            Dropout(self.dropout_rate, dtype=self.dtype_policy, name=name)
            for name in ("dropout_1", "dropout_2")
        )

    def call(self, tokens, training=False, seed=None):
        if len(tokens.shape) > 2:  # TensorFlow fuses 2-D products only.
            rows = ops.reshape(tokens, (-1, tokens.shape[-1]))
            return ops.reshape(self.call(rows, training, seed), ops.shape(tokens))
        seed_1, seed_2 = (
            None if seed is None else named_seed(seed, name) for name in ("dropout_1", "dropout_2")
        )
        x = self.dense_1(tokens, training=training)
        x = self.dropout_1(x, training=training, seed=seed_1)
        return self.dropout_2(self.dense_2(x), training=training, seed=seed_2)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "dropout_rate": self.dropout_rate,
            "gelu": self.gelu,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiplies each unit by a learned number (arXiv 2103.17239); starts at 1e-5, as in DINOv2.

    Args:
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(..., D)`.

    Output shape:
        The input's.
    """

    def build(self, input_shape):
        self.gamma = self.add_weight(
            shape=(input_shape[-1],), initializer=keras.initializers.Constant(1e-5), name="gamma"
        )

    def call(self, inputs):
        return inputs * ops.cast(self.gamma, inputs.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(DrawsByExample, QuantizedSublayers):
    """Self-attention, then an MLP, each after a LayerNorm and with a residual.

    Paper, equations 2 and 3:

        z' = MSA(LN(z)) + z
        z  = MLP(LN(z')) + z'

    GELU is the tanh approximation and LayerNorm's epsilon is 1e-6, as in the
    official Flax code; Keras's own defaults differ on both.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        mlp_dim: Hidden units of the MLP.
        dropout_rate: Share of units dropped after each dense layer but query, key and
            value, in [0, 1).
        attention_dropout_rate: Share of attention probabilities dropped, in [0, 1).
        stochastic_depth_rate: Share of examples that skip the attention in a training step,
            and as many the MLP, in [0, 1); the other branches are divided by 1 - rate
            (arXiv 1603.09382).
        gelu: The MLP's nonlinearity: "tanh", "exact", "quick", "relu" or "swiglu".
        norm_epsilon: Added to LayerNorm's variance.
        remat: Whether to keep only the input in training and recompute the rest in the
            backward pass, with the same dropout masks: less memory, more time.
        block_norm: "before" attention and MLP, or "after" them.
        layer_scale: Whether a `LayerScale` multiplies both branches.
        qk_norm: Whether the attention normalises queries and keys.
        rotary: Arguments of `RotaryPositions` for the attention, or None.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size.
        training: Whether to drop.
        return_attention: Whether to return the attention probabilities too.
        patches: See `SelfAttention`.

    Output shape:
        `(B, N, D)`; with `return_attention` a pair, the second `(B, k, N, N)`.

    Raises:
        ValueError: On build, if `num_heads` does not divide D.

    Example:
    >>> block = EncoderBlock(num_heads=3, mlp_dim=768)
    >>> tuple(block(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        gelu="tanh",
        norm_epsilon=1e-6,
        remat=False,
        stochastic_depth_rate=0.0,
        layer_scale=False,
        qk_norm=False,
        block_norm="before",
        rotary=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.gelu = gelu
        self.norm_epsilon = norm_epsilon
        self.remat = remat
        self.stochastic_depth_rate = stochastic_depth_rate
        self.layer_scale = layer_scale
        self.qk_norm = qk_norm
        self.block_norm = block_norm
        self.rotary = rotary

    def build(self, tokens_shape, patches_shape=None):
        policy = self.dtype_policy
        self.norm_1, self.norm_2 = (
            LayerNorm(self.norm_epsilon, dtype=policy, name=name) for name in ("norm_1", "norm_2")
        )
        self.attention = self.make_attention()
        self.dropout = Dropout(self.dropout_rate, dtype=policy, name="dropout")
        self.stochastic_depth = Dropout(
            self.stochastic_depth_rate, (None, 1, 1), dtype=policy, name="stochastic_depth"
        )
        self.mlp = MLP(self.mlp_dim, self.dropout_rate, self.gelu, dtype=policy, name="mlp")
        for part in (self.norm_1, self.attention, self.norm_2, self.mlp):
            part.build(tokens_shape)
        if self.layer_scale:
            self.layer_scale_1, self.layer_scale_2 = (
                LayerScale(dtype=policy, name=name) for name in ("layer_scale_1", "layer_scale_2")
            )
            for part in (self.layer_scale_1, self.layer_scale_2):
                part.build(tokens_shape)
        if self._is_random:
            self.seed_generator = keras.random.SeedGenerator()

    @property
    def _is_random(self):
        return self.dropout_rate or self.attention_dropout_rate or self.stochastic_depth_rate

    def make_attention(self):
        """Returns the attention layer; `RelativeEncoderBlock` has another one."""
        return SelfAttention(
            self.num_heads,
            self.attention_dropout_rate,
            self.qk_norm,
            self.norm_epsilon,
            self.rotary,
            dtype=self.dtype_policy,
            name="attention",
        )

    def call(self, tokens, training=False, return_attention=False, patches=None):
        # Drawn once, outside of the recomputed part, which must see the same masks again.
        seed = self.seed_generator.next() if training and self._is_random else None
        if self.remat and training and not return_attention:
            return keras.remat(lambda z: self._encode(z, training, seed, patches)[0])(tokens)
        outputs, attention = self._encode(tokens, training, seed, patches)
        return (outputs, attention) if return_attention else outputs

    def _encode(self, z, training, seed, patches):
        """Returns the tokens after the block `(B, N, D)`, and the attention probabilities."""

        def seed_of(use):
            return None if seed is None else named_seed(seed, use)

        shape = ops.shape(z)
        # TensorFlow fuses a sum with the product before it if both are matrices, so the
        # residual stream is kept as the rows of all examples, (B N, D).
        rows = ops.reshape(z, (-1, z.shape[-1]))
        is_before = self.block_norm == "before"
        y, attention = self.attention(
            self.norm_1(z) if is_before else z,
            training=training,
            seed=seed_of("attention"),
            return_attention=True,
            as_rows=True,
            patches=patches,
        )
        y = self.dropout(y, training=training, seed=seed_of("dropout"))
        y = y if is_before else self.norm_1(y)
        y = self.layer_scale_1(y) if self.layer_scale else y
        y = self._drop_examples(y, shape, training, seed_of("stochastic_depth_1"))
        rows = rows + y  # Equation 2.
        y = self.norm_2(rows) if is_before else rows
        y = self.mlp(y, training=training, seed=seed_of("mlp"))
        y = y if is_before else self.norm_2(y)
        y = self.layer_scale_2(y) if self.layer_scale else y
        y = self._drop_examples(y, shape, training, seed_of("stochastic_depth_2"))
        rows = rows + y  # Equation 3.
        return ops.reshape(rows, shape), attention

    def _drop_examples(self, rows, shape, training, seed):
        """Sets all rows of some examples to zero: stochastic depth."""
        if not (training and self.stochastic_depth_rate):
            return rows
        branch = self.stochastic_depth(ops.reshape(rows, shape), training=training, seed=seed)
        return ops.reshape(branch, ops.shape(rows))

    def compute_output_spec(self, tokens, training=False, return_attention=False, patches=None):
        return output_spec(self, tokens, return_attention)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "gelu": self.gelu,
            "norm_epsilon": self.norm_epsilon,
            "remat": self.remat,
            "stochastic_depth_rate": self.stochastic_depth_rate,
            "layer_scale": self.layer_scale,
            "qk_norm": self.qk_norm,
            "block_norm": self.block_norm,
            "rotary": self.rotary,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeEncoderBlock(EncoderBlock):
    """An encoder block whose attention has relative positions; paper, Appendix D.4.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        mlp_dim: Hidden units of the MLP.
        grid: Patches (down, across) that the table of offsets is for.
        num_prefix_tokens: Tokens in front of the patches.
        **kwargs: Passed to `keras_vit.layers.EncoderBlock`.

    Call arguments:
        tokens: `(B, P + N, D)`: batch, prefix and patches, token size.
        training: Whether to drop.
        return_attention: Whether to return the attention probabilities too.
        patches: See `RelativeSelfAttention`.

    Output shape:
        `(B, P + N, D)`; with `return_attention` a pair, the second `(B, k, P + N, P + N)`.

    Example:
    >>> block = RelativeEncoderBlock(num_heads=3, mlp_dim=768, grid=(14, 14))
    >>> tuple(block(keras.ops.zeros((2, 196, 192))).shape)
    (2, 196, 192)
    """

    def __init__(self, num_heads, mlp_dim, grid, num_prefix_tokens=0, **kwargs):
        super().__init__(num_heads, mlp_dim, **kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens

    attention_type: Any = RelativeSelfAttention

    def make_attention(self):
        return self.attention_type(
            self.num_heads,
            self.grid,
            self.num_prefix_tokens,
            self.attention_dropout_rate,
            qk_norm=self.qk_norm,
            norm_epsilon=self.norm_epsilon,
            dtype=self.dtype_policy,
            name="attention",
        )

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_prefix_tokens": self.num_prefix_tokens,
        }


@keras.saving.register_keras_serializable(package="keras_vit")
class BiasedEncoderBlock(RelativeEncoderBlock):
    """An encoder block whose attention has relative position biases, as in Swin.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        mlp_dim: Hidden units of the MLP.
        grid: Patches (down, across) that the table of biases is for.
        num_prefix_tokens: Tokens in front of the patches.
        **kwargs: Passed to `keras_vit.layers.EncoderBlock`.

    Call arguments:
        As of `RelativeEncoderBlock`.

    Output shape:
        As of `RelativeEncoderBlock`.

    Example:
    >>> block = BiasedEncoderBlock(num_heads=3, mlp_dim=768, grid=(14, 14))
    >>> tuple(block(keras.ops.zeros((2, 196, 192))).shape)
    (2, 196, 192)
    """

    attention_type = BiasedSelfAttention
