"""Self-attention that knows how far apart two patches are."""

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.grid_table import GridTable


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeSelfAttention(GridTable, SelfAttention):
    """Self-attention with one-dimensional relative positions; paper, Appendix D.4.

    Patches are numbered in raster order, p = 0 ... N - 1. Each offset p_q - p_k of a query
    from a key has a learned embedding r, which is a second key for the query's content:

        A = softmax((q k^T + q r_{p_q - p_k}^T) / sqrt(D_h))

    Every head has its own part of the embedding, as it has of a key. There are 2 N - 1
    offsets; row o + N - 1 of the table belongs to offset o. Tokens in front of the patches
    (the class token) stand nowhere, so a pair with one of them has the content's logit only.
    A head that reads the class token alone hence learns nothing for the last block's table.

    Another grid than the table's: offsets are taken apart into rows and columns, placed on
    the old grid with aligned corners, interpolated linearly, and put together again; see
    `resize_offsets`. On the table's own grid this changes nothing.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        grid: Patches (down, across) that the table is for; (1, length) for a line.
        num_prefix_tokens: Tokens in front of the patches.
        dropout_rate: Share of attention probabilities dropped, in [0, 1).
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, P + N, D)`: batch, prefix and patches, token size.
        training: Whether to drop.
        seed: Seed of the dropout, see `keras_vit.layers.Dropout`.
        return_attention: Whether to return the probabilities too.
        patches: Only where the grid of the input may differ from `grid`: the map
            `(B, down, across, D)` that the patches were made of; only its shape is read.
            A line needs none: its length is that of the sequence.

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

    def __init__(self, num_heads, grid, num_prefix_tokens=0, dropout_rate=0.0, **kwargs):
        super().__init__(num_heads, dropout_rate, **kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape, patches_shape=None):
        super().build(tokens_shape)
        num_offsets = 2 * self.grid[0] * self.grid[1] - 1
        self.offset_embedding = self.add_weight(
            shape=(num_offsets, self.num_heads, self.head_dim),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="offset_embedding",
        )

    def call(
        self,
        tokens,
        training=False,
        seed=None,
        return_attention=False,
        as_rows=False,
        patches=None,
    ):
        grid = self._grid_of(tokens, patches)
        return self._attend(
            tokens,
            training,
            seed,
            return_attention,
            as_rows,
            added_logits=lambda query: self._position_logits(query, grid),
        )

    def compute_output_spec(
        self,
        tokens,
        training=False,
        seed=None,
        return_attention=False,
        as_rows=False,
        patches=None,
    ):
        return _output_spec(self, tokens, return_attention, as_rows)

    def resized(self, table, grid):
        """Returns a table for another grid, two numbers, resized to that of the layer."""
        return resize_offsets(ops.convert_to_tensor(table), tuple(grid), self.grid)

    def _grid_of(self, tokens, patches):
        if patches is not None:
            return ops.shape(patches)[1:3]
        if self.grid[0] == 1:
            return (1, ops.shape(tokens)[1] - self.num_prefix_tokens)
        return self.grid

    def _position_logits(self, query, grid):
        """The query's products with the embeddings of its offsets; zero for prefix tokens."""
        table = ops.convert_to_tensor(self.offset_embedding)
        unchanged = all(isinstance(side, int) for side in grid) and tuple(grid) == self.grid
        if not unchanged:
            table = resize_offsets(table, self.grid, grid)
        # From the largest offset down: the keys of one query then have rising columns.
        keys = ops.transpose(ops.flip(ops.cast(table, query.dtype), axis=0), (1, 2, 0))
        prefix = self.num_prefix_tokens
        products = ops.matmul(query[:, :, prefix:], keys)  # (B, k, N, 2 N - 1)
        logits = shift_to_pairs(products)
        return ops.pad(logits, ((0, 0), (0, 0), (prefix, 0), (prefix, 0))) if prefix else logits

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_prefix_tokens": self.num_prefix_tokens,
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

    def build(self, tokens_shape, patches_shape=None):
        super().build(tokens_shape)

    def make_attention(self):
        return RelativeSelfAttention(
            self.num_heads,
            self.grid,
            self.num_prefix_tokens,
            self.attention_dropout_rate,
            dtype=self.dtype_policy,
            name="attention",
        )

    def call(self, tokens, training=False, return_attention=False, patches=None):
        return self.encode(tokens, training, return_attention, patches=patches)

    def compute_output_spec(self, tokens, training=False, return_attention=False, patches=None):
        return _output_spec(self, tokens, return_attention)

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_prefix_tokens": self.num_prefix_tokens,
        }


def _output_spec(layer, tokens, return_attention, as_rows=False):
    """Written out, as JAX does not find the shapes of unknown sizes by itself."""
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


def resize_offsets(table, old_grid, new_grid):
    """Returns a table of offset embeddings for another grid.

    On a grid (h, w) the offset o of two patches is `rows * w + columns`, so the old table
    has a value for each step of (rows, columns). A step on the new grid is the step of the
    same length on the old one, with aligned corners as in `PositionEmbedding`, and its value
    is interpolated linearly between the four nearest.

    Two steps of the new grid share an offset, (rows, columns) and (rows + 1, columns - w):
    the last columns of one row touch the first of the next. The offset gets the mean of
    both, weighted by the number of pairs of patches with each step, which is the
    one-dimensional table nearest to the two-dimensional values in least squares.

    Args:
        table: `(2 N - 1, ...)`, N = h * w patches of the old grid.
        old_grid: Patches (down, across) before, two numbers.
        new_grid: Patches (down, across) after, two numbers or scalar tensors.

    Returns:
        A tensor `(2 N' - 1, ...)` of the table's dtype.
    """
    down, across = new_grid
    num_patches = down * across
    offsets = ops.arange(2 * num_patches - 1, dtype="int32") - (num_patches - 1)
    rows = ops.floor_divide(offsets, across)
    columns = offsets - rows * across  # 0 ... across - 1
    upper = _steps(table, old_grid, new_grid, rows, columns)
    lower = _steps(table, old_grid, new_grid, rows + 1, columns - across)
    upper_pairs = ops.maximum(down - ops.abs(rows), 0) * (across - columns)
    lower_pairs = ops.maximum(down - ops.abs(rows + 1), 0) * columns
    share = ops.cast(upper_pairs, "float32") / ops.cast(upper_pairs + lower_pairs, "float32")
    share = _as_column(share, table)
    return share * upper + (1 - share) * lower


def _steps(table, old_grid, new_grid, rows, columns):
    """The table's values at steps of the new grid, between the four nearest old ones."""
    centre = old_grid[0] * old_grid[1] - 1
    parts = []
    for step, old, new in zip((rows, columns), old_grid, new_grid, strict=True):
        scale = (old - 1) / ops.cast(ops.maximum(new - 1, 1), "float32")
        place = ops.clip(ops.cast(step, "float32") * scale, 1 - old, old - 1)
        first = ops.floor(place)
        share = place - first
        first = ops.cast(first, "int32")
        parts.append(((first, 1 - share), (ops.minimum(first + 1, old - 1), share)))
    return sum(
        _as_column(row_share * column_share, table)
        * ops.take(table, row * old_grid[1] + column + centre, axis=0)
        for row, row_share in parts[0]
        for column, column_share in parts[1]
    )


def _as_column(shares, table):
    return ops.cast(ops.reshape(shares, (-1, *[1] * (len(table.shape) - 1))), table.dtype)
