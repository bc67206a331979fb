"""Images that Pillow reads: all files without TensorFlow, with it all but JPEG and PNG.

These become PNG, without loss, which `decoding.decode_image` decodes.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from keras_vit._installation import import_optional
from keras_vit.images import MAX_PIXELS
from keras_vit.images.pixels import FULL_DEPTH

if TYPE_CHECKING:
    from PIL import TiffImagePlugin

# In lower case; suffixes of files are compared in lower case.
TRANSCODED_SUFFIXES = frozenset(
    {".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif", ".hif"}
)
IMAGE_SUFFIXES = TRANSCODED_SUFFIXES.union({".jpg", ".jpeg", ".jpe", ".jfif", ".png"})
# Images as well, which are reported as unreadable.
OTHER_IMAGE_SUFFIXES = frozenset(
    (
        ".ai",
        ".arw",
        ".cr2",
        ".cr3",
        ".dds",
        ".dng",
        ".eps",
        ".exr",
        ".hdr",
        ".ico",
        ".j2k",
        ".jp2",
        ".jpf",
        ".jpx",
        ".jxl",
        ".nef",
        ".orf",
        ".pbm",
        ".pcx",
        ".pgm",
        ".pnm",
        ".ppm",
        ".psd",
        ".raf",
        ".raw",
        ".rw2",
        ".svg",
        ".tga",
        ".xcf",
    )
)


# The first bytes of a file, and Pillow's name of its format. TIFF is little or big endian,
# with 32-bit or 64-bit offsets; AVIF and HEIC are brands of one container.
_SIGNATURES = (
    (re.compile(rb"\xff\xd8\xff"), "JPEG"),
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "PNG"),
    (re.compile(rb"GIF8"), "GIF"),
    (re.compile(rb"BM"), "BMP"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "WEBP"),
    (re.compile(rb"II[*+]\0|MM\0[*+]"), "TIFF"),
    (re.compile(rb".{4}ftypavi[fs]", re.DOTALL), "AVIF"),
    (re.compile(rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL), "HEIF"),
)
SIGNATURE_BYTES = 12

IN_GRAPHS = ("JPEG", "PNG")  # What TensorFlow's graphs decode.

# By EXIF orientation from 0 (not used) to 8: whether to transpose the image, then to reverse
# its rows, then its columns.
TRANSPOSED = (False, False, False, False, False, True, True, True, True)
ROWS_REVERSED = (False, False, False, True, True, False, False, True, True)
COLUMNS_REVERSED = (False, False, True, True, False, False, True, True, False)

# Scans of a JPEG, of which each takes the time of a whole image: photos have ten. A large image
# may have so many that it takes as long as 16 of the largest.
MAX_SCANS, MAX_SCANNED = 100, 16 * MAX_PIXELS
START_OF_SCAN = b"\xff\xda"  # Never in the data of a scan, where FF is followed by 0.

LARGE = 2**26  # Pixels of an image from which on TensorFlow's graphs decode one at a time.
_BYTES_A_PIXEL = 12  # Pillow's image, the RGB pixels and what is made from them, roughly.
_STRIP = 2**22  # Pixels that are converted to RGB at once.

# Tags of TIFF: https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
_NEW_SUBFILE_TYPE, _BITS_PER_SAMPLE, _PHOTOMETRIC, _DNG_VERSION = 254, 258, 262, 50706
_PLANAR, _WHITE_IS_ZERO = 284, 0

_DEPTHS = (8, 10, 12, 14, FULL_DEPTH)  # Bits of sensors.
_OTHER_BYTE = {";16L": ";16B", ";16B": ";16L"}  # Pillow's names of byte orders.
_NATIVE = ";16L" if sys.byteorder == "little" else ";16B"


class _Memory:
    """The memory of images that are decoded at the same time: the largest image is alone."""

    def __init__(self) -> None:
        self._left = self._all = _BYTES_A_PIXEL * MAX_PIXELS
        self._turn, self._change = threading.Lock(), threading.Condition()

    @contextlib.contextmanager
    def of(self, pixels):
        """Waits until there is memory for so many pixels, and holds it during the block."""
        size = min(_BYTES_A_PIXEL * pixels, self._all)
        with self._turn, self._change:
            # In order, so that small images do not pass a large one.
            self._change.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            with self._change:
                self._left += size
                self._change.notify_all()


_memory = _Memory()
if hasattr(os, "register_at_fork"):  # A fork has none of the threads that hold some.
    os.register_at_fork(after_in_child=lambda: _memory.__init__())  # type: ignore[misc]


def kind_of(encoded: bytes) -> str | None:
    """Returns Pillow's name of a format by the first bytes of a file; None for other files."""
    head = encoded[:SIGNATURE_BYTES]
    return next((name for signature, name in _SIGNATURES if signature.match(head)), None)


def transcoded(encoded: bytes, *, small: bool = False) -> bytes:
    """Returns an image file that `decode_image` decodes: the same one, or a PNG.

    BMP, GIF and WebP (the first frame), TIFF (the first page), AVIF and HEIC become 8-bit RGB,
    upright by EXIF's orientation. A TIFF of 16 bits becomes a PNG of 16 bits. Alpha is dropped;
    CMYK is converted as Pillow does, without colour profiles.

    Args:
        encoded: The content of an image file. JPEG, PNG and what is no image are not changed.
        small: Whether the PNG is compressed, to be stored, which takes longer.

    Raises:
        ValueError: If it cannot be read. The message is the reason, in one line.
    """
    kind = kind_of(encoded)
    if kind is None or kind in IN_GRAPHS:
        return encoded

    level = 6 if small else 0

    def to_png(pixels):
        if pixels.dtype == np.uint16 and pixels.shape[2] == 3:
            return _png_of_16_bits(pixels, level)
        written = io.BytesIO()
        shown = pixels[..., 0] if pixels.shape[2] == 1 else pixels
        Image.fromarray(shown).save(written, "PNG", compress_level=level)
        return written.getvalue()

    return with_pixels(encoded, to_png, None)


def _png_of_16_bits(values, level):
    """A PNG file of 16-bit RGB `(H, W, 3)`, which Pillow does not write."""
    height, width, _ = values.shape
    rows = np.zeros((height, 1 + 6 * width), "uint8")  # Each begins with its filter: 0, none.
    rows[:, 1:] = np.ascontiguousarray(values, ">u2").view("uint8").reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n"
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), level)), (b"IEND", b""))
    for kind, content in chunks:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        file += struct.pack(">I", len(content)) + kind + content + checksum
    return file


def bit_depth_of(largest: int) -> int:
    """Returns the bits of 16-bit images whose largest value is known, as sensors have them.

    Args:
        largest: The largest value in all of the images, from 0 to 65535.
    """
    return next(depth for depth in _DEPTHS if largest < 2**depth)


def largest_value(encoded: bytes) -> int:
    """Returns the largest value of a 16-bit image file; 0 for images of 8 bits.

    Raises:
        ValueError: If it cannot be read. The message is the reason, in one line.
    """
    return with_pixels(
        encoded, lambda pixels: int(pixels.max()) if pixels.dtype == np.uint16 else 0, None
    )


def read_image(path: str | os.PathLike, bit_depth: int = FULL_DEPTH) -> np.ndarray:
    """Returns an image file's pixels, upright and in RGB.

    Args:
        path: A JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC file.
        bit_depth: See `decode_file`.

    Returns:
        A uint8 array `(H, W, 3)`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it cannot be decoded. The message is the reason, in one line.
    """
    return decode_file(pathlib.Path(path).read_bytes(), bit_depth)


def decode_file(encoded: bytes, bit_depth: int = FULL_DEPTH) -> np.ndarray:
    """Returns the pixels of an image file's content, upright and in RGB.

    They are the pixels that `decoding.decode_image` gives in a graph.

    Args:
        encoded: The content; see `read_image`.
        bit_depth: Bits of the values of a 16-bit PNG or TIFF, whose high 8 are the pixel. Values
            above are white. A TIFF that states other bits than 16 is read by its own.

    Returns:
        uint8 `(H, W, 3)`.

    Raises:
        ValueError: If it cannot be decoded. The message is the reason, in one line.
    """
    return with_pixels(encoded, lambda pixels: pixels, bit_depth)


Result = TypeVar("Result")


def with_pixels(
    encoded: bytes, use: Callable[[np.ndarray], Result], bit_depth: int | None = FULL_DEPTH
) -> Result:
    """Returns what a function makes of the pixels of `decode_file`, of large images one at a time.

    Args:
        encoded: The content; see `read_image`.
        use: Function from the pixels, uint8 `(H, W, 3)`, which it does not keep. It decodes no
            other image, for whose memory it would wait.
        bit_depth: See `decode_file`. None: the pixels of a 16-bit image are its values, uint16
            `(H, W, 1)` or `(H, W, 3)`.

    Raises:
        ValueError: If it cannot be decoded, or if there is too little memory for it.
    """
    if not encoded:
        raise ValueError("The file is empty.")
    kind = kind_of(encoded)
    if kind is None:
        raise ValueError("An image must be JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC.")
    with _reasons(kind):
        image = _opened(encoded, kind)
        height, width = image.height, image.width
    try:
        with _memory.of(height * width):
            with _reasons(kind):
                pixels = _upright_pixels(image, encoded, kind, bit_depth)
            del image  # Pillow's copy.
            return use(pixels)
    except Exception as error:
        # TensorFlow's own, which is not imported here.
        if not (isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"):
            raise
        raise ValueError(
            "The image needs more memory than there is. Received: height and width "
            f"{height} {width}"
        ) from error


def pixels_in_header(encoded: bytes) -> np.int64:
    """Returns height times width by the header of an image file; 0 if it cannot be read."""
    try:
        image = _opened(encoded, kind_of(encoded))
    except Exception:  # Pillow raises nearly anything; decoding will.
        return np.int64(0)
    return np.int64(image.height * image.width)


def transcoded_file(path: str | os.PathLike, folder: str | os.PathLike) -> str:
    """Returns the path of a file that `decode_image` decodes: the same, or a PNG in a folder.

    Raises:
        ValueError: If it cannot be read; see `transcoded`.
    """
    path = pathlib.Path(path)
    encoded = path.read_bytes()
    decodable = transcoded(encoded)
    if decodable is encoded:
        return str(path)
    made = pathlib.Path(folder) / f"{len(os.listdir(folder))}-{path.stem}.png"
    made.write_bytes(decodable)
    return str(made)


@contextlib.contextmanager
def _reasons(kind):
    """Raises the errors of Pillow, which are nearly any on damaged data, as one of one line."""
    try:
        yield
    except MemoryError:
        raise
    except (ImportError, ValueError) as error:
        raise ValueError(str(error)) from error
    except Exception as error:
        reason = "" if isinstance(error, UnidentifiedImageError) else f" {error}"
        raise ValueError(
            f"The file is damaged or cut short, too large, or {kind} that Pillow cannot read."
            + " ".join(reason.split("\n"))
        ) from error


def _opened(encoded, kind):
    """A Pillow image of a file's content, of what `kind_of` returns; its pixels are not decoded."""
    if kind == "HEIF":
        import_optional("pillow_heif", "A HEIC image", "heif").register_heif_opener()
    image = Image.open(io.BytesIO(encoded), formats=[kind])
    pixels = image.width * image.height  # Read from the header.
    if pixels > MAX_PIXELS:
        raise ValueError(
            f"An image may have at most {MAX_PIXELS} pixels. Received: height and width "
            f"{image.height} {image.width}"
        )
    scans = encoded.count(START_OF_SCAN) if kind == "JPEG" else 1
    if scans > MAX_SCANS or scans * pixels > MAX_SCANNED:
        raise ValueError(
            f"A JPEG may have at most {min(MAX_SCANS, MAX_SCANNED // pixels)} scans of so many "
            f"pixels. Received: {scans} of height and width {image.height} {image.width}"
        )
    return image


def _upright_pixels(image, encoded, kind, bit_depth):
    """The pixels of a Pillow image, uint8 `(H, W, 3)`, turned as EXIF states; see `with_pixels`."""
    convert: Callable[[Image.Image], Image.Image] = to_rgb
    if kind == "TIFF":
        convert = _tiff_converter(image, encoded)
    elif kind == "JPEG":
        convert = _jpeg_to_rgb
    before_pixels = image.info.get("exif", b"")  # In TensorFlow's graphs, which read no XMP.
    values = None
    if bit_depth != FULL_DEPTH and ";16" in _raw_mode(image):
        values = _values_of_16_bits(image, encoded)
    image.load()
    if kind in IN_GRAPHS:
        orientation = _orientation(before_pixels)
    else:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    width, height = image.size
    rows = max(_STRIP // width, 1)
    if values is not None:
        pixels = values if bit_depth is None else _high_byte(values, bit_depth)
        if bit_depth is not None and pixels.shape[2] == 1:
            pixels = np.repeat(pixels, 3, axis=2)
    elif rows >= height:
        pixels = np.asarray(convert(image))
    else:  # Pillow's image has 4 bytes a pixel: a second one is spared.
        pixels = np.empty((height, width, 3), "uint8")
        for top in range(0, height, rows):
            strip = image.crop((0, top, width, min(top + rows, height)))
            pixels[top : top + rows] = np.asarray(convert(strip))
    if orientation not in range(2, 9):
        return pixels
    if TRANSPOSED[orientation]:
        pixels = pixels.transpose(1, 0, 2)
    pixels = pixels[::-1] if ROWS_REVERSED[orientation] else pixels
    return np.ascontiguousarray(pixels[:, ::-1] if COLUMNS_REVERSED[orientation] else pixels)


def _raw_mode(image):
    """How Pillow unpacks the pixels of an image that was not loaded, such as "RGB;16B"."""
    arguments = image.tile[0].args if image.tile else ""
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def _values_of_16_bits(image, encoded):
    """The values of a Pillow image of 16 bits that was not loaded, uint16 `(H, W, 1 or 3)`.

    Of colours Pillow unpacks one byte, the high one: the low one is unpacked as if it were high.
    """
    raw_mode = _raw_mode(image)
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype("uint16")[..., np.newaxis]
    elif raw_mode.startswith("LA"):
        two = np.asarray(_unpacked(image, encoded, "RGBA"), "uint16")  # Grey, then alpha.
        values = two[..., :1] << 8 | two[..., 1:2]
    else:
        letters, _, order = raw_mode.partition(";16")
        order = _NATIVE if order == "N" else f";16{order}"
        low = np.asarray(_unpacked(image, encoded, letters + _OTHER_BYTE[order]))
        values = np.asarray(image)[..., :3].astype("uint16") << 8 | low[..., :3]
    is_negative = image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    return 2**16 - 1 - values if is_negative else values


def _unpacked(image, encoded, raw_mode):
    """The Pillow image of a file whose bytes are unpacked in another way."""
    other = Image.open(io.BytesIO(encoded), formats=[image.format])

    def with_mode(tile):
        is_alone = not isinstance(tile.args, tuple)
        return tile._replace(args=raw_mode if is_alone else (raw_mode, *tile.args[1:]))

    other.tile = [with_mode(tile) for tile in other.tile]
    return other


def _high_byte(values, bits):
    """The high 8 of some bits of whole numbers, uint8; 255 for numbers of more bits."""
    return np.minimum(values >> (bits - 8), 255).astype("uint8")


def check_range(image: Image.Image, received: str) -> None:
    """Raises ValueError for a Pillow image of floats or signed numbers, with what was received."""
    if image.mode in ("I", "F"):
        raise ValueError(
            "Pixels must be whole numbers of 8 or 16 bits without a sign, as the range of others "
            f"is not known. Received: {received}"
        )


def to_rgb(image: Image.Image, bits: int = FULL_DEPTH) -> Image.Image:
    """Returns a Pillow image in 8-bit RGB; of 16-bit grey the high byte, as TensorFlow does.

    Args:
        image: An image.
        bits: Bits of a pixel, if the image has whole numbers of more than 8.
    """
    if image.mode.startswith("I"):  # "I;16", or in an older Pillow "I".
        # Pillow would clip at 255.
        image = Image.fromarray(_high_byte(np.asarray(image), bits))
    return image if image.mode == "RGB" else image.convert("RGB")


def _jpeg_to_rgb(image):
    if image.mode != "CMYK":
        return to_rgb(image)
    # TensorFlow's whole numbers; Pillow's may differ by one. Pillow takes all inks as inverted, as
    # only Adobe's marker states.
    inks = np.asarray(image, "uint16")
    inks = 255 - inks if "adobe" in image.info else inks
    return Image.fromarray((inks[..., :3] * inks[..., 3:] // 255).astype("uint8"))


def _orientation(content):
    """The orientation in the content of EXIF; 1 without any, and of damaged data."""
    exif = Image.Exif()
    try:
        exif.load(content)
        return exif.get(ExifTags.Base.Orientation, 1)
    except Exception:  # Pillow raises nearly anything on damaged data.
        return 1


def _tiff_converter(
    image: TiffImagePlugin.TiffImageFile, encoded: bytes
) -> Callable[[Image.Image], Image.Image]:
    # The first page of a camera's raw file is a preview of a few pixels.
    tags = image.tag_v2
    if tags.get(_NEW_SUBFILE_TYPE, 0) & 1 or _DNG_VERSION in tags or encoded[8:10] == b"CR":
        raise ValueError("A camera's raw file cannot be read: convert it to JPEG, PNG or TIFF.")
    is_wide = len(image.getbands()) > 1 and tags.get(_BITS_PER_SAMPLE, (8,))[0] == 16
    if is_wide and tags.get(_PLANAR, 1) != 1:  # Pillow reads one byte of two.
        raise ValueError("A TIFF of 16-bit colours must have them side by side, not in planes.")
    bits = tags.get(_BITS_PER_SAMPLE, (16 if image.mode.startswith("I;16") else 32,))[0]
    if not image.mode.startswith("I;16"):
        check_range(image, f"TIFF with {bits} bits, Pillow's mode {image.mode}")
        return to_rgb
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        return lambda strip: ImageOps.invert(to_rgb(strip, bits=int(bits)))
    return lambda strip: to_rgb(strip, bits=int(bits))


def read_pixels(
    path: str | os.PathLike | BinaryIO, formats: tuple[str, ...] | None = None
) -> np.ndarray:
    """Returns an image file's pixels as Pillow decodes them: uint8 `(H, W, 3)`, upright.

    Args:
        path: The file, or its path.
        formats: The formats that it may have, by Pillow's names; by default any.
    """
    with Image.open(path, formats=formats) as image:
        return np.asarray(to_rgb(ImageOps.exif_transpose(image)))


def with_size(pixels: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
    """Returns pixels resized by Pillow, with antialiasing; unchanged if the size is None."""
    if size is None or pixels.shape[:2] == tuple(size):
        return pixels
    height, width = size
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
