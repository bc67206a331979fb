"""Attention maps of single heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_vit.inspection.attention_probabilities import (
    attention_by_layer,
    batches,
    keras_model,
    token_layout,
)
from keras_vit.utils.plots import displayed, evenly_spread, new_figure

MAX_LAYERS = 12  # Most layers in a drawing; evenly spread ones are drawn if there are more.


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
    figure = new_figure(size)
    parts = figure.subplots(len(layers), num_heads + 1, squeeze=False)
    for axes in parts.flat:
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    parts[0, 0].imshow(displayed(image), aspect="equal")
    for tiles, layer in zip(parts, layers, strict=True):
        tiles[0].set_ylabel(f"layer {layer + 1}", fontsize=8)
        for values, axes in zip(maps[layer], tiles[1:], strict=True):
            axes.imshow(values, aspect="equal", interpolation="nearest")
    for head, axes in enumerate(parts[0, 1:]):
        axes.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
