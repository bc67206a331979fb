"""Principal components of the embedding filters; paper, Figure 7 (left)."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_vit.inspection.attention_probabilities import keras_model
from keras_vit.utils.plots import new_figure


def filter_components(model: Any, count: int = 28) -> tuple[np.ndarray, np.ndarray]:
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
        ValueError: If the model has neither layer, or `count` is not positive.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1. Received: count={count}")
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


def draw_filters(components: np.ndarray) -> Any:
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
