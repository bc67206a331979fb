"""Copies of images: fingerprints, perceptual hashes that are near, near-duplicates.

Copies are found that were re-encoded, resized, mirrored, cropped by up to 5% or changed in colour:
their pixels are equal, or their perceptual hashes and their thumbnails are similar. Imports neither
Keras nor TensorFlow: worker processes load this module alone.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
from PIL import Image, ImageOps

from keras_vit.images.transcoding import to_rgb, transcoded

CROP = 0.05  # Share of each side that a cropped copy may lack.
NUM_VIEWS = 5  # The whole image, and four crops with one corner each.
THUMBNAIL = 32  # Pixels per side.

_VIEW_SIZE = 64  # Pixels per side that views are cut from.
_COMPARED = 16  # Pixels per side of the thumbnails that are compared.

_BITS = 64  # Length of a perceptual hash.
_AT_ONCE = 2**22  # Pairs of hashes that are compared at once.

MAX_DISTANCE = 10  # Bits of 64 in which the perceptual hashes of copies may differ.
LEAST_SIMILARITY = 0.95  # Correlation of the thumbnails of copies.


class Fingerprint(NamedTuple):
    """Hashes and a thumbnail of an image.

    Args:
        digest: A hash of the pixels; equal only for equal images.
        hashes: uint64, a perceptual hash of each view, then of each mirrored view if
            wanted. Similar images differ in few bits.
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
        with Image.open(io.BytesIO(transcoded(encoded))) as opened:
            image = to_rgb(ImageOps.exif_transpose(opened))
    except Exception as error:  # Pillow raises nearly anything on damaged data.
        raise ValueError(f"The image cannot be read: {error!r}") from error
    return fingerprint_of(image, mirrored)


def fingerprint_of(image: Image.Image, mirrored: bool = False) -> Fingerprint:
    """Returns the fingerprint of an upright image in RGB; see `fingerprint`."""
    digest = hashlib.blake2b(repr(image.size).encode() + image.tobytes(), digest_size=16)
    # Views are cut from a small copy, so the whole image is resized only once.
    grey = image.convert("L").resize((_VIEW_SIZE, _VIEW_SIZE), Image.Resampling.LANCZOS)
    views = [_cut(grey, box) for box in _corner_boxes(_VIEW_SIZE)]
    if mirrored:
        views += [ImageOps.mirror(view) for view in views]
    hashes = np.array([_perceptual_hash(view) for view in views])
    return Fingerprint(digest.digest(), hashes, np.asarray(_cut(grey, (0, 0, *grey.size))))


def similarity(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the similarity of two thumbnails, one of which may be a crop of the other.

    It is the correlation of their grey values, at most 1, in the best of 19 alignments:
    uncropped, or one of them cropped by `CROP` at one of nine places. Brightness and contrast
    do not matter. Images without contrast have a similarity of 0.

    Args:
        first: uint8 `(32, 32)`.
        second: uint8 `(32, 32)`.
    """
    first, second = _alignments(first), _alignments(second)
    return float(max((first @ second[0]).max(), (second @ first[0]).max()))


def _perceptual_hash(image):
    """Returns a hash as ImageHash's `phash`: which low frequencies are above their median."""
    low = scipy.fft.dctn(np.asarray(image, "float64"))[:8, :8]
    return np.packbits((low > np.median(low)).ravel()).view(np.uint64)[0]


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


class Duplicate(NamedTuple):
    """A training image and the test image that it copies.

    Args:
        train: The training image's name or number.
        test: The test image's.
        kind: "exact" if all pixels are equal, else "near".
        distance: Bits of 64 in which the nearest perceptual hashes differ.
        similarity: Correlation of the thumbnails, at most 1.
        mirrored: Whether the images mirror each other.
    """

    train: Any
    test: Any
    kind: str
    distance: int
    similarity: float
    mirrored: bool


class DuplicateIndex:
    """Fingerprints of test images, searched for copies.

    Args:
        names: Names or numbers of the images.
        fingerprints: Their fingerprints, with the mirrored views.
        distance: Largest distance of perceptual hashes, bits of 64.
        similarity: Smallest correlation of thumbnails, in [-1, 1].
    """

    def __init__(
        self,
        names: Sequence[Any],
        fingerprints: Sequence[Fingerprint],
        distance: int = MAX_DISTANCE,
        similarity: float = LEAST_SIMILARITY,
    ):
        self.names = list(names)
        self._distance, self._similarity = distance, similarity
        self._thumbnails = np.empty((len(names), THUMBNAIL, THUMBNAIL), np.uint8)
        hashes = np.empty((len(names), 2 * NUM_VIEWS), np.uint64)
        self._digests: dict[bytes, list[int]] = {}
        for index, image in enumerate(fingerprints):
            self._thumbnails[index] = image.thumbnail
            hashes[index] = image.hashes
            self._digests.setdefault(image.digest, []).append(index)
        self._views = _signs(hashes)

    def find(self, names: Sequence[Any], images: Sequence[Fingerprint]) -> list[Duplicate]:
        """Returns the duplicates among training images, in their order."""
        if not images or not self.names:
            return []
        views = _signs(np.concatenate([image.hashes[:NUM_VIEWS] for image in images]))
        found, step = [], max(1, _AT_ONCE // len(self._views))
        for start in range(0, len(views), step):
            products = views[start : start + step] @ self._views.T
            query, entry = np.nonzero(products >= _BITS - 2 * self._distance)
            found.append((query + start, entry, (_BITS - products[query, entry]) / 2))
        query, entry, bits = map(np.concatenate, zip(*found, strict=True))
        train, test, view = query // NUM_VIEWS, *np.divmod(entry, 2 * NUM_VIEWS)
        # The nearest views of a pair; ties go to the unmirrored one.
        order = np.lexsort((view, bits, test, train))
        candidates: dict[tuple[int, int], tuple[int, bool]] = {}
        for k in order:
            nearest = (int(bits[k]), bool(view[k] >= NUM_VIEWS))
            candidates.setdefault((int(train[k]), int(test[k])), nearest)
        exact = {
            (k, j) for k, image in enumerate(images) for j in self._digests.get(image.digest, ())
        }
        duplicates = []
        for i, j in sorted(exact | candidates.keys()):
            if (i, j) in exact:
                duplicates.append(Duplicate(names[i], self.names[j], "exact", 0, 1.0, False))
                continue
            distance, mirrored = candidates[i, j]
            thumbnail = self._thumbnails[j]
            correlation = similarity(
                images[i].thumbnail, thumbnail[:, ::-1] if mirrored else thumbnail
            )
            if correlation >= self._similarity:
                near = Duplicate(names[i], self.names[j], "near", distance, correlation, mirrored)
                duplicates.append(near)
        return duplicates


def _signs(hashes):
    """Returns the bits of hashes as 1 and -1, float32 `(N, 64)`: a product for each distance."""
    octets = np.ascontiguousarray(hashes, "uint64").reshape(-1, 1).view("uint8")
    return np.unpackbits(octets, axis=1).astype("float32") * 2 - 1
