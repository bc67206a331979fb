"""Targets of masked patch prediction: mean colour, downsized patch, whole patch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.training import settings

COLOURS = 512  # Three bits for each of red, green and blue.
CELLS = 4  # Per side of a downsized patch.


def cut_patches(images: Any, patch_sizes: tuple[int, int]) -> Any:
    """Returns the pixels of each patch, in the order of the tokens.

    Args:
        images: `(B, H, W, 3)`. Incomplete patches at the right and bottom are cut off, as in
            the patch embedding.
        patch_sizes: Pixels (height, width) of a patch.

    Returns:
        A tensor `(B, N, height, width, 3)`.
    """
    height, width = patch_sizes
    down, across = images.shape[1] // height, images.shape[2] // width
    images = images[:, : down * height, : across * width]
    patches = ops.reshape(images, (-1, down, height, across, width, 3))
    patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
    return ops.reshape(patches, (-1, down * across, height, width, 3))


def colour_classes(pixels: Any) -> Any:
    """Returns 3-bit colours: the upper three bits of each channel.

    The class is `64 r + 8 g + b`, each of r, g and b in 0 .. 7.

    Args:
        pixels: `(..., 3)` in [-1, 1], for the bytes 0 to 255.

    Returns:
        int32 `(...)` in 0 .. 511.
    """
    # A thousandth of a byte, so that scaling to [-1, 1] and back never rounds down.
    bits = ops.floor(((pixels + 1) * 127.5 + 1e-3) / 32)
    bits = ops.clip(ops.cast(bits, "int32"), 0, 7)
    return bits[..., 0] * 64 + bits[..., 1] * 8 + bits[..., 2]


def mean_colour(patches: Any) -> Any:
    """Returns the colour of the mean of each patch, int32 `(B, N, 1)`."""
    return colour_classes(ops.mean(patches, axis=(2, 3)))[..., None]


def downsized(patches: Any) -> Any:
    """Returns the colours of 4x4 cells of each patch, int32 `(B, N, 16)`.

    A cell is the mean of its area. If 4 does not divide the patch size, cells share pixels.
    """
    height, width = patches.shape[2:4]
    # Not a matrix product, which some GPUs compute with 10 bits.
    rows = ops.sum(_areas(height)[:, :, None, None] * patches[:, :, None], axis=3)
    cells = ops.sum(_areas(width)[:, :, None] * rows[:, :, :, None], axis=4)  # (B, N, 4, 4, 3)
    return ops.reshape(colour_classes(cells), (-1, patches.shape[1], CELLS * CELLS))


def whole_patch(patches: Any) -> Any:
    """Returns every value of each patch, `(B, N, 3 * height * width)`."""
    return ops.reshape(patches, (-1, patches.shape[1], int(np.prod(patches.shape[2:]))))


def _areas(size):
    """Returns the share of each pixel in each cell, `(4, size)`; rows sum to 1."""
    edges = np.arange(CELLS + 1)[:, None] * size / CELLS
    pixels = np.arange(size)
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    return (np.clip(covered, 0, 1) * CELLS / size).astype("float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchColourAccuracy(keras.metrics.MeanMetricWrapper):
    """Share of predicted patches whose mean has the correct 3-bit colour.

    It makes a regression on pixels comparable to predictions of colours.

    Args:
        **kwargs: Passed to `keras.metrics.MeanMetricWrapper`.
    """

    def __init__(self, name="accuracy", dtype=None):
        super().__init__(_has_mean_colour, name=name, dtype=dtype)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype}


def _has_mean_colour(y_true, y_pred):
    def mean_of(values):
        pixels = ops.reshape(values, (-1, values.shape[1], values.shape[2] // 3, 3))
        return colour_classes(ops.mean(pixels, axis=2))

    return ops.cast(ops.equal(mean_of(y_true), mean_of(y_pred)), "float32")


@dataclasses.dataclass(frozen=True)
class PatchTarget:
    """A target: how it is computed from a patch, its shape, loss and metric.

    Args:
        of_patches: Gives the targets of pixels `(B, N, height, width, 3)` in [-1, 1].
        outputs: Gives the shape of one patch's prediction from the patch sizes.
        make_loss: Makes the loss, a mean over patches and predictions.
        make_metric: Makes the metric "accuracy".
    """

    of_patches: Callable[[Any], Any]
    outputs: Callable[[tuple[int, int]], tuple[int, ...]]
    make_loss: Callable[[], keras.losses.Loss]
    make_metric: Callable[[], keras.metrics.Metric]


def _colour_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _colour_accuracy():
    return keras.metrics.SparseCategoricalAccuracy(name="accuracy")


MEAN_COLOUR, DOWNSIZED, PATCH = settings.TARGETS  # The paper's three, in its order.
TARGETS = {
    MEAN_COLOUR: PatchTarget(
        mean_colour, lambda sizes: (1, COLOURS), _colour_loss, _colour_accuracy
    ),
    DOWNSIZED: PatchTarget(
        downsized, lambda sizes: (CELLS * CELLS, COLOURS), _colour_loss, _colour_accuracy
    ),
    PATCH: PatchTarget(
        whole_patch,
        lambda sizes: (3 * sizes[0] * sizes[1],),
        keras.losses.MeanSquaredError,
        PatchColourAccuracy,
    ),
}
