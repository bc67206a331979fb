"""Weights for another image, of other channels or with another grid of positions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from keras_vit.checkpoints.code_bases.layouts import POSITIONS, REGISTERS, Checkpoint
from keras_vit.checkpoints.formats import computed_array, read_values
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


def complete(checkpoint: Checkpoint, model_grid: Grid) -> Checkpoint:
    """Returns a checkpoint with the position table of the layers here.

    big_vision's table of sines and cosines, which its files leave out, is filled in. Rows of
    registers (timm adds positions to all tokens by default) are added to the registers: a token
    plus its position is the same number wherever the sum is taken.

    Args:
        checkpoint: The checkpoint.
        model_grid: Patches (down, across) of the model.

    Raises:
        ValueError: If the token size has no such sines and cosines.
    """
    table = checkpoint.layout.stored_name(POSITIONS)
    if checkpoint.has_fixed_positions:
        dim = checkpoint.width
        note = (
            "the position table is not in the file: big_vision's sines and cosines "
            '(posemb="sincos2d") were filled in'
        )
        filled = computed_array(
            table,
            (1, model_grid[0] * model_grid[1], dim),
            lambda: sine_cosine_positions(model_grid, dim)[None],
        )
        return dataclasses.replace(
            checkpoint,
            arrays={**checkpoint.arrays, table: filled},
            class_token_has_row=False,
            notes=(*checkpoint.notes, note),
        )
    tokens = checkpoint.layout.stored_name(REGISTERS)
    if not {table, tokens} <= checkpoint.arrays.keys():
        return checkpoint
    positions, registers = checkpoint.arrays[table], checkpoint.arrays[tokens]
    first = checkpoint.num_class_tokens
    behind = first + registers.shape[1]
    known = checkpoint.stated.position_grid
    try:
        count, _ = find_grid(positions.shape[1], checkpoint.prefix_row_counts, known, model_grid)
    except ValueError:
        return checkpoint  # Matching reports it.
    if count != behind:
        return checkpoint

    def folded():
        token, rows = read_values([registers, positions])
        return token + rows[:, first:behind]

    def without_registers():
        (rows,) = read_values([positions])
        return np.delete(rows, slice(first, behind), axis=1)

    rows = (1, positions.shape[1] - registers.shape[1], positions.shape[2])
    more = {
        tokens: computed_array(registers.name, registers.shape, folded),
        table: computed_array(positions.name, rows, without_registers),
    }
    return dataclasses.replace(checkpoint, arrays={**checkpoint.arrays, **more})


def sine_cosine_positions(grid: Grid, dim: int) -> np.ndarray:
    """Returns the fixed positions of MoCo v3 (arXiv 2104.02057) as big_vision computes them.

    A quarter of the values each for sin(x w), cos(x w), sin(y w), cos(y w), with the column x,
    the row y and frequencies w from 1 down to 1 / 10000 on a logarithmic scale, the last one
    included.

    Args:
        grid: Patches (down, across).
        dim: Token size, D.

    Returns:
        A float32 array `(down * across, D)`.

    Raises:
        ValueError: If D is no multiple of 4, or less than 8.
    """
    if dim % 4 or dim < 8:
        raise ValueError(
            "Sines and cosines need a token size that is a multiple of 4, 8 or more. "
            f"Received: {dim}"
        )
    frequencies = 10_000.0 ** -np.linspace(0, 1, dim // 4)
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    x, y = (np.outer(places, frequencies) for places in (columns, rows))
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], 1).astype("float32")
