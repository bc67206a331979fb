"""Copies of images within labelled images, and images of one burst.

Photos with equal pixels are copies, and so are the nearest photos by features whose thumbnails
have the same details where they overlap, one of them shifted or mirrored.

Photos of a fixed camera are alike, whatever they show, so among them only equal pixels are listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.fft
from PIL import Image
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from keras_vit.training.evaluation.embeddings import nearest
from keras_vit.training.evaluation.simple_reference import grey_photo

EXACT, NEAR, ALIKE = "exact", "near", "alike"

THUMBNAIL = 32  # Pixels per side.
CANDIDATES = 10  # Nearest images of each by features, whose thumbnails are compared.

# On CIFAR-10, crops of one image (28 of 32 pixels) had 0.89 or more, the nearest other images of
# 500 up to 0.79. Resized, recompressed and mirrored copies have NEAR_CORRELATION or more.
ALIKE_CORRELATION = 0.85
NEAR_CORRELATION = 0.97
# A photo is of a fixed camera if its details correlate so far with more than this share of photos,
# and with more than a burst has. Of solar cells in one frame 95% did with a twentieth, of CIFAR-10
# one in a thousand.
_FRAME_CORRELATION = 0.5
_FRAME_SHARE = 0.05
_BURST = 10
_MOST = 0.8  # With more photos of fixed cameras, the others are of such, too.
_COMPARED = 500  # Photos at most that each is compared with to find fixed cameras.

_AT_ONCE = 256  # Pairs at once.
_SHIFT = THUMBNAIL // 4  # Pixels, in each direction.
_LEAST_DETAIL = 100.0  # Sum of squares in the overlap: less is noise of a flat image.
_DETAILS = (0.7, 3.0)  # Pixels: standard deviations of the Gaussians whose difference is compared.


class Fingerprint(NamedTuple):
    """What copies of a photo are found by.

    Args:
        digest: A hash of the pixels; equal only for equal photos.
        thumbnail: uint8 `(32, 32)`, grey.
        grey: uint8 `(96, 96)`, for the simple reference.
    """

    digest: bytes
    thumbnail: np.ndarray
    grey: np.ndarray


def photo_print(image: Image.Image) -> Fingerprint:
    """Returns the fingerprint of an upright image in RGB."""
    digest = hashlib.blake2b(repr(image.size).encode() + image.tobytes(), digest_size=16)
    grey = grey_photo(image)
    small = grey.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR)
    return Fingerprint(digest.digest(), np.asarray(small), np.asarray(grey))


class Copy(NamedTuple):
    """Two images of one photo or burst.

    Args:
        first: The number of an image.
        second: A larger number.
        kind: "exact" if all pixels are equal, "near" if nearly all details of the thumbnails are,
            and "alike" if most of them are.
    """

    first: int
    second: int
    kind: str


class Copies(NamedTuple):
    """The copies among images.

    Args:
        pairs: The pairs; of equal images each with the first of them.
        fixed: Images that are of fixed cameras, among which only equal ones are listed.
    """

    pairs: list[Copy]
    fixed: int


def find_copies(fingerprints: Sequence[Fingerprint], features: np.ndarray) -> Copies:
    """Returns the pairs of images that are copies of each other, by their numbers.

    Args:
        fingerprints: Fingerprints of the N images.
        features: Their features `(N, D)`.
    """
    firsts: dict[bytes, int] = {}
    kinds: dict[tuple[int, int], str] = {}
    for number, image in enumerate(fingerprints):
        first = firsts.setdefault(image.digest, number)
        if first != number:
            kinds[first, number] = EXACT
    numbers = np.array(list(firsts.values()))  # One of each content.
    num_fixed = 0
    if len(numbers) > 1:
        thumbnails = np.stack([fingerprints[number].thumbnail for number in numbers])
        is_fixed = _of_fixed_cameras(thumbnails)
        num_fixed = int(is_fixed.sum())
        pairs, correlations = _correlated(thumbnails, features[numbers])
        is_listed = (correlations >= ALIKE_CORRELATION) & ~is_fixed[pairs].any(axis=1)
        for (first, second), correlation in zip(
            np.sort(numbers[pairs[is_listed]], axis=1).tolist(),
            correlations[is_listed],
            strict=True,
        ):
            kinds[first, second] = NEAR if correlation >= NEAR_CORRELATION else ALIKE
    return Copies([Copy(*pair, kind) for pair, kind in sorted(kinds.items())], num_fixed)


def _of_fixed_cameras(thumbnails):
    """Returns whether photos look like many others, or nearly all photos do, bool `(N,)`."""
    details = _details(thumbnails).reshape(len(thumbnails), -1)
    details -= details.mean(axis=1, keepdims=True)
    details /= np.maximum(np.linalg.norm(details, axis=1, keepdims=True), 1)
    compared = np.linspace(0, len(details) - 1, min(len(details), _COMPARED)).astype(int)
    is_like = details @ details[compared].T >= _FRAME_CORRELATION
    is_fixed = is_like.sum(axis=1) > max(_FRAME_SHARE * len(compared), _BURST)
    return is_fixed | (is_fixed.mean() > _MOST)


def _correlated(thumbnails, features):
    """Returns the nearest pairs by features, `(P, 2)`, and the correlation of their details."""
    count = len(thumbnails)
    centred = features - features.mean(axis=0, dtype="float64").astype(features.dtype)
    neighbours, _ = nearest(centred, centred, min(CANDIDATES + 1, count))
    places = np.repeat(np.arange(count), neighbours.shape[1])
    pairs = np.sort(np.stack([places, neighbours.reshape(-1)], axis=1), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    correlations = []
    for start in range(0, len(pairs), _AT_ONCE):
        first, second = thumbnails[pairs[start : start + _AT_ONCE].T]
        upright, mirrored = (shifted_correlations(first, x) for x in (second, second[..., ::-1]))
        correlations.append(np.maximum(upright, mirrored))
    return pairs, np.concatenate(correlations)


def shifted_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the largest correlation of the details of thumbnails where they overlap, `(P,)`.

    One of each pair is shifted by up to a quarter of its side in each direction. Flat thumbnails
    have a correlation of 0.

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
