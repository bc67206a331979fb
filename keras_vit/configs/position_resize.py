"""The rules by which code bases resize position embeddings to another grid.

A rule gives a matrix `(new, old)` for each side of the grid. `resize_weights` writes the formula
once, for NumPy and for `keras.ops`: `checkpoints/resize.py` resizes the tables of files by it,
`layers/positions.py` the tables of models of free image size, in the graph. Imports neither.
"""

from __future__ import annotations

import dataclasses
import types
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import keras
    import numpy as np

PositionRule = Literal[
    "official",
    "bilinear",
    "bilinear_antialias",
    "bicubic",
    "bicubic_torch",
    "bicubic_corners",
    "bicubic_keras",
]


@dataclasses.dataclass(frozen=True)
class ResizeRule:
    """How a table is resized along one side.

    Args:
        cubic: The parameter a of the cubic kernel of Keys (1981); None for a linear kernel.
        antialias: Whether the kernel is widened when the grid shrinks.
        aligned_corners: Whether the first and last points stay in place. Otherwise the grids
            cover the same area, and points are the centres of their cells.
        repeated_edges: Whether the points beyond the edge have the edge's value. Otherwise the
            kernel is cut off there, and its weights are divided by their sum.
    """

    cubic: float | None = None
    antialias: bool = False
    aligned_corners: bool = False
    repeated_edges: bool = True


_TORCH, _KEYS = -0.75, -0.5  # PyTorch without antialiasing; PyTorch with it, JAX, TensorFlow.

RULES: dict[str, ResizeRule] = {
    # vision_transformer, big_vision, vit-keras: `scipy.ndimage.zoom(order=1)`.
    "official": ResizeRule(aligned_corners=True),
    # timm, for official files.
    "bilinear": ResizeRule(),
    # FlexiViT's forward pass, SigLIP 2 NaFlex.
    "bilinear_antialias": ResizeRule(antialias=True, repeated_edges=False),
    # timm, open_clip; DINOv2 with registers in Meta's code and transformers.
    "bicubic": ResizeRule(_KEYS, antialias=True, repeated_edges=False),
    # transformers; the code of DeiT and MAE.
    "bicubic_torch": ResizeRule(_TORCH),
    # torchvision.
    "bicubic_corners": ResizeRule(_TORCH, aligned_corners=True),
    # KerasHub. TensorFlow rounds the distances to 1/1024.
    "bicubic_keras": ResizeRule(_KEYS, repeated_edges=False),
}
assert RULES.keys() == set(get_args(PositionRule))


def resize_weights(
    rule: str,
    old: float,
    new: float | keras.KerasTensor,
    points: tuple[np.ndarray | keras.KerasTensor, np.ndarray | keras.KerasTensor],
    xp: types.ModuleType,
) -> np.ndarray | keras.KerasTensor:
    """Returns the matrix `(new, old)` that resizes one side of a table.

    Args:
        rule: A key of `RULES`.
        old: Points before, a float.
        new: Points after, a float or a scalar tensor of floats.
        points: `arange` of both as floats: `(old,)`, `(new,)`.
        xp: `numpy` or `keras.ops`.
    """
    row = RULES[rule]
    old_points, new_points = points
    if row.aligned_corners:
        positions = new_points * ((old - 1) / xp.maximum(new - 1, 1))
    else:
        positions = (new_points + 0.5) * (old / new) - 0.5
    if row.cubic is not None and row.repeated_edges:
        return _cubic_repeating_edges(row.cubic, old, positions, old_points, xp)
    if row.repeated_edges and not row.aligned_corners:
        positions = xp.clip(positions, 0, old - 1)
    distance = xp.abs(positions[:, None] - old_points[None])
    if row.antialias:
        distance = distance / xp.maximum(old / new, 1)
    weights = xp.maximum(1 - distance, 0) if row.cubic is None else _cubic(distance, row.cubic, xp)
    return weights if row.repeated_edges else weights / xp.sum(weights, axis=1, keepdims=True)


def _cubic_repeating_edges(a, old, positions, old_points, xp):
    weights = 0.0
    for tap in range(-1, 3):
        cells = xp.floor(positions) + tap
        share = _cubic(xp.abs(positions - cells), a, xp)
        is_cell = xp.clip(cells, 0, old - 1)[:, None] == old_points[None]
        weights = weights + xp.where(is_cell, share[:, None], 0.0)
    return weights


def _cubic(x, a, xp):
    """The cubic convolution kernel of Keys (1981) at distances x."""
    inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
    outer = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return xp.where(x <= 1, inner, xp.where(x < 2, outer, 0.0))
