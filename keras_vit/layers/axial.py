"""Axial attention: along the rows, then along the columns, of a grid."""

import keras
from keras import ops

from keras_vit.layers.attention import RelativeSelfAttention
from keras_vit.layers.base_layers import CompositeLayer, arguments
from keras_vit.layers.residual_units import PreActivationUnit


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialAttention(CompositeLayer):
    """Row, then column self-attention in place of a convolution; paper, Appendix D.6.

    Each position attends to its row, and then to its column, by `RelativeSelfAttention` with
    the offsets along the line. After both, every position depends on the whole map, at a
    cost that grows with `H W (H + W)` and not with `(H W)^2`.

    A stride is an average over `strides x strides` positions after the attention, as in
    Axial-DeepLab (arXiv 2003.07853); at the right and below, an average of those that exist.

    The parameters are 4 kernels and 4 biases for each axis, and a table of `2 n - 1` offsets
    for lines of n: `2 (4 C^2 + 4 C) + (2 H - 1 + 2 W - 1) C`.

    Args:
        num_heads: Attention heads, k. Divides the channels.
        grid: Positions (down, across) that the tables of offsets are for; a map of another
            size resizes them in the graph.
        strides: Positions of the input per position of the output, on both axes.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `(B, H, W, C)`; H and W may be unknown.

    Output shape:
        `(B, ceil(H / strides), ceil(W / strides), C)`.

    Raises:
        ValueError: On build, if `num_heads` does not divide C.

    Example:
    >>> attention = AxialAttention(num_heads=8, grid=(57, 56), strides=2)
    >>> tuple(attention(keras.ops.zeros((2, 57, 56, 64))).shape)
    (2, 29, 28, 64)
    """

    def __init__(self, num_heads, grid, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.grid = tuple(grid)
        self.strides = strides

    def build(self, input_shape):
        down, across = self.grid
        self.row, self.column = (
            RelativeSelfAttention(
                self.num_heads, grid=(1, length), dtype=self.dtype_policy, name=name
            )
            for name, length in (("row", across), ("column", down))
        )
        for axis in (self.row, self.column):
            axis.build((None, None, input_shape[-1]))

    def call(self, x):
        x = ops.transpose(_along_rows(self.row, x), (0, 2, 1, 3))
        x = ops.transpose(_along_rows(self.column, x), (0, 2, 1, 3))
        if self.strides != 1:
            x = ops.average_pool(
                x, self.strides, self.strides, padding="same", data_format="channels_last"
            )
        return x

    def get_config(self):
        return {**super().get_config(), **arguments(self, "num_heads", "grid", "strides")}


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialUnit(PreActivationUnit):
    """The unit of a BiT ResNet with axial attention for its 3x3 convolution.

        a = relu(norm_1(x))
        y = conv_1(a)                           1x1
        y = attention(relu(norm_2(y)))          rows, columns, then the stride
        y = conv_3(relu(norm_3(y)))             1x1, to 4 times the filters
        output = x + y

    Everything else is as in `PreActivationUnit`.

    Args:
        filters: Channels of the bottleneck; the output has 4 times as many.
        num_heads: Attention heads, k. Divides `filters`.
        grid: Positions (down, across) of the input, see `AxialAttention`.
        strides: Positions of the input per position of the output.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        x: `(B, H, W, C)`.

    Output shape:
        `(B, ceil(H / strides), ceil(W / strides), 4 * filters)`.

    Example:
    >>> unit = AxialUnit(filters=64, num_heads=8, grid=(57, 56), strides=2)
    >>> tuple(unit(keras.ops.zeros((2, 57, 56, 64))).shape)
    (2, 29, 28, 256)
    """

    def __init__(self, filters, num_heads, grid, strides=1, **kwargs):
        super().__init__(filters, strides, **kwargs)
        self.num_heads = num_heads
        self.grid = tuple(grid)

    @property
    def attention(self):
        """The attention layer."""
        return self.conv_2

    def make_spatial_layer(self):
        return AxialAttention(
            self.num_heads, self.grid, self.strides, dtype=self.dtype_policy, name="attention"
        )

    def get_config(self):
        return {**super().get_config(), **arguments(self, "num_heads", "grid")}


def _along_rows(attention, x):
    """Returns the outputs of attention along rows."""
    _, down, across, dim = ops.shape(x)
    rows = ops.reshape(x, (-1, across, dim))
    return ops.reshape(attention(rows), (-1, down, across, dim))


class Lines(keras.layers.Layer):
    """The arguments of `SplitLines` and `JoinLines`."""

    def __init__(self, axis, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis
        self.num_prefix_tokens = num_prefix_tokens

    def get_config(self):
        return {**super().get_config(), **arguments(self, "axis", "num_prefix_tokens")}


@keras.saving.register_keras_serializable(package="keras_vit")
class SplitLines(Lines):
    """Makes a sequence of each row, or each column, of the patches' grid.

    The next layer sees one line at a time. Tokens in front of the patches (the class token)
    belong to no line, so each line gets a copy of them; `JoinLines` takes the mean of the copies.

    Args:
        axis: "row" or "column".
        num_prefix_tokens: Tokens in front of the patches, P.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, P + N, D)`: batch, prefix and patches in raster order, token size.
        patches: The map `(B, down, across, D)` that the patches were made of; only its
            shape is read.

    Output shape:
        `(B * down, P + across, D)` for rows, `(B * across, P + down, D)` for columns; the
        lines of one image follow each other.

    Example:
    >>> tokens, patches = keras.ops.zeros((2, 85, 192)), keras.ops.zeros((2, 12, 7, 192))
    >>> tuple(SplitLines("column", num_prefix_tokens=1)(tokens, patches).shape)
    (14, 13, 192)
    """

    def compute_output_shape(self, tokens_shape, patches_shape):
        batch, *grid, dim = patches_shape
        num_lines, length = grid if self.axis == "row" else grid[::-1]
        return (
            None if None in (batch, num_lines) else batch * num_lines,
            None if length is None else self.num_prefix_tokens + length,
            dim,
        )

    def call(self, tokens, patches):
        _, down, across, dim = ops.shape(patches)
        prefix = self.num_prefix_tokens
        grid = ops.reshape(tokens[:, prefix:], (-1, down, across, dim))
        num_lines, length = (down, across) if self.axis == "row" else (across, down)
        if self.axis == "column":
            grid = ops.transpose(grid, (0, 2, 1, 3))
        lines = ops.reshape(grid, (-1, length, dim))
        if not prefix:
            return lines
        copies = ops.repeat(tokens[:, :prefix], num_lines, axis=0)  # (B * lines, P, D)
        return ops.concatenate([copies, lines], axis=1)


@keras.saving.register_keras_serializable(package="keras_vit")
class JoinLines(Lines):
    """Joins the lines of an image, made by `SplitLines`, to one sequence.

    The tokens in front are the mean over the lines, as in divided space-time attention
    (arXiv 2102.05095): a class token is the average of its copies.

    Args:
        axis: "row" or "column".
        num_prefix_tokens: Tokens in front of the patches, P.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        lines: `(B * down, P + across, D)` for rows, `(B * across, P + down, D)` for columns.
        patches: The map `(B, down, across, D)` that the patches were made of; only its
            shape is read.

    Output shape:
        `(B, P + N, D)`.

    Example:
    >>> lines, patches = keras.ops.zeros((14, 13, 192)), keras.ops.zeros((2, 12, 7, 192))
    >>> tuple(JoinLines("column", num_prefix_tokens=1)(lines, patches).shape)
    (2, 85, 192)
    """

    def compute_output_shape(self, lines_shape, patches_shape):
        batch, down, across, dim = patches_shape
        length = None if None in (down, across) else self.num_prefix_tokens + down * across
        return (batch, length, dim)

    def call(self, lines, patches):
        _, down, across, dim = ops.shape(patches)
        prefix = self.num_prefix_tokens
        num_lines, length = (down, across) if self.axis == "row" else (across, down)
        grid = ops.reshape(lines[:, prefix:], (-1, num_lines, length, dim))
        if self.axis == "column":
            grid = ops.transpose(grid, (0, 2, 1, 3))
        tokens = ops.reshape(grid, (-1, down * across, dim))
        if not prefix:
            return tokens
        copies = ops.reshape(lines[:, :prefix], (-1, num_lines, prefix, dim))
        return ops.concatenate([ops.mean(copies, axis=1), tokens], axis=1)
