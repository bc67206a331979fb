"""Facts about an image file that need no model: size, bytes, brightness, camera, border."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import ExifTags, Image, ImageOps

from keras_vit.images.transcoding import kind_of, to_rgb, transcoded
from keras_vit.training.machine import usable_cores

from .fingerprints import Fingerprint, fingerprint_of

_SIDE = 16  # Pixels per side of the surroundings.
_BORDER_SIDE = 32  # Pixels per side of the image whose outermost pixels are the border.
_PIECES = 4  # Pieces of each side of the border.

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
        quality, camera = _jpeg_quality(opened), _camera(opened)
        image = to_rgb(ImageOps.exif_transpose(opened))
    small = image.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    return PhotoFacts(
        image.height,
        image.width,
        len(encoded),
        file_format,
        quality,
        camera,
        float(np.asarray(small.convert("L"), "float32").mean()),
        _ring(image),
        _without_centre(small),
        fingerprint_of(image, mirrored=True),
    )


def all_photo_facts(images: Iterable[bytes]) -> Iterator[PhotoFacts]:
    """Yields the facts about each image file, in order, on all cores."""
    waiting = iter(images)
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow decodes without Python's lock.
        while some := list(itertools.islice(waiting, 8 * usable_cores())):
            yield from pool.map(photo_facts, some)


def _jpeg_quality(image):
    """Returns the quality by the sum of the first quantisation table; NaN without one."""
    tables = getattr(image, "quantization", None)
    if not tables:
        return math.nan
    scale = sum(tables[min(tables)]) / _SUM_OF_TABLE_K1
    return round(max(1.0, 100 - 50 * scale if scale <= 1 else 50 / scale), 1)


def _camera(image):
    try:
        exif = image.getexif()
        names = [exif.get(tag) for tag in (ExifTags.Base.Make, ExifTags.Base.Model)]
    except Exception:  # Damaged EXIF is as none; Pillow raises nearly anything.
        return ""
    return " ".join(str(name).strip("\0 ") for name in names if name)


def _ring(image):
    """Returns mean colours along the border, as shares of 255, and their standard deviation."""
    small = image.resize((_BORDER_SIDE, _BORDER_SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small, "float32") / 255
    sides = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    means = sides.reshape(4 * _PIECES, -1, 3).mean(axis=1)
    return np.append(means, sides.std(axis=0)).astype("float32")


def _without_centre(small):
    """Returns the pixels outside of the centre, as shares of 255; the centre is grey."""
    pixels = np.asarray(small, "float32") / 255
    quarter = _SIDE // 4
    pixels[quarter:-quarter, quarter:-quarter] = 0.5
    return pixels.reshape(-1)
