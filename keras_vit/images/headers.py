"""Headers of JPEG and PNG files: size and EXIF orientation, as graph code of TensorFlow.

TensorFlow's decoders allocate memory for the size in a file's header, and ignore EXIF. So headers
are read before anything is decoded.
The functions run in `tf.data` pipelines and inside SavedModels.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import tensorflow as tf

JPEG, PNG, UNKNOWN = range(3)

# Every node costs a little even in a branch that does not run, but a function that is not
# inlined counts as one node. So code that most images do not need is in such functions.
seldom = functools.partial(
    tf.function,
    autograph=False,
    reduce_retracing=True,  # Images of many sizes are decoded one by one.
    experimental_attributes={"_noinline": True},
)


class ImageHeader(NamedTuple):
    """The result of `read_header`, as scalar tensors.

    Args:
        format: int32; `JPEG`, `PNG` or `UNKNOWN`.
        height: int64, pixels as stored, before the orientation is applied. 0 of other formats.
        width: int64, the same.
        orientation: int32, EXIF's 1 to 8; 1 if the file has none.
    """

    format: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor
    orientation: tf.Tensor


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
    height, width, orientation = tf.unstack(_read(encoded, kind))
    return ImageHeader(kind, height, width, tf.cast(orientation, tf.int32))


def read_format(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the format of an encoded image, an int32 scalar; see `ImageHeader`."""
    is_jpeg = tf.strings.substr(encoded, 0, 3) == b"\xff\xd8\xff"
    is_png = tf.strings.substr(encoded, 0, 8) == b"\x89PNG\r\n\x1a\n"
    return tf.where(is_jpeg, JPEG, tf.where(is_png, PNG, UNKNOWN))


@seldom
def _read(encoded, kind):
    readers = [functools.partial(_jpeg, encoded), functools.partial(_png, encoded)]
    return tf.switch_case(kind, [*readers, lambda: _found(0, 0, 1)])


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
        found = (marker == 0xE1) & tf.reduce_all(head[4:8] == list(b"Exif"))
        exif = tf.where(more & found, at + 4, exif)
        # Any number of FF bytes may precede a marker.
        at += tf.where(marker == 0xFF, tf.constant(1, tf.int64), 2 + _big_endian(head[2:4]))
        return at, exif, more & ~found

    start = (tf.constant(2, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    size = tf.unstack(_jpeg_size(encoded))
    return _found(*size, _orientation(encoded, exif))


def _jpeg_size(encoded):
    return tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.int64)


@seldom
def _png(encoded):
    """Reads a PNG's chunks: length, type, content, checksum. EXIF is eXIf, before IDAT."""
    size = _bytes_at(encoded, 16, 8)

    def step(at, exif, _):
        head = _bytes_at(encoded, at, 8)
        found = tf.reduce_all(head[4:8] == list(b"eXIf"))
        data = tf.reduce_all(head[4:8] == list(b"IDAT"))
        following = at + 12 + _big_endian(head[:4])
        more = ~found & ~data & (following < _length(encoded))
        return following, tf.where(found, at + 8, exif), more

    start = (tf.constant(8, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    height, width = _big_endian(size[4:]), _big_endian(size[:4])
    return _found(height, width, _orientation(encoded, exif))


def _found(*numbers):
    """Packs height, width and orientation into one tensor."""
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
