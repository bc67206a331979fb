"""Rotary positions: queries and keys turned by angles that grow with row and column."""

import dataclasses
import json
import math

import keras
import numpy as np
from keras import ops

from keras_vit.configs.blocks import Rotary, documented_by
from keras_vit.layers.base_layers import ConfiguredLayer


@keras.saving.register_keras_serializable(package="keras_vit")
@documented_by(Rotary)
class RotaryPositions(ConfiguredLayer):
    """Turns pairs of units of queries and keys by the position of their patch (RoPE).

    Pair i of the patch at row y and column x is turned by an angle (arXiv 2104.09864, 2403.13298)

        a_i = X_i x + Y_i y
        [u; v] -> [u cos a_i - v sin a_i; v cos a_i + u sin a_i]

    so that the logit of two patches depends on the steps between them. The frequencies
    t^(-4 j / D_h), j = 0 ... D_h / 4 - 1, belong to rows in the first half of the pairs and to
    columns in the second; or all X and Y are learned, for each head. Tokens in front of the
    patches are not turned. Angles are computed from the grid, in float32 under every dtype
    policy, so a model serves images of any size.

    Args:
        *fields: A `Rotary`, or its fields.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        query: `(B, k, P + N, D_h)`: batch, heads, prefix and patches, units of a head.
        key: `(B, k, P + N, D_h)`.
        patches: The map `(B, down, across, D)` that the patches were made of; only its shape is
            read.

    Output shape:
        A pair, the query's and the key's. The units of neighbours are sorted, first all u, then
        all v, which leaves the product of query and key as it is.

    Raises:
        ValueError: On build, if D_h is no multiple of 4; on call, without `patches`.

    Example:
    >>> rotary = RotaryPositions()
    >>> query = keras.ops.ones((2, 3, 197, 64))
    >>> query, key = rotary(query, query, keras.ops.zeros((2, 14, 14, 192)))
    >>> tuple(key.shape)
    (2, 3, 197, 64)
    """

    config_type = Rotary

    def build(self, query_shape, key_shape=None, patches_shape=None):
        _, heads, _, dim = query_shape
        if dim % 4:
            raise ValueError(
                "Rotary positions need heads with a multiple of 4 units. "
                f"Received: {dim} units in a head"
            )
        spectrum = self.config.temperature ** (-4 * np.arange(dim // 4) / dim)
        if self.config.learned:

            def directions(shape, dtype):
                turns = keras.random.uniform((heads, 1), 0, 2 * math.pi, dtype="float32")
                angles = ops.concatenate([turns, turns + math.pi / 2], axis=1)[..., None]
                parts = ops.stack([ops.cos(angles), ops.sin(angles)]) * spectrum
                return ops.cast(ops.reshape(parts, shape), dtype)

            self.frequencies = self.add_weight(
                shape=(2, heads, dim // 2),
                initializer=directions,
                autocast=False,
                name="frequencies",
            )
        else:
            first, second = np.kron(np.eye(2), spectrum)
            of_axes = (first, second) if self.config.columns_first else (second, first)
            self.frequencies = np.stack(of_axes)[:, None].astype("float32")  # (2, 1, D_h / 2)

    def call(self, query, key, patches=None):
        if patches is None:
            raise ValueError("Rotary positions need the map of patches. Received: patches=None")
        grid = ops.shape(patches)[1:3]
        angles = self.angles(grid)  # (k, N, D_h / 2)
        unturned = ops.zeros_like(angles[:, :1])
        prefix = ops.shape(query)[2] - grid[0] * grid[1]
        angles = ops.concatenate([ops.repeat(unturned, prefix, axis=1), angles], axis=1)
        cos, sin = ops.cos(angles), ops.sin(angles)
        return self._turned(query, cos, sin), self._turned(key, cos, sin)

    def angles(self, grid):
        """Returns the angles of the patches of a grid (down, across), `(1 or k, N, D_h / 2)`."""
        down, across = grid
        numbers = ops.arange(down * across, dtype="int32")  # In raster order.
        rows = ops.floor_divide(numbers, across)
        places = (numbers - rows * across, rows)  # x and y.
        frequencies = ops.cast(ops.convert_to_tensor(self.frequencies), "float32")[:, :, None]
        x, y = (
            self._coordinate(place, side, axis)[:, None]
            for place, side, axis in zip(places, (across, down), (1, 0), strict=True)
        )
        return x * frequencies[0] + y * frequencies[1]

    def _coordinate(self, place, side, axis):
        place, side = ops.cast(place, "float32"), ops.cast(side, "float32")
        if self.config.coordinates == "centred":
            return 2 * math.pi * (2 * (place + 0.5) / side - 1)
        if self.config.reference_grid is None:
            return place + self.config.offset
        return (place + self.config.offset) / side * self.config.reference_grid[axis]

    def _turned(self, x, cos, sin):
        values = ops.cast(x, "float32")
        if self.config.pairs == "halves":
            first, second = ops.split(values, 2, axis=-1)
        else:
            first, second = values[..., ::2], values[..., 1::2]
        turned = [first * cos - second * sin, second * cos + first * sin]
        return ops.cast(ops.concatenate(turned, axis=-1), x.dtype)

    def load_own_variables(self, store):
        """Loads the weights, also of earlier versions, which held the arguments as JSON.

        Raises:
            ValueError: If they were saved with other arguments.
        """
        values = {key: store[key] for key in store.keys()}  # noqa: SIM118
        saved = values.pop("rotary", None)
        own = json.loads(json.dumps(dataclasses.asdict(self.config)))
        if saved is not None and (theirs := json.loads(bytes(np.asarray(saved)))) != own:
            raise ValueError(
                "The rotary positions must match the model. "
                f"Received: {theirs}, the model has {own}"
            )
        super().load_own_variables(values)
