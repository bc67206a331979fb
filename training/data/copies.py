"""Copies of images, and images of one burst, found by their pixels alone.

Photos of a fixed camera are alike, whatever they show. So candidates are the nearest by what is
left of small photos without the mean photo and the first principal components, for each of several
crops, mirrored or not, and of whole photos that are turned by quarters: at most `CANDIDATES` of
each photo. A coarse comparison leaves few of them.
Their crop is refined by least squares (Gauss-Newton steps; Lucas and Kanade, 1981), and what is
left of both is compared in one frame.

Bursts of photos from a fixed camera cannot be distinguished from others. There only pairs are
listed that differ by no more than JPEG and resizing change a photo.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.fft
from PIL import Image
from scipy import ndimage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from threadpoolctl import threadpool_limits

from keras_vit.utils.progress import progress_bar

from .content import pixel_digest, usable_cores

EXACT, NEAR, ALIKE = "exact", "near", "alike"

GREY = 96  # Pixels per side of a small grey photo.
CROP = 0.05  # Share of each side that a cropped copy may lack.
THUMBNAIL = 32  # Pixels per side.

# Photos that each is compared with.
CANDIDATES = 12

# Two images are alike if one is among the nearest of the other by the spectrum of its details, and
# the details of their thumbnails correlate so far where they overlap, one of them shifted. On
# CIFAR-10, crops of one image (28 of 32 pixels) had 0.89 or more, the nearest other images of 500
# up to 0.79.
ALIKE_CORRELATION = 0.85
# The outlines of two things on even paper correlate, too, but they are few pixels. So Fisher's z of
# the correlation, of larger thumbnails, is weighed by the share of pixels that have details. Of
# hands of different persons 90% have less; of bursts in two other sets 8% and 5%.
_ALIKE_WEIGHT = 0.5
_LARGER = 48  # Pixels per side of these.
# A photo is of a fixed camera if its details correlate so far with more than this share of photos,
# and with more than a burst has. Of solar cells in one frame 95% did with a twentieth, of CIFAR-10
# one in a thousand.
_FRAME_CORRELATION = 0.5
_FRAME_SHARE = 0.05
_BURST = 10
_MOST = 0.8  # With more photos of fixed cameras, the others are of such, too.

_AT_ONCE = 128  # Images or pairs at once.
_NEIGHBOURS = 10  # Nearest images of each by the spectrum, whose thumbnails are compared.
_SHIFT = 1 / 4  # Share of the side, in each direction.
_LEAST_DETAIL = 100.0  # Sum of squares in the overlap of thumbnails: less is noise.
_DETAILS = (0.7, 3.0)  # Pixels: standard deviations of the Gaussians whose difference is compared.

# Crops: shares that are missing above, below, left and right.
_WHOLE = (0.0, 0.0, 0.0, 0.0)
_PLACES = (0.0, CROP / 2, CROP)
_CROPS = [_WHOLE, (CROP, CROP, CROP, CROP)]
_CROPS += [(top, CROP - top, left, CROP - left) for top in _PLACES for left in _PLACES]
_LIMITS = (-0.02, 0.12)  # Shares of a refined crop.
# How a photo and what it may be a crop of are compared: the orientation of the photo, see
# `_oriented`, and the number of the crop. Who turns photos does not crop them.
_ORIENTATIONS = 8
_VIEWS = [(orientation, crop) for orientation in (0, 1) for crop in range(len(_CROPS))]
_VIEWS += [(orientation, 0) for orientation in range(2, _ORIENTATIONS)]
_SMALL, _COMPONENTS, _LEAST_COSINE = 12, 64, 0.5  # Pixels per side and numbers of candidates.
# What remains of a pair at this size, before its crop is refined. Of planted copies in four sets of
# photos, resized, cropped, brightened and compressed, 0.58 or more remained.
_COARSE = {"side": 24, "floor": 0.03}
_LEAST_COARSELY = 0.33
_SIDE = 64  # Pixels per side for the difference.
_FLOOR_OF_FEW = 0.05
_LEAST_ROUGHLY = 0.6  # Before the last steps.
_WHITE = 235  # Where some of the pixels of the file are white.
_MOST_CLIPPED = 0.9  # Share of a photo; one that light made white shows nothing.
_SAMPLE = 2000  # Photos at most that the mean and the components are of.
_COMPARED = 500  # Photos at most that each is compared with to find fixed cameras.


class _Limits(NamedTuple):
    """What photos must have in common to be copies.

    Args:
        side: Pixels per side of what remains without the mean photo and the components.
        floor: See `_whitening`.
        remaining: The least correlation of what remains.
        change: The largest median difference in grey levels, of a pixel of the file.
    """

    side: int
    floor: float
    remaining: float
    change: float


# The correlation is 0.92 or more for changed copies, up to 0.87 for other photos.
_ANY_FRAME = _Limits(side=16, floor=0.1, remaining=0.91, change=np.inf)
# Other photos can be as alike as copies, so these must be equal except for what JPEG of quality 50
# and resizing change: copies of photos of 300 pixels differed by up to 3.1 grey levels and 0.897
# remained; other photos differed by 3.6, or by 3.1 where 0.87 remained.
_ONE_FRAME = _Limits(side=32, floor=0.01, remaining=0.89, change=3.3)


class Fingerprint(NamedTuple):
    """What copies of a photo are found by.

    Args:
        digest: A hash of the pixels; equal only for equal photos.
        thumbnail: uint8 `(32, 32)`, grey.
        grey: uint8 `(96, 96)`.
        side: Pixels of the shorter side.
    """

    digest: bytes
    thumbnail: np.ndarray
    grey: np.ndarray
    side: int


def grey_photo(image: Image.Image) -> Image.Image:
    """Returns a photo as small grey image of `GREY` pixels per side."""
    return image.convert("L").resize((GREY, GREY), Image.Resampling.LANCZOS)


def photo_print(image: Image.Image, digest: bytes | None = None) -> Fingerprint:
    """Returns the fingerprint of an upright image in RGB.

    Args:
        image: The image.
        digest: Its `pixel_digest`, where it is known.
    """
    digest = digest or pixel_digest(np.asarray(image))
    grey = grey_photo(image)
    small = grey.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BILINEAR)
    return Fingerprint(digest, np.asarray(small), np.asarray(grey), min(image.size))


class Copy(NamedTuple):
    """Two images of one photo or burst.

    Args:
        first: The number of an image.
        second: A larger number.
        kind: "exact" if all pixels are equal, "near" if the pixels are where one is a crop of the
            other, and "alike" if the details of shifted thumbnails are.
    """

    first: int
    second: int
    kind: str


class Copies(NamedTuple):
    """The copies among images.

    Args:
        pairs: The pairs; of equal images each with the first of them.
        fixed: Images that are of fixed cameras. Bursts were not looked for among them, and only
            near-identical ones are listed.
    """

    pairs: list[Copy]
    fixed: int


def find_copies(fingerprints: Sequence[Fingerprint], *, progress: bool = False) -> Copies:
    """Returns the pairs of images that are copies of each other, by their numbers.

    Args:
        fingerprints: Fingerprints of the N images.
        progress: Whether to show a line with the rate and the time left.
    """
    firsts: dict[bytes, int] = {}
    kinds: dict[tuple[int, int], str] = {}
    for number, image in enumerate(fingerprints):
        first = firsts.setdefault(image.digest, number)
        if first != number:
            kinds[first, number] = EXACT
    places = np.array(list(firsts.values()))  # One of each content.
    images = [fingerprints[place] for place in places]
    if len(images) < 2:
        return Copies([Copy(*pair, kind) for pair, kind in sorted(kinds.items())], 0)
    thumbnails = np.stack([image.thumbnail for image in images])
    # Each core multiplies other small matrices; several threads for one would wait.
    with threadpool_limits(1):
        is_fixed = _of_fixed_cameras(thumbnails)
        alike = _alike(images, thumbnails)
        near = _near(images, is_fixed, progress)
    for kind, pairs in ((NEAR, near), (ALIKE, alike[~is_fixed[alike].any(axis=1)])):
        for first, second in np.sort(places[pairs], axis=1).tolist():
            kinds.setdefault((first, second), kind)
    pairs = [Copy(*pair, kind) for pair, kind in sorted(kinds.items())]
    return Copies(pairs, int(is_fixed.sum()))


def _of_fixed_cameras(thumbnails):
    """Returns whether photos look like many others, or nearly all photos do, bool `(N,)`."""
    details = _unit(_details(thumbnails))
    compared = np.linspace(0, len(details) - 1, min(len(details), _COMPARED)).astype(int)
    is_like = details @ details[compared].T >= _FRAME_CORRELATION
    is_fixed = is_like.sum(axis=1) > max(_FRAME_SHARE * len(compared), _BURST)
    return is_fixed | (is_fixed.mean() > _MOST)


def _near(images, is_fixed, progress):
    """Returns pairs of which one photo is a crop of the other, `(P, 2)`."""
    greys = np.stack([image.grey for image in images])
    sizes = np.array([image.side for image in images], "float32")
    pairs, views = _likely(greys, *_candidates(greys, progress))
    is_strict = is_fixed[pairs].any(axis=1)
    kinds = [(_ANY_FRAME, ~is_strict, greys), (_ONE_FRAME, is_strict, greys[is_fixed])]

    def near_ones(limits, frames, some, view):
        photos, others = greys[some.T].astype("float32")
        orientations, numbers = np.array(_VIEWS)[view].T
        for orientation in np.unique(orientations):
            places = orientations == orientation
            photos[places] = _oriented(photos[places], orientation)
        crops = np.array(_CROPS, "float32")[numbers]
        change = frames.changes(photos, others, crops)
        # With more turns more photos are alike by chance: two hands that make one sign were a pair.
        most = np.where(orientations > 1, _ONE_FRAME.change, limits.change)
        # Noise of a pixel of the file is less in the mean of several.
        side = np.minimum(*sizes[some.T])
        return some[change < most / np.maximum(side / _SIDE, 1)]

    near = [np.empty((0, 2), int)]
    with (
        progress_bar(len(pairs), "copies", unit="pairs", disable=not progress) as bar,
        ThreadPoolExecutor(usable_cores()) as pool,
    ):
        for limits, own, of_kind in kinds:
            if not own.any():
                continue
            of_frames = partial(near_ones, limits, _Frames(of_kind, limits))
            blocks = _parts(pairs[own]), _parts(views[own])
            for some, found in zip(blocks[0], pool.map(of_frames, *blocks), strict=True):
                near.append(found)
                bar.update(len(some))
    return np.concatenate(near)


def _candidates(greys, progress):
    """Returns pairs of a photo and one that it may be a crop of, `(P, 2)`, and the view `(P,)`.

    A view is the number of a row of `_VIEWS`.
    """
    count = len(greys)
    whole = _unit(_cut_all(greys, _WHOLE, _SMALL)).reshape(count, _SMALL, _SMALL)
    owns, queries = {}, {}
    for number, crop in enumerate(_CROPS):
        small = _unit(_cut_all(greys, crop, _SMALL))
        mean, axes, scales = _whitening(small, 0.1)
        axes = (axes * scales[:-1])[:, :_COMPONENTS]
        owns[number] = _scaled((small - mean) @ axes)
        for orientation in [orientation for orientation, of in _VIEWS if of == number]:
            photos = _oriented(whole, orientation).reshape(count, -1)
            queries[orientation, number] = _scaled((photos - mean) @ axes)
    views = [(queries[view], owns[view[1]]) for view in _VIEWS]
    some_pairs, most = [], min(CANDIDATES, count - 1)
    with progress_bar(count, "copies", disable=not progress) as bar:
        for start in range(0, count, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            best = np.full((len(greys[rows]), count), -1, "float32")
            for query, own in views:
                np.maximum(best, query[rows] @ own.T, out=best)
            best[np.arange(len(best)), np.arange(start, start + len(best))] = -1
            top = np.argpartition(-best, most - 1, axis=1)[:, :most]
            row, column = np.nonzero(np.take_along_axis(best, top, axis=1) >= _LEAST_COSINE)
            some_pairs.append(np.stack([row + start, top[row, column]], axis=1))
            bar.update(len(best))
    pairs = np.concatenate(some_pairs)
    cosines = [np.einsum("pd,pd->p", query[pairs[:, 0]], own[pairs[:, 1]]) for query, own in views]
    return pairs, np.argmax(cosines, axis=0)


def _likely(greys, pairs, views):
    """Returns the pairs, and their views, of which enough remains in a coarse comparison."""
    side = _COARSE["side"]
    mean, axes, scales = _whitening(_unit(_cut_all(_some(greys), _WHOLE, side)), _COARSE["floor"])
    whiten = _whitener(axes, scales)

    def left(photos, crop):
        return _scaled((_unit(_cut_all(photos, crop, side)) - mean) @ whiten)

    correlations = np.zeros(len(pairs), "float32")
    orientations, numbers = np.array(_VIEWS)[views].T
    for orientation in np.unique(orientations):
        turned = orientations == orientation
        photos, place_of = np.unique(pairs[turned, 0]), np.zeros(len(greys), int)
        place_of[photos] = np.arange(len(photos))
        wholes = left(_oriented(greys[photos], orientation), _WHOLE)
        for number in np.unique(numbers[turned]):
            own = np.flatnonzero(turned & (numbers == number))
            others, place = np.unique(pairs[own, 1], return_inverse=True)
            crops = left(greys[others], _CROPS[number])
            products = np.einsum("pd,pd->p", wholes[place_of[pairs[own, 0]]], crops[place])
            correlations[own] = products
    is_likely = correlations >= _LEAST_COARSELY
    return pairs[is_likely], views[is_likely]


def _oriented(photos, orientation):
    """Returns photos `(N, side, side)` in one of the eight orientations of a square.

    Odd ones are mirrored; the half of an orientation is the number of quarter turns.
    """
    return np.rot90(photos[:, :, ::-1] if orientation % 2 else photos, orientation // 2, (1, 2))


def _some(greys):
    """Returns the photos that the mean and the components are of, evenly spaced."""
    return greys[np.linspace(0, len(greys) - 1, min(len(greys), _SAMPLE)).astype(int)]


def _whitener(axes, scales):
    """Returns the matrix that scales rows along each axis, and by the last scale elsewhere."""
    rest = scales[-1]
    return (axes * (scales[:-1] - rest)) @ axes.T + rest * np.eye(len(axes), dtype="float32")


class _Frames:
    """Photos in the same frame, compared by what remains after the mean and the components.

    Args:
        greys: uint8 `(N, 96, 96)`; the mean and the components are of 2,000 of them at most.
        limits: Its side, floor and least correlation are used.
    """

    def __init__(self, greys, limits):
        self._limits = limits
        some = _some(greys)
        units = _unit(_cut_all(some, _WHOLE, limits.side))
        self._mean, axes, scales = _whitening(units, limits.floor)
        self._whiten = _whitener(axes, scales)
        photo = sum(_unit(part.astype("float32")).sum(axis=0) for part in _parts(some)) / len(some)
        self._photo = 1000 * photo.reshape(GREY, GREY)  # For any contrast.

    def changes(self, photos, others, crops):
        """Returns by how much photos differ from crops of others `(P, 96, 96)`, float32 `(P,)`.

        It is the median in grey levels; infinite unless what remains is similar.
        """
        refined = _refined(photos, others, crops, side=32, steps=4)
        changes = np.full(len(photos), np.inf, "float32")
        places = np.flatnonzero(self._remaining(photos, others, refined) >= _LEAST_ROUGHLY)
        if not len(places):
            return changes
        photos, others = photos[places], others[places]
        refined = _refined(photos, others, refined[places], side=48, steps=3)
        is_similar = self._remaining(photos, others, refined) >= self._limits.remaining
        places, photos, others = places[is_similar], photos[is_similar], others[is_similar]
        if not len(places):
            return changes
        for some in (crops[places], refined[is_similar]):  # White pixels may mislead the steps.
            pixels, expected, clipped = _adjusted(photos, others, some, _SIDE)
            levels = np.where(clipped, np.nan, np.abs(pixels - expected))
            levels[clipped.mean(axis=1) > _MOST_CLIPPED] = np.inf
            changes[places] = np.minimum(changes[places], np.nanmedian(levels, axis=1))
        return changes

    def _remaining(self, photos, others, crops):
        """Returns the correlations of what remains after the mean photo and the components."""
        pixels, expected, clipped = _adjusted(photos, others, crops, self._limits.side)
        mean = _unit(_cut(np.broadcast_to(self._photo, photos.shape), crops, self._limits.side))
        mean *= np.linalg.norm(self._mean)
        left = [np.where(clipped, 0, _unit(values) - mean) for values in (pixels, expected)]
        first, second = (_scaled(values @ self._whiten) for values in left)
        return (first * second).sum(axis=1)


def _refined(photos, others, crops, side, steps):
    """Returns crops of others after steps of least squares towards photos, of any contrast."""
    wanted = _unit(_cut(photos, _WHOLE, side))
    grid = ((np.arange(side) + 0.5) / side).astype("float32")
    for _ in range(steps):
        pixels = _cut(others, crops, side)
        down, right = np.gradient(pixels, axis=(1, 2))
        slopes = [down * (1 - grid[:, np.newaxis]), -down * grid[:, np.newaxis]]
        slopes += [right * (1 - grid), -right * grid]
        unit = _unit(pixels)
        jacobian = np.stack(slopes, axis=1).reshape(len(pixels), 4, -1) * np.float32(side)
        jacobian -= jacobian.mean(axis=2, keepdims=True)
        jacobian /= np.maximum(pixels.std(axis=(1, 2)) * side, 1)[:, np.newaxis, np.newaxis]
        jacobian -= (jacobian @ unit[:, :, np.newaxis]) * unit[:, np.newaxis]  # Without the unit.
        squares = jacobian @ jacobian.transpose(0, 2, 1)
        damping = 1e-3 * np.trace(squares, axis1=1, axis2=2) + 1e-6
        squares += damping[:, np.newaxis, np.newaxis] * np.eye(4, dtype="float32")
        step = np.linalg.solve(squares, jacobian @ wanted[:, :, np.newaxis])[:, :, 0]
        step /= np.maximum((unit * wanted).sum(axis=1, keepdims=True), 0.2)
        crops = np.clip(crops + np.clip(step, -0.02, 0.02), *_LIMITS)
    return crops


def _adjusted(photos, others, crops, side):
    """Returns pixels of photos, what crops of others in their light have, and which are clipped.

    Each is `(P, side * side)`. Pixels are clipped where more light makes them white.
    """
    cuts = (_cut(photos, _WHOLE, side), _cut(others, crops, side))
    pixels, source = (cut.reshape(len(photos), -1) for cut in cuts)
    is_fit = (source > 5) & (source < 250) & (pixels > 8) & (pixels < _WHITE)
    count = np.maximum(is_fit.sum(axis=1, keepdims=True), 1)
    means = [(values * is_fit).sum(axis=1, keepdims=True) / count for values in (source, pixels)]
    centred = (source - means[0]) * is_fit
    products = (centred * (pixels - means[1])).sum(axis=1, keepdims=True)
    gain = products / np.maximum(np.square(centred).sum(axis=1, keepdims=True), 1)
    expected = means[1] + gain * (source - means[0])
    is_brighter = means[1] + gain * (255 - means[0]) > 262  # White would be whiter than white.
    clipped = is_brighter & (pixels >= _WHITE) & (expected >= _WHITE)
    return pixels, np.where(clipped, pixels, np.clip(expected, 0, 255)), clipped


def _cut(images, crops, side):
    """Returns crops of images `(P, 96, 96)`, resized, float32 `(P, side, side)`."""
    down, across = _kernels(np.asarray(crops, "float32").reshape(-1, 4), side)
    return down @ images @ across.transpose(0, 2, 1)


def _cut_all(images, crop, side):
    """Returns the same crop of all images uint8 `(N, 96, 96)`, float32 `(N, side, side)`."""
    (down,), (across,) = _kernels(np.array([crop], "float32"), side)
    cuts = []
    for part in _parts(images):
        rows = part.reshape(-1, GREY).astype("float32") @ across.T
        cuts.append(down @ rows.reshape(len(part), GREY, side))
    return np.concatenate(cuts)


def _kernels(crops, side):
    """Returns the weights by which crops `(P, 4)` are resized, down and across `(P, side, 96)`."""
    shares, kernels = crops.T[..., np.newaxis], []
    for low, high in (shares[:2], shares[2:]):
        grid = (np.arange(side, dtype="float32") + 0.5) / side
        centres = np.clip(GREY * (low + grid * (1 - low - high)) - 0.5, 0, GREY - 1)
        distances = np.abs(centres[:, :, np.newaxis] - np.arange(GREY, dtype="float32"))
        kernel = np.maximum(0, 1 - distances / np.float32(max(1, GREY / side)))
        kernels.append(kernel / kernel.sum(axis=2, keepdims=True))
    return kernels


def _parts(rows):
    """Returns rows in parts that bound the memory."""
    return [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]


def _unit(images):
    """Returns images as rows without contrast, whose squares have the sum 1."""
    rows = images.reshape(len(images), -1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)


def _scaled(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


def _whitening(rows, floor):
    """Returns the mean of rows, the principal axes, and scales by which these vary about equally.

    The last scale is for axes without variance. No axis is strengthened as if it varied less
    than a share of the mean, `floor`, and more where there are fewer rows than axes.
    """
    count, size = rows.shape
    mean = rows.mean(axis=0)
    left = rows - mean
    if count < size:
        values, vectors = np.linalg.eigh(left @ left.T / count)
        axes = left.T @ (vectors / np.sqrt(count * np.maximum(values, 1e-9)))
    else:
        values, axes = np.linalg.eigh(left.T @ left / count)
    floor += _FLOOR_OF_FEW * max(size / count - 1, 0)
    variances = np.append(np.maximum(values[::-1], 0), 0)
    scales = 1 / np.sqrt(variances + floor * variances.sum() / size + 1e-12)
    return mean, axes[:, ::-1].astype("float32"), scales.astype("float32")


def _alike(images, thumbnails):
    """Returns the pairs whose details are alike where one of them is shifted, `(P, 2)`."""
    pairs = _similar_spectra(thumbnails)
    correlations = [shifted_correlations(*thumbnails[part.T]) for part in _parts(pairs)]
    pairs = pairs[np.concatenate(correlations) >= ALIKE_CORRELATION]
    weights = [_weights(images, part) for part in _parts(pairs)]
    return pairs[np.concatenate([np.empty(0), *weights]) >= _ALIKE_WEIGHT]


def _similar_spectra(thumbnails):
    """Returns the pairs of which one is among the nearest by the amplitudes of its details.

    These do not change where a photo is shifted. Their roots do not follow the strongest alone.
    """
    count = len(thumbnails)
    amplitudes = [np.abs(scipy.fft.rfft2(_details(part))) for part in _parts(thumbnails)]
    roots = np.sqrt(np.concatenate(amplitudes)).reshape(count, -1).astype("float32")
    roots = _scaled(roots)
    roots = _scaled(roots - roots.mean(axis=0))
    most, pairs = min(_NEIGHBOURS, count - 1), []
    for start in range(0, count, _AT_ONCE):
        products = roots[start : start + _AT_ONCE] @ roots.T
        rows = np.arange(len(products))
        products[rows, rows + start] = -np.inf
        top = np.argpartition(-products, most - 1, axis=1)[:, :most]
        pairs.append(np.stack([np.repeat(rows + start, most), top.reshape(-1)], axis=1))
    return np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)


def _weights(images, pairs):
    """Returns Fisher's z of the correlation of pairs, times the root of the share with details."""
    larger = [
        _cut_all(np.stack([images[number].grey for number in numbers]), _WHOLE, _LARGER)
        for numbers in pairs.T
    ]
    correlations = np.clip(shifted_correlations(*larger), 0, 0.999)
    shares = []
    for photos in larger:
        squares = np.square(_details(photos))
        of_squares = np.square(squares).sum(axis=(1, 2))
        share = np.square(squares.sum(axis=(1, 2))) / np.maximum(of_squares, 1) / _LARGER**2
        shares.append(share)  # The participation ratio: 1 where all pixels have as much.
    return np.arctanh(correlations) * np.sqrt(np.minimum(*shares))


def shifted_correlations(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the largest correlation of the details of thumbnails where they overlap, `(P,)`.

    One of each pair is shifted by up to a quarter of its side in each direction; mirrored ones are
    not compared. Flat thumbnails have a correlation of 0.

    Args:
        first: Grey pixels `(P, S, S)`.
        second: Grey pixels `(P, S, S)`.
    """
    side = first.shape[1]
    size = (2 * side, 2 * side)  # So that nothing wraps around.
    least = _LEAST_DETAIL * (side / THUMBNAIL) ** 2
    details = [_details(images) for images in (first, second)]
    spectra = [scipy.fft.rfft2(values, size) for values in details]
    squares = [scipy.fft.rfft2(np.square(values), size) for values in details]
    inside = scipy.fft.rfft2(np.ones((side, side), "float32"), size)
    products = scipy.fft.irfft2(spectra[0] * spectra[1].conj(), size)
    energies = [
        np.maximum(scipy.fft.irfft2(spectrum, size), least)
        for spectrum in (squares[0] * inside.conj(), inside * squares[1].conj())
    ]
    correlations = products / np.sqrt(energies[0] * energies[1])
    most = round(_SHIFT * side)
    shifts = np.arange(-most, most + 1)
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
