"""Multi-head self-attention with the official kernel shapes, also with relative positions."""

import math

import keras
from keras import ops

from keras_vit.configs.blocks import AttentionConfig
from keras_vit.layers.base_layers import ConfiguredLayer, add_table, arguments
from keras_vit.layers.fused import RowProjection, add_branch, reshape
from keras_vit.layers.fused_attention import fused_attention
from keras_vit.layers.norms import LayerNorm
from keras_vit.layers.positions import RotaryPositions, resize_offsets
from keras_vit.layers.random_numbers import Dropout


def make_projections(dim, num_heads, dtype_policy, kind=keras.layers.EinsumDense):
    """Returns the projections of multi-head attention, built, with the official kernel shapes.

    Args:
        dim: Token size, D.
        num_heads: Attention heads, k.
        dtype_policy: A Keras dtype policy.
        kind: The class of the layers, `keras.layers.EinsumDense` or `RowProjection`.

    Returns:
        Layers: query, key and value with kernels `(D, k, D_h)`, and out with `(k, D_h, D)`.

    Raises:
        ValueError: If `num_heads` does not divide D.
    """
    if dim % num_heads:
        raise ValueError(
            "The number of heads must divide the token size. "
            f"Received: num_heads={num_heads}, token size={dim}"
        )
    heads = (num_heads, dim // num_heads)
    layers = [
        kind("abc,cde->abde", (None, *heads), bias_axes="de", dtype=dtype_policy, name=name)
        for name in ("query", "key", "value")
    ]
    out = kind("abcd,cde->abe", (None, dim), bias_axes="e", dtype=dtype_policy, name="out")
    for layer in layers:
        layer.build((None, None, dim))
    out.build((None, None, *heads))
    return *layers, out


@keras.saving.register_keras_serializable(package="keras_vit")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention; paper, equations 5 to 8.

        [q, k, v] = z U_qkv
        A = softmax(q k^T / sqrt(D_h))
        MSA(z) = [A_1 v_1; ...; A_k v_k] U_msa

    Differs from `keras.layers.MultiHeadAttention`: the projections are plain matrix
    products, which TensorFlow runs faster than einsums, and the softmax is float32 under every
    dtype policy. Where `fused_attention` knows one kernel for all of it, as on GPUs, that is
    used unless probabilities are returned or dropped.
    Kernels have the shapes of the official files: query, key and value `(D, k, D_h)`,
    out `(k, D_h, D)`, with Glorot-uniform values of the flattened matrix.

    Args:
        *fields: An `AttentionConfig`, or its fields.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.
        return_attention: Whether to return the probabilities too.
        as_rows: Whether to return the tokens of all examples as the rows of a matrix.
        patches: The map `(B, down, across, D)` that the patches among the tokens were made of,
            for rotary and relative positions.

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

    config_type = AttentionConfig
    adds_logits = False  # For positions.

    def build(self, tokens_shape, patches_shape=None):
        dim, config, policy = tokens_shape[-1], self.config, self.dtype_policy
        self.head_dim = dim // config.num_heads
        self.query, self.key, self.value, self.out = make_projections(
            dim, config.num_heads, policy, RowProjection
        )
        if config.qk_norm:
            self.query_norm, self.key_norm = (
                LayerNorm(config.norm_epsilon, dtype=policy, name=name)
                for name in ("query_norm", "key_norm")
            )
            for norm in (self.query_norm, self.key_norm):
                norm.build((None, None, None, self.head_dim))
        if config.rotary:
            self.rotation = RotaryPositions(config.rotary, dtype=policy, name="rotation")
            self.rotation.build((None, config.num_heads, None, self.head_dim))
        self.dropout = Dropout(config.dropout_rate, dtype=policy, name="dropout")
        self.dropout.build((None, config.num_heads, None, None))

    def call(
        self, tokens, training=False, seed=None, return_attention=False, as_rows=False, patches=None
    ):
        fused = attention = None
        if not (return_attention or self.adds_logits or (training and self.config.dropout_rate)):
            fused = fused_attention(tokens, self.num_heads)
        padding, z = fused.padding if fused else 0, tokens
        if padding:
            z = ops.pad(tokens, ((0, 0), (0, padding), (0, 0)))
        scale = 1 / math.sqrt(self.head_dim)
        query = self._to_heads(self.query, z, 1.0 if self.config.qk_norm else scale)
        key, value = self._to_heads(self.key, z), self._to_heads(self.value, z)
        if self.config.qk_norm:
            query = self.query_norm(query, training=training) * scale
            key = self.key_norm(key, training=training)
        if self.config.rotary:
            query, key = self.rotation(query, key, patches, padding=padding)
        if fused:
            key, value = (
                part if part.dtype == query.dtype else ops.cast(part, query.dtype)
                for part in (key, value)
            )
            mixed = fused.attend(query, key, value)
        else:
            logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # Equation 6.
            logits = self.add_position_logits(logits, query, patches)
            attention = ops.softmax(ops.cast(logits, "float32"))  # (B, k, N, N)
            dropped = self.dropout(attention, training=training, seed=seed)
            mixed = ops.matmul(ops.cast(dropped, value.dtype), value)  # Equation 7.
        mixed = ops.transpose(mixed, (0, 2, 1, 3))  # From (B, k, N, D_h) to (B, N, k, D_h).
        outputs = self.out(mixed)  # (B N, D), equation 8.
        if padding:
            outputs = ops.reshape(outputs, ops.shape(z))[:, :-padding]
            outputs = ops.reshape(outputs, (-1, tokens.shape[-1]))
        outputs = outputs if as_rows else reshape(outputs, ops.shape(tokens))
        return (outputs, attention) if return_attention else outputs

    def add_position_logits(self, logits, query, patches):
        """Returns the logits `(B, k, N, N)`; `RelativeSelfAttention` adds to them."""
        return logits

    def _to_heads(self, projection, tokens, scale=1.0):
        """Projects tokens `(B, N, D)` to heads `(B, k, N, D_h)`; equation 5."""
        length = ops.shape(tokens)[1]
        x = reshape(projection(tokens, scale=scale), (-1, length, self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def compute_output_spec(self, tokens, return_attention=False, as_rows=False, **kwargs):
        return output_spec(self, tokens, return_attention, as_rows)


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeSelfAttention(SelfAttention):
    """Self-attention with one-dimensional relative positions; paper, Appendix D.4.

    Patches are numbered in raster order, p = 0 ... N - 1. Each offset p_q - p_k of a query
    from a key has a learned embedding r, which is a second key for the query's content:

        A = softmax((q k^T + q r_{p_q - p_k}^T) / sqrt(D_h))

    Every head has its own part of the embedding, as of a key. There are 2 N - 1 offsets; row
    o + N - 1 of the table belongs to offset o. Tokens in front of the patches (the class
    token) have no position, so a pair with one of them has the content's logit only. If the
    head reads the class token alone, the last block's table gets no gradient.

    For another grid than the table's, offsets are split into rows and columns, placed on the
    old grid with aligned corners, interpolated linearly, and joined again; see
    `resize_offsets`. On the table's own grid this changes nothing.

    Args:
        *fields: An `AttentionConfig`, or its fields.
        grid: Patches (down, across) that the table is for; (1, length) for a line.
        num_prefix_tokens: Tokens in front of the patches.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, P + N, D)`: batch, prefix and patches, token size.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.
        return_attention: Whether to return the probabilities too.
        patches: Needed only if the grid of the input may differ from `grid`: the map
            `(B, down, across, D)` that the patches were made of; only its shape is read.
            Not needed for a line, which is as long as the sequence.

    Output shape:
        `(B, P + N, D)`; with `return_attention` a pair, the second `(B, k, P + N, P + N)`
        float32 before dropout.

    Raises:
        ValueError: On build, if `num_heads` does not divide D.

    Example:
    >>> attention = RelativeSelfAttention(num_heads=3, grid=(14, 14), num_prefix_tokens=1)
    >>> tuple(attention(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    adds_logits = True

    def __init__(self, *fields, grid, num_prefix_tokens=0, **kwargs):
        super().__init__(*fields, **kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens

    def get_config(self):
        return {**super().get_config(), **arguments(self, "grid", "num_prefix_tokens")}

    def build(self, tokens_shape, patches_shape=None):
        super().build(tokens_shape)
        num_offsets = 2 * self.grid[0] * self.grid[1] - 1
        shape = (num_offsets, self.num_heads, self.head_dim)
        self.offset_embedding = add_table(self, "offset_embedding", shape)

    def add_position_logits(self, logits, query, patches):
        prefix, grid = self.num_prefix_tokens, self.grid
        if patches is not None:
            grid = tuple(ops.shape(patches)[1:3])
        elif self.grid[0] == 1:
            grid = (1, ops.shape(query)[2] - prefix)
        table = ops.convert_to_tensor(self.offset_embedding)
        if not all(isinstance(side, int) for side in grid) or grid != self.grid:
            table = resize_offsets(table, self.grid, grid)
        # From the largest offset down: the keys of one query then have rising columns.
        keys = ops.transpose(ops.flip(ops.cast(table, query.dtype), axis=0), (1, 2, 0))
        products = ops.matmul(query[:, :, prefix:], keys)  # (B, k, N, 2 N - 1)
        added = shift_to_pairs(products)  # (B, k, N, N)
        if prefix:
            added = ops.pad(added, ((0, 0), (0, 0), (prefix, 0), (prefix, 0)))
        return add_branch(logits, added)


def output_spec(layer, tokens, return_attention, as_rows=False):
    """Returns the shapes and dtypes of outputs, which JAX cannot infer for unknown sizes."""
    batch, length, dim = tokens.shape
    rows = None if None in (batch, length) else batch * length
    shape = (rows, dim) if as_rows else tokens.shape
    outputs = keras.KerasTensor(shape, layer.compute_dtype)
    attention = keras.KerasTensor((batch, layer.num_heads, length, length), "float32")
    return (outputs, attention) if return_attention else outputs


def shift_to_pairs(products):
    """Returns for each query and key the product that belongs to their offset.

    Row i of the result is columns N - 1 - i to 2 N - 2 - i of row i: each row is shifted by
    one against the one above. Reading rows of 2 N columns as rows of 2 N - 1 does so without
    a gather or an `(N, N, D)` array.

    Args:
        products: `(B, k, N, 2 N - 1)`; column m of row i belongs to key j = i + m - (N - 1).

    Returns:
        A tensor `(B, k, N, N)`.
    """
    _, heads, length, columns = ops.shape(products)
    padded = ops.pad(products, ((0, 0), (0, 0), (0, 0), (0, 1)))
    flat = ops.reshape(padded, (-1, heads, length * (columns + 1)))
    flat = flat[:, :, length - 1 : length - 1 + length * columns]
    return ops.reshape(flat, (-1, heads, length, columns))[..., :length]
