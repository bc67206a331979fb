"""Weights for another image, of other channels or with another grid of positions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from keras_vit.checkpoints.code_bases.layouts import POSITIONS, REGISTERS, Checkpoint
from keras_vit.checkpoints.formats import computed_array, read_values
from keras_vit.configs.position_resize import resize_weights

Grid = tuple[int, int]


def find_grid(
    rows: int,
    prefix_counts: Sequence[int],
    known: Sequence[int] | None = None,
    model_grid: Grid | None = None,
) -> tuple[int, Grid]:
    """Returns the grid of a position table that does not show it.

    A table of unknown grid is square, as the official code takes it, or has the model's grid.

    Args:
        rows: Rows of the table.
        prefix_counts: Numbers of rows that may lie in front of the patches' rows, the most
            likely first.
        known: Patches (down, across) of the table, or None.
        model_grid: Patches (down, across) of the model, or None.

    Returns:
        The number of rows in front, one of `prefix_counts`, and the patches (down, across).

    Raises:
        ValueError: If the rows do not match a known, square or equal grid, or the table may be
            both square and of the model's grid.
    """

    def rows_in_front(grid):
        return next((n for n in prefix_counts if rows == n + grid[0] * grid[1]), None)

    if known is not None:
        grid = (int(known[0]), int(known[1]))
        if (count := rows_in_front(grid)) is None or min(grid) < 1:
            raise ValueError(f"{rows} rows do not match {grid[0]}x{grid[1]} patches")
        return count, grid
    for count in prefix_counts:
        side = math.isqrt(max(rows - count, 0))
        if side and side * side == rows - count:
            if model_grid not in (None, (side, side)) and math.prod(model_grid) == side * side:
                raise ValueError(
                    f"{side * side} patches may be {side}x{side} or the model's "
                    f"{model_grid[0]}x{model_grid[1]}; give position_grid=(down, across)"
                )
            return count, (side, side)
    if model_grid is not None and (count := rows_in_front(model_grid)) is not None:
        return count, model_grid
    raise ValueError(f"{rows} rows, {prefix_counts[0]} of them not of patches, are no square grid")


def resize_positions(
    table: np.ndarray, old_grid: Grid, new_grid: Grid, rule: str = "official"
) -> np.ndarray:
    """Returns position embeddings of one grid on another; paper, section 3.2.

    A table of the same grid stays as it is.

    Args:
        table: Rows `(old down * old across, D)` in raster order.
        old_grid: Patches (down, across) of the table.
        new_grid: Patches (down, across) of the result.
        rule: A key of `keras_vit.configs.position_resize.RULES`, which says who uses it.

    Returns:
        A float32 array `(new down * new across, D)`.
    """
    if tuple(old_grid) == tuple(new_grid):
        return np.asarray(table, "float32")

    def places(side):
        return np.arange(side, dtype="float64")

    down, across = (  # (new, old)
        resize_weights(rule, float(old), float(new), (places(old), places(new)), np)
        for old, new in zip(old_grid, new_grid, strict=True)
    )
    cells = np.asarray(table, "float64").reshape(*old_grid, -1)
    resized = np.einsum("ih,hwd->iwd", down, cells)
    resized = np.einsum("jw,iwd->ijd", across, resized)
    return resized.reshape(new_grid[0] * new_grid[1], -1).astype("float32")


def adapt_input_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Returns a first kernel for another number of channels, from the old channels' kernels.

    An image whose channels are all equal keeps its outputs, as the sum of the kernels over
    channels stays the same. With old kernels w_0 ... w_{n-1}, of n channels:

        fewer channels, c < n:   each gets (w_0 + ... + w_{n-1}) / c
        more channels, c > n:    channel i gets w_{i mod n} / r, where r channels get w_{i mod n}

    So one channel gets the sum, and four made of RGB get R / 2, G, B, R / 2. A standardised
    convolution (in hybrids and BiT) scales its kernel again, so the outputs of such an image
    are then the same up to a factor for each filter.

    Args:
        kernel: `(height, width, n, D)`.
        channels: The new number of channels, c.

    Returns:
        A float32 array `(height, width, c, D)`.
    """
    kernel = np.asarray(kernel, "float64")
    old = kernel.shape[2]
    if channels < old:
        total = kernel.sum(axis=2, keepdims=True) / channels
        return np.repeat(total, channels, axis=2).astype("float32")
    source = np.arange(channels) % old
    times = np.bincount(source, minlength=old)
    return (kernel[:, :, source] / times[source, None]).astype("float32")


def with_folded_registers(checkpoint: Checkpoint, model_grid: Grid) -> Checkpoint:
    """Returns a checkpoint whose position table has no rows of registers.

    timm adds positions to all tokens by default. Rows of registers are added to the registers: a
    token plus its position is the same number wherever the sum is taken.

    Args:
        checkpoint: The checkpoint.
        model_grid: Patches (down, across) of the model.
    """
    table, tokens = (checkpoint.layout.stored_name(path) for path in (POSITIONS, REGISTERS))
    if not {table, tokens} <= checkpoint.arrays.keys():
        return checkpoint
    positions, registers = checkpoint.arrays[table], checkpoint.arrays[tokens]
    first, known = checkpoint.num_class_tokens, checkpoint.stated.position_grid
    try:
        behind, rows = first + registers.shape[1], positions.shape[1]
        count, _ = find_grid(rows, checkpoint.prefix_row_counts, known, model_grid)
    except (ValueError, IndexError):
        return checkpoint  # Matching reports it.
    if count != behind:
        return checkpoint

    def folded():
        token, values = read_values([registers, positions])
        return token + values[:, first:behind]

    def without_registers():
        (values,) = read_values([positions])
        return np.delete(values, slice(first, behind), axis=1)

    shape = (1, rows - registers.shape[1], *positions.shape[2:])
    more = {
        tokens: computed_array(registers.name, registers.shape, folded),
        table: computed_array(positions.name, shape, without_registers),
    }
    return dataclasses.replace(checkpoint, arrays={**checkpoint.arrays, **more})
