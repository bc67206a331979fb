"""Decoding and preprocessing of image files, as graph code of TensorFlow.

The functions run in `tf.data` pipelines and inside SavedModels. With `headers.py` and
`resizing.py` this is the only module outside training/ and export/ that needs TensorFlow on
every backend of Keras: both use it, and neither imports the other.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.images.headers import (
    JPEG,
    UNKNOWN,
    ImageHeader,
    read_format,
    read_header,
    seldom,
)
from keras_vit.images.resizing import resize
from keras_vit.images.transcoding import transcoded
from keras_vit.preprocessing import MAX_PIXELS, Preprocessing

_DCT = "INTEGER_ACCURATE"

# By EXIF orientation from 0 (not used) to 8: whether to transpose the image, then to reverse
# its rows, then its columns.
_TRANSPOSED = (False, False, False, False, False, True, True, True, True)
_ROWS_REVERSED = (False, False, False, True, True, False, False, True, True)
_COLUMNS_REVERSED = (False, False, True, True, False, False, True, True, False)


def decode_image(encoded: tf.Tensor, max_pixels: int = MAX_PIXELS) -> tf.Tensor:
    """Returns an encoded image's pixels, upright and in RGB.

    Formats are JPEG and PNG. Grey, CMYK, palette and 16-bit images become 8-bit RGB, alpha is
    dropped, and EXIF's orientation is applied. JPEG is decoded with the accurate DCT, to the bit
    as Pillow does it. The official code has TensorFlow's default, the fast DCT, whose pixels
    differ by 1 on average.

    Args:
        encoded: A scalar string tensor.
        max_pixels: Largest height times width; checked before memory is allocated.

    Returns:
        uint8 `(H, W, 3)`.

    Raises:
        tf.errors.InvalidArgumentError: If the data are damaged, truncated, empty, of another
            format or too large.
    """
    header = read_header(encoded)
    return _upright(_decode(_checked(encoded, header, max_pixels), header), header)


def decodable(encoded: tf.Tensor) -> tf.Tensor:
    """Returns an encoded image that `decode_image` decodes; all but JPEG and PNG become PNG.

    Pillow is called from the graph, so this works in the `tf.data` pipelines of this process
    only, not in a SavedModel or a `tf.data` service.

    Args:
        encoded: A scalar string tensor.

    Raises:
        tf.errors.InvalidArgumentError: If such an image cannot be read.
    """
    found = tf.cond(
        read_format(encoded) == UNKNOWN,
        lambda: tf.numpy_function(transcoded, [encoded], tf.string, stateful=False),
        lambda: encoded,
    )
    return tf.ensure_shape(found, [])


def verify_image(encoded: tf.Tensor) -> tf.Tensor:
    """Raises the errors of `decode_image`, in less time and memory for a JPEG.

    Args:
        encoded: A scalar string tensor.

    Returns:
        A scalar, for control dependencies.

    Raises:
        tf.errors.InvalidArgumentError: If the image cannot be decoded.
    """
    header = read_header(encoded)
    encoded = _checked(encoded, header, MAX_PIXELS)
    # All bits are read, but only the mean of each block of 8 x 8 pixels is computed.
    image = tf.cond(
        header.format == JPEG,
        lambda: tf.io.decode_jpeg(encoded, channels=3, ratio=8),
        lambda: _decode(encoded, header),
    )
    return tf.size(image)


def decode_region(encoded: tf.Tensor, header: ImageHeader, region: Any) -> tf.Tensor:
    """Returns a rectangle of `decode_image(encoded)`, bit for bit.

    Only the rectangle of a JPEG is decoded.

    Args:
        encoded: A scalar string tensor.
        header: The result of `read_header`.
        region: `(y, x, height, width)`, int32, in pixels of the upright image.

    Returns:
        uint8 `(height, width, 3)`.

    Raises:
        tf.errors.InvalidArgumentError: See `decode_image`.
    """
    encoded = _checked(encoded, header, MAX_PIXELS)

    def decode_jpeg_region(region=region):
        # A JPEG's colours are stored at half size and interpolated, at the edge of the
        # decoded window without neighbours: so the window is one pixel larger on each side.
        size = tf.cast(tf.stack([header.height, header.width]), tf.int32)
        begin, end = tf.maximum(region[:2] - 1, 0), tf.minimum(region[:2] + region[2:] + 1, size)
        window = tf.concat([begin, end - begin], axis=0)
        image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3, dct_method=_DCT)
        return _rectangle(image, tf.concat([region[:2] - begin, region[2:]], axis=0))

    @seldom
    def decode_and_turn(encoded, header):
        stored = _stored_region(header, region)
        image = tf.cond(
            header.format == JPEG,
            lambda: decode_jpeg_region(stored),
            lambda: _rectangle(_decode(encoded, header), stored),
        )
        return _turned(image, header)

    is_simple = (header.format == JPEG) & (header.orientation == 1)
    image = tf.cond(is_simple, decode_jpeg_region, lambda: decode_and_turn(encoded, header))
    return tf.ensure_shape(image, [None, None, 3])


def upright_size(header: ImageHeader) -> tf.Tensor:
    """Returns int32 (height, width) of the image that `decode_image` returns."""
    size = tf.cast(tf.stack([header.height, header.width]), tf.int32)
    return tf.where(tf.gather(_TRANSPOSED, header.orientation), size[::-1], size)


def apply_preprocessing(image: Any, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns an image as a model's input, by the arithmetic of the named evaluation.

    Args:
        image: `(H, W, C)`, an array or a tensor, pixels in [0, 255].
        preprocessing: Image size, way of resizing and value range.

    Returns:
        float32 `(height, width, C)`.
    """
    image = tf.convert_to_tensor(image)
    return scale(resize(image, preprocessing), preprocessing.value_range)


def scale(images: tf.Tensor, value_range: Any) -> tf.Tensor:
    """Scales pixels from [0, 255] to a value range, or each channel to its own, in float32."""
    low, high = np.array(value_range)
    return tf.cast(images, tf.float32) * np.float32((high - low) / 255) + np.float32(low)


def decode_or_mark(
    encoded: tf.Tensor, preprocessing: Preprocessing, max_pixels: int = MAX_PIXELS
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes and preprocesses a batch that may contain damaged images.

    In a graph only `tf.data` can catch errors, so this is a small pipeline, which also
    decodes on all cores. It can be part of a SavedModel.

    Args:
        encoded: Strings `(B,)`, or a scalar.
        preprocessing: See `apply_preprocessing`.
        max_pixels: See `decode_image`.

    Returns:
        float32 `(B, height, width, 3)`, zeros for images that could not be decoded, and
        bool `(B,)`, whether an image could be decoded. Without the dimension B for a scalar.
    """
    encoded = tf.convert_to_tensor(encoded)
    if encoded.shape.rank == 0:
        images, ok = decode_or_mark(encoded[tf.newaxis], preprocessing, max_pixels)
        return images[0], ok[0]

    def decode(index, encoded):
        return index, apply_preprocessing(decode_image(encoded, max_pixels), preprocessing)

    count = tf.shape(encoded, tf.int64)[0]
    shape = (*preprocessing.image_size, 3)
    decoded = tf.data.Dataset.from_tensor_slices(encoded).enumerate()
    decoded = decoded.map(decode, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    # One more element at the end, so that there is a batch even if all images are damaged.
    last = tf.data.Dataset.from_tensors((count, tf.zeros(shape)))
    index, images = decoded.concatenate(last).batch(count + 1).get_single_element()
    index = index[:, tf.newaxis]
    full_shape = tf.concat([[count + 1], tf.constant(shape, tf.int64)], axis=0)
    images = tf.scatter_nd(index, images, full_shape)
    ok = tf.scatter_nd(index, tf.ones_like(index[:, 0]), [count + 1])
    return tf.ensure_shape(images[:-1], [None, *shape]), ok[:-1] > 0


@functools.cache
def compiled_preprocessing(preprocessing: Preprocessing) -> Any:
    """Returns `apply_preprocessing` of uint8 pixels as a graph, which takes a second to make."""
    return tf.function(
        lambda pixels: apply_preprocessing(pixels, preprocessing),
        [tf.TensorSpec([None, None, 3], tf.uint8)],
    )


def reading_error(error: BaseException) -> str | None:
    """Returns why a `tf.data` pipeline could not read or decode its files, in one line.

    Args:
        error: Any error; None is returned for one that comes from elsewhere.
    """
    if isinstance(error, tf.errors.OpError) and "IteratorGetNext" in str(error):
        return _reason(error.message)
    return None


def _reason(message):
    """Returns the reason in an error message of TensorFlow, without names of graph nodes."""
    ours = re.search(r"assertion failed: (.*)", message)
    if ours:
        return " ".join(re.sub(r"[\[\]]", " ", ours[1].partition("[[{{")[0]).split())
    theirs = re.sub(r"\{\{.*?\}\}|\[\[.*|\[Op:.*", "", message, flags=re.DOTALL)
    last_line = theirs.strip().splitlines()[-1]  # Lines of the traced code may stand before it.
    return f"The file is damaged or cut short: {' '.join(last_line.split())}"


def _checked(encoded, header, max_pixels):
    """Returns `encoded`, or raises if the header shows that it cannot be decoded."""
    size = tf.stack([header.height, header.width])
    pixels, longest = header.height * header.width, tf.reduce_max(size)
    # The longest side too, as the product may overflow. What is neither has no pixels.
    good = (pixels > 0) & (pixels <= max_pixels) & (longest <= max_pixels)
    message = f"must be a whole JPEG or PNG of at most {max_pixels} pixels. Received: height, width"

    @seldom
    def refuse(encoded, size):
        refused = tf.debugging.Assert(False, [f"An image {message}", size])
        with tf.control_dependencies([refused]):
            return tf.identity(encoded)

    return tf.cond(good, lambda: encoded, lambda: refuse(encoded, size))


def _decode(encoded, header):
    """Decodes an image whose header was checked: uint8 `(H, W, 3)`, as stored."""
    image = tf.cond(
        header.format == JPEG,
        lambda: tf.io.decode_jpeg(encoded, channels=3, dct_method=_DCT),
        lambda: tf.io.decode_png(encoded, channels=3),
    )
    return tf.ensure_shape(image, [None, None, 3])


def _upright(image, header):
    """Applies EXIF's orientation to a stored image, or to a rectangle of it."""
    image = tf.cond(header.orientation == 1, lambda: image, lambda: _turned(image, header))
    return tf.ensure_shape(image, [None, None, 3])


@seldom
def _turned(image, header):
    orientation = header.orientation
    transposed = tf.gather(_TRANSPOSED, orientation)
    turned = tf.transpose(image, tf.where(transposed, [1, 0, 2], [0, 1, 2]))
    rows, columns = (tf.gather(t, orientation) for t in (_ROWS_REVERSED, _COLUMNS_REVERSED))
    return tf.raw_ops.Reverse(tensor=turned, dims=tf.stack([rows, columns, False]))


def _rectangle(image, region):
    y, x, height, width = tf.unstack(region)
    return tf.slice(image, [y, x, 0], [height, width, 3])


def _stored_region(header, region):
    """Returns the rectangle of the stored image for a rectangle of the upright one."""
    y, x, height, width = tf.unstack(region)
    full_height, full_width = tf.unstack(upright_size(header))
    y = tf.where(tf.gather(_ROWS_REVERSED, header.orientation), full_height - y - height, y)
    x = tf.where(tf.gather(_COLUMNS_REVERSED, header.orientation), full_width - x - width, x)
    stored, turned = tf.stack([y, x, height, width]), tf.stack([x, y, width, height])
    transposed = tf.gather(_TRANSPOSED, header.orientation)
    return tf.where(transposed, turned, stored)
