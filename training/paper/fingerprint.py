"""What is kept of an image to find its copies; needs neither Keras nor TensorFlow.

Worker processes import this file alone.
"""

from __future__ import annotations

import hashlib
import io
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

try:
    import imagehash
except ImportError as error:
    raise ImportError(
        "De-duplication needs the package ImageHash: pip install keras-vit[deduplicate]"
    ) from error

CROP = 0.05  # Share of the side that a cropped copy may miss.
NUM_VIEWS = 5  # The whole image, and without CROP of it at two sides, from each corner.
THUMBNAIL = 32  # Pixels per side.

_VIEW_SIZE = 64  # Pixels per side that views are cut from.
_COMPARED = 16  # Pixels per side of the thumbnails that are compared.


class Fingerprint(NamedTuple):
    """What is kept of an image.

    Args:
        digest: A hash of the pixels, equal for equal images only.
        hashes: uint64, a perceptual hash of each view; with mirroring, of the mirrored
            views behind them. Few bits differ between similar images.
        thumbnail: uint8 `(32, 32)`, grey.
    """

    digest: bytes
    hashes: np.ndarray
    thumbnail: np.ndarray


def fingerprint(encoded: bytes, mirrored: bool = False) -> Fingerprint:
    """Returns the fingerprint of an encoded image.

    Args:
        encoded: The content of an image file that Pillow can read.
        mirrored: Whether to hash the mirrored views as well.

    Raises:
        ValueError: If the image cannot be read.
    """
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except UnidentifiedImageError as error:
        raise ValueError("The image cannot be read: its format is unknown.") from error
    except Exception as error:  # Pillow raises nearly anything on damaged data.
        raise ValueError(f"The image cannot be read: {error}") from error
    digest = hashlib.blake2b(repr(image.size).encode() + image.tobytes(), digest_size=16)
    # Once from the whole image: the views are cut from a small one.
    grey = image.convert("L").resize((_VIEW_SIZE, _VIEW_SIZE), Image.Resampling.LANCZOS)
    views = [_cut(grey, box) for box in _corner_boxes(_VIEW_SIZE)]
    if mirrored:
        views += [ImageOps.mirror(view) for view in views]
    hashes = np.array([_perceptual_hash(view) for view in views])
    return Fingerprint(digest.digest(), hashes, np.asarray(_cut(grey, (0, 0, *grey.size))))


def similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Returns how alike two thumbnails are, allowing for a crop of either.

    The correlation of their grey values, at most 1, of the best of 19 alignments: as they
    are, or one of them cut by `CROP` at one of nine places. Brightness and contrast do not
    count. Without contrast there is nothing to compare: 0.

    Args:
        first: uint8 `(32, 32)`.
        second: uint8 `(32, 32)`.
    """
    first, second = _alignments(first), _alignments(second)
    return float(max((first @ second[0]).max(), (second @ first[0]).max()))


def _perceptual_hash(image):
    bits = imagehash.phash(image).hash
    return np.packbits(bits.ravel()).view(np.uint64)[0]


def _cut(image, box):
    return image.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR, box=box)


def _corner_boxes(size):
    cut = CROP * size
    corners = [(x, y, x + size - cut, y + size - cut) for y in (0, cut) for x in (0, cut)]
    return [(0, 0, size, size), *corners]


def _alignments(thumbnail):
    image = Image.fromarray(thumbnail)
    cut = CROP * THUMBNAIL
    boxes = [(0, 0, THUMBNAIL, THUMBNAIL)] + [
        (x, y, x + THUMBNAIL - cut, y + THUMBNAIL - cut)
        for y in (0, cut / 2, cut)
        for x in (0, cut / 2, cut)
    ]
    size = (_COMPARED, _COMPARED)
    cuts = [np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box)) for box in boxes]
    vectors = np.stack(cuts).reshape(len(boxes), -1).astype(np.float32)
    vectors -= vectors.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, 1e-6)
