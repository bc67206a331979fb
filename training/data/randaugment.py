"""RandAugment (arXiv 1909.13719) with the operations of the official ViT pre-training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import seldom

_EMPTY = 128  # Grey of uncovered pixels.
_CUTOUT = 40  # Pixels from the centre of the square to its edge, at magnitude 10.
_TRANSLATION = 100  # Pixels, at magnitude 10.


def randaugment(image: tf.Tensor, key: tf.Tensor, layers: int, magnitude: float) -> tf.Tensor:
    """Applies randomly drawn operations in sequence.

    As in big_vision: all operations are equally probable and always applied; those with a
    direction take either one.

    Args:
        image: uint8 `(H, W, 3)`.
        key: Seed of the random operations, `(2,)`.
        layers: Number of operations, N in the paper.
        magnitude: Strength of the operations, M in the paper, out of 10. 0 is not the
            identity: some operations, such as `Solarize`, are strongest there.

    Returns:
        uint8 `(H, W, 3)`.
    """
    shape = image.shape
    for layer in range(layers):
        layer_key = tf.random.experimental.stateless_fold_in(key, layer + 2)
        draw = tf.random.stateless_uniform([4], layer_key)
        branches = [
            _branch(operation, image, draw[1:], magnitude) for operation in OPERATIONS.values()
        ]
        chosen = tf.cast(draw[0] * len(branches), tf.int32)
        image = tf.ensure_shape(tf.switch_case(chosen, branches), shape)
    return image


def autocontrast(image: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to [0, 255]; a channel with a single value is unchanged."""
    values = tf.cast(image, tf.float32)
    low, high = (reduce(values, [0, 1]) for reduce in (tf.reduce_min, tf.reduce_max))
    factor = 255.0 / tf.where(high > low, high - low, 1.0)
    stretched = tf.clip_by_value(values * factor - low * factor, 0.0, 255.0)
    return tf.where(high > low, tf.cast(stretched, tf.uint8), image)


def equalize(image: tf.Tensor) -> tf.Tensor:
    """Equalises the histogram of each channel, as Pillow does."""

    def equalize_channel(channel):
        values = tf.cast(channel, tf.int32)
        counts = tf.math.bincount(tf.reshape(values, [-1]), minlength=256, maxlength=256)
        last = tf.gather(counts, tf.reduce_max(values))
        step = (tf.reduce_sum(counts) - last) // 255
        table = (tf.cumsum(counts, exclusive=True) + step // 2) // tf.maximum(step, 1)
        table = tf.cast(tf.clip_by_value(table, 0, 255), tf.uint8)
        return tf.where(step > 0, tf.gather(table, values), channel)

    return tf.stack([equalize_channel(image[..., index]) for index in range(3)], axis=-1)


def invert(image: tf.Tensor) -> tf.Tensor:
    """Inverts the image."""
    return 255 - image


def posterize(image: tf.Tensor, bits: int) -> tf.Tensor:
    """Keeps the upper bits of each value, at least 1."""
    shift = tf.cast(min(8 - bits, 7), tf.uint8)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, shift), shift)


def solarize(image: tf.Tensor, threshold: int) -> tf.Tensor:
    """Inverts all values at or above a threshold."""
    return tf.where(tf.cast(image, tf.int32) < threshold, image, 255 - image)


def solarize_add(image: tf.Tensor, addition: int) -> tf.Tensor:
    """Adds to the values below 128."""
    added = tf.minimum(tf.cast(image, tf.int32) + addition, 255)
    return tf.where(image < 128, tf.cast(added, tf.uint8), image)


def color(image: tf.Tensor, factor: float) -> tf.Tensor:
    """Blends with the grayscale image: factor 0 is grayscale, 1 the image."""
    grey = tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))
    return _blended(grey, image, factor)


def contrast(image: tf.Tensor, factor: float) -> tf.Tensor:
    """Blends with one grey value: factor 0 is grey, 1 the image.

    Not with the mean value, as Pillow does: in the official code the value is H * W / 256,
    at most 255.
    """
    size = tf.cast(tf.size(image[..., 0]), tf.float32)
    grey = tf.cast(tf.minimum(size / 256, 255.0), tf.uint8)
    return _blended(tf.fill(tf.shape(image), grey), image, factor)


def brightness(image: tf.Tensor, factor: float) -> tf.Tensor:
    """Blends with black: factor 0 is black, 1 the image."""
    return _blended(tf.zeros_like(image), image, factor)


def sharpness(image: tf.Tensor, factor: float) -> tf.Tensor:
    """Blends with the smoothed image: factor 0 is smooth, 1 the image. The border is unchanged.

    The result is rounded, as in TensorFlow Addons; big_vision truncates it. Both truncate the
    smoothed image, and big_vision every blend.
    """
    kernel = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / np.float32(13)
    values = tf.cast(image, tf.float64)
    height, width = tf.unstack(tf.shape(image)[:2] - 2)
    # Sums in this order, each of a product rounded once, as by a processor's fused multiply-add.
    # A convolution's order depends on the processor, and with it whether 5.0 is truncated to 4.
    smooth = tf.zeros([height, width, 3], tf.float32)
    for (row, column), weight in np.ndenumerate(kernel):
        product = np.float64(weight) * values[row : row + height, column : column + width]
        smooth = tf.cast(tf.cast(smooth, tf.float64) + product, tf.float32)
    smooth = tf.cast(tf.clip_by_value(smooth, 0.0, 255.0), tf.uint8)
    inside = tf.pad(tf.ones_like(smooth, tf.bool), [[1, 1], [1, 1], [0, 0]])
    smooth = tf.where(inside, tf.pad(smooth, [[1, 1], [1, 1], [0, 0]]), image)
    return tf.cast(tf.round(_blend(smooth, image, factor)), tf.uint8)


def rotate(image: tf.Tensor, degrees: tf.Tensor, interpolation: str = "NEAREST") -> tf.Tensor:
    """Rotates the image about its centre, counterclockwise."""
    angle = tf.cast(degrees, tf.float32) * (math.pi / 180)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32) - 1)
    x = (width - (cosine * width - sine * height)) / 2
    y = (height - (sine * width + cosine * height)) / 2
    return _projected(image, [cosine, -sine, x, sine, cosine, y], interpolation)


def translate_x(image: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """Shifts the image to the left."""
    return _projected(image, [1, 0, pixels, 0, 1, 0])


def translate_y(image: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """Shifts the image upwards."""
    return _projected(image, [1, 0, 0, 0, 1, pixels])


def shear_x(image: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Shifts each row to the left by `level` times its index."""
    return _projected(image, [1, level, 0, 0, 1, 0])


def shear_y(image: tf.Tensor, level: tf.Tensor) -> tf.Tensor:
    """Shifts each column upwards by `level` times its index."""
    return _projected(image, [1, 0, 0, level, 1, 0])


def cutout(image: tf.Tensor, middle: tf.Tensor, half_side: int) -> tf.Tensor:
    """Fills a square with grey; it is clipped at the border of the image.

    Args:
        image: uint8 `(H, W, 3)`.
        middle: Centre of the square, as shares of height and width in [0, 1).
        half_side: Pixels from the centre to the edge.
    """
    shape = tf.shape(image)[:2]
    y, x = tf.unstack(tf.cast(middle * tf.cast(shape, tf.float32), tf.int32))
    rows, columns = tf.range(shape[0])[:, tf.newaxis], tf.range(shape[1])
    inside = (rows >= y - half_side) & (rows < y + half_side)
    inside &= (columns >= x - half_side) & (columns < x + half_side)
    return tf.where(inside[..., tf.newaxis], tf.cast(_EMPTY, tf.uint8), image)


def _blended(start, end, factor):
    return tf.cast(_blend(start, end, factor), tf.uint8)


def _blend(start, end, factor):
    """Interpolates between two images; a factor above 1 extrapolates."""
    first, last = tf.cast(start, tf.float32), tf.cast(end, tf.float32)
    return tf.clip_by_value(first + factor * (last - first), 0.0, 255.0)


def _projected(image, transform, interpolation="NEAREST"):
    """Samples each pixel where a 2 x 3 matrix maps it; outside of the image it is grey."""
    transform = tf.stack([tf.cast(value, tf.float32) for value in [*transform, 0, 0]])
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[tf.newaxis],
        transforms=transform[tf.newaxis],
        output_shape=tf.shape(image)[:2],
        fill_value=float(_EMPTY),
        interpolation=interpolation,
        fill_mode="CONSTANT",
    )
    return moved[0]


class Operation(NamedTuple):
    """A row of RandAugment's table.

    Args:
        apply: Function of an image and an amount, or of an image alone.
        amount: Function from the magnitude, divided by 10, to the amount; or None.
        both_ways: Whether the amount is negated with probability 1/2.
    """

    apply: Callable[..., tf.Tensor]
    amount: Callable[[float], float] | None = None
    both_ways: bool = False


def _enhance(level):
    return 1.8 * level + 0.1


OPERATIONS = {
    "AutoContrast": Operation(autocontrast),
    "Equalize": Operation(equalize),
    "Invert": Operation(invert),
    "Rotate": Operation(rotate, lambda level: 30 * level, both_ways=True),
    # A higher magnitude keeps more bits, a weaker effect, as in the official code.
    "Posterize": Operation(posterize, lambda level: int(4 * level)),
    # The official comparison of bytes kept the last 8 bits of the threshold, so that 10 and 20
    # invert the image, and 15 its values from 128 on: AugReg's models were trained so.
    "Solarize": Operation(solarize, lambda level: int(256 * level) % 256),
    "Color": Operation(color, _enhance),
    "Contrast": Operation(contrast, _enhance),
    "Brightness": Operation(brightness, _enhance),
    "Sharpness": Operation(sharpness, _enhance),
    "ShearX": Operation(shear_x, lambda level: 0.3 * level, both_ways=True),
    "ShearY": Operation(shear_y, lambda level: 0.3 * level, both_ways=True),
    "TranslateX": Operation(translate_x, lambda level: _TRANSLATION * level, both_ways=True),
    "TranslateY": Operation(translate_y, lambda level: _TRANSLATION * level, both_ways=True),
    "Cutout": Operation(cutout, lambda level: int(_CUTOUT * level)),
    "SolarizeAdd": Operation(solarize_add, lambda level: int(110 * level)),
}


def _branch(operation, image, draw, magnitude):
    """Returns a function without arguments that applies an operation.

    Args:
        operation: The operation.
        image: The image.
        draw: Three random numbers in [0, 1).
        magnitude: See `randaugment`.
    """

    @seldom
    def apply(image, draw):
        if operation.amount is None:
            return operation.apply(image)
        amount = operation.amount(magnitude / 10)
        if operation.apply is cutout:
            return cutout(image, draw[1:], amount)
        if operation.both_ways:
            amount = tf.where(draw[0] < 0.5, amount, -amount)
        return operation.apply(image, amount)

    return lambda: apply(image, draw)
