"""Attention Rollout from the output to the image; paper, Figures 6 and 14."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_vit.inspection.attention_probabilities import (
    attention_of_batches,
    has_rollout,
    token_layout,
)
from keras_vit.layers import EncoderBlock
from keras_vit.utils.plots import colored, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from keras_vit.inspection.attention_probabilities import ModelLike

# Small images are magnified to this short side in pixels, so that titles fit.
MIN_PICTURE = 240

# Opacity of the attention's colour over the grey image.
COLOR = 0.5


def rollout(attention: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the share of each input token in each output token.

    Abnar and Zuidema (arXiv 2005.00928), as Appendix D.7 uses it:

        A_l = rows normalised (mean over heads of attention_l + I)
        R   = A_L ... A_2 A_1

    The identity stands for the residual connection.

    Args:
        attention: `(B, heads, T, T)` for each layer, from the first to the last; an iterator
            is read one layer at a time.

    Returns:
        A float64 array `(B, T, T)`, whose rows sum to one.
    """
    result: Any = None
    for probabilities in attention:
        mixed = np.asarray(probabilities, "float64").mean(axis=1)
        mixed = mixed + np.eye(mixed.shape[-1])
        mixed = mixed / mixed.sum(axis=-1, keepdims=True)
        result = mixed if result is None else mixed @ result
    return result


def attention_rollout(model: ModelLike, images: np.ndarray, *, batch_size: int = 8) -> np.ndarray:
    """Returns the Attention Rollout to the patches of images.

    It is that from the class token, or the mean over patches of a model without one.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.
        batch_size: Images that run at once.

    Returns:
        A float64 array `(B, down, across)`, the share of each patch. The shares
        of prefix tokens are left out.

    Raises:
        ValueError: If the model has no attention, or the images do not have its size.
    """
    maps = []
    for layout, by_layer in attention_of_batches(model, images, batch_size):
        maps.append(layout.as_map(rollout(by_layer)))
    return np.concatenate(maps)


class _WithAttention(keras.layers.Layer):
    """A block with its attention: in Keras all calls of one layer have equally many outputs."""

    def __init__(self, block: EncoderBlock):
        super().__init__(name=block.name, dtype=block.dtype_policy)
        self.block = block

    def call(self, tokens, patches=None):
        return self.block(tokens, patches=patches, return_attention=True)

    def compute_output_spec(self, tokens, patches=None):
        return self.block.compute_output_spec(tokens, return_attention=True)


def rollout_model(model: keras.Model) -> keras.Model:
    """Returns a model of the same layers that also gives its Attention Rollout, in its graph.

    Its outputs are the model's and the shares of each patch, `(B, down, across)` float32, the
    numbers of `attention_rollout`.

    Args:
        model: A functional model of the package with attention over all tokens.

    Raises:
        ValueError: If the model has no attention, or attends along lines (Axial-ViT).
    """
    if not has_rollout(model):
        raise ValueError(
            "The model must attend over all tokens. "
            f"Received: {model.name}, with attention along lines or none"
        )
    by_layer = []

    def call(operation, *args, **kwargs):
        if not isinstance(operation, EncoderBlock):
            return operation(*args, **kwargs)
        tokens, attention = _WithAttention(operation)(*args, **kwargs)
        by_layer.append(attention)
        return tokens

    # Without what `compile` added: a clone is compiled again, from its config.
    bare = keras.Model(model.input, model.output)
    same = keras.models.clone_model(bare, clone_function=lambda kept: kept, call_function=call)
    result: Any = None
    for attention in by_layer:
        mixed = ops.mean(ops.cast(attention, "float32"), axis=1)
        # Rows of attention sum to one. A constant of NumPy becomes one of any exported graph.
        mixed = (mixed + np.eye(mixed.shape[-1], dtype="float32")) / 2
        result = mixed if result is None else ops.matmul(mixed, result)
    layout = token_layout(model)
    first = layout.num_prefix_tokens
    if layout.has_class_token:
        row = result[:, 0, first:]
    else:
        row = ops.mean(result[:, first:, first:], axis=1)
    return keras.Model(same.input, [same.outputs[0], ops.reshape(row, (-1, *layout.grid))])


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
