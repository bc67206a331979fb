"""What single heads of single layers look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_vit.drawing import displayed, new_figure
from keras_vit.inspection.attention import attention_by_layer, batches
from keras_vit.inspection.tokens import keras_model, token_layout

MAX_LAYERS = 12  # Drawn of one model; of deeper ones evenly spread layers.


def head_maps(
    model: Any, images: Any, *, query: str | None = None, batch_size: int = 8
) -> np.ndarray:
    """Returns the attention of every head of every layer to the patches of images.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.
        query: "token" for the class token, "patches" for the mean over patches; None for
            what the model has.
        batch_size: Images that run at once.

    Returns:
        A float32 array `(B, layers, heads, down, across)`.

    Raises:
        ValueError: If the model has no attention or no such query, or the images are not of
            its size.
    """
    maps = []
    for batch in batches(images, batch_size):
        layout = token_layout(keras_model(model), np.shape(batch)[1:3])
        layout.query(query)  # Refuses before anything runs.
        by_layer = [layout.as_map(found, query) for _, found in attention_by_layer(model, batch)]
        maps.append(np.stack(by_layer, axis=1))
    return np.concatenate(maps)


def draw_heads(image: np.ndarray, maps: np.ndarray, *, title: str = "") -> Any:
    """Draws the attention of heads: a row for each layer, a column for each head.

    Each tile has a scale of its own, as single heads differ by orders of magnitude.

    Args:
        image: `(H, W, 1 or 3)`, drawn in front.
        maps: `(layers, heads, down, across)`.
        title: What stands above.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    num_layers, num_heads, down, across = maps.shape
    rows = np.unique(np.linspace(0, num_layers - 1, min(num_layers, MAX_LAYERS)).round())
    tile = 0.9  # Inches, of the longer side.
    width, height = (tile * side / max(down, across) for side in (across, down))
    figure = new_figure(((num_heads + 1.6) * (width + 0.08), len(rows) * (height + 0.1) + 0.8))
    parts = figure.subplots(len(rows), num_heads + 1, squeeze=False)
    for axes in parts.flat:
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    parts[0, 0].imshow(displayed(image), aspect="equal")
    for line, layer in zip(parts, rows.astype(int), strict=True):
        line[0].set_ylabel(f"layer {layer + 1}", fontsize=8)
        for head, axes in enumerate(line[1:]):
            axes.imshow(maps[layer, head], aspect="equal", interpolation="nearest")
    for head, axes in enumerate(parts[0, 1:]):
        axes.set_title(f"head {head + 1}", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
