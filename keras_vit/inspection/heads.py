"""Attention maps of single heads, in Vision Transformers and Axial-ResNets.

The maps of an Axial-ResNet (paper, Appendix D.6) shrink from unit to unit, so its layers
share no sequence of tokens: each unit attends along the rows, then the columns, of its map.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.inspection.attention_probabilities import (
    attention_by_layer,
    batches,
    check_images,
    keras_model,
    run_by_operation,
    token_layout,
)
from keras_vit.layers import AxialUnit
from keras_vit.utils.plots import displayed, evenly_spread, new_figure

# Most layers and units in a drawing; evenly spread ones are drawn if there are more.
MAX_LAYERS = 12
MAX_UNITS = 8

AXES = ("row", "column")
ROOT_STRIDE = 4  # Pixels per cell of the first unit's map.


def head_maps(
    model: Any, images: Any, *, query: str | None = None, batch_size: int = 8
) -> np.ndarray:
    """Returns the attention of every head of every layer to the patches of images.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.
        query: "token" for the class token, "patches" for the mean over patches; by default
            the class token if the model has one.
        batch_size: Images that run at once.

    Returns:
        A float32 array `(B, layers, heads, down, across)`.

    Raises:
        ValueError: If the model has no attention or no such query, or the images do not
            have its size.
    """
    maps = []
    for batch in batches(images, batch_size):
        layout = token_layout(keras_model(model), np.shape(batch)[1:3])
        layout.query(query)  # Raises before anything runs.
        by_layer = [layout.as_map(found, query) for _, found in attention_by_layer(model, batch)]
        maps.append(np.stack(by_layer, axis=1))
    return np.concatenate(maps)


def draw_heads(image: np.ndarray, maps: np.ndarray, *, title: str = "") -> Any:
    """Draws the attention of heads: a row for each layer, a column for each head.

    Each tile has its own scale, because heads differ by orders of magnitude.

    Args:
        image: `(H, W, 1 or 3)`, drawn at the left.
        maps: `(layers, heads, down, across)`.
        title: Text above.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    num_layers, num_heads, down, across = maps.shape
    layers = evenly_spread(range(num_layers), MAX_LAYERS)
    tile = 0.9  # Inches of the longer side.
    width, height = (tile * side / max(down, across) for side in (across, down))
    size = (num_heads + 1.6) * (width + 0.08), len(layers) * (height + 0.1) + 0.8
    return _draw_tiles(image, {f"layer {k + 1}": maps[k] for k in layers}, size, title)


def has_axial_units(model: Any) -> bool:
    """Returns whether a model is an Axial-ResNet."""
    return any(isinstance(layer, AxialUnit) for layer in keras_model(model).layers)


def axial_attention(model: Any, images: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the attention probabilities of an Axial-ResNet, one unit at a time.

    Memory holds the probabilities of one unit.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Yields:
        The unit's name and two float32 arrays for the unit's input map: probabilities along
        rows `(B, down, heads, across, across)` and along columns
        `(B, across, heads, down, down)`. Their last axis sums to one.

    Raises:
        ValueError: If the model is no Axial-ResNet, or the images do not have its size.
    """
    model = keras_model(model)
    if not has_axial_units(model):
        raise ValueError(
            f"Attention along rows and columns needs an Axial-ResNet. Received: {model.name}"
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
    """Returns the stride in pixels of each unit's input map, by the unit's name."""
    strides, stride = {}, ROOT_STRIDE
    for layer in keras_model(model).layers:
        if isinstance(layer, AxialUnit):
            strides[layer.name] = stride
            stride *= layer.strides
    return strides


def axial_head_maps(model: Any, images: Any, *, batch_size: int = 8) -> dict[str, np.ndarray]:
    """Returns the attention to each position from its row, and from its column.

    It is the mean over the positions of the row or column as queries.

    Args:
        model: An Axial-ResNet, or a `Classifier` with one.
        images: `(B, H, W, C)`, preprocessed.
        batch_size: Images that run at once.

    Returns:
        Float32 arrays `(B, heads, down, across)` by the names UNIT/row and UNIT/column. Each
        row, or column, sums to one.

    Raises:
        ValueError: See `axial_attention`.
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
    """Draws the attention to each position: two rows for each unit, a column for each head.

    Each tile has its own scale.

    Args:
        image: `(H, W, 1 or 3)`, drawn at the left.
        maps: The maps of one image from `axial_head_maps`, `(heads, down, across)` by name.
        title: Text above.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    units = list(dict.fromkeys(name.rpartition("/")[0] for name in maps))
    lines = {
        f"{unit.replace('_unit_', '.').replace('block_', '')} {axis}": maps[f"{unit}/{axis}"]
        for unit in evenly_spread(units, MAX_UNITS)
        for axis in AXES
    }
    num_heads = len(next(iter(lines.values())))
    height, width = image.shape[:2]
    tile = 0.9 / max(height, width)  # Inches a pixel.
    size = (
        (num_heads + 1) * (tile * width + 0.08) + 1.1,
        len(lines) * (tile * height + 0.1) + 0.8,
    )
    return _draw_tiles(image, lines, size, title, rotation=0, ha="right", va="center")


def _draw_tiles(image, lines, size, title, **label):
    """Draws the image, then a row of tiles for each line.

    Args:
        image: `(H, W, 1 or 3)`.
        lines: Maps `(heads, down, across)` by the label of the row.
        size: Inches (width, height).
        title: Text above.
        **label: Text properties of the labels.
    """
    num_heads = len(next(iter(lines.values())))
    figure = new_figure(size)
    parts = figure.subplots(len(lines), num_heads + 1, squeeze=False)
    for axes in parts.flat:
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    parts[0, 0].imshow(displayed(image), aspect="equal")
    for tiles, (text, maps) in zip(parts, lines.items(), strict=True):
        tiles[0].set_ylabel(text, fontsize=8, **label)
        for values, axes in zip(maps, tiles[1:], strict=True):
            axes.imshow(values, aspect="equal", interpolation="nearest")
    for head, axes in enumerate(parts[0, 1:]):
        axes.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
