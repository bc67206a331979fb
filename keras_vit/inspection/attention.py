"""The attention probabilities of a model, from the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.inspection.graph import run_by_operation
from keras_vit.inspection.tokens import keras_model, token_layout
from keras_vit.layers import EncoderBlock, JoinLines, SplitLines


def attention_by_layer(model: Any, images: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the attention probabilities of a model, one layer at a time.

    Equation 7 of the paper, as the model's own blocks compute it when they run, before
    dropout. Only the current layer's probabilities are in memory; the model's head does
    not run.

    In an Axial-ViT a block attends along rows or columns, and each line has a copy of the
    tokens in front. Its probabilities are given for the whole sequence all the same: zero
    between patches of different lines, and the mean of the copies for the tokens in front,
    since the block's end is their mean.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Yields:
        The block's name and a float32 array `(B, heads, T, T)`: a row for each query, whose
        sum is one; T counts class token, registers and patches, in this order.

    Raises:
        ValueError: If the model has no attention, or the images are not of its size.
    """
    model = keras_model(model)
    token_layout(model, check_images(model, images))  # Refuses a model without tokens.
    images = keras.ops.convert_to_tensor(images, dtype=model.inputs[0].dtype)
    lines: list[tuple] = []  # Where between SplitLines and JoinLines: axis, prefix, grid.

    def call(operation, args, kwargs):
        if isinstance(operation, EncoderBlock):
            outputs, attention = operation(*args, **kwargs, return_attention=True)
            attention = keras.ops.convert_to_numpy(attention)
            if lines:
                attention = whole_sequence(attention, *lines[0])
            return outputs, (operation.name, attention)
        if isinstance(operation, SplitLines):
            patches = kwargs.get("patches", args[-1])
            lines[:] = [(operation.axis, operation.num_prefix_tokens, tuple(patches.shape[1:3]))]
        elif isinstance(operation, JoinLines):
            lines.clear()
        return operation(*args, **kwargs), None

    yield from run_by_operation(
        model, images, lambda operation: isinstance(operation, EncoderBlock), call
    )


def attention_maps(model: Any, images: Any) -> list[np.ndarray]:
    """Returns the attention probabilities of all layers of a model.

    Of L layers it holds `4 B L heads T^2` bytes; `attention_by_layer` holds one layer.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Returns:
        For each layer a float32 array `(B, heads, T, T)`, as `attention_by_layer` yields it.

    Raises:
        ValueError: If the model has no attention, or the images are not of its size.

    Example:
    >>> model = keras_vit.build("ViT-Ti/16", input_shape=(32, 48, 3))
    >>> [maps.shape for maps in attention_maps(model, np.zeros((1, 32, 48, 3)))][:2]
    [(1, 3, 7, 7), (1, 3, 7, 7)]
    """
    return [attention for _, attention in attention_by_layer(model, images)]


def whole_sequence(
    attention: np.ndarray, axis: str, num_prefix_tokens: int, grid: tuple[int, int]
) -> np.ndarray:
    """Returns the attention of lines as that of the sequence which they were split from.

    Args:
        attention: `(B * lines, heads, P + length, P + length)`.
        axis: "row" or "column", what a line is.
        num_prefix_tokens: Tokens in front, P, of which each line has a copy.
        grid: Patches (down, across).

    Returns:
        An array `(B, heads, P + N, P + N)`.
    """
    prefix = num_prefix_tokens
    num_patches = grid[0] * grid[1]
    places = np.arange(num_patches).reshape(grid)
    if axis == "column":
        places = places.T  # (lines, length)
    num_lines, _ = places.shape
    by_line = attention.reshape(-1, num_lines, *attention.shape[1:])
    batch, heads = by_line.shape[0], by_line.shape[2]
    whole = np.zeros((batch, heads, prefix + num_patches, prefix + num_patches), "float32")
    for line, place in enumerate(places):
        of_line = by_line[:, line]
        queries = prefix + place
        whole[:, :, queries[:, None], queries] = of_line[:, :, prefix:, prefix:]
        whole[:, :, queries, :prefix] = of_line[:, :, prefix:, :prefix]
        whole[:, :, :prefix, queries] = of_line[:, :, :prefix, prefix:] / num_lines
        whole[:, :, :prefix, :prefix] += of_line[:, :, :prefix, :prefix] / num_lines
    return whole


def batches(images: Any, batch_size: int) -> Iterator[Any]:
    """Yields images a few at a time.

    Raises:
        ValueError: If there are none, or the batch size is not positive.
    """
    if batch_size < 1 or not len(images):
        raise ValueError(
            "There must be at least one image, and one a batch. "
            f"Received: {len(images)} images, batch_size={batch_size}"
        )
    for start in range(0, len(images), batch_size):
        yield images[start : start + batch_size]


def check_images(model: Any, images: Any) -> tuple[int, int]:
    """Returns the pixels (height, width) of images that a model takes.

    Raises:
        ValueError: If they are not of its shape.
    """
    wanted, shape = tuple(model.input_shape), tuple(np.shape(images))
    if len(shape) != 4 or any(
        side not in (None, received) for side, received in zip(wanted[1:], shape[1:], strict=True)
    ):
        raise ValueError(
            f"Images must be what the model takes, of shape {wanted}. Received: shape {shape}"
        )
    return shape[1:3]
