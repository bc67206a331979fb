"""Weights for another image: position embeddings on another grid, another patch, channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from keras_vit.configs.position_resize import RULES, resize_weights

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
    if known is not None:
        down, across = (int(side) for side in known)
        for count in prefix_counts:
            if rows == count + down * across and min(down, across) > 0:
                return count, (down, across)
        raise ValueError(f"{rows} rows do not match {down}x{across} patches")
    for count in prefix_counts:
        side = math.isqrt(max(rows - count, 0))
        if side == 0 or side * side != rows - count:
            continue
        if model_grid not in (None, (side, side)) and math.prod(model_grid) == side * side:
            raise ValueError(
                f"{side * side} patches may be {side}x{side} or the model's "
                f"{model_grid[0]}x{model_grid[1]}"
            )
        return count, (side, side)
    if model_grid is not None:
        for count in prefix_counts:
            if rows - count == math.prod(model_grid):
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

    Raises:
        ValueError: If the rule is unknown.
    """
    if rule not in RULES:
        raise ValueError(f"The rule must be one of {tuple(RULES)}. Received: {rule!r}")
    if tuple(old_grid) == tuple(new_grid):
        return np.asarray(table, "float32")
    down, across = (_weights(rule, old, new) for old, new in zip(old_grid, new_grid, strict=True))
    cells = np.asarray(table, "float64").reshape(*old_grid, -1)
    resized = np.einsum("ih,hwd->iwd", down, cells)
    resized = np.einsum("jw,iwd->ijd", across, resized)
    return resized.reshape(new_grid[0] * new_grid[1], -1).astype("float32")


def _weights(rule, old, new):
    """Matrix `(new, old)` of a rule for one side, float64."""
    points = (np.arange(old, dtype="float64"), np.arange(new, dtype="float64"))
    return resize_weights(rule, float(old), float(new), points, RULES[rule].more, np)


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
