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

# Features are alike if their squared distance, 1 - cosine, is at most this share of the median
# image's to its nearest neighbour. Measured by benchmarks/check_labels.py.
ALIKE_SHARE = 0.1

_AT_ONCE = 256  # Images looked up at once.
_NEIGHBOURS = 5  # Of each image, whose features are compared.
# Larger sets are searched within fewer bits: the time of a search grows with the square.
_BITS, _LARGE, _BITS_OF_LARGE = 10, 20_000, 6


class Copy(NamedTuple):
    """Two images of one photo or burst.

    Args:
        first: The number of an image.
        second: A larger number.
        kind: "exact" if all pixels are equal, "near" if hashes and thumbnails agree, and "alike"
            if only the features do.
        cosine: Of the angle between their features.
    """

    first: int
    second: int
    kind: str
    cosine: float


def find_copies(
    fingerprints: Sequence[Fingerprint],
    features: np.ndarray,
    *,
    alike_share: float = ALIKE_SHARE,
) -> list[Copy]:
    """Returns the pairs of images that are copies of each other, by their numbers.

    Args:
        fingerprints: Of the N images, with mirrored views.
        features: Their features `(N, D)`.
        alike_share: See `ALIKE_SHARE`; 0 compares hashes only.
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
    if count > 2 and alike_share:
        own = numbers == np.arange(count)[:, np.newaxis]
        distances = 1 - np.where(own, -1, cosines)
        limit = alike_share * float(np.median(distances.min(axis=1)))
        for first, place in np.argwhere(distances <= limit).tolist():
            second = int(numbers[first, place])
            kinds.setdefault((min(first, second), max(first, second)), ALIKE)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    return [
        Copy(first, second, kind, float(unit[first] @ unit[second]))
        for (first, second), kind in sorted(kinds.items())
    ]


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
