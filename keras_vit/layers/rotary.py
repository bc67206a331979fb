"""Rotary positions: queries and keys turned by angles that grow with row and column."""

import math

import keras
import numpy as np
from keras import ops


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

    Output shape:
        A pair, the query's and the key's.

    Raises:
        ValueError: On build, if D_h is no multiple of 4; on call, without `patches`.

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
        if dim % 4:
            raise ValueError(
                "Rotary positions need heads with a multiple of 4 units. "
                f"Received: {dim} units in a head"
            )
        spectrum = self.temperature ** (-4 * np.arange(dim // 4) / dim)
        self.frequencies = spectrum.astype("float32")  # (D_h / 4,)

    def call(self, query, key, patches=None):
        if patches is None:
            raise ValueError("Rotary positions need the map of patches. Received: patches=None")
        grid = ops.shape(patches)[1:3]
        angles = self.angles(grid)  # (N, D_h / 2)
        prefix = ops.shape(query)[2] - grid[0] * grid[1]
        unturned = ops.repeat(ops.zeros_like(angles[:1]), prefix, axis=0)
        angles = ops.concatenate([unturned, angles], axis=0)
        cos, sin = ops.cos(angles), ops.sin(angles)
        return _turned(query, cos, sin), _turned(key, cos, sin)

    def angles(self, grid):
        """Returns the angles of the patches of a grid (down, across), `(N, D_h / 2)`."""
        down, across = grid
        numbers = ops.arange(down * across, dtype="int32")  # In raster order.
        rows = ops.floor_divide(numbers, across)
        axes = (rows, down), (numbers - rows * across, across)
        return ops.concatenate(
            [_centred(place, side)[:, None] * self.frequencies for place, side in axes], axis=1
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
