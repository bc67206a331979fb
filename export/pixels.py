"""Preprocessing of uint8 images with operations that every runtime has.

`keras_vit.images.resizing` computes the same for evaluation, with operations of TensorFlow that
LiteRT and ONNX do not have. Here each resize is either TensorFlow's bilinear one or a product with
the matrix of a side's weights, in float32.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from keras_vit.images.decoding import scale
from keras_vit.images.resizing import FILTERS, MAX_ASPECT, small_side
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

    The result is that of `keras_vit.images.decoding.apply_preprocessing` but for float32 rounding,
    which may change a pixel that evaluation rounds to a whole number by one.

    Args:
        images: uint8 `(B, H, W, C)`; B, H and W may be unknown.
        preprocessing: Image size, way of resizing and value range.

    Returns:
        float32 `(B, height, width, C)`.
    """
    values = _RESIZES[preprocessing.evaluation](tf.cast(images, tf.float32), preprocessing)
    # Known sizes; TFLite has no operation that only states them.
    values = tf.reshape(values, (-1, *preprocessing.image_size, images.shape[3]))
    return scale(values, preprocessing.value_range)


def _whole(values, preprocessing):
    if preprocessing.interpolation == "bilinear":
        return tf.image.resize(values, preprocessing.image_size)
    for side, size in enumerate(preprocessing.image_size):
        length = _length(values, side)
        weights = _filter_weights(length, size, 0, size, preprocessing.interpolation, False)
        values = _product(weights, values, side)
    return tf.clip_by_value(values, 0.0, 255.0)  # The filters have negative weights.


def _small_central_crop(values, preprocessing):
    lengths = [_length(values, side) for side in (0, 1)]
    limits = [tf.minimum(length, MAX_ASPECT * tf.minimum(*lengths)) for length in lengths]
    values = _central_crop(values, lengths, limits)
    sides = list(zip(preprocessing.image_size, map(_float, limits), strict=True))
    factor = tf.maximum(*(small_side(size) / length for size, length in sides))
    for side, (size, length) in enumerate(sides):
        resized = tf.cast(tf.round(length * factor), tf.int32)
        start = (resized - size) // 2
        values = _product(_area_weights(limits[side], resized, start, size), values, side)
    return _truncated(values)


def _large_central_crop(values, preprocessing):
    resized = [small_side(size) for size in preprocessing.image_size]
    values = _truncated(tf.image.resize(values, resized))
    return _central_crop(values, resized, preprocessing.image_size)


def _as_keras_hub(values, preprocessing):
    height, width = preprocessing.image_size
    rows, columns = (_length(values, side) for side in (0, 1))
    wanted = [_float(columns * height) / width, _float(rows * width) / height]
    crop = [
        tf.maximum(tf.minimum(length, tf.cast(side, tf.int32)), 1)
        for length, side in zip((rows, columns), wanted, strict=True)
    ]
    values = _whole(_central_crop(values, (rows, columns), crop), preprocessing)
    return tf.round(values)


def _as_hugging_face(values, preprocessing):
    return _as_pillow(values, preprocessing, lambda rest: rest // 2)


def _as_torchvision(values, preprocessing):
    return _as_pillow(
        values, preprocessing, lambda rest: tf.cast(tf.round(_float(rest) / 2), tf.int32)
    )


def _as_pillow(values, preprocessing, crop_start):
    lengths = [_length(values, side) for side in (0, 1)]
    wanted = preprocessing.resize_size or preprocessing.image_size
    if isinstance(wanted, int):
        resized = [length * wanted // tf.minimum(*lengths) for length in lengths]
    else:
        resized = list(wanted)
    weights = [
        _filter_weights(
            length, whole, crop_start(whole - size), size, preprocessing.interpolation, True
        )
        for length, whole, size in zip(lengths, resized, preprocessing.image_size, strict=True)
    ]

    def resize(order):
        result = values
        for side in order:  # Rounded to whole pixels after each side, halves up.
            result = _product(weights[side], result, side)
            result = tf.clip_by_value(_truncated(result + 0.5), 0.0, 255.0)
        return result

    lost = [length - whole for length, whole in zip(lengths, resized, strict=True)]
    rows_first = tf.logical_and(lost[0] > 0, lost[0] > 2 * lost[1])
    return tf.cond(rows_first, lambda: resize((0, 1)), lambda: resize((1, 0)))


_RESIZES = {
    "resize": _whole,
    "resize_small_central_crop": _small_central_crop,
    "resize_central_crop": _large_central_crop,
    "huggingface": _as_hugging_face,
    "torchvision": _as_torchvision,
    "keras_hub": _as_keras_hub,
}


def _filter_weights(length, resized, start, size, interpolation, antialias):
    """Returns the weights `(size, length)` of a side's pixels in those of its resized side.

    Args:
        length: Pixels of the side.
        resized: Pixels of the whole resized side.
        start: First computed pixel of the resized side.
        size: Number of computed pixels.
        interpolation: A key of `FILTERS`.
        antialias: Whether the filter covers all pixels that become one.
    """
    step = _float(length) / _float(resized)
    stretch = tf.maximum(step, 1.0) if antialias else 1.0
    centers = (_float(start) + tf.range(size, dtype=tf.float32) + 0.5) * step
    pixels = tf.range(_float(length)) + 0.5
    distances = tf.abs(pixels - centers[:, tf.newaxis]) / stretch
    radius, function = FILTERS[interpolation]
    weights = tf.where(distances < radius, function(distances), 0.0)
    return weights / tf.reduce_sum(weights, axis=1, keepdims=True)


def _area_weights(length, resized, start, size):
    """The same where a pixel is the mean of the area that it covers."""
    step = _float(length) / _float(resized)
    begins = ((_float(start) + tf.range(size, dtype=tf.float32)) * step)[:, tf.newaxis]
    pixels = tf.range(_float(length))
    covered = tf.minimum(pixels + 1, begins + step) - tf.maximum(pixels, begins)
    return tf.maximum(covered, 0.0) / step


def _product(weights, values, side):
    """Returns images whose rows (side 0) or columns (side 1) are mixed by a matrix."""
    rows, columns = (_length(values, axis) for axis in (0, 1))
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


def _length(values, side):
    """Pixels of the rows (0) or columns (1): a number where it is known."""
    return values.shape[side + 1] or tf.shape(values)[side + 1]


def _float(value):
    return tf.cast(value, tf.float32)
