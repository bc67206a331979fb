"""Mean attention distance of each head; paper, Figures 7 (right) and 11."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_vit.inspection.attention_probabilities import attention_of_batches
from keras_vit.utils.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_vit.inspection.attention_probabilities import ModelLike


def attention_distance(
    attention: np.ndarray,
    grid: tuple[int, int],
    patch_size: tuple[int, int],
    num_prefix_tokens: int = 0,
) -> np.ndarray:
    """Returns the mean distance in pixels from a query's patch to the patches it attends to.

    The distance between the patches' centres is weighted by attention and averaged over the
    patches as queries. Prefix tokens have no position: they are left out as queries and as
    keys, and the weights of the patches are normalised to the sum one.

    Args:
        attention: `(B, heads, P + N, P + N)`.
        grid: Patches (down, across).
        patch_size: Pixels (down, across) from one patch to the next.
        num_prefix_tokens: P, the tokens before the patches.

    Returns:
        An array `(B, heads)` in pixels. Queries without attention to any patch do not
        count; NaN if all are such.
    """
    weights = np.asarray(attention, "float64")[..., num_prefix_tokens:, num_prefix_tokens:]
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    places = np.stack([rows * patch_size[0], columns * patch_size[1]], axis=-1).astype("float64")
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)  # (N, N)
    totals = weights.sum(axis=-1)
    seeing = totals > 0
    sums = np.einsum("bkqn,qn->bkq", weights, distances)
    means = sums / np.where(seeing, totals, 1)
    count = seeing.sum(axis=-1)
    return np.where(count > 0, means.sum(axis=-1) / np.maximum(count, 1), np.nan)


def mean_attention_distance(
    model: ModelLike, images: np.ndarray, *, batch_size: int = 8
) -> np.ndarray:
    """Returns the mean attention distance over images, of each head of each layer.

    Memory holds the attention of one layer for one batch.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed; 128 images in the paper.
        batch_size: Images that run at once.

    Returns:
        A float64 array `(layers, heads)`, in pixels of the model's input.

    Raises:
        ValueError: If the model has no attention, or the images do not have its size.
    """
    distances = []
    for layout, by_layer in attention_of_batches(model, images, batch_size):
        shape = layout.grid, layout.patch_size, layout.num_prefix_tokens
        distances.append(np.stack([attention_distance(layer, *shape) for layer in by_layer]))
    return np.concatenate(distances, axis=1).mean(axis=1)


def draw_attention_distance(distances: np.ndarray, image_width: int) -> Figure:
    """Draws a dot for each head by depth, and a line at the image's width.

    Args:
        distances: `(layers, heads)`, as `mean_attention_distance` returns it.
        image_width: Pixels.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    figure = new_figure((6, 4.5))
    axes = figure.add_subplot()
    num_layers, num_heads = distances.shape
    for head in range(num_heads):
        label = f"head {head + 1}" if num_heads <= 16 else None
        axes.scatter(np.arange(1, num_layers + 1), distances[:, head], s=18, label=label)
    axes.axhline(image_width, color="gray", linestyle="--", linewidth=1)
    axes.text(1, image_width, " image width", color="gray", va="bottom", fontsize=8)
    axes.set(
        xlabel="layer",
        ylabel="mean attention distance (pixels)",
        ylim=(0, image_width * 1.08),
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    if num_heads <= 16:
        figure.legend(loc="outside right upper", fontsize=7)
    return figure
