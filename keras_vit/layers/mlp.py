"""The MLP of an encoder block."""

import keras
from keras import ops

from keras_vit.layers.compiled_gradient import with_compiled_gradient
from keras_vit.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
def gelu_tanh(x):
    """GELU in its tanh approximation, which the official code uses.

    Keras's own "gelu" is the exact form; they differ by up to 5e-4.

    Args:
        x: A tensor of any shape.
    """
    return keras.activations.gelu(x, approximate=True)


GELUS = {"tanh": gelu_tanh, "exact": keras.activations.gelu}
_TRAINED_GELUS = {name: with_compiled_gradient(gelu) for name, gelu in GELUS.items()}


class _GeluDense(keras.layers.Dense):
    """A dense layer followed by GELU.

    Inside of one layer, and so under one name: TensorFlow's optimizer goes by the order of
    names, and fuses the two in inference only there.
    """

    def __init__(self, units, gelu, **kwargs):
        super().__init__(units, **kwargs)
        self.gelu = gelu

    def call(self, inputs, training=False):
        return (_TRAINED_GELUS if training else GELUS)[self.gelu](super().call(inputs))


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(keras.layers.Layer):
    """Two dense layers with GELU between; paper, section 3.1.

    Kernels are Glorot-uniform, biases normal with standard deviation 1e-6, as in the
    official code (Keras starts biases at zero).

    Args:
        hidden_dim: Units of the first layer.
        dropout_rate: Share of units dropped after each dense layer, in [0, 1).
        gelu: "tanh", the approximation of the official code, or "exact", Keras's default.
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

        self.dense_1 = _GeluDense(self.hidden_dim, self.gelu, name="dense_1", **options())
        self.dense_2 = keras.layers.Dense(dim, name="dense_2", **options())
        self.dense_1.build((None, dim))
        self.dense_2.build((None, self.hidden_dim))
        self.dropout_1, self.dropout_2 = (
            Dropout(self.dropout_rate, dtype=self.dtype_policy, name=name)
            for name in ("dropout_1", "dropout_2")
        )

    def call(self, tokens, training=False, seed=None):
        if len(tokens.shape) > 2:  # 2-D products are the ones that TensorFlow fuses.
            rows = ops.reshape(tokens, (-1, tokens.shape[-1]))
            return ops.reshape(self.call(rows, training, seed), ops.shape(tokens))
        seeds = (None, None) if seed is None else (seed, seed + 1)
        x = self.dense_1(tokens, training=training)
        x = self.dropout_1(x, training=training, seed=seeds[0])
        return self.dropout_2(self.dense_2(x), training=training, seed=seeds[1])

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "dropout_rate": self.dropout_rate,
            "gelu": self.gelu,
        }
