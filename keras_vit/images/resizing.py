"""Resizes and crops of images as other libraries compute them, as graph code of TensorFlow.

`EVALUATION_STEPS` lists what each evaluation computes: sizes, crops, filter and rounding. Two
functions follow it: `resize` for one image in a pipeline, exact to the bit, and `resize_batch` for
exports, with the few operations that LiteRT and ONNX have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

# `keras_vit.Preprocessing`, which calls this file. Only its fields are read.
Preprocessing = Any

# big_vision resizes the short side to 256 for 224 pixels, and to 448 for 384.
_SMALL_FACTORS = ((0, 256 / 224), (384, 448 / 384))  # From this many pixels on: factor.
_MAX_ASPECT = 32  # Longer images are cropped to this ratio of sides before they are resized.

# Pixels of the height and of the width: numbers, or scalar tensors of whole numbers.
Sides = Any


class Geometry(NamedTuple):
    """Sizes of an image on its way to the image size, each (height, width) in pixels.

    Args:
        cropped: The middle that is resized; None for the whole image.
        resized: The same after it is resized.
        starts: The first pixels that are kept of it; None where all are kept.
    """

    cropped: Sides | None
    resized: Sides
    starts: Sides | None


class EvaluationSteps(NamedTuple):
    """What an evaluation computes.

    Args:
        geometry: Function from the image's sides, the image size and `resize_size` to a `Geometry`.
        kernel: "filter" for the named filter, "area" for the mean of the area that a pixel covers,
            "pillow" for the named filter with antialiasing, in Pillow's whole numbers.
        rounding: Rounds bytes to whole pixels: "down", "nearest" or None. Pillow rounds in between.
    """

    geometry: Callable[[Sides, tuple[int, int], int | tuple[int, int] | None], Geometry]
    kernel: Literal["filter", "area", "pillow"]
    rounding: Literal["down", "nearest"] | None = None


def resize(image: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns an image resized and cropped to the image size, by the named evaluation.

    Args:
        image: `(H, W, C)`, pixels in [0, 255].
        preprocessing: Image size, evaluation, interpolation and size before the crop.

    Returns:
        `(height, width, C)`, float32 or of the image's type.
    """
    steps, size = EVALUATION_STEPS[preprocessing.evaluation], preprocessing.image_size
    geometry = steps.geometry(_sides(image), size, preprocessing.resize_size)
    if geometry.cropped is not None:
        image = _central_crop(image, geometry.cropped)
    if steps.kernel == "pillow":
        return _resize_as_pillow(image, geometry, preprocessing)
    method = "area" if steps.kernel == "area" else preprocessing.interpolation
    values = _resize(image, geometry.resized, method)
    if steps.rounding == "down":
        values = tf.cast(values, image.dtype)
    elif steps.rounding == "nearest" and image.dtype.is_integer:
        values = tf.round(values)
    if geometry.starts is None:
        return values
    (y, x), (height, width) = geometry.starts, size
    return values[y : y + height, x : x + width]


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
    geometry = _small_geometry(_sides(image), size)
    values = _resize(_central_crop(image, geometry.cropped), geometry.resized, "area")
    return tf.cast(values, image.dtype)


def _resize(image, size, method):
    """Returns an image resized by TensorFlow, float32; its filters that overshoot are clipped."""
    size = tf.cast(tf.stack(size), tf.int32)
    values = tf.image.resize(image, size, method.replace("lanczos", "lanczos3"))
    if method in ("area", "bilinear") or not image.dtype.is_integer:
        return values
    return tf.clip_by_value(values, 0, 255)


def _sides(image):
    return tf.unstack(tf.shape(image, tf.int64)[:2])


def _central_crop(image, size):
    y, x = ((side - length) // 2 for side, length in zip(_sides(image), size, strict=True))
    return image[y : y + size[0], x : x + size[1]]


# Sizes and crops


def _whole_geometry(sides, size, resize_size=None):
    return Geometry(None, size, None)


def _small_geometry(sides, size, resize_size=None):
    """The short side becomes a little more than the size; the aspect ratio stays."""
    cropped = [tf.minimum(side, _MAX_ASPECT * tf.minimum(*sides)) for side in sides]
    lengths = [tf.cast(side, tf.float32) for side in cropped]
    factor = tf.maximum(*(small_side(side) / n for side, n in zip(size, lengths, strict=True)))
    resized = [tf.cast(tf.round(length * factor), tf.int32) for length in lengths]
    return Geometry(cropped, resized, _middle(resized, size))


def _large_geometry(sides, size, resize_size=None):
    """Both sides become a little more than the size."""
    resized = [small_side(side) for side in size]
    return Geometry(None, resized, _middle(resized, size))


def _short_side_geometry(middle):
    """The short side becomes `resize_size`, or both do; of the result a middle is kept."""

    def geometry(sides, size, resize_size=None):
        resized = _before_crop(sides, resize_size or size)
        return Geometry(None, resized, middle(resized, size))

    return geometry


def _keras_hub_geometry(sides, size, resize_size=None):
    """The middle of the aspect ratio of the size."""
    rows, columns = map(tf.convert_to_tensor, sides)
    height, width = size
    most_rows = tf.cast(columns * height, tf.float32) / width
    most_columns = tf.cast(rows * width, tf.float32) / height
    cropped = [
        tf.maximum(tf.minimum(side, tf.cast(most, side.dtype)), 1)
        for side, most in ((rows, most_rows), (columns, most_columns))
    ]
    return Geometry(cropped, size, None)


def _before_crop(sides, resize_size):
    """Returns the size before the crop; a number is the short side, and the long one is cut."""
    if not isinstance(resize_size, int):
        return list(resize_size)
    return [side * resize_size // tf.minimum(*sides) for side in sides]


def _middle(resized, size):
    return [(whole - kept) // 2 for whole, kept in zip(resized, size, strict=True)]


def _even_middle(resized, size):
    """The same, but a half goes to the even neighbour, as Python's `round(rest / 2)`."""
    rests = [whole - kept for whole, kept in zip(resized, size, strict=True)]
    return [(rest + rest // 2 % 2) // 2 for rest in rests]


def small_side(size: int) -> int:
    """Returns the pixels of a side before the crop of the two official evaluations."""
    factor = next(factor for start, factor in reversed(_SMALL_FACTORS) if size >= start)
    return round(size * factor)


EVALUATION_STEPS = {
    "resize": EvaluationSteps(_whole_geometry, "filter"),
    "resize_small_central_crop": EvaluationSteps(_small_geometry, "area", "down"),
    "resize_central_crop": EvaluationSteps(_large_geometry, "filter", "down"),
    "huggingface": EvaluationSteps(_short_side_geometry(_middle), "pillow"),
    "torchvision": EvaluationSteps(_short_side_geometry(_even_middle), "pillow"),
    "keras_hub": EvaluationSteps(_keras_hub_geometry, "filter", "nearest"),
}


# Pillow's filters


def rows_first(sides: Sides, resized: Sides) -> tf.Tensor:
    """Returns whether Pillow resizes the height first: where far more rows than columns are lost.

    The rule is Pillow 13's; up to 12 the width was always first.
    """
    rows_lost, columns_lost = (side - whole for side, whole in zip(sides, resized, strict=True))
    return tf.logical_and(rows_lost > 0, rows_lost > 2 * columns_lost)


def filter_weights(distances: tf.Tensor, is_inside: tf.Tensor, interpolation: str) -> tf.Tensor:
    """Returns the weights of pixels by a filter, `(size, taps)`; each row sums to 1.

    Args:
        distances: `(size, taps)`, from the center of the filter, in units of its scale.
        is_inside: Whether a pixel has a weight.
        interpolation: A key of `FILTERS`.
    """
    _, function = FILTERS[interpolation]
    weights = tf.where(is_inside, function(distances), 0.0)
    return weights / tf.reduce_sum(weights, axis=1, keepdims=True)


def _resize_as_pillow(image, geometry, preprocessing):
    """Resizes with antialiasing and crops the middle; for integers, to the bit as Pillow does.

    Only the cropped part of each side is computed.

    Args:
        image: `(H, W, C)`. Floats are neither rounded nor clipped.
        geometry: Sizes before and after the crop.
        preprocessing: Image size and filter.
    """
    size, interpolation = preprocessing.image_size, preprocessing.interpolation
    # The loop takes a side by a tensor.
    windows = tf.stack(
        [
            tf.stack([tf.cast(side, tf.int64) for side in sides])
            for sides in (_sides(image), geometry.resized, geometry.starts, size)
        ],
        axis=1,
    )
    first = tf.where(rows_first(tf.unstack(windows[:, 0]), tf.unstack(windows[:, 1])), 0, 1)
    dtype = tf.int32 if image.dtype.is_integer else tf.float32
    for side in (first, 1 - first):
        length, resized, start, kept = tf.unstack(windows[side])
        weights = _pillow_weights(length, resized, start, kept, interpolation, dtype)
        order = tf.where(tf.equal(side, 0), [0, 1, 2], [1, 0, 2])
        lines = tf.transpose(image, order)
        others = tf.shape(lines)[1:]
        lines = tf.cast(tf.reshape(lines, (length, -1)), dtype)
        lines = tf.sparse.sparse_dense_matmul(weights, lines)
        if dtype == tf.int32:  # Rounded to whole pixels after each side, halves up.
            lines = tf.bitwise.right_shift(lines + 2 ** (_PILLOW_BITS - 1), _PILLOW_BITS)
            lines = tf.clip_by_value(lines, 0, 255)
        lines = tf.reshape(lines, tf.concat([[tf.cast(kept, tf.int32)], others], axis=0))
        image = tf.transpose(tf.cast(lines, image.dtype), order)
    return tf.ensure_shape(image, [*size, None])


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
    radius, _ = FILTERS[interpolation]
    scale = length / resized  # float64, as in Pillow.
    stretch = tf.maximum(scale, 1.0)  # The filter covers all pixels that become one.
    centers = (tf.cast(tf.range(start, start + size), tf.float64) + 0.5) * scale
    begins = tf.maximum(tf.cast(centers - radius * stretch + 0.5, tf.int64), 0)
    ends = tf.minimum(tf.cast(centers + radius * stretch + 0.5, tf.int64), length)
    taps = begins[:, tf.newaxis] + tf.range(tf.reduce_max(ends - begins))
    distances = tf.cast(taps, tf.float64) - centers[:, tf.newaxis] + 0.5
    is_inside = taps < ends[:, tf.newaxis]
    weights = filter_weights(tf.abs(distances / stretch), is_inside, interpolation)
    if dtype == tf.int32:
        weights *= 2**_PILLOW_BITS
        weights = tf.sign(weights) * tf.floor(tf.abs(weights) + 0.5)
    places = tf.where(is_inside)
    indices = tf.stack([places[:, 0], tf.gather_nd(taps, places)], axis=1)
    return tf.SparseTensor(indices, tf.cast(tf.gather_nd(weights, places), dtype), [size, length])


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


# Batches, with operations that every runtime has


def resize_batch(values: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns images resized and cropped to the image size, with operations of every runtime.

    The result equals `resize` except for float32 rounding, which may change a pixel that it
    rounds to a whole number by one. `resize` has TensorFlow's area resize and sparse products of
    whole numbers, which LiteRT and ONNX do not have. Here each resize is either TensorFlow's
    bilinear one or a product with the matrix of a side's weights, in float32. For evaluation that
    would be 5 to 11 times as slow (a photo of 12 megapixels on 2 cores: "torchvision" 2.6 s
    instead of 0.5 s, "resize_small_central_crop" 0.8 s instead of 0.07 s), and 3 of 10,000 pixels
    would be one off.

    Args:
        values: float32 `(B, H, W, C)`, pixels in [0, 255]; B, H and W may be unknown.
        preprocessing: Image size, evaluation, interpolation and size before the crop.

    Returns:
        `(B, height, width, C)`.
    """
    steps, size = EVALUATION_STEPS[preprocessing.evaluation], preprocessing.image_size
    interpolation, sides = preprocessing.interpolation, _batch_sides(values)
    cropped, resized, starts = steps.geometry(sides, size, preprocessing.resize_size)
    if cropped is not None:
        values = _crop_batch(values, sides, cropped)
        sides = cropped
    if steps.kernel == "filter" and interpolation == "bilinear":
        values = tf.image.resize(values, resized)
        if steps.rounding == "down":
            values = _truncated(values)
        elif steps.rounding == "nearest":
            values = tf.round(values)
        return values if starts is None else _crop_batch(values, resized, size)
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

    return tf.cond(rows_first(sides, resized), lambda: resize((0, 1)), lambda: resize((1, 0)))


def _filter_weights(length, resized, start, size, interpolation, antialias):
    """Returns the weights `(size, length)` of a side's pixels in the pixels of its resized side.

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
    places = _float(start) + tf.range(size, dtype=tf.float32)
    centers = (places + 0.5) * step
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
    rows, columns = _batch_sides(values)
    channels = values.shape[3]
    if side == 0:
        mixed = tf.matmul(weights, tf.reshape(values, (-1, rows, columns * channels)))
        return tf.reshape(mixed, (-1, weights.shape[0], columns, channels))
    mixed = tf.matmul(weights, tf.reshape(values, (-1, columns, channels)))
    return tf.reshape(mixed, (-1, rows, weights.shape[0], channels))


def _crop_batch(values, lengths, sizes):
    y, x = ((length - size) // 2 for length, size in zip(lengths, sizes, strict=True))
    return values[:, y : y + sizes[0], x : x + sizes[1]]


def _truncated(values):
    # An equal sum in another order may be a little less than a whole number.
    return tf.floor(values + 2**-13)


def _batch_sides(values):
    """Returns the numbers of rows and columns; scalar tensors where they are unknown."""
    return [values.shape[axis] or tf.shape(values)[axis] for axis in (1, 2)]


def _float(value):
    return tf.cast(value, tf.float32)


def seen_region(
    image_size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[float, float, float, float]:
    """Returns the part of an image that its preprocessing keeps.

    Args:
        image_size: Pixels (height, width) of the file's image.
        preprocessing: The preprocessing from the image to the model's input.

    Returns:
        Pixels (top, left, bottom, right).
    """
    size = preprocessing.image_size
    cropped, resized, starts = EVALUATION_STEPS[preprocessing.evaluation].geometry(
        image_size, size, preprocessing.resize_size
    )
    edges = []
    for side, length in enumerate(image_size):
        kept = length if cropped is None else int(cropped[side])
        pixel = kept / int(resized[side])  # Pixels of the image in one of the resized image.
        first = 0 if starts is None else int(starts[side])
        before = (length - kept) // 2
        edges.append((before + first * pixel, before + (first + size[side]) * pixel))
    (top, bottom), (left, right) = edges
    return top, left, bottom, right
