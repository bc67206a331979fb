"""Copies of images within labelled images, and images of one burst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from keras_vit.training.evaluation.nearest import nearest
from keras_vit.training.paper.duplicates import DuplicateIndex
from keras_vit.training.paper.fingerprints import Fingerprint

EXACT, NEAR, ALIKE = "exact", "near", "alike"

# Two images are alike if 1 - the cosine of their features is at most this share of the median
# image's to its nearest neighbour, and the thumbnails correlate so far where they overlap, one of
# them shifted by up to a quarter. Measured by benchmarks/check_photos.py.
ALIKE_SHARE = 0.5
ALIKE_CORRELATION = 0.9

_AT_ONCE = 256  # Images looked up at once.
_NEIGHBOURS = 5  # Nearest images of each, whose features are compared.
_SHIFT = 4  # Pixels, of 16 of half a thumbnail.
# Larger sets are searched within fewer bits: the time of a search grows with the square.
_BITS, _LARGE, _BITS_OF_LARGE = 10, 20_000, 6


class Copy(NamedTuple):
    """Two images of one photo or burst.

    Args:
        first: The number of an image.
        second: A larger number.
        kind: "exact" if all pixels are equal, "near" if hashes and thumbnails agree, and "alike"
            if only the features do.
        cosine: Cosine of the angle between their features.
    """

    first: int
    second: int
    kind: str
    cosine: float


def find_copies(fingerprints: Sequence[Fingerprint], features: np.ndarray) -> list[Copy]:
    """Returns the pairs of images that are copies of each other, by their numbers.

    Args:
        fingerprints: Fingerprints of the N images, with mirrored views.
        features: Their features `(N, D)`.
    """
    count = len(fingerprints)
    names = [str(number) for number in range(count)]
    bits = _BITS if count <= _LARGE else _BITS_OF_LARGE
    index = DuplicateIndex(names, fingerprints, bits)
    kinds: dict[tuple[int, int], str] = {}
    for start in range(0, count, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        for pair in index.find(names[part], fingerprints[part]):
            if int(pair.train) < int(pair.test):
                kinds[int(pair.train), int(pair.test)] = pair.kind
    centred = features - features.mean(axis=0, dtype="float64").astype(features.dtype)
    numbers, cosines = nearest(centred, centred, min(_NEIGHBOURS + 1, count))
    if count > 2:
        own = numbers == np.arange(count)[:, np.newaxis]
        distances = 1 - np.where(own, -1, cosines)
        limit = ALIKE_SHARE * float(np.median(distances.min(axis=1)))
        for first, place in np.argwhere(distances <= limit).tolist():
            second = int(numbers[first, place])
            pair = (min(first, second), max(first, second))
            if pair in kinds:
                continue
            thumbnails = [fingerprints[number].thumbnail for number in pair]
            if shifted_correlation(*thumbnails) >= ALIKE_CORRELATION:
                kinds[pair] = ALIKE
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return [
        Copy(first, second, kind, float(unit[first] @ unit[second]))
        for (first, second), kind in sorted(kinds.items())
    ]


def shifted_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the largest correlation of two thumbnails where they overlap, at most 1.

    One is shifted by up to a quarter of its side in each direction; mirrored ones are not compared.

    Args:
        first: uint8 `(32, 32)`.
        second: uint8 `(32, 32)`.
    """
    halves = [image.reshape(16, 2, 16, 2).mean(axis=(1, 3)) for image in (first, second)]
    best = -1.0
    for down in range(-_SHIFT, _SHIFT + 1):
        for right in range(-_SHIFT, _SHIFT + 1):
            a = halves[0][max(down, 0) : 16 + min(down, 0), max(right, 0) : 16 + min(right, 0)]
            b = halves[1][max(-down, 0) : 16 - max(down, 0), max(-right, 0) : 16 - max(right, 0)]
            a, b = a - a.mean(), b - b.mean()
            norm = np.sqrt(np.square(a).sum() * np.square(b).sum())
            if norm > 1e-6:  # A flat image is like any other.
                best = max(best, float((a * b).sum() / norm))
    return best


def joined_groups(
    count: int, pairs: Sequence[Copy], groups: np.ndarray | None = None
) -> np.ndarray:
    """Returns groups in which images of one photo, burst or given group are together.

    Args:
        count: Images N.
        pairs: The copies.
        groups: Given groups, `(N,)`.

    Returns:
        Group numbers from 0, int `(N,)`.
    """
    links = [(pair.first, pair.second) for pair in pairs]
    if groups is not None:
        order = np.argsort(groups, kind="stable")
        same = np.asarray(groups)[order][1:] == np.asarray(groups)[order][:-1]
        links += zip(order[:-1][same].tolist(), order[1:][same].tolist(), strict=True)
    rows, columns = np.array(links, "int64").reshape(-1, 2).T
    graph = coo_array((np.ones(len(rows), bool), (rows, columns)), (count, count))
    return connected_components(graph, directed=False)[1]
