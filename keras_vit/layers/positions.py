"""Position embeddings: learned, with their resizing to another grid, and rotary."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit.configs.position_resize import resize_weights
from keras_vit.layers.base_layers import add_table, arguments


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned embedding to each token; paper, equation 1, E_pos.

    The table is one-dimensional, in raster order of the patches. It knows its grid, so it
    is resized by grid and never by a guess from the number of tokens. Values start normal
    with standard deviation 0.02, as in the official code.

    Args:
        grid: Patches (down, across) that the table is for.
        num_prefix_tokens: Tokens in front of the patches, each with a row in the table.
        num_registers: Tokens between those and the patches, which have no position.
        resize: How the table is resized to another grid, a key of
            `keras_vit.configs.position_resize.RULES`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size; N counts prefix and registers.
        patches: Needed only if the grid of the input may differ from `grid`: the map
            `(B, down, across, D)` that the tokens were made of. The table is then resized to
            its grid.

    Output shape:
        `(B, N, D)`.

    Example:
    >>> layer = PositionEmbedding(grid=(14, 14), num_prefix_tokens=1)
    >>> tuple(layer(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    def __init__(self, grid, num_prefix_tokens=0, num_registers=0, resize="official", **kwargs):
        super().__init__(**kwargs)
        self.resize = resize
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.num_registers = num_registers

    def build(self, tokens_shape, patches_shape=None):
        length = self.num_prefix_tokens + math.prod(self.grid)
        self.embedding = add_table(self, "embedding", (1, length, tokens_shape[-1]))

    def call(self, tokens, patches=None):
        embedding = self.for_grid(None if patches is None else ops.shape(patches)[1:3])
        if self.num_registers:
            prefix = self.num_prefix_tokens
            nothing = ops.zeros((1, self.num_registers, embedding.shape[-1]), embedding.dtype)
            embedding = ops.concatenate(
                [embedding[:, :prefix], nothing, embedding[:, prefix:]], axis=1
            )
        return tokens + ops.cast(embedding, tokens.dtype)

    def for_grid(self, grid):
        """Returns the table `(1, P + N, D)` resized to a grid; unchanged for None."""
        embedding = ops.convert_to_tensor(self.embedding)
        if grid is None:
            return embedding
        dim = embedding.shape[-1]
        prefix, table = ops.split(embedding, [self.num_prefix_tokens], axis=1)
        table = ops.reshape(table, (*self.grid, dim))
        down, across = (
            ops.cast(w, table.dtype) for w in grid_weights(self.resize, self.grid, grid)
        )
        table = ops.tensordot(down, table, axes=1)  # (new down, old across, D)
        table = ops.tensordot(across, table, axes=[[1], [1]])  # (new across, new down, D)
        table = ops.reshape(ops.transpose(table, (1, 0, 2)), (1, -1, dim))
        return ops.concatenate([prefix, table], axis=1)

    def compute_output_shape(self, tokens_shape, patches_shape=None):
        # Written out, as JAX cannot infer that the resized table has a row for each token.
        return tokens_shape

    def get_config(self):
        names = ("grid", "num_prefix_tokens", "num_registers", "resize")
        return {**super().get_config(), **arguments(self, *names)}


def grid_weights(rule, old_grid, new_grid):
    """Returns the matrices `(new, old)` that resize a table down and across, float32.

    Args:
        rule: A key of `keras_vit.configs.position_resize.RULES`.
        old_grid: Patches (down, across) before, two numbers.
        new_grid: Patches (down, across) after, two numbers or scalar tensors.
    """
    matrices = []
    for old, new in zip(old_grid, new_grid, strict=True):
        points = (ops.arange(old, dtype="float32"), ops.arange(new, dtype="float32"))
        sizes = (ops.cast(old, "float32"), ops.cast(new, "float32"))
        matrices.append(resize_weights(rule, *sizes, points, ops))
    return matrices


@keras.saving.register_keras_serializable(package="keras_vit")
class PositionEmbedding2D(PositionEmbedding):
    """Adds an embedding of the patch's column and of its row; paper, Appendix D.4.

    Two tables are learned, each of size D / 2, and a patch at column x and row y gets
    `[X_x; Y_y]`. Tokens in front of the patches have no coordinates: each has a separate row
    of size D, like the class token of the one-dimensional table. All values start normal with
    standard deviation 0.02.

    Args:
        grid: Patches (down, across) that the tables are for.
        num_prefix_tokens: Tokens in front of the patches, each with a row in the table.
        num_registers: Tokens between those and the patches, which have no position.
        resize: How the tables are resized to another grid, a key of
            `keras_vit.configs.position_resize.RULES`.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size; N counts prefix and registers.
        patches: Needed only if the grid of the input may differ from `grid`: the map
            `(B, down, across, D)` that the tokens were made of. Each table is then
            resized to its grid.

    Output shape:
        `(B, N, D)`.

    Example:
    >>> layer = PositionEmbedding2D(grid=(14, 14), num_prefix_tokens=1)
    >>> tuple(layer(keras.ops.zeros((2, 197, 192))).shape)
    (2, 197, 192)
    """

    def build(self, tokens_shape, patches_shape=None):
        dim, (down, across) = tokens_shape[-1], self.grid
        self.x_embedding = add_table(self, "x_embedding", (across, dim // 2))
        self.y_embedding = add_table(self, "y_embedding", (down, dim // 2))
        if self.num_prefix_tokens:
            shape = (self.num_prefix_tokens, dim)
            self.prefix_embedding = add_table(self, "prefix_embedding", shape)

    def for_grid(self, grid):
        x, y = ops.convert_to_tensor(self.x_embedding), ops.convert_to_tensor(self.y_embedding)
        if grid is None:
            grid = self.grid
        else:
            y, x = (
                ops.matmul(ops.cast(weights, table.dtype), table)
                for weights, table in zip(
                    grid_weights(self.resize, self.grid, grid), (y, x), strict=True
                )
            )
        halves = (*grid, x.shape[-1])
        patches = ops.concatenate(
            [ops.broadcast_to(x[None], halves), ops.broadcast_to(y[:, None], halves)], axis=-1
        )
        patches = ops.reshape(patches, (1, -1, 2 * x.shape[-1]))  # (1, N, D)
        if not self.num_prefix_tokens:
            return patches
        prefix = ops.convert_to_tensor(self.prefix_embedding)
        return ops.concatenate([prefix[None], patches], axis=1)


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


@keras.saving.register_keras_serializable(package="keras_vit")
class RotaryPositions(keras.layers.Layer):
    """Turns pairs of units of queries and keys by the position of their patch (RoPE, as DINOv3).

    The pair of units i and i + D_h / 2 of the patch at row y of h and column x of w is turned by
    an angle (arXiv 2104.09864, 2508.10104), whose frequency is f_j = t^(-4 j / D_h),
    j = 0 ... D_h / 4 - 1; rows have the first half of the pairs, columns the second:

        [u; v] -> [u cos a - v sin a; v cos a + u sin a]
        a = 2 pi f_j (2 (y + 1/2) / h - 1)    or the same of x and w

    so that the logit of two patches depends on the steps between them. Tokens in front of the
    patches are not turned. Angles are computed from the grid, in float32 under every dtype
    policy, so a model serves images of any size.

    Args:
        temperature: The base of the frequencies, t.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        query: `(B, k, P + N, D_h)`: batch, heads, prefix and patches, units of a head.
        key: `(B, k, P + N, D_h)`.
        patches: The map `(B, down, across, D)` that the patches were made of; only its shape is
            read.
        padding: Tokens behind the patches, which are not turned either.

    Output shape:
        A pair, the query's and the key's.

    Example:
    >>> rotary = RotaryPositions()
    >>> query = keras.ops.ones((2, 3, 197, 64))
    >>> query, key = rotary(query, query, keras.ops.zeros((2, 14, 14, 192)))
    >>> tuple(key.shape)
    (2, 3, 197, 64)
    """

    def __init__(self, temperature=100.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature

    def build(self, query_shape, key_shape=None, patches_shape=None):
        dim = query_shape[-1]
        spectrum = self.temperature ** (-4 * np.arange(dim // 4) / dim)
        self.frequencies = spectrum.astype("float32")  # (D_h / 4,)

    def call(self, query, key, patches, padding=0):
        grid = ops.shape(patches)[1:3]
        angles = self.angles(grid)  # (N, D_h / 2)
        prefix = ops.shape(query)[2] - grid[0] * grid[1] - padding
        unturned = ops.repeat(ops.zeros_like(angles[:1]), prefix, axis=0)
        angles = ops.concatenate([unturned, angles], axis=0)
        if padding:
            angles = ops.pad(angles, ((0, padding), (0, 0)))
        cos, sin = ops.cos(angles), ops.sin(angles)
        return _turned(query, cos, sin), _turned(key, cos, sin)

    def angles(self, grid):
        """Returns the angles of the patches of a grid (down, across), `(N, D_h / 2)`."""
        down, across = grid
        numbers = ops.arange(down * across, dtype="int32")  # In raster order.
        rows = ops.floor_divide(numbers, across)
        axes = (rows, down), (numbers - rows * across, across)
        frequencies = ops.convert_to_tensor(self.frequencies)
        return ops.concatenate(
            [_centred(place, side)[:, None] * frequencies for place, side in axes], axis=1
        )

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}


def _centred(place, side):
    place, side = ops.cast(place, "float32"), ops.cast(side, "float32")
    return 2 * math.pi * (2 * (place + 0.5) / side - 1)


def _turned(x, cos, sin):
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return ops.cast(ops.concatenate(turned, axis=-1), x.dtype)
