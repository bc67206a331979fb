"""Copies of images within labelled images, and images of one burst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.fft
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from keras_vit.training.evaluation.embeddings import nearest

from .fingerprints import THUMBNAIL, DuplicateIndex, Fingerprint

EXACT, NEAR, ALIKE = "exact", "near", "alike"

# Two images are alike if one is among the nearest of the other by features, and the details of
# their thumbnails correlate so far where they overlap, one of them shifted. On CIFAR-10, crops of
# one image (28 of 32 pixels) had 0.89 or more, the nearest other images of 500 up to 0.79.
ALIKE_CORRELATION = 0.85

_AT_ONCE = 256  # Images looked up at once.
_NEIGHBOURS = 10  # Nearest images of each, whose thumbnails are compared.
_SHIFT = THUMBNAIL // 4  # Pixels, in each direction.
_LEAST_DETAIL = 100.0  # Sum of squares in the overlap: less is noise of a flat image.
_DETAILS = (0.7, 3.0)  # Pixels: standard deviations of the Gaussians whose difference is compared.
# Larger sets are searched within fewer bits: pairs that are near by chance grow with the square.
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


def find_copies(fingerprints: Sequence[Fingerprint], features: np.ndarray) -> list[Copy]:
    """Returns the pairs of images that are copies of each other, by their numbers.

    Args:
        fingerprints: Fingerprints of the N images, with mirrored views.
        features: Their features `(N, D)`.
    """
    count = len(fingerprints)
    bits = _BITS if count <= _LARGE else _BITS_OF_LARGE
    index = DuplicateIndex(range(count), fingerprints, bits)
    kinds: dict[tuple[int, int], str] = {}
    for start in range(0, count, _AT_ONCE):
        part = fingerprints[start : start + _AT_ONCE]
        for pair in index.find(range(start, start + len(part)), part):
            if pair.train < pair.test:
                kinds[pair.train, pair.test] = pair.kind
    centred = features - features.mean(axis=0, dtype="float64").astype(features.dtype)
    numbers, _ = nearest(centred, centred, min(_NEIGHBOURS + 1, count))
    places = np.repeat(np.arange(count), numbers.shape[1])
    candidates = np.sort(np.stack([places, numbers.reshape(-1)], axis=1), axis=1)
    candidates = np.unique(candidates[candidates[:, 0] < candidates[:, 1]], axis=0)
    thumbnails = np.stack([image.thumbnail for image in fingerprints])
    for start in range(0, len(candidates), _AT_ONCE):
        some = candidates[start : start + _AT_ONCE]
        alike = shifted_correlations(*thumbnails[some.T]) >= ALIKE_CORRELATION
        for first, second in some[alike].tolist():
            kinds.setdefault((first, second), ALIKE)
    return [Copy(*pair, kind) for pair, kind in sorted(kinds.items())]


def shifted_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the largest correlation of the details of thumbnails where they overlap, `(P,)`.

    One of each pair is shifted by up to a quarter of its side in each direction; mirrored ones are
    not compared. Flat thumbnails have a correlation of 0.

    Args:
        first: uint8 `(P, 32, 32)`.
        second: uint8 `(P, 32, 32)`.
    """
    size = (2 * THUMBNAIL, 2 * THUMBNAIL)  # So that nothing wraps around.
    details = [_details(images) for images in (first, second)]
    spectra = [scipy.fft.rfft2(values, size) for values in details]
    squares = [scipy.fft.rfft2(np.square(values), size) for values in details]
    inside = scipy.fft.rfft2(np.ones((THUMBNAIL, THUMBNAIL)), size)
    products = scipy.fft.irfft2(spectra[0] * spectra[1].conj(), size)
    energies = [
        np.maximum(scipy.fft.irfft2(spectrum, size), _LEAST_DETAIL)
        for spectrum in (squares[0] * inside.conj(), inside * squares[1].conj())
    ]
    correlations = products / np.sqrt(energies[0] * energies[1])
    shifts = np.arange(-_SHIFT, _SHIFT + 1)
    return correlations[:, shifts[:, np.newaxis], shifts].max(axis=(1, 2))


def _details(images):
    values = images.astype("float32")
    fine, coarse = (ndimage.gaussian_filter(values, (0, sigma, sigma)) for sigma in _DETAILS)
    return fine - coarse


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
