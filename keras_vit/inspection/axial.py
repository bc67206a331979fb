"""Attention along rows and columns in an Axial-ResNet; paper, Appendix D.6.

Its maps shrink from unit to unit, so there is no sequence of tokens that all layers share:
each unit has attention along the rows, then along the columns, of its own map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.drawing import displayed, new_figure
from keras_vit.inspection.attention import batches, check_images
from keras_vit.inspection.graph import run_by_operation
from keras_vit.inspection.tokens import keras_model
from keras_vit.layers import AxialUnit

AXES = ("row", "column")
ROOT_STRIDE = 4  # Pixels per cell of the first unit's map.
MAX_UNITS = 8  # Drawn of one model; of more, evenly spread ones.


def has_axial_units(model: Any) -> bool:
    """Returns whether a model is an Axial-ResNet."""
    return any(isinstance(layer, AxialUnit) for layer in keras_model(model).layers)


def axial_attention(model: Any, images: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the attention probabilities of an Axial-ResNet, one unit at a time.

    Only the current unit's are in memory.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Yields:
        The unit's name, the probabilities along rows `(B, down, heads, across, across)` and
        those along columns `(B, across, heads, down, down)`, float32, of the map that the
        unit's attention sees. Their last axis sums to one.

    Raises:
        ValueError: If the model has no such unit, or the images are not of its size.
    """
    model = keras_model(model)
    if not has_axial_units(model):
        raise ValueError(
            f"Attention along rows and columns is that of an Axial-ResNet. Received: {model.name}"
        )
    check_images(model, images)
    images = keras.ops.convert_to_tensor(images, dtype=model.inputs[0].dtype)

    def is_unit(operation):
        return isinstance(operation, AxialUnit)

    def call(operation, args, kwargs):
        if not is_unit(operation):
            return operation(*args, **kwargs), None
        outputs, attention = operation(*args, **kwargs, return_attention=True)
        rows, columns = map(keras.ops.convert_to_numpy, attention)
        return outputs, (operation.name, rows, columns)

    yield from run_by_operation(model, images, is_unit, call)


def axial_strides(model: Any) -> dict[str, int]:
    """Returns the pixels from one cell to the next of the map that each unit attends to."""
    strides, stride = {}, ROOT_STRIDE
    for layer in keras_model(model).layers:
        if isinstance(layer, AxialUnit):
            strides[layer.name] = stride
            stride *= layer.strides
    return strides


def axial_head_maps(model: Any, images: Any, *, batch_size: int = 8) -> dict[str, np.ndarray]:
    """Returns how much attention each position gets from its row, and from its column.

    The mean over the positions of the line as queries.

    Args:
        model: An Axial-ResNet, or a `Classifier` with one.
        images: `(B, H, W, C)`, preprocessed.
        batch_size: Images that run at once.

    Returns:
        For each unit UNIT/row and UNIT/column: float32 arrays `(B, heads, down, across)`.
        Each line along the axis sums to one.

    Raises:
        ValueError: As `axial_attention`.
    """
    found: dict[str, list[np.ndarray]] = {}
    for batch in batches(images, batch_size):
        for name, rows, columns in axial_attention(model, batch):
            by_row = rows.mean(axis=-2).transpose(0, 2, 1, 3)
            by_column = columns.mean(axis=-2).transpose(0, 2, 3, 1)
            for axis, maps in zip(AXES, (by_row, by_column), strict=True):
                found.setdefault(f"{name}/{axis}", []).append(maps)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def draw_axial_heads(image: np.ndarray, maps: dict[str, np.ndarray], *, title: str = "") -> Any:
    """Draws the attention that positions get: two rows for each unit, a column for each head.

    Each tile has a scale of its own. Of many units evenly spread ones are drawn.

    Args:
        image: `(H, W, 1 or 3)`, drawn in front.
        maps: Of one image, arrays `(heads, down, across)` by name, as `axial_head_maps`
            names them.
        title: What stands above.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    units = list(dict.fromkeys(name.rpartition("/")[0] for name in maps))
    if len(units) > MAX_UNITS:
        units = [units[k] for k in np.linspace(0, len(units) - 1, MAX_UNITS).round().astype(int)]
    lines = [f"{unit}/{axis}" for unit in units for axis in AXES]
    num_heads = len(maps[lines[0]])
    height, width = image.shape[:2]
    tile = 0.9 / max(height, width)  # Inches a pixel.
    figure = new_figure(
        (
            (num_heads + 1) * (tile * width + 0.08) + 1.1,
            len(lines) * (tile * height + 0.1) + 0.8,
        )
    )
    parts = figure.subplots(len(lines), num_heads + 1, squeeze=False)
    for axes in parts.flat:
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    parts[0, 0].imshow(displayed(image), aspect="equal")
    for tiles, name in zip(parts, lines, strict=True):
        unit, _, axis = name.rpartition("/")
        label = unit.replace("_unit_", ".").replace("block_", "")
        tiles[0].set_ylabel(f"{label} {axis}", fontsize=8, rotation=0, ha="right", va="center")
        for values, axes in zip(maps[name], tiles[1:], strict=True):
            axes.imshow(values, aspect="equal", interpolation="nearest")
    for head, axes in enumerate(parts[0, 1:]):
        axes.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
