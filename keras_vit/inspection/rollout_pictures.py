"""Pictures of Attention Rollout; paper, Figures 6 and 14."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_vit.utils.plots import colored, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Small images are magnified to this short side in pixels, so that titles fit.
MIN_PICTURE = 240

# Opacity of the attention's colour over the grey image.
COLOR = 0.5


def draw_rollout(
    image: np.ndarray,
    attention: np.ndarray,
    *,
    title: str = "",
    region: tuple[float, float, float, float] | None = None,
) -> Figure:
    """Draws an image and two pictures of its attention, at the image's resolution.

    Attention is interpolated bilinearly between patch centres. The picture in the middle is
    the image times the attention, scaled to the largest value, as in the paper; dark parts of
    the image stay dark. The picture at the right has the attention as a colour over the grey
    image, from violet for the smallest value to yellow for the largest.

    Args:
        image: `(H, W, 1 or 3)`, uint8 or floats; the original, not the model's input.
        attention: `(down, across)`.
        title: Text above, such as the predicted class.
        region: Pixels (top, left, bottom, right) of the image that the model received; by
            default all. The rest is dark, and grey.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: Without matplotlib.
    """
    height, width = image.shape[:2]
    low, high = (0, 255) if image.dtype == np.uint8 else (image.min(), image.max())
    pixels = (image - low) / max(high - low, 1e-12)
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    brightness = over_pixels(attention / max(attention.max(), 1e-12), (height, width), region)
    lit = pixels * brightness[..., None]
    pictures = (pixels, lit, _colored(pixels, attention, region))
    factor = max(1, -(-MIN_PICTURE // min(height, width)))
    shown_height, shown_width = height * factor, width * factor
    dpi, margin = 100, 40  # Pixels; the margin holds the title.
    whole_width = len(pictures) * (shown_width + margin) - margin
    whole_height = shown_height + margin
    figure = new_figure((whole_width / dpi, whole_height / dpi), layout=None, dpi=dpi)
    for place, picture in enumerate(pictures):
        left = place * (shown_width + margin) / whole_width
        axes = figure.add_axes((left, 0, shown_width / whole_width, shown_height / whole_height))
        axes.imshow(picture, interpolation="nearest", aspect="auto")
        axes.set_axis_off()
    figure.text(0.5, 1 - margin / 2 / whole_height, title, ha="center", va="center")
    return figure


def _colored(pixels, attention, region):
    """Returns the grey image with the attention as a colour over it."""
    low, high = attention.min(), attention.max()
    scaled = (attention - low) / max(high - low, 1e-12)
    color = colored(over_pixels(scaled, pixels.shape[:2], region))
    seen = over_pixels(np.ones_like(scaled), pixels.shape[:2], region)[..., None]
    grey = pixels.mean(axis=-1, keepdims=True).repeat(3, axis=-1)
    return (1 - COLOR * seen) * grey + COLOR * seen * color


def over_pixels(
    attention: np.ndarray,
    image_size: tuple[int, int],
    region: tuple[float, float, float, float] | None = None,
) -> np.ndarray:
    """Returns a map over patches as a map over pixels, bilinear between patch centres.

    Args:
        attention: `(down, across)`.
        image_size: Pixels (height, width).
        region: Pixels (top, left, bottom, right) that the patches cover; by default all.

    Returns:
        An array `(height, width)`, zero outside the region.
    """
    top, left, bottom, right = region or (0, 0, *image_size)
    weights = []
    for pixels, start, end, cells in zip(
        image_size, (top, left), (bottom, right), attention.shape, strict=True
    ):
        centres = np.arange(pixels) + 0.5
        place = (centres - start) / (end - start) * cells - 0.5
        near = np.clip(place, 0, cells - 1)
        weight = np.maximum(1 - np.abs(near[:, None] - np.arange(cells)), 0)
        weights.append(weight * ((centres > start) & (centres < end))[:, None])
    return weights[0] @ attention @ weights[1].T
