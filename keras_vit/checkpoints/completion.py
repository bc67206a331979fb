"""Arrays that a file leaves out, and rows of positions that belong to other arrays."""

from __future__ import annotations

import dataclasses

import numpy as np

from keras_vit.checkpoints.code_bases.layouts import POSITIONS, REGISTERS, Checkpoint
from keras_vit.checkpoints.formats import computed_array, read_values
from keras_vit.checkpoints.resize import Grid, find_grid


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
