"""Multi-head self-attention with the official kernel shapes."""

import math

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention; paper, equations 5 to 8.

        [q, k, v] = z U_qkv
        A = softmax(q k^T / sqrt(D_h))
        MSA(z) = [A_1 v_1; ...; A_k v_k] U_msa

    Differs from `keras.layers.MultiHeadAttention`: the projections are plain matrix
    products, which TensorFlow runs faster than einsums; the softmax is float32 under every
    dtype policy; and the attention probabilities come from the same operations whether they
    are returned or not.
    Kernels have the shapes of the official files: query, key and value `(D, k, D_h)`,
    out `(k, D_h, D)`, with Glorot-uniform values of the flattened matrix.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        dropout_rate: Share of attention probabilities dropped, in [0, 1).
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.
        return_attention: Whether to return the probabilities too.
        as_rows: Whether to return the tokens of all examples as the rows of a matrix.

    Output shape:
        `(B, N, D)`, or `(B N, D)` as rows; with `return_attention` a pair, the second
        `(B, k, N, N)` float32 before dropout, whose rows sum to one.

    Raises:
        ValueError: On build, if `num_heads` does not divide D.

    Example:
    >>> attention = SelfAttention(num_heads=3)
    >>> tuple(attention(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    def __init__(self, num_heads, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate

    def build(self, input_shape):
        dim = input_shape[-1]
        if dim % self.num_heads:
            raise ValueError(
                "The number of heads must divide the token size. "
                f"Received: num_heads={self.num_heads}, token size={dim}"
            )
        self.head_dim = dim // self.num_heads
        heads = (self.num_heads, self.head_dim)
        self.query, self.key, self.value = (
            keras.layers.EinsumDense(
                "abc,cde->abde", (None, *heads), bias_axes="de", dtype=self.dtype_policy, name=name
            )
            for name in ("query", "key", "value")
        )
        self.out = keras.layers.EinsumDense(
            "abcd,cde->abe", (None, dim), bias_axes="e", dtype=self.dtype_policy, name="out"
        )
        for projection in (self.query, self.key, self.value):
            projection.build(input_shape)
        self.out.build((*input_shape[:-1], *heads))
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy, name="dropout")

    def call(self, tokens, training=False, seed=None, return_attention=False, as_rows=False):
        return self._attend(tokens, training, seed, return_attention, as_rows)

    def _attend(self, tokens, training, seed, return_attention, as_rows, added_logits=None):
        """Runs the layer; `added_logits` is a function of the queries `(B, k, N, D_h)`."""
        # The scale goes into the query's kernel, the smallest tensor that it can go into.
        query = self._heads(self.query, tokens, scale=1 / math.sqrt(self.head_dim))
        key, value = self._heads(self.key, tokens), self._heads(self.value, tokens)
        logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        if added_logits is not None:
            logits = logits + added_logits(query)
        attention = ops.softmax(ops.cast(logits, "float32"))  # (B, k, N, N)
        dropped = self.dropout(attention, training=training, seed=seed)
        mixed = ops.matmul(ops.cast(dropped, value.dtype), value)
        outputs = self._project(self.out, ops.transpose(mixed, (0, 2, 1, 3)))
        outputs = outputs if as_rows else ops.reshape(outputs, ops.shape(tokens))
        return (outputs, attention) if return_attention else outputs

    def _heads(self, projection, tokens, scale=1.0):
        """Projects tokens `(B, N, D)` to heads `(B, k, N, D_h)`."""
        length = ops.shape(tokens)[1]
        x = self._project(projection, tokens, scale)
        x = ops.reshape(x, (-1, length, self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def _project(self, projection, x, scale=1.0):
        """Projects `(B, N, D)` or `(B, N, k, D_h)` to rows `(B N, D)`."""
        dim = self.num_heads * self.head_dim
        if projection.quantization_mode is not None:
            return ops.reshape(projection(x) * scale, (-1, dim))
        # A 2-D product with its bias is one fused operation; an einsum is several.
        kernel = ops.reshape(projection.kernel, (dim, dim))
        bias = ops.reshape(projection.bias, (dim,))
        if scale != 1:
            kernel, bias = kernel * scale, bias * scale
        return ops.add(ops.matmul(ops.reshape(x, (-1, dim)), kernel), bias)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout_rate": self.dropout_rate,
        }
