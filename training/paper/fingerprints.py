"""Image fingerprints, and an exact index of 64-bit perceptual hashes.

Imports neither Keras nor TensorFlow: worker processes load this module alone.
"""

from __future__ import annotations

import hashlib
import io
from typing import NamedTuple

import numpy as np
import scipy.fft
from PIL import Image, ImageOps, UnidentifiedImageError

from keras_vit.images.transcoding import to_rgb, transcoded

CROP = 0.05  # Share of each side that a cropped copy may lack.
NUM_VIEWS = 5  # The whole image, and four crops with one corner each.
THUMBNAIL = 32  # Pixels per side.

_VIEW_SIZE = 64  # Pixels per side that views are cut from.
_COMPARED = 16  # Pixels per side of the thumbnails that are compared.

_BANDS = 4  # Bands of 16 bits.
_NUM_KEYS = 2**16
_ONES = np.array([key.bit_count() for key in range(_NUM_KEYS)], np.uint8)

MAX_RADIUS = 15  # A larger one would need over 2500 look-ups per band.


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
    return fingerprint_of(_upright_rgb(encoded), mirrored)


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


def _upright_rgb(encoded):
    try:
        with Image.open(io.BytesIO(transcoded(encoded))) as opened:
            return to_rgb(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError as error:
        raise ValueError("The image cannot be read: its format is unknown.") from error
    except Exception as error:  # Pillow raises nearly anything on damaged data.
        raise ValueError(f"The image cannot be read: {error}") from error


def fingerprint_or_reason(task: tuple[str, bytes, bool]) -> tuple[str, Fingerprint | str]:
    """Returns an image's name with its fingerprint, or with the reason why it is unreadable.

    Args:
        task: The name, the content of the image file, and whether to hash mirrored views.
    """
    name, encoded, mirrored = task
    try:
        return name, fingerprint(encoded, mirrored)
    except ValueError as error:
        return name, str(error)


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


class HammingIndex:
    """Exact search of all entries within a Hamming distance (Norouzi et al., 2012).

    Hashes that differ in at most r of 64 bits differ in at most r // 4 bits of at least
    one of their four 16-bit bands. Each band has a table from its value to entries. A query
    looks up all values within r // 4 bits, and the distance to each entry found is computed.
    For a fixed index the time of a query does not depend on the number of queries.

    Args:
        hashes: uint64 `(M,)`, the entries.
        radius: The greatest distance, in bits.

    Raises:
        ValueError: If the radius is not in [0, 15].
    """

    def __init__(self, hashes: np.ndarray, radius: int):
        if not 0 <= radius <= MAX_RADIUS:
            raise ValueError(
                f"The distance must be in [0, {MAX_RADIUS}] bits. Received: distance={radius}"
            )
        self._radius = radius
        self._hashes = np.ascontiguousarray(hashes, np.uint64)
        self._patterns = np.flatnonzero(radius // _BANDS >= _ONES).astype(np.uint16)
        self._tables = []
        for band in _bands(self._hashes).T:
            order = np.argsort(band, kind="stable")
            starts = np.searchsorted(band[order], np.arange(_NUM_KEYS + 1))
            self._tables.append((order, starts))

    def search(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the pairs of a query and an entry within the radius, and their distances.

        Args:
            queries: uint64 `(Q,)`.

        Returns:
            Three integer arrays `(P,)`: query indices ascending, entry indices ascending
            for each query, distances in bits.
        """
        queries = np.ascontiguousarray(queries, np.uint64)
        found = []
        for band, (order, starts) in zip(_bands(queries).T, self._tables, strict=True):
            keys = (band[:, np.newaxis] ^ self._patterns).astype(np.int64)
            begins, counts = starts[keys].ravel(), (starts[keys + 1] - starts[keys]).ravel()
            query = np.repeat(np.repeat(np.arange(len(queries)), len(self._patterns)), counts)
            # Positions begin, begin + 1, ... for each key that has entries.
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            entry = order[np.repeat(begins, counts) + within]
            near = distances(queries[query], self._hashes[entry]) <= self._radius
            found.append(query[near] * len(self._hashes) + entry[near])
        pairs = np.unique(np.concatenate(found))  # A pair may be near in several bands.
        query, entry = np.divmod(pairs, max(len(self._hashes), 1))
        return query, entry, distances(queries[query], self._hashes[entry])


def distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the number of different bits of uint64 arrays `(P,)`, pair by pair."""
    return _ONES[_bands(first ^ second)].sum(axis=1)


def _bands(hashes):
    return np.ascontiguousarray(hashes).view(np.uint16).reshape(-1, _BANDS)
