"""Decoding and preprocessing of image files, as graph code of TensorFlow.

The functions run in `tf.data` pipelines and inside SavedModels. With `resizing.py` this is the only
module outside training/ and export/ that needs TensorFlow on every backend of Keras: both use it,
and neither imports the other. TensorFlow's decoders allocate memory for the size in a header, and
ignore EXIF, so headers are read before anything is decoded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from keras_vit.images.listing import as_image
from keras_vit.images.pixels import FULL_DEPTH, check_no_paths
from keras_vit.images.resizing import Preprocessing, resize
from keras_vit.images.transcoding import (
    COLUMNS_REVERSED,
    LARGE,
    MAX_PIXELS,
    MAX_SCANNED,
    MAX_SCANS,
    ROWS_REVERSED,
    START_OF_SCAN,
    TRANSPOSED,
    pixels_in_header,
    transcoded,
)

JPEG, PNG, UNKNOWN = range(3)

# Every node costs a little even in a branch that does not run, but a function that is not
# inlined counts as one node. So code that most images do not need is in such functions.
seldom = functools.partial(
    tf.function,
    autograph=False,
    reduce_retracing=True,  # Images of many sizes are decoded one by one.
    experimental_attributes={"_noinline": True},
)

_DCT = "INTEGER_ACCURATE"


def decode_image(
    encoded: tf.Tensor, max_pixels: int = MAX_PIXELS, bit_depth: int = FULL_DEPTH
) -> tf.Tensor:
    """Returns an encoded image's pixels, upright and in RGB.

    Formats are JPEG and PNG. Grey, CMYK, palette and 16-bit images become 8-bit RGB, alpha is
    dropped, and EXIF's orientation is applied. JPEG is decoded with the accurate DCT, to the bit
    as Pillow does it. The official code has TensorFlow's default, the fast DCT, whose pixels
    differ by 1 on average.

    Args:
        encoded: A scalar string tensor.
        max_pixels: Largest height times width; checked before memory is allocated.
        bit_depth: Bits of the values of a 16-bit PNG; see `transcoding.decode_file`.

    Returns:
        uint8 `(H, W, 3)`.

    Raises:
        tf.errors.InvalidArgumentError: If the data are damaged, truncated, empty, of another
            format or too large.
    """
    header = read_header(encoded)
    image = _decode(_checked(encoded, header, max_pixels), header, bit_depth)
    image = tf.cond(header.orientation == 1, lambda: image, lambda: _turned(image, header))
    return tf.ensure_shape(image, [None, None, 3])


Tensors = TypeVar("Tensors")


def in_turn(
    encoded: tf.Tensor, use: Callable[[tf.Tensor], Tensors], *, by_pillow: bool = True
) -> Tensors:
    """Returns `use(encoded)`; one large image at a time, in all pipelines of this process.

    No thread waits: TensorFlow goes on with other images, and frees the lock after an error.

    Args:
        encoded: A scalar string tensor.
        use: Function from the image to tensors, which are small.
        by_pillow: Whether Pillow reads the size of what is neither JPEG nor PNG, as in `decodable`.
    """

    def pixels_of_others():
        if not by_pillow:
            return tf.constant(0, tf.int64)
        return tf.numpy_function(pixels_in_header, [encoded], tf.int64, stateful=False)

    # The size alone: to read a whole header here takes a tenth of the time of a small photo.
    sizes = [functools.partial(_jpeg_size, encoded), functools.partial(_png_size, encoded)]
    pixels = tf.reduce_prod(tf.switch_case(read_format(encoded), [*sizes, pixels_of_others]))
    is_large = pixels > LARGE
    name = "keras_vit_large_image"
    lock = tf.cond(
        is_large,
        lambda: tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=name)),
        tf.raw_ops.OptionalNone,
    )
    with tf.control_dependencies([lock]):
        results = use(tf.identity(encoded))
    with tf.control_dependencies(tf.nest.flatten(results)):  # The lock is held up to here.
        freed = tf.cond(is_large, lambda: _freed(lock), lambda: True)
    with tf.control_dependencies([freed]):
        return tf.nest.map_structure(tf.identity, results)


def _freed(lock):
    with tf.control_dependencies([tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)]):
        return tf.constant(True)


def decodable(encoded: tf.Tensor) -> tf.Tensor:
    """Returns an encoded image that `decode_image` decodes; all but JPEG and PNG become PNG.

    Pillow is called from the graph, so this works in the `tf.data` pipelines of this process
    only, not in a SavedModel or a `tf.data` service.

    Args:
        encoded: A scalar string tensor.

    Raises:
        tf.errors.InvalidArgumentError: If such an image cannot be read.
    """
    readable = tf.cond(
        read_format(encoded) == UNKNOWN,
        lambda: tf.numpy_function(transcoded, [encoded], tf.string, stateful=False),
        lambda: encoded,
    )
    return tf.ensure_shape(readable, [])


def verify_image(encoded: tf.Tensor, max_pixels: int = MAX_PIXELS) -> tuple[tf.Tensor, tf.Tensor]:
    """Raises the errors of `decode_image`, in less time and memory for a JPEG.

    Args:
        encoded: A scalar string tensor.
        max_pixels: See `decode_image`.

    Returns:
        Two int32 scalars: the number of decoded values, for control dependencies, and the largest
        value of a PNG of 16 bits; 0 for other images.

    Raises:
        tf.errors.InvalidArgumentError: If the image cannot be decoded.
    """
    header = read_header(encoded)
    encoded = _checked(encoded, header, max_pixels)

    @seldom
    def of_16_bits(encoded):
        values = tf.cast(_values_of_16_bits(encoded), tf.int32)
        return tf.stack([tf.size(values), tf.reduce_max(values)])

    def of_png():
        return tf.cond(
            _has_16_bits(encoded),
            lambda: of_16_bits(encoded),
            lambda: tf.stack([tf.size(tf.io.decode_png(encoded, channels=3)), 0]),
        )

    # All bits are read, but only the mean of each block of 8 x 8 pixels is computed.
    size, largest = tf.unstack(
        tf.cond(
            header.format == JPEG,
            lambda: tf.stack([tf.size(tf.io.decode_jpeg(encoded, channels=3, ratio=8)), 0]),
            of_png,
        ),
        num=2,
    )
    return size, largest


def decode_region(
    encoded: tf.Tensor, header: ImageHeader, region: tf.Tensor, bit_depth: int = FULL_DEPTH
) -> tf.Tensor:
    """Returns a rectangle of `decode_image(encoded)`, bit for bit.

    Only the rectangle of a JPEG is decoded.

    Args:
        encoded: A scalar string tensor.
        header: The result of `read_header`.
        region: `(y, x, height, width)`, int32, in pixels of the upright image.
        bit_depth: See `decode_image`.

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
            lambda: _rectangle(_decode(encoded, header, bit_depth), stored),
        )
        return _turned(image, header)

    is_simple = (header.format == JPEG) & (header.orientation == 1)
    image = tf.cond(is_simple, decode_jpeg_region, lambda: decode_and_turn(encoded, header))
    return tf.ensure_shape(image, [None, None, 3])


def upright_size(header: ImageHeader) -> tf.Tensor:
    """Returns int32 (height, width) of the image that `decode_image` returns."""
    size = tf.cast(tf.stack([header.height, header.width]), tf.int32)
    return tf.where(tf.gather(TRANSPOSED, header.orientation), size[::-1], size)


def apply_preprocessing(image: np.ndarray | tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """Returns an image as a model's input, by the arithmetic of the named evaluation.

    Args:
        image: `(H, W, C)`, an array or a tensor, pixels in [0, 255].
        preprocessing: Image size, way of resizing and value range.

    Returns:
        float32 `(height, width, C)`.
    """
    image = tf.convert_to_tensor(image)
    return scale(resize(image, preprocessing), preprocessing.value_range)


def preprocess_images(images: Any, preprocessing: Preprocessing) -> np.ndarray | keras.KerasTensor:
    """Returns images as a model's input; `keras_vit.Preprocessing` describes both.

    Args:
        images: An image `(H, W, C)`, a batch `(B, H, W, C)`, or a list of images of any sizes.
        preprocessing: Image size, way of resizing and value range.

    Raises:
        ValueError: If an image has other axes, or other channels than the value range.
    """
    check_no_paths(images)
    if hasattr(images, "getexif"):
        images = as_image(images, preprocessing.bit_depth)
    if isinstance(images, (list, tuple)):
        return np.stack([np.asarray(preprocess_images(each, preprocessing)) for each in images])
    if not isinstance(images, np.ndarray) and not tf.is_tensor(images):
        # A tensor of JAX or PyTorch.
        array = preprocess_images(keras.ops.convert_to_numpy(images), preprocessing)
        return keras.ops.convert_to_tensor(array)
    rank, channels = len(images.shape), preprocessing.num_channels
    if rank not in (3, 4) or (channels and images.shape[-1] not in (channels, None)):
        raise ValueError(
            f"An image must be an array (height, width, {channels or 'channels'}), and several a "
            f"batch or a list. Received: shape={tuple(images.shape)}"
        )
    if rank == 3:
        values = apply_preprocessing(images, preprocessing)
    else:
        shape = (*preprocessing.image_size, images.shape[-1])
        values = tf.map_fn(
            lambda image: apply_preprocessing(image, preprocessing),
            tf.convert_to_tensor(images),
            fn_output_signature=tf.TensorSpec(shape, tf.float32),
        )
    return values if tf.is_tensor(images) else values.numpy()


def scale(images: tf.Tensor, value_range: Sequence) -> tf.Tensor:
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
        encoded: Strings `(B,)`.
        preprocessing: See `apply_preprocessing`.
        max_pixels: See `decode_image`.

    Returns:
        float32 `(B, height, width, 3)`, zeros for images that could not be decoded, and
        bool `(B,)`, whether an image could be decoded.
    """

    def image_of(encoded):
        pixels = decode_image(encoded, max_pixels, preprocessing.bit_depth)
        return apply_preprocessing(pixels, preprocessing)

    @tf.autograph.experimental.do_not_convert
    def decode(index, encoded):
        return index, in_turn(encoded, image_of, by_pillow=False)

    encoded = tf.convert_to_tensor(encoded)
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
    scans, size = header.scans, tf.stack([header.height, header.width])
    pixels, longest = header.height * header.width, tf.reduce_max(size)
    # The longest side too, as the product may overflow. What is neither has no pixels.
    good = (pixels > 0) & (pixels <= max_pixels) & (longest <= max_pixels)
    good &= (scans <= MAX_SCANS) & (scans * pixels <= MAX_SCANNED)
    message = (
        f"must be a whole JPEG or PNG of at most {max_pixels} pixels, in at most {MAX_SCANS} scans "
        f"of {MAX_SCANNED} pixels together. Received: height, width, scans"
    )

    @seldom
    def refuse(encoded, size):
        refused = tf.debugging.Assert(False, [f"An image {message}", size, scans])
        with tf.control_dependencies([refused]):
            return tf.identity(encoded)

    return tf.cond(good, lambda: encoded, lambda: refuse(encoded, size))


def _decode(encoded, header, bit_depth):
    """Decodes an image whose header was checked: uint8 `(H, W, 3)`, as stored."""

    @seldom
    def high_byte(encoded):
        values = tf.cast(_values_of_16_bits(encoded), tf.int32)
        return tf.cast(tf.minimum(values // 2 ** (bit_depth - 8), 255), tf.uint8)

    def decode_png():
        if bit_depth == FULL_DEPTH:  # TensorFlow gives the high byte of 16 bits.
            return tf.io.decode_png(encoded, channels=3)
        return tf.cond(
            _has_16_bits(encoded),
            lambda: high_byte(encoded),
            lambda: tf.io.decode_png(encoded, channels=3),
        )

    image = tf.cond(
        header.format == JPEG,
        lambda: tf.io.decode_jpeg(encoded, channels=3, dct_method=_DCT),
        decode_png,
    )
    return tf.ensure_shape(image, [None, None, 3])


def _has_16_bits(encoded):
    """Whether a PNG has 16 bits for each colour, by its header."""
    return _bytes_at(encoded, 24, 1)[0] == 16


def _values_of_16_bits(encoded):
    return tf.io.decode_png(encoded, channels=3, dtype=tf.uint16)


@seldom
def _turned(image, header):
    """Applies EXIF's orientation to a stored image, or to a rectangle of it."""
    orientation = header.orientation
    transposed = tf.gather(TRANSPOSED, orientation)
    turned = tf.transpose(image, tf.where(transposed, [1, 0, 2], [0, 1, 2]))
    rows, columns = (tf.gather(t, orientation) for t in (ROWS_REVERSED, COLUMNS_REVERSED))
    return tf.raw_ops.Reverse(tensor=turned, dims=tf.stack([rows, columns, False]))


def _rectangle(image, region):
    y, x, height, width = tf.unstack(region)
    return tf.slice(image, [y, x, 0], [height, width, 3])


def _stored_region(header, region):
    """Returns the rectangle of the stored image for a rectangle of the upright one."""
    y, x, height, width = tf.unstack(region)
    full_height, full_width = tf.unstack(upright_size(header))
    y = tf.where(tf.gather(ROWS_REVERSED, header.orientation), full_height - y - height, y)
    x = tf.where(tf.gather(COLUMNS_REVERSED, header.orientation), full_width - x - width, x)
    stored, turned = tf.stack([y, x, height, width]), tf.stack([x, y, width, height])
    transposed = tf.gather(TRANSPOSED, header.orientation)
    return tf.where(transposed, turned, stored)


# Headers


class ImageHeader(NamedTuple):
    """The result of `read_header`, as scalar tensors.

    Args:
        format: int32; `JPEG`, `PNG` or `UNKNOWN`.
        height: int64, pixels as stored, before the orientation is applied. 0 of other formats.
        width: int64, the same.
        orientation: int32, EXIF's 1 to 8; 1 if the file has none.
        scans: int64, of a JPEG; 1 of other formats.
    """

    format: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor
    orientation: tf.Tensor
    scans: tf.Tensor


def read_header(encoded: tf.Tensor) -> ImageHeader:
    """Returns the header of an encoded image.

    Args:
        encoded: A scalar string tensor.

    Returns:
        An `ImageHeader`.

    Raises:
        tf.errors.InvalidArgumentError: If a JPEG's header is damaged.
    """
    kind = read_format(encoded)
    height, width, orientation, scans = tf.unstack(_read(encoded, kind))
    return ImageHeader(kind, height, width, tf.cast(orientation, tf.int32), scans)


def read_format(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the format of an encoded image, an int32 scalar; see `ImageHeader`."""
    is_jpeg = tf.strings.substr(encoded, 0, 3) == b"\xff\xd8\xff"
    is_png = tf.strings.substr(encoded, 0, 8) == b"\x89PNG\r\n\x1a\n"
    return tf.where(is_jpeg, JPEG, tf.where(is_png, PNG, UNKNOWN))


@seldom
def _read(encoded, kind):
    readers = [functools.partial(_jpeg, encoded), functools.partial(_png, encoded)]
    return tf.switch_case(kind, [*readers, lambda: _packed(0, 0, 1, 1)])


@seldom
def _jpeg(encoded):
    """Reads a JPEG's segments: FF, marker, length (two bytes, included), content.

    EXIF is an APP1 segment. The standard puts it before the tables and the frame, where the
    search ends.
    """

    def step(at, exif, _):
        head = _bytes_at(encoded, at, 8)
        marker = head[1]
        applications = (marker >= 0xE0) & (marker <= 0xEF)
        more = (head[0] == 0xFF) & (applications | (marker == 0xFE) | (marker == 0xFF))
        is_exif = (marker == 0xE1) & tf.reduce_all(head[4:8] == list(b"Exif"))
        exif = tf.where(more & is_exif, at + 4, exif)
        # Any number of FF bytes may precede a marker.
        at += tf.where(marker == 0xFF, tf.constant(1, tf.int64), 2 + _big_endian(head[2:4]))
        return at, exif, more & ~is_exif

    start = (tf.constant(2, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    height, width = tf.unstack(_jpeg_size(encoded))
    pieces = tf.raw_ops.StringSplitV2(input=[encoded], sep=START_OF_SCAN).values
    return _packed(height, width, _orientation(encoded, exif), tf.size(pieces) - 1)


@seldom
def _png(encoded):
    """Reads a PNG's chunks: length, type, content, checksum. EXIF is eXIf, before IDAT."""

    def step(at, exif, _):
        head = _bytes_at(encoded, at, 8)
        is_exif = tf.reduce_all(head[4:8] == list(b"eXIf"))
        is_data = tf.reduce_all(head[4:8] == list(b"IDAT"))
        following = at + 12 + _big_endian(head[:4])
        more = ~is_exif & ~is_data & (following < _length(encoded))
        return following, tf.where(is_exif, at + 8, exif), more

    start = (tf.constant(8, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    height, width = tf.unstack(_png_size(encoded))
    return _packed(height, width, _orientation(encoded, exif), 1)


def _jpeg_size(encoded):
    """Returns int64 (height, width)."""
    return tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.int64)


def _png_size(encoded):
    """Returns int64 (height, width)."""
    return _big_endian(tf.reshape(_bytes_at(encoded, 16, 8), (2, 4)))[::-1]


def _packed(*numbers):
    """Packs height, width, orientation and scans into one tensor."""
    return tf.stack([tf.cast(number, tf.int64) for number in numbers])


def _orientation(encoded, start):
    """Returns the orientation in the EXIF block at `start`; 1 if `start` is -1."""
    none = tf.constant(1, tf.int64)
    return tf.cond(start >= 0, lambda: _read_orientation(encoded, start), lambda: none)


@seldom
def _read_orientation(encoded, start):
    """Reads tag 0x0112 of a TIFF block's first directory, in either byte order."""
    marked = tf.reduce_all(_bytes_at(encoded, start, 6) == list(b"Exif\0\0"))
    start += tf.where(marked, tf.constant(6, tf.int64), 0)
    head = _bytes_at(encoded, start, 8)
    big = head[0] == ord("M")

    def number(values):
        return tf.where(big, _big_endian(values), _little_endian(values))

    directory = start + number(head[4:])
    count = number(_bytes_at(encoded, directory, 2))
    entries = _bytes_at(encoded, directory + 2, tf.cast(12 * tf.maximum(count, 1), tf.int32))
    entries = tf.reshape(entries, (-1, 12))  # Tag, type, count, value: 2, 2, 4, 4 bytes.
    index = tf.where(number(entries[:, :2]) == 0x0112)[:, 0]
    entry = tf.gather(entries, index[:1])  # At most one.
    short = number(entry[:, 2:4]) == 3
    value = tf.reduce_sum(tf.where(short, number(entry[:, 8:10]), number(entry[:, 8:12])))
    return tf.where((value >= 1) & (value <= 8), value, 1)


def _length(encoded):
    return tf.cast(tf.strings.length(encoded), tf.int64)


def _bytes_at(encoded, start, count):
    """Returns `count` bytes as int32, zeros beyond the end; static shape if `count` is an int."""
    start = tf.clip_by_value(tf.cast(start, tf.int64), 0, _length(encoded))
    piece = tf.strings.substr(encoded, start, tf.cast(count, tf.int64))
    values = tf.cast(tf.io.decode_raw(piece, tf.uint8, fixed_length=count), tf.int32)
    return tf.ensure_shape(values, [count if isinstance(count, int) else None])


def _big_endian(values):
    """Returns integers from bytes on the last axis, the highest byte first."""
    return _little_endian(tf.reverse(values, [-1]))


def _little_endian(values):
    """Returns integers from bytes on the last axis, the lowest byte first."""
    powers = [256**place for place in range(values.shape[-1])]
    return tf.reduce_sum(tf.cast(values, tf.int64) * tf.constant(powers, tf.int64), axis=-1)
