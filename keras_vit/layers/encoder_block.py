"""The block that a Vision Transformer repeats."""

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(keras.layers.Layer):
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
            and as many the MLP, in [0, 1); what is left is divided by the share that stays
            (arXiv 1603.09382).
        gelu: "tanh" or "exact".
        norm_epsilon: Added to LayerNorm's variance.
        remat: Whether to keep only the input in training and recompute the rest in the
            backward pass, with the same dropout masks: less memory, more time.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size.
        training: Whether to drop.
        return_attention: Whether to return the attention probabilities too.

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

    def build(self, input_shape):
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
            part.build(input_shape)
        if self._is_random:
            self.seed_generator = keras.random.SeedGenerator()

    @property
    def _is_random(self):
        return self.dropout_rate or self.attention_dropout_rate or self.stochastic_depth_rate

    def make_attention(self):
        """Returns the attention layer, which a variant of the block replaces."""
        return SelfAttention(
            self.num_heads, self.attention_dropout_rate, dtype=self.dtype_policy, name="attention"
        )

    def call(self, tokens, training=False, return_attention=False):
        return self.encode(tokens, training, return_attention)

    def encode(self, tokens, training, return_attention, **attention_arguments):
        """Returns what `call` does; the attention gets the other arguments too."""
        # Drawn here, once: the recomputed pass must see the same masks.
        seed = self.seed_generator.next() if training and self._is_random else None

        def attend_and_mix(z):
            seeds = [None if seed is None else seed + use for use in range(5)]
            shape = ops.shape(z)
            # As rows, so that TensorFlow fuses a sum with the product in front of it.
            rows = ops.reshape(z, (-1, z.shape[-1]))
            y, attention = self.attention(
                self.norm_1(z),
                training=training,
                seed=seeds[0],
                return_attention=True,
                as_rows=True,
                **attention_arguments,
            )
            y = self.dropout(y, training=training, seed=seeds[1])
            rows = rows + self._kept(y, shape, training, seeds[3])
            y = self.mlp(self.norm_2(rows), training=training, seed=seeds[2])
            rows = rows + self._kept(y, shape, training, seeds[4])
            return ops.reshape(rows, shape), attention

        if self.remat and training and not return_attention:
            return keras.remat(lambda z: attend_and_mix(z)[0])(tokens)
        outputs, attention = attend_and_mix(tokens)
        return (outputs, attention) if return_attention else outputs

    def _kept(self, rows, shape, training, seed):
        """Drops all of a branch's rows of some examples: stochastic depth."""
        if not (training and self.stochastic_depth_rate):
            return rows
        branch = self.stochastic_depth(ops.reshape(rows, shape), training=training, seed=seed)
        return ops.reshape(branch, ops.shape(rows))

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
        }
