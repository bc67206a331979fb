"""Filters and position embeddings; paper, Figures 7 (left and centre) and 10."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.inspection.attention_probabilities import keras_model
from keras_vit.layers import AxialUnit, PositionEmbedding, PositionEmbedding2D, RelativeEncoderBlock
from keras_vit.utils.plots import evenly_spread, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_vit.inspection.attention_probabilities import ModelLike

MAX_MATRICES = 12  # Most tables in a drawing; evenly spread ones are drawn if there are more.


def filter_components(model: ModelLike, count: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Returns the principal components of a model's first filters.

    They are the filters of the patch embedding or, in hybrids and ResNets, the standardised
    kernel of the root convolution. The mean filter is subtracted first. The sign of a
    component has no meaning, so its largest value is made positive.

    Args:
        model: A `keras.Model` of the package, or a `Classifier`.
        count: Number of components; fewer are returned if there are no more.

    Returns:
        Components `(count, height, width, C)` of unit length, the strongest first, and the
        share of variance that each explains, `(count,)`.

    Raises:
        ValueError: If the model has neither layer.
    """
    kernel = _kernel(keras_model(model)).astype("float64")
    filters = kernel.reshape(-1, kernel.shape[-1]).T  # (D, height * width * C)
    centred = filters - filters.mean(axis=0)
    _, lengths, components = np.linalg.svd(centred, full_matrices=False)
    components = components[:count]
    largest = np.abs(components).argmax(axis=1)
    components *= np.sign(components[np.arange(len(components)), largest])[:, None]
    shares = lengths**2 / max((lengths**2).sum(), np.finfo("float64").tiny)
    return components.reshape(-1, *kernel.shape[:3]), shares[:count]


def _kernel(model):
    layers = {layer.name: layer for layer in model.layers}
    if "root_conv" in layers:
        return keras.ops.convert_to_numpy(layers["root_conv"].standardized_kernel())
    if "patch_embedding" in layers:
        return keras.ops.convert_to_numpy(layers["patch_embedding"].kernel)
    raise ValueError(
        "The model must have a layer patch_embedding or root_conv. Received: a model with "
        f"layers {', '.join(list(layers)[:5])} ..."
    )


def draw_filters(components: np.ndarray) -> Figure:
    """Draws components as RGB or grey tiles on one scale.

    Args:
        components: `(count, height, width, 1 or 3)`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
        ValueError: If the channels are neither 1 nor 3.
    """
    count, height, width, channels = components.shape
    if channels not in (1, 3):
        raise ValueError(
            f"Filters are drawn for images with 1 or 3 channels. Received: {channels} channels"
        )
    low, high = components.min(), components.max()
    tiles = (components - low) / max(high - low, np.finfo("float64").tiny)
    across = min(count, 7)
    down = -(-count // across)
    figure = new_figure((across, max(down * height / width, 0.5)))
    parts = np.atleast_1d(figure.subplots(down, across)).reshape(-1)
    for axes in parts:
        axes.set_axis_off()
    for axes, tile in zip(parts, tiles, strict=False):
        axes.imshow(np.repeat(tile, 3 // channels, axis=-1), interpolation="nearest")
    return figure


def position_similarity(model: ModelLike) -> dict[str, np.ndarray]:
    """Returns the cosine similarities of a model's position embeddings.

    Prefix tokens are left out.

    Args:
        model: A `keras.Model` of the package, or a `Classifier`.

    Returns:
        An array for each table, by the name of its layer:

        - one-dimensional: `(down, across, down, across)`, the similarity of each position
          with every other;
        - two-dimensional: NAME/x `(across, across)` for columns and NAME/y `(down, down)`
          for rows;
        - relative: `(2 N - 1, 2 N - 1)` for each block, for the offsets from 1 - N to N - 1
          (query minus key, in raster order), over all heads. In an axial model offsets are
          along the line; the names in an Axial-ResNet are UNIT/row and UNIT/column.

    Raises:
        ValueError: If the model has no position embeddings; biases are none.
    """
    model = keras_model(model)
    similarities = {}
    for layer in model.layers:
        if isinstance(layer, PositionEmbedding2D):
            similarities[f"{layer.name}/x"] = cosine_similarity(_array(layer.x_embedding))
            similarities[f"{layer.name}/y"] = cosine_similarity(_array(layer.y_embedding))
        elif isinstance(layer, PositionEmbedding):
            patches = _array(layer.embedding)[0, layer.num_prefix_tokens :]
            similarities[layer.name] = cosine_similarity(patches).reshape(*layer.grid, *layer.grid)
        elif isinstance(layer, RelativeEncoderBlock):
            similarities[layer.name] = _similarity_of_offsets(layer.attention)
        elif isinstance(layer, AxialUnit):
            for axis in ("row", "column"):
                attention = getattr(layer.attention, axis)
                similarities[f"{layer.name}/{axis}"] = _similarity_of_offsets(attention)
    if not similarities:
        raise ValueError(f"The model must have position embeddings. Received: {model.name}")
    return similarities


def cosine_similarity(vectors: np.ndarray) -> np.ndarray:
    """Returns the cosine similarities `(n, n)` of vectors `(n, D)`; 0 for zero vectors."""
    vectors = np.asarray(vectors, "float64")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return np.clip(unit @ unit.T, -1, 1)


def _similarity_of_offsets(attention):
    table = _array(attention.offset_embedding)
    return cosine_similarity(table.reshape(len(table), -1))


def _array(variable):
    return keras.ops.convert_to_numpy(variable)


def draw_position_similarity(similarity: dict[str, np.ndarray]) -> Figure:
    """Draws what `position_similarity` returns.

    A one-dimensional table becomes a grid of tiles: the tile in row r and column c shows
    the similarity of that position with all others. Other tables become matrices.

    Args:
        similarity: Arrays by name.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    names = evenly_spread(list(similarity), MAX_MATRICES)
    columns = min(len(names), 3)
    rows = -(-len(names) // columns)
    figure = new_figure((5.4 * columns + 0.8, 5 * rows))
    parts = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in parts[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(parts, names, strict=False):
        values = similarity[name]
        draw = _draw_tiles if values.ndim == 4 else _draw_matrix
        shown = draw(axes, values, name)
    figure.colorbar(shown, ax=list(parts[: len(names)]), label="cosine similarity", shrink=0.7)
    return figure


def _draw_tiles(axes, values, name):
    down, across = values.shape[:2]
    # An empty row and column between tiles.
    sheet = np.full((down * (down + 1) - 1, across * (across + 1) - 1), np.nan)
    for row in range(down):
        for column in range(across):
            top, left = row * (down + 1), column * (across + 1)
            sheet[top : top + down, left : left + across] = values[row, column]
    shown = axes.imshow(sheet, vmin=-1, vmax=1, interpolation="nearest")
    for set_ticks, count in ((axes.set_xticks, across), (axes.set_yticks, down)):
        step = max(1, count // 8)
        at = np.arange(0, count, step)
        set_ticks(at * (count + 1) + (count - 1) / 2, [str(number + 1) for number in at])
    axes.set(title=name, xlabel="input patch column", ylabel="input patch row")
    return shown


def _draw_matrix(axes, values, name):
    count = len(values)
    if name.endswith(("/x", "/y")):
        word = "column" if name.endswith("/x") else "row"
        extent, label = (0.5, count + 0.5, count + 0.5, 0.5), f"input patch {word}"
    else:
        last = (count - 1) // 2 + 0.5
        extent, label = (-last, last, last, -last), "offset (query minus key, patches)"
    shown = axes.imshow(values, vmin=-1, vmax=1, extent=extent, interpolation="nearest")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set(title=name, xlabel=label, ylabel=label)
    return shown
