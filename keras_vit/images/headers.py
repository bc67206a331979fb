"""Headers of image files: format, size and EXIF orientation, as graph code of TensorFlow.

TensorFlow's decoders allocate memory for the size in a file's header, ignore EXIF, and (2.21)
write beyond their buffer for an animated WebP. So headers are read before anything is decoded.
The functions run in `tf.data` pipelines and inside SavedModels.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import tensorflow as tf

from keras_vit.images.signatures import ANY, BYTES, FORMATS, LONGEST, ROWS_WITHOUT_EXIF

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
        format: int32; `JPEG`, `PNG`, `GIF`, `BMP`, `WEBP` or `UNKNOWN`.
        height: int64, pixels as stored, before the orientation is applied; the first frame's
            in a GIF. 0 if the header is damaged.
        width: int64, the same.
        orientation: int32, EXIF's 1 to 8; 1 if the file has none.
        end: int64, number of bytes to decode: in a GIF, up to the end of the first frame.
            0 if a GIF or BMP is truncated, or TensorFlow cannot decode this kind of file.
    """

    format: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor
    orientation: tf.Tensor
    end: tf.Tensor


def read_header(encoded: tf.Tensor) -> ImageHeader:
    """Returns the header of an encoded image.

    Args:
        encoded: A scalar string tensor.

    Returns:
        An `ImageHeader`. Damaged headers other than JPEG's give zeros, not errors.

    Raises:
        tf.errors.InvalidArgumentError: If a JPEG's header is damaged.
    """
    row = _signature(encoded)
    kind = tf.gather(FORMATS, row)

    def read_jpeg_size():
        return _found(*tf.unstack(_jpeg_size(encoded)), 1, _length(encoded))

    found = tf.cond(row < ROWS_WITHOUT_EXIF, read_jpeg_size, lambda: _read(encoded, kind))
    height, width, orientation, end = tf.unstack(found)
    return ImageHeader(kind, height, width, tf.cast(orientation, tf.int32), end)


def read_format(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the format of an encoded image, a scalar; see `ImageHeader`."""
    return tf.gather(FORMATS, _signature(encoded))


def _signature(encoded):
    """Returns the first row of `_SIGNATURES` that fits."""
    head = bytes_at(encoded, 0, LONGEST)
    return tf.argmax(tf.reduce_all((head == BYTES) | ANY, axis=1))


@seldom
def _read(encoded, kind):
    readers = (_jpeg, _png, _gif, _bmp, _webp, _unknown)
    return tf.switch_case(kind, [functools.partial(read, encoded) for read in readers])


@seldom
def _jpeg(encoded):
    """Reads a JPEG's segments: FF, marker, length (two bytes, included), content.

    EXIF is an APP1 segment. The standard puts it before the tables and the frame, where the
    search ends.
    """

    def step(at, exif, _):
        head = bytes_at(encoded, at, 8)
        marker = head[1]
        applications = (marker >= 0xE0) & (marker <= 0xEF)
        more = (head[0] == 0xFF) & (applications | (marker == 0xFE) | (marker == 0xFF))
        found = (marker == 0xE1) & tf.reduce_all(head[4:8] == list(b"Exif"))
        exif = tf.where(more & found, at + 4, exif)
        # Any number of FF bytes may precede a marker.
        at += tf.where(marker == 0xFF, tf.constant(1, tf.int64), 2 + big_endian(head[2:4]))
        return at, exif, more & ~found

    start = (tf.constant(2, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    size = tf.unstack(_jpeg_size(encoded))
    return _found(*size, _orientation(encoded, exif), _length(encoded))


def _jpeg_size(encoded):
    return tf.cast(tf.image.extract_jpeg_shape(encoded)[:2], tf.int64)


@seldom
def _png(encoded):
    """Reads a PNG's chunks: length, type, content, checksum. EXIF is eXIf, before IDAT."""
    size = bytes_at(encoded, 16, 8)

    def step(at, exif, _):
        head = bytes_at(encoded, at, 8)
        found = tf.reduce_all(head[4:8] == list(b"eXIf"))
        data = tf.reduce_all(head[4:8] == list(b"IDAT"))
        following = at + 12 + big_endian(head[:4])
        more = ~found & ~data & (following < _length(encoded))
        return following, tf.where(found, at + 8, exif), more

    start = (tf.constant(8, tf.int64), tf.constant(-1, tf.int64), tf.constant(True))
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    height, width = big_endian(size[4:]), big_endian(size[:4])
    return _found(height, width, _orientation(encoded, exif), _length(encoded))


@seldom
def _gif(encoded):
    _, image, end = gif_frame(encoded)
    descriptor = bytes_at(encoded, image, 10)
    whole = (descriptor[0] == ord(",")) & (end <= _length(encoded))
    end = tf.where(whole, end, 0)
    return tf.stack([little_endian(descriptor[7:9]), little_endian(descriptor[5:7]), 1, end])


def gif_frame(encoded):
    """Finds the parts of a GIF's first frame, as TensorFlow decodes all frames of a file.

    A GIF is a screen, colours, extensions, then images in blocks of at most 255 bytes.

    Returns:
        int64 scalars: the places of the flags of its graphic control, -1 without one, of its
        descriptor and of its end.
    """
    data = tf.io.decode_raw(tf.strings.join([encoded, bytes(16)]), tf.uint8)
    length = _length(encoded)

    def byte(at):
        return tf.cast(data[tf.minimum(at, length)], tf.int64)  # 0 beyond the end.

    def colours(flags):
        return tf.where(flags >= 128, 3 * 2 ** (1 + flags % 8), 0)  # Bytes of a table.

    def after_blocks(at):
        def step(at):
            # Most blocks are full: a run of full ones is skipped in one step.
            full = tf.cast(data[at::256] == 255, tf.int64)
            run = tf.reduce_sum(tf.math.cumprod(full))
            return tf.where(run > 0, at + 256 * run, at + 1 + byte(at))

        (end,) = tf.while_loop(lambda at: (at < length) & (byte(at) > 0), step, (at,))
        return end + 1

    def after_extension(at, control):
        is_control = (byte(at + 1) == 0xF9) & (control < 0)
        return after_blocks(at + 2), tf.where(is_control, at + 3, control)

    start = 13 + colours(byte(tf.constant(10, tf.int64)))
    image, control = tf.while_loop(
        lambda at, _: (at < length) & (byte(at) == ord("!")),
        after_extension,
        (start, tf.constant(-1, tf.int64)),
    )
    return control, image, after_blocks(image + 11 + colours(byte(image + 9)))


@seldom
def _bmp(encoded):
    """Reads a BMP's Windows header. OS/2 headers and run lengths are not supported."""
    header, bits = little_endian(bytes_at(encoded, 14, 4)), little_endian(bytes_at(encoded, 28, 2))
    width, height = (_signed(little_endian(bytes_at(encoded, at, 4))) for at in (18, 22))
    height = tf.abs(height)  # Negative: stored from the top.
    compression = little_endian(bytes_at(encoded, 30, 4))
    plain = (compression == 0) | ((compression == 3) & (bits == 32))  # 3: in bit fields.
    known = tf.reduce_any(bits == [1, 4, 8, 24, 32])
    row_bytes = (width * bits + 31) // 32 * 4
    end = little_endian(bytes_at(encoded, 10, 4)) + height * row_bytes
    decodable = (header >= 40) & plain & known & (end <= _length(encoded))
    return _found(height, width, 1, tf.where(decodable, end, 0))


@seldom
def _webp(encoded):
    """Reads a WebP's RIFF chunks. A VP8X chunk comes first, with flags of the others."""
    head = tf.cast(bytes_at(encoded, 12, 18), tf.int64)
    kind = tf.cast(head[3], tf.int32)  # The last letter of "VP8 ", "VP8L" or "VP8X".
    bits = little_endian(head[9:13])

    lossy = tf.stack([little_endian(head[16:18]) % 2**14, little_endian(head[14:16]) % 2**14])
    lossless = 1 + tf.stack([bits // 2**14 % 2**14, bits % 2**14])
    extended = 1 + tf.stack([little_endian(head[15:18]), little_endian(head[12:15])])
    size = tf.where(kind == ord("X"), extended, tf.where(kind == ord("L"), lossless, lossy))

    has_exif = (kind == ord("X")) & (head[8] // 8 % 2 == 1)
    animated = (kind == ord("X")) & (head[8] // 2 % 2 == 1)

    def step(at, exif, _):
        chunk = bytes_at(encoded, at, 8)
        found = tf.reduce_all(chunk[:4] == list(b"EXIF"))
        content = little_endian(chunk[4:])
        following = at + 8 + content + content % 2
        return following, tf.where(found, at + 8, exif), ~found & (following < _length(encoded))

    start = (tf.constant(12, tf.int64), tf.constant(-1, tf.int64), has_exif)
    _, exif, _ = tf.while_loop(lambda at, exif, more: more, step, start)
    end = tf.where(animated, tf.constant(0, tf.int64), _length(encoded))
    return _found(size[0], size[1], _orientation(encoded, exif), end)


def _unknown(encoded):
    return _found(0, 0, 1, 0)


def _found(*numbers):
    """Packs height, width, orientation and end into one tensor."""
    return tf.stack([tf.cast(number, tf.int64) for number in numbers])


def _orientation(encoded, start):
    """Returns the orientation in the EXIF block at `start`; 1 if `start` is -1."""
    none = tf.constant(1, tf.int64)
    return tf.cond(start >= 0, lambda: _read_orientation(encoded, start), lambda: none)


@seldom
def _read_orientation(encoded, start):
    """Reads tag 0x0112 of a TIFF block's first directory, in either byte order."""
    marked = tf.reduce_all(bytes_at(encoded, start, 6) == list(b"Exif\0\0"))
    start += tf.where(marked, tf.constant(6, tf.int64), 0)
    head = bytes_at(encoded, start, 8)
    big = head[0] == ord("M")

    def number(values):
        return tf.where(big, big_endian(values), little_endian(values))

    directory = start + number(head[4:])
    count = number(bytes_at(encoded, directory, 2))
    entries = bytes_at(encoded, directory + 2, tf.cast(12 * tf.maximum(count, 1), tf.int32))
    entries = tf.reshape(entries, (-1, 12))  # Tag, type, count, value: 2, 2, 4, 4 bytes.
    index = tf.where(number(entries[:, :2]) == 0x0112)[:, 0]
    entry = tf.gather(entries, index[:1])  # At most one.
    short = number(entry[:, 2:4]) == 3
    value = tf.reduce_sum(tf.where(short, number(entry[:, 8:10]), number(entry[:, 8:12])))
    return tf.where((value >= 1) & (value <= 8), value, 1)


def _length(encoded):
    return tf.cast(tf.strings.length(encoded), tf.int64)


def bytes_at(encoded, start, count):
    """Returns `count` bytes as int32, zeros beyond the end; static shape if `count` is an int."""
    start = tf.clip_by_value(tf.cast(start, tf.int64), 0, _length(encoded))
    piece = tf.strings.substr(encoded, start, tf.cast(count, tf.int64))
    values = tf.cast(tf.io.decode_raw(piece, tf.uint8, fixed_length=count), tf.int32)
    return tf.ensure_shape(values, [count if isinstance(count, int) else None])


def big_endian(values):
    """Returns integers from bytes on the last axis, the highest byte first."""
    return little_endian(tf.reverse(values, [-1]))


def little_endian(values):
    """Returns integers from bytes on the last axis, the lowest byte first."""
    powers = [256**place for place in range(values.shape[-1])]
    return tf.reduce_sum(tf.cast(values, tf.int64) * tf.constant(powers, tf.int64), axis=-1)


def _signed(value):
    return tf.where(value >= 2**31, value - 2**32, value)
