"""The encoder block of the Vision Transformer, and its MLP."""

from __future__ import annotations

import keras
from keras import ops

from keras_vit.configs.blocks import BlockConfig, MLPConfig
from keras_vit.layers.attention import RelativeSelfAttention, SelfAttention, output_spec
from keras_vit.layers.base_layers import ConfiguredLayer, arguments
from keras_vit.layers.fused import (
    ActivatedDense,
    CalledDirectly,
    RowDense,
    add_branch,
    as_rows,
    call_on_rows,
    fused_in_training,
    reshape,
)
from keras_vit.layers.norms import LayerNorm
from keras_vit.layers.random_numbers import DrawsByExample, Dropout, named_seed


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


# By the field `gelu` of `MLPConfig`.
ACTIVATIONS = {
    "tanh": gelu_tanh,
    "exact": keras.activations.gelu,
    "quick": gelu_quick,
    "relu": keras.activations.relu,
    "swiglu": swiglu,
}
TRAINED_ACTIVATIONS = {name: fused_in_training(function) for name, function in ACTIVATIONS.items()}


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(ConfiguredLayer):
    """Two dense layers with GELU (or another nonlinearity) between; paper, section 3.1.

    Kernels are Glorot-uniform, biases normal with standard deviation 1e-6, as in the
    official code (Keras starts biases at zero).

    Args:
        *fields: An `MLPConfig`, or its fields.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size; or tokens as rows, `(B N, D)`.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.

    Output shape:
        The input's.

    Raises:
        ValueError: If `gelu` is unknown.

    Example:
    >>> mlp = MLP(hidden_dim=768)
    >>> tuple(mlp(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    config_type = MLPConfig

    def build(self, input_shape):
        dim, config, policy = input_shape[-1], self.config, self.dtype_policy

        def options():
            biases = keras.initializers.RandomNormal(stddev=1e-6)
            return {"bias_initializer": biases, "dtype": policy}

        self.dense_1 = ActivatedDense(
            config.first_units,
            ACTIVATIONS[config.gelu],
            TRAINED_ACTIVATIONS[config.gelu],
            name="dense_1",
            **options(),
        )
        self.dense_2 = RowDense(dim, name="dense_2", **options())
        self.dense_1.build((None, dim))
        self.dense_2.build((None, config.hidden_dim))
        self.dropout_1, self.dropout_2 = (
            Dropout(config.dropout_rate, dtype=policy, name=name)
            for name in ("dropout_1", "dropout_2")
        )
        for dropout in (self.dropout_1, self.dropout_2):
            dropout.build((None, None))

    def call(self, tokens, training=False, seed=None):
        if len(tokens.shape) > 2:
            rows = self.call(as_rows(tokens), training, seed)
            return reshape(rows, ops.shape(tokens))
        seed_1, seed_2 = (
            None if seed is None else named_seed(seed, name) for name in ("dropout_1", "dropout_2")
        )
        x = self.dense_1(tokens, training=training)
        x = self.dropout_1(x, training=training, seed=seed_1)
        return self.dropout_2(self.dense_2(x), training=training, seed=seed_2)


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(CalledDirectly):
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
class EncoderBlock(DrawsByExample, ConfiguredLayer):
    """Self-attention, then an MLP, each after a LayerNorm and with a residual.

    Paper, equations 2 and 3:

        z' = MSA(LN(z)) + z
        z  = MLP(LN(z')) + z'

    GELU is the tanh approximation and LayerNorm's epsilon is 1e-6, as in the
    official Flax code; Keras's own defaults differ on both.

    Args:
        *fields: A `BlockConfig`, or its fields.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size.
        training: Whether to drop.
        return_attention: Whether to return the attention probabilities too.
        patches: See `SelfAttention`.

    Output shape:
        `(B, N, D)`; with `return_attention` a pair, the second `(B, k, N, N)`.

    Raises:
        ValueError: If a field is out of range; on build, if `num_heads` does not divide D.

    Example:
    >>> block = EncoderBlock(num_heads=3, mlp_dim=768)
    >>> tuple(block(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    config_type = BlockConfig

    def build(self, tokens_shape, patches_shape=None):
        config, policy = self.config, self.dtype_policy
        self.norm_1, self.norm_2 = (
            LayerNorm(config.norm_epsilon, dtype=policy, name=name) for name in ("norm_1", "norm_2")
        )
        self.attention = self.make_attention()
        self.dropout = Dropout(config.dropout_rate, dtype=policy, name="dropout")
        self.stochastic_depth = Dropout(
            config.stochastic_depth_rate, (None, 1, 1), dtype=policy, name="stochastic_depth"
        )
        self.mlp = MLP(config.mlp, dtype=policy, name="mlp")
        normed = (self.norm_1, self.attention, self.norm_2, self.mlp)
        for part in (*normed, self.dropout, self.stochastic_depth):
            part.build(tokens_shape)
        if config.layer_scale:
            self.layer_scale_1, self.layer_scale_2 = (
                LayerScale(dtype=policy, name=name) for name in ("layer_scale_1", "layer_scale_2")
            )
            for part in (self.layer_scale_1, self.layer_scale_2):
                part.build(tokens_shape)
        if config.is_random:
            self.seed_generator = keras.random.SeedGenerator()

    def make_attention(self):
        """Returns the attention layer; `RelativeEncoderBlock` has another one."""
        return SelfAttention(self.config.attention, dtype=self.dtype_policy, name="attention")

    @call_on_rows
    def call(self, z, run):
        y, attention = self.attend(self.norm_1(z), run)
        z = add_branch(z, self.branch(1, y, run))  # Equation 2.
        y = self.mlp(self.norm_2(z), training=run.training, seed=run.seed_of("mlp"))
        z = add_branch(z, self.branch(2, y, run))  # Equation 3.
        return z, attention

    def attend(self, z, run):
        """Returns the attention's outputs as rows, and its probabilities or None."""
        outputs = self.attention(
            reshape(z, run.shape),
            training=run.training,
            seed=run.seed_of("attention"),
            return_attention=run.return_attention,
            as_rows=True,
            patches=run.patches,
        )
        y, attention = outputs if run.return_attention else (outputs, None)
        return self.dropout(y, training=run.training, seed=run.seed_of("dropout")), attention

    def branch(self, number, y, run):
        """Returns what branch 1 or 2 adds to the tokens: y by LayerScale and stochastic depth."""
        if self.config.layer_scale:
            y = self.layer_scale_1(y) if number == 1 else self.layer_scale_2(y)
        if not (run.training and self.config.stochastic_depth_rate):
            return y
        seed = run.seed_of(f"stochastic_depth_{number}")
        examples = reshape(y, run.shape)
        return as_rows(self.stochastic_depth(examples, training=run.training, seed=seed))

    def compute_output_spec(self, tokens, training=False, return_attention=False, patches=None):
        return output_spec(self, tokens, return_attention)


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeEncoderBlock(EncoderBlock):
    """An encoder block whose attention has relative positions; paper, Appendix D.4.

    Args:
        *fields: A `BlockConfig`, or its fields.
        grid: Patches (down, across) that the table of offsets is for.
        num_prefix_tokens: Tokens in front of the patches.
        **kwargs: Passed to `keras.layers.Layer`.

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

    def __init__(self, *fields, grid, num_prefix_tokens=0, **kwargs):
        super().__init__(*fields, **kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens

    def make_attention(self):
        return RelativeSelfAttention(
            self.config.attention,
            **arguments(self, "grid", "num_prefix_tokens"),
            dtype=self.dtype_policy,
            name="attention",
        )

    def get_config(self):
        return {**super().get_config(), **arguments(self, "grid", "num_prefix_tokens")}
