"""Resizes and crops of images as other libraries compute them, as graph code of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.preprocessing import Preprocessing

# big_vision resizes the short side to 256 for 224 pixels, and to 448 for 384.
_SMALL_FACTORS = ((0, 256 / 224), (384, 448 / 384))  # From this many pixels on: factor.
MAX_ASPECT = 32  # Longer images are cropped to this ratio of sides before they are resized.


def resize(image: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns an image resized and cropped to the image size, by the named evaluation.

    Args:
        image: `(H, W, C)`, pixels in [0, 255].
        preprocessing: Image size, evaluation, interpolation and size before the crop.

    Returns:
        `(height, width, C)`, float32 or of the image's type.
    """
    return _RESIZES[preprocessing.evaluation](image, preprocessing)


def resize_small(image: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes an image to a little more than a size, and keeps its aspect ratio.

    Pixels are averaged by area and keep their type (uint8: rounded towards zero), as in
    big_vision: the short side becomes 256 pixels for 224, and 448 for 384.

    Args:
        image: `(H, W, C)`. A long side above 32 times the short one is cropped first, so
            that the result is bounded.
        size: Pixels (height, width).

    Returns:
        `(H', W', C)` with H' > height and W' > width, or equal.
    """
    shape = tf.shape(image)[:2]
    image = _central_crop(image, tf.minimum(shape, MAX_ASPECT * tf.reduce_min(shape)))
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    wanted = tf.constant([small_side(side) for side in size], tf.float32)
    small = tf.cast(tf.round(shape * tf.reduce_max(wanted / shape)), tf.int32)
    return tf.cast(tf.image.resize(image, small, method="area"), image.dtype)


def _resize_whole(image, preprocessing):
    method = preprocessing.interpolation.replace("lanczos", "lanczos3")
    values = tf.image.resize(image, preprocessing.image_size, method)
    if method == "bilinear" or not image.dtype.is_integer:
        return values
    return tf.clip_by_value(values, 0, 255)  # The other filters have negative weights.


def _resize_small_central_crop(image, preprocessing):
    return _central_crop(resize_small(image, preprocessing.image_size), preprocessing.image_size)


def _resize_central_crop(image, preprocessing):
    """Resizes both sides to a little more than the size, bilinear, and crops the middle.

    uint8 is rounded towards zero before the crop, as in big_vision.
    """
    resized = tf.image.resize(image, [small_side(side) for side in preprocessing.image_size])
    return _central_crop(tf.cast(resized, image.dtype), preprocessing.image_size)


def small_side(size: int) -> int:
    """Returns the pixels of a side before the crop of the two official evaluations."""
    factor = next(factor for start, factor in reversed(_SMALL_FACTORS) if size >= start)
    return round(size * factor)


def _central_crop(image, size):
    height, width = size[0], size[1]
    y, x = (tf.shape(image)[0] - height) // 2, (tf.shape(image)[1] - width) // 2
    return image[y : y + height, x : x + width]


def _resize_as_hugging_face(image, preprocessing):
    return _resize_as_pillow(image, preprocessing, lambda rest: rest // 2)


def _resize_as_torchvision(image, preprocessing):
    # Python's `round`: a half goes to the even neighbour.
    return _resize_as_pillow(image, preprocessing, lambda rest: tf.round(rest / 2))


def _resize_as_pillow(image, preprocessing, crop_start):
    """Resizes with antialiasing and crops the middle; for integers, to the bit as Pillow does.

    Of each side only the crop is computed.

    Args:
        image: `(H, W, C)`. Floats are neither rounded nor clipped.
        preprocessing: Sizes and filter.
        crop_start: Function from resized minus cropped pixels, int64 `(2,)`, to the first.
    """
    size = tf.constant(preprocessing.image_size, tf.int64)
    shape = tf.shape(image, tf.int64)[:2]
    wanted = preprocessing.resize_size or preprocessing.image_size
    # Of a number for the short side, the long one is rounded down.
    resized = shape * wanted // tf.reduce_min(shape) if isinstance(wanted, int) else wanted
    resized = tf.cast(resized, tf.int64)
    starts = tf.cast(crop_start(resized - size), tf.int64)
    # The width first, but the height of an image that loses far more rows than columns. The rule
    # is that of Pillow 13; up to 12 the width was always first.
    rows_lost, columns_lost = tf.unstack(shape - resized)
    first = tf.where((rows_lost > 0) & (rows_lost > 2 * columns_lost), 0, 1)
    dtype = tf.int32 if image.dtype.is_integer else tf.float32
    for side in (first, 1 - first):
        weights = _pillow_weights(
            shape[side], resized[side], starts[side], size[side], preprocessing.interpolation, dtype
        )
        order = tf.where(tf.equal(side, 0), [0, 1, 2], [1, 0, 2])
        lines = tf.transpose(image, order)
        others = tf.shape(lines)[1:]
        lines = tf.cast(tf.reshape(lines, (shape[side], -1)), dtype)
        lines = tf.sparse.sparse_dense_matmul(weights, lines)
        if dtype == tf.int32:  # Rounded to whole pixels after each side, halves up.
            lines = tf.bitwise.right_shift(lines + 2 ** (_PILLOW_BITS - 1), _PILLOW_BITS)
            lines = tf.clip_by_value(lines, 0, 255)
        lines = tf.reshape(lines, tf.concat([[tf.cast(size[side], tf.int32)], others], axis=0))
        image = tf.transpose(tf.cast(lines, image.dtype), order)
    return tf.ensure_shape(image, [*preprocessing.image_size, None])


def _pillow_weights(length, resized, start, size, interpolation, dtype):
    """Returns the weights of a side's pixels in the pixels of its resized side.

    Args:
        length: Pixels of the side.
        resized: Pixels of the whole resized side.
        start: First computed pixel of the resized side.
        size: Number of computed pixels.
        interpolation: A key of `FILTERS`.
        dtype: int32 for weights in units of `2^-_PILLOW_BITS`, or a float type.

    Returns:
        A sparse matrix `(size, length)`.
    """
    radius, function = FILTERS[interpolation]
    scale = length / resized  # float64, as in Pillow.
    stretch = tf.maximum(scale, 1.0)  # The filter covers all pixels that become one.
    centers = (tf.cast(tf.range(start, start + size), tf.float64) + 0.5) * scale
    begins = tf.maximum(tf.cast(centers - radius * stretch + 0.5, tf.int64), 0)
    ends = tf.minimum(tf.cast(centers + radius * stretch + 0.5, tf.int64), length)
    taps = begins[:, tf.newaxis] + tf.range(tf.reduce_max(ends - begins))
    distances = tf.cast(taps, tf.float64) - centers[:, tf.newaxis] + 0.5
    is_inside = taps < ends[:, tf.newaxis]
    weights = tf.where(is_inside, function(tf.abs(distances / stretch)), 0.0)
    weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
    if dtype == tf.int32:
        weights *= 2**_PILLOW_BITS
        weights = tf.sign(weights) * tf.floor(tf.abs(weights) + 0.5)
    places = tf.where(is_inside)
    return tf.SparseTensor(
        indices=tf.stack([places[:, 0], tf.gather_nd(taps, places)], axis=1),
        values=tf.cast(tf.gather_nd(weights, places), dtype),
        dense_shape=[size, length],
    )


def _triangle(x):
    return tf.maximum(1 - x, 0)


def _cubic(x):
    """The cubic convolution filter with a = -0.5."""
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return tf.where(x < 1, (1.5 * x - 2.5) * x * x + 1, tf.where(x < 2, far, 0))


def _lanczos(x):
    def sinc(x):
        x *= np.pi
        return tf.where(x > 0, tf.math.divide_no_nan(tf.sin(x), x), 1)

    return tf.where(x < 3, sinc(x) * sinc(x / 3), 0)


# By interpolation: radius, and weight by distance from the center, both in pixels.
FILTERS: dict[str, tuple[float, Callable[[tf.Tensor], tf.Tensor]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, _cubic),
    "lanczos": (3, _lanczos),
}
_PILLOW_BITS = 22  # Fractional bits of a weight.


def _resize_as_keras_hub(image, preprocessing):
    """Crops the middle to the aspect ratio, and resizes as Keras's `Resizing` layer does."""
    size = tf.constant(preprocessing.image_size)
    shape = tf.shape(image)[:2]
    crop = tf.cast(shape[::-1] * size, tf.float32) / tf.cast(size[::-1], tf.float32)
    crop = tf.maximum(tf.minimum(shape, tf.cast(crop, tf.int32)), 1)
    values = _resize_whole(_central_crop(image, crop), preprocessing)
    return tf.round(values) if image.dtype.is_integer else values


_RESIZES = {
    "resize": _resize_whole,
    "resize_small_central_crop": _resize_small_central_crop,
    "resize_central_crop": _resize_central_crop,
    "huggingface": _resize_as_hugging_face,
    "torchvision": _resize_as_torchvision,
    "keras_hub": _resize_as_keras_hub,
}
