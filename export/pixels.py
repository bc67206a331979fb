"""Preprocessing of uint8 images with operations that every runtime has.

`keras_vit.images.resizing` says what each evaluation computes, and evaluation computes it with
TensorFlow's area resize and sparse products of whole numbers, which LiteRT and ONNX do not have.
Here each resize is either TensorFlow's bilinear one or a product with the matrix of a side's
weights, in float32. For evaluation that would be 5 to 11 times as slow (a photo of 12 megapixels
on 2 cores: "torchvision" 2.6 s instead of 0.5 s, "resize_small_central_crop" 0.8 s instead of
0.07 s), and 3 of 10,000 pixels would be one off.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from keras_vit.images.decoding import scale
from keras_vit.images.resizing import (
    EVALUATION_STEPS,
    FILTERS,
    covered_pixels,
    filter_weights,
    rows_first,
)
from keras_vit.preprocessing import Preprocessing


class PixelPreprocessing(keras.layers.Layer):
    """`preprocess_pixels` as a layer of an exported model."""

    def __init__(self, preprocessing: Preprocessing, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.preprocessing = preprocessing

    def call(self, images):
        return preprocess_pixels(images, self.preprocessing)

    def compute_output_spec(self, images):
        shape = (images.shape[0], *self.preprocessing.image_size, images.shape[3])
        return keras.KerasTensor(shape, "float32")


def preprocess_pixels(images: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns uint8 images as a model's input, as evaluation resizes and scales them.

    The result equals `keras_vit.images.decoding.apply_preprocessing` except for float32
    rounding, which may change a pixel that evaluation rounds to a whole number by one.

    Args:
        images: uint8 `(B, H, W, C)`; B, H and W may be unknown.
        preprocessing: Image size, way of resizing and value range.

    Returns:
        float32 `(B, height, width, C)`.
    """
    values = _resize(tf.cast(images, tf.float32), preprocessing)
    # Known sizes; TFLite has no operation that only states them.
    values = tf.reshape(values, (-1, *preprocessing.image_size, images.shape[3]))
    return scale(values, preprocessing.value_range)


def _resize(values, preprocessing):
    """Returns images resized and cropped to the image size, by the named evaluation."""
    steps, size = EVALUATION_STEPS[preprocessing.evaluation], preprocessing.image_size
    interpolation, sides = preprocessing.interpolation, _sides(values)
    geometry = steps.geometry(sides, size, preprocessing.resize_size)
    cropped, resized, starts = geometry
    if cropped is not None:
        values = _central_crop(values, sides, cropped)
        sides = cropped
    if steps.kernel == "filter" and interpolation == "bilinear":
        values = tf.image.resize(values, resized)
        if steps.rounding == "down":
            values = _truncated(values)
        elif steps.rounding == "nearest":
            values = tf.round(values)
        return values if starts is None else _central_crop(values, resized, size)
    # Only the part of each side that is kept is computed.
    windows = list(zip(sides, resized, starts or (0, 0), size, strict=True))
    if steps.kernel == "area":
        for side, window in enumerate(windows):
            values = _product(_area_weights(*window), values, side)
        return _truncated(values)
    weights = [
        _filter_weights(*window, interpolation, antialias=steps.kernel == "pillow")
        for window in windows
    ]
    if steps.kernel == "filter":
        for side in (0, 1):
            values = _product(weights[side], values, side)
        values = tf.clip_by_value(values, 0.0, 255.0)  # The filters have negative weights.
        return tf.round(values) if steps.rounding == "nearest" else values

    def resize(order):
        result = values
        for side in order:  # Rounded to whole pixels after each side, halves up.
            result = _product(weights[side], result, side)
            result = tf.clip_by_value(_truncated(result + 0.5), 0.0, 255.0)
        return result

    values = tf.cond(rows_first(sides, resized), lambda: resize((0, 1)), lambda: resize((1, 0)))
    if not steps.fills:
        return values
    rows, columns = (_float(covered) for covered in covered_pixels(geometry, size))
    fill = tf.constant(preprocessing.fill, tf.float32)
    return fill + rows * columns * (values - fill)


def _filter_weights(length, resized, start, size, interpolation, antialias):
    """Returns the weights `(size, length)` of a side's pixels in the pixels of its resized side.

    Args:
        length: Pixels of the side.
        resized: Pixels of the whole resized side.
        start: First computed pixel of the resized side; outside of it, its first and last are.
        size: Number of computed pixels.
        interpolation: A key of `FILTERS`.
        antialias: Whether the filter covers all pixels that become one.
    """
    step = _float(length) / _float(resized)
    stretch = tf.maximum(step, 1.0) if antialias else 1.0
    places = _float(start) + tf.range(size, dtype=tf.float32)
    centers = (tf.clip_by_value(places, 0.0, _float(resized) - 1) + 0.5) * step
    pixels = tf.range(_float(length)) + 0.5
    distances = tf.abs(pixels - centers[:, tf.newaxis]) / stretch
    radius, _ = FILTERS[interpolation]
    return filter_weights(distances, distances < radius, interpolation)


def _area_weights(length, resized, start, size):
    """The same where a pixel is the mean of the area that it covers."""
    step = _float(length) / _float(resized)
    begins = ((_float(start) + tf.range(size, dtype=tf.float32)) * step)[:, tf.newaxis]
    pixels = tf.range(_float(length))
    covered = tf.minimum(pixels + 1, begins + step) - tf.maximum(pixels, begins)
    return tf.maximum(covered, 0.0) / step


def _product(weights, values, side):
    """Returns images whose rows (side 0) or columns (side 1) are mixed by a matrix."""
    rows, columns = _sides(values)
    channels = values.shape[3]
    if side == 0:
        mixed = tf.matmul(weights, tf.reshape(values, (-1, rows, columns * channels)))
        return tf.reshape(mixed, (-1, weights.shape[0], columns, channels))
    mixed = tf.matmul(weights, tf.reshape(values, (-1, columns, channels)))
    return tf.reshape(mixed, (-1, rows, weights.shape[0], channels))


def _central_crop(values, lengths, sizes):
    y, x = ((length - size) // 2 for length, size in zip(lengths, sizes, strict=True))
    return values[:, y : y + sizes[0], x : x + sizes[1]]


def _truncated(values):
    # An equal sum in another order may be a little less than a whole number.
    return tf.floor(values + 2**-13)


def _sides(values):
    """Returns the numbers of rows and columns; scalar tensors where they are unknown."""
    return [values.shape[axis] or tf.shape(values)[axis] for axis in (1, 2)]


def _float(value):
    return tf.cast(value, tf.float32)
