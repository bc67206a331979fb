"""Images that Pillow reads: all files without TensorFlow, with it all but JPEG and PNG.

These become PNG, without loss, which `decoding.decode_image` decodes.
"""

from __future__ import annotations

import io
import os
import pathlib
import re
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from keras_vit._installation import import_optional

# In lower case; suffixes of files are compared in lower case.
TRANSCODED_SUFFIXES = frozenset(
    {".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif", ".heic", ".heif", ".hif"}
)
IMAGE_SUFFIXES = TRANSCODED_SUFFIXES.union({".jpg", ".jpeg", ".jpe", ".jfif", ".png"})
# Images as well, which are reported as unreadable.
OTHER_IMAGE_SUFFIXES = frozenset((
    ".ai", ".arw", ".cr2", ".cr3", ".dds", ".dng", ".eps", ".exr", ".hdr", ".ico", ".j2k",
    ".jp2", ".jpf", ".jpx", ".jxl", ".nef", ".orf", ".pbm", ".pcx", ".pgm", ".pnm", ".ppm",
    ".psd", ".raf", ".raw", ".rw2", ".svg", ".tga", ".xcf",
))  # fmt: skip

# Limit of TensorFlow's decoders, 2^29 bytes of RGB. Pillow has the same limit.
MAX_PIXELS = 2**29 // 3

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

# Tags of TIFF: https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
_NEW_SUBFILE_TYPE, _BITS_PER_SAMPLE, _PHOTOMETRIC, _DNG_VERSION = 254, 258, 262, 50706
_WHITE_IS_ZERO = 0


def kind_of(encoded: bytes) -> str | None:
    """Returns Pillow's name of a format by the first bytes of a file; None for other files."""
    head = encoded[:SIGNATURE_BYTES]
    return next((name for signature, name in _SIGNATURES if signature.match(head)), None)


def transcoded(encoded: bytes, *, small: bool = False) -> bytes:
    """Returns an image file that `decode_image` decodes: the same one, or a PNG.

    BMP, GIF and WebP (the first frame), TIFF (the first page), AVIF and HEIC become 8-bit RGB,
    upright by EXIF's orientation. Of 16-bit pixels the high byte is kept, as TensorFlow does for
    PNG; alpha is dropped; CMYK is converted as Pillow does, without colour profiles.

    Args:
        encoded: The content of an image file. JPEG, PNG and what is no image are not changed.
        small: Whether the PNG is compressed, to be stored, which takes longer.

    Raises:
        ValueError: If it cannot be read. The message is the reason, in one line.
    """
    kind = kind_of(encoded)
    if kind is None or kind in IN_GRAPHS:
        return encoded
    written = io.BytesIO()
    level = 6 if small else 0
    _upright_rgb(encoded, kind, MAX_PIXELS).save(written, "PNG", compress_level=level)
    return written.getvalue()


def read_image(path: str | os.PathLike) -> np.ndarray:
    """Returns an image file's pixels, upright and in RGB.

    Args:
        path: A JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC file.

    Returns:
        A uint8 array `(H, W, 3)`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it cannot be decoded. The message is the reason, in one line.
    """
    return decode_file(pathlib.Path(path).read_bytes())


def decode_file(encoded: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Returns the pixels of an image file's content, upright and in RGB.

    They are the pixels that `decoding.decode_image` gives in a graph.

    Args:
        encoded: The content; see `read_image`.
        max_pixels: Largest height times width; checked before memory is allocated.

    Returns:
        uint8 `(H, W, 3)`.

    Raises:
        ValueError: If it cannot be decoded. The message is the reason, in one line.
    """
    if not encoded:
        raise ValueError("The file is empty.")
    kind = kind_of(encoded)
    if kind is None:
        raise ValueError("An image must be JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC.")
    return np.asarray(_upright_rgb(encoded, kind, max_pixels))


def transcoded_file(path: str | os.PathLike, folder: str | os.PathLike) -> str:
    """Returns the path of a file that `decode_image` decodes: the same, or a PNG in a folder.

    Raises:
        ValueError: If it cannot be read; see `transcoded`.
    """
    path = pathlib.Path(path)
    encoded = path.read_bytes()
    found = transcoded(encoded)
    if found is encoded:
        return str(path)
    made = pathlib.Path(folder) / f"{len(os.listdir(folder))}-{path.stem}.png"
    made.write_bytes(found)
    return str(made)


def _upright_rgb(encoded, kind, max_pixels):
    """A Pillow image of a file's content, of what `kind_of` returns."""
    try:
        if kind == "HEIF":
            import_optional("pillow_heif", "A HEIC image", "heif").register_heif_opener()
        image: Any = Image.open(io.BytesIO(encoded), formats=[kind])
        if image.width * image.height > max_pixels:  # Read from the header.
            raise ValueError(
                f"An image may have at most {max_pixels} pixels. Received: height and width "
                f"{image.height} {image.width}"
            )
        if kind == "TIFF":
            image = _tiff_to_rgb(image, encoded)
        if kind in IN_GRAPHS:
            exif = image.info.get("exif", b"")
            image.load()
            return _turned(_jpeg_to_rgb(image) if kind == "JPEG" else to_rgb(image), exif)
        ImageOps.exif_transpose(image, in_place=True)
        image = to_rgb(image)
        image.load()
        return image
    except (ImportError, ValueError) as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # Pillow raises nearly anything on damaged data.
        reason = "" if isinstance(error, UnidentifiedImageError) else f" {error}"
        raise ValueError(
            f"The file is damaged or cut short, too large, or {kind} that Pillow cannot read."
            + " ".join(reason.split("\n"))
        ) from error


def check_range(image: Image.Image, received: str) -> None:
    """Raises ValueError for a Pillow image of floats or signed numbers, with what was received."""
    if image.mode in ("I", "F"):
        raise ValueError(
            "Pixels must be whole numbers of 8 or 16 bits without a sign, as the range of others "
            f"is not known. Received: {received}"
        )


def to_rgb(image: Image.Image, bits: int = 16) -> Image.Image:
    """Returns a Pillow image in 8-bit RGB; of 16-bit grey the high byte, as TensorFlow does.

    Args:
        image: An image.
        bits: Bits of a pixel, if the image has whole numbers of more than 8.
    """
    if image.mode.startswith("I"):  # "I;16", or in an older Pillow "I".
        # Pillow would clip at 255.
        image = Image.fromarray((np.asarray(image) >> (bits - 8)).astype("uint8"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _jpeg_to_rgb(image):
    if image.mode != "CMYK":
        return to_rgb(image)
    # TensorFlow's whole numbers; Pillow's may differ by one. Pillow takes all inks as inverted, as
    # only Adobe's marker states.
    inks = np.asarray(image, "uint16")
    inks = 255 - inks if "adobe" in image.info else inks
    return Image.fromarray((inks[..., :3] * inks[..., 3:] // 255).astype("uint8"))


def _turned(rgb, content):
    """The pixels of an image, turned as EXIF in front of the pixels states; XMP is not read."""
    exif = Image.Exif()
    try:
        exif.load(content)
        orientation = exif.get(ExifTags.Base.Orientation, 1)
    except Exception:  # Pillow raises nearly anything on damaged data, which count as none.
        return rgb
    if orientation == 1:
        return rgb
    turned = Image.fromarray(np.asarray(rgb))
    turned.getexif()[ExifTags.Base.Orientation] = orientation
    return ImageOps.exif_transpose(turned)


def _tiff_to_rgb(image: Any, encoded: bytes) -> Image.Image:
    # The first page of a camera's raw file is a preview of a few pixels.
    tags = image.tag_v2
    if tags.get(_NEW_SUBFILE_TYPE, 0) & 1 or _DNG_VERSION in tags or encoded[8:10] == b"CR":
        raise ValueError("A camera's raw file cannot be read: convert it to JPEG, PNG or TIFF.")
    if image.mode.startswith("I;16"):
        rgb = to_rgb(image, bits=int(tags.get(_BITS_PER_SAMPLE, (16,))[0]))
        return ImageOps.invert(rgb) if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else rgb
    bits = tags.get(_BITS_PER_SAMPLE, (32,))[0]
    check_range(image, f"TIFF with {bits} bits, Pillow's mode {image.mode}")
    return to_rgb(image)
