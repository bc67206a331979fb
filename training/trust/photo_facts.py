"""Facts about an image file that need no model: size, bytes, brightness, camera, border."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

from keras_vit.images.transcoding import kind_of, to_rgb, transcoded
from keras_vit.training.machine import usable_cores

from .fingerprints import Fingerprint, fingerprint_of

_SIDE = 16  # Pixels per side of the small image.
_RING = 1 / 32  # Width of the border ring, as a share of the shorter side.
_SEGMENTS = 4  # Pieces of each side of the ring.

# Sum of the luminance table of quality 50 (ITU-T T.81, table K.1). libjpeg multiplies that table by
# 50 / quality below 50, else by 2 - quality / 50.
_SUM_OF_TABLE_K1 = 3688


@dataclasses.dataclass(frozen=True)
class PhotoFacts:
    """Facts about one image file.

    Args:
        height: Pixels, upright.
        width: Pixels, upright.
        size: Bytes of the file.
        file_format: Pillow's name, such as "JPEG", or the kind of a transcoded file.
        quality: Quality of a JPEG, by its quantisation table: 1 to 100; NaN for others.
        camera: Maker and model in EXIF; "" without.
        brightness: Mean grey value, 0 to 255.
        contrast: Standard deviation of the grey values of the small copy that copies are found by.
        turned_twice: Whether EXIF asks to turn pixels that its own size shows to be upright.
        ring: Mean colours of pieces of the border, and their spread, float32 `(51,)`.
        surroundings: The image in 16 x 16 pixels with the inner 8 x 8 grey, float32 `(768,)`.
        fingerprint: See `fingerprints`; with mirrored views.
    """

    height: int
    width: int
    size: int
    file_format: str
    quality: float
    camera: str
    brightness: float
    contrast: float
    turned_twice: bool
    ring: np.ndarray
    surroundings: np.ndarray
    fingerprint: Fingerprint


def photo_facts(encoded: bytes) -> PhotoFacts:
    """Returns the facts about an image file.

    Args:
        encoded: Its content, which can be decoded.
    """
    with Image.open(io.BytesIO(transcoded(encoded))) as opened:
        file_format = kind_of(encoded) or str(opened.format)
        quality = _jpeg_quality(opened)
        camera, turned_twice = _from_exif(opened)
        image = to_rgb(ImageOps.exif_transpose(opened))
    found = fingerprint_of(image, mirrored=True)
    small = np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BOX), "float32")
    grey = np.asarray(image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX), "float32")
    return PhotoFacts(
        image.height,
        image.width,
        len(encoded),
        file_format,
        quality,
        camera,
        float(grey.mean()),
        float(found.thumbnail.std()),
        turned_twice,
        _ring(image),
        _without_centre(small),
        found,
    )


def all_photo_facts(images: Iterable[bytes]) -> Iterator[PhotoFacts]:
    """Yields the facts about each image file, in order, on all cores."""
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow decodes without Python's lock.
        ahead: list[Any] = []
        for encoded in images:
            ahead.append(pool.submit(photo_facts, encoded))
            if len(ahead) > 4 * usable_cores():
                yield ahead.pop(0).result()
        for future in ahead:
            yield future.result()


def _jpeg_quality(image):
    """Returns the quality by the sum of the first quantisation table; NaN without one."""
    tables = getattr(image, "quantization", None)
    if not tables:
        return math.nan
    scale = sum(tables[min(tables)]) / _SUM_OF_TABLE_K1
    return round(max(1.0, 100 - 50 * scale if scale <= 1 else 50 / scale), 1)


def _from_exif(image):
    """Returns the camera, and whether a photo was turned and kept the tag that asks for it."""
    try:
        exif = image.getexif()
        details = exif.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # Damaged EXIF is as none; Pillow raises nearly anything.
        return "", False
    names = (exif.get(tag) for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    camera = " ".join(str(name).strip("\0 ") for name in names if name)
    quarter_turn = exif.get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    recorded = details.get(ExifTags.Base.ExifImageWidth), details.get(ExifTags.Base.ExifImageHeight)
    swapped = recorded == (image.height, image.width) and image.width != image.height
    return camera, quarter_turn and swapped


def _ring(image):
    """Returns mean colours along the border, as shares of 255, and their standard deviation."""
    width, height = image.size
    thick = max(1, round(min(width, height) * _RING))
    pixels = np.asarray(image, "float32") / 255
    sides = (
        pixels[:thick],
        pixels[-thick:],
        pixels[:, :thick].swapaxes(0, 1),
        pixels[:, -thick:].swapaxes(0, 1),
    )
    means = [_pieces(side.mean(axis=0)) for side in sides]
    spread = np.concatenate([side.reshape(-1, 3) for side in sides]).std(axis=0)
    return np.concatenate([*means, spread]).astype("float32")


def _pieces(line):
    """Returns the mean colour of each of the equal pieces of a line of pixels `(N, 3)`."""
    ends = np.linspace(0, len(line), _SEGMENTS + 1).round().astype(int)
    return np.concatenate(
        [
            line[start : max(stop, start + 1)].mean(axis=0) if start < len(line) else line[-1]
            for start, stop in zip(ends[:-1], ends[1:], strict=True)
        ]
    )


def _without_centre(small):
    """Returns the pixels outside of the centre, as shares of 255; the centre is grey."""
    pixels = small / 255
    quarter = _SIDE // 4
    pixels[quarter:-quarter, quarter:-quarter] = 0.5
    return pixels.reshape(-1)
