"""Image files with labels; the damaged ones among them, and masks."""

from __future__ import annotations

import collections
import functools
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from keras_vit import images as image_formats
from keras_vit.images.transcoding import IN_GRAPHS, LARGE, kind_of, with_pixels

from .content import file_fingerprints, file_pixel_fingerprints, on_all_cores, usable_cores
from .examples import (
    Examples,
    Handle,
    RandomAccessExamples,
    tf,
    unconverted,
    without_autotune,
)

NOT_UTF_8 = "The name is not UTF-8."  # The reason why a file cannot be opened.

# The limits by which masks are known.
_LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".heic", ".heif", ".avif", ".webp")
_LEVELS = 4  # Grey levels of a mask, at most.
_FEWEST, _MOST = 20, 64  # Files that are looked at.
_ALL = 0.9  # A share of all images above which they are drawings, and no masks.


class FileExamples(RandomAccessExamples):
    """Image files with labels.

    Args:
        paths: The files.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
    """

    def __init__(self, paths: Sequence[str], labels: np.ndarray):
        super().__init__(np.asarray(paths, object), labels)

    @property
    def names(self) -> list[str]:
        return self.keys.tolist()

    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        path, label = handle
        return tf.io.read_file(path), label

    def encoded(self) -> Iterator[tuple[bytes, int | np.ndarray]]:
        for path, label in zip(self.names, self.labels, strict=True):
            yield pathlib.Path(path).read_bytes(), label

    def fingerprints(self) -> np.ndarray:
        return file_fingerprints(self.names)

    def pixel_fingerprints(self) -> np.ndarray:
        return file_pixel_fingerprints(self.names)


def check_links(folder: str | os.PathLike, paths: Iterable[str]) -> None:
    """Raises ValueError if a symbolic link in a folder leads out of it.

    Args:
        folder: The folder of the data; may be a link itself.
        paths: Files; the files that a CSV file lists may lie elsewhere.
    """
    inside = os.path.join(os.path.abspath(folder), "")
    real_inside = os.path.join(os.path.realpath(folder), "")
    real_folder = functools.cache(os.path.realpath)
    for path in paths:
        if os.path.islink(path):
            real = os.path.realpath(path)
        else:
            real = os.path.join(real_folder(os.path.dirname(path)), os.path.basename(path))
        if os.path.abspath(path).startswith(inside) and not real.startswith(real_inside):
            raise ValueError(
                "Images must lie in the folder of the data; --follow-symlinks "
                f"(follow_symlinks=True) allows links out of it. Received: {path}, which is {real}"
            )


def printable(path: str | os.PathLike) -> str:
    """Returns a path as text, whose bytes that are no UTF-8 are escaped."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


class Verified(NamedTuple):
    """What decoding image files once shows.

    Args:
        reasons: The index of each file that cannot be decoded, in order, and why.
        largest: The largest value in the files of 16 bits; 0 without such files.
    """

    reasons: dict[int, str]
    largest: int


def damaged_files(parts: Iterable[Examples]) -> list[str]:
    """Returns a line for each image file that cannot be decoded, with the reason.

    Args:
        parts: Images, of which those in files are decoded.
    """
    paths = [name for part in parts if isinstance(part, FileExamples) for name in part.names]
    return [f"{paths[place]}: {reason}" for place, reason in verify_files(paths).reasons.items()]


def verify_files(paths: Sequence[str]) -> Verified:
    """Decodes image files once, to find damaged ones and the values of 16-bit ones.

    Every file is decoded, on all cores, by TensorFlow as in training; a JPEG at an eighth of its
    size, which is enough to find a truncated file. What is neither JPEG nor PNG, or large, is
    decoded by Pillow.

    Args:
        paths: The files.
    """
    if not paths:  # To trace the graph takes longer than to run it on thirty photos.
        return Verified({}, 0)
    indices = [index for index, path in enumerate(paths) if is_utf_8(path)]
    names = tf.constant([paths[index] for index in indices], tf.string, [len(indices)])
    files = tf.data.Dataset.from_tensor_slices((tf.constant(indices, tf.int64), names))

    @unconverted
    def check(index, path):
        size, largest = image_formats.decoding.verify_image(tf.io.read_file(path), LARGE)
        with tf.control_dependencies([size]):
            return tf.identity(index), largest

    good = files.map(check, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    largest_of = {int(n): int(most) for n, most in without_autotune(good).as_numpy_iterator()}
    rest = sorted({*range(len(paths))}.difference(largest_of))

    def size_and_largest(pixels):
        return math.prod(pixels.shape[:2]), pixels.max() if pixels.dtype == np.uint16 else 0

    def reason_of(index):
        if not is_utf_8(paths[index]):
            return NOT_UTF_8
        try:
            content = pathlib.Path(paths[index]).read_bytes()
            size, largest = with_pixels(content, size_and_largest, None)
        except (ValueError, OSError) as error:
            return str(error)
        except MemoryError:
            return "The file needs more memory than there is."
        if kind_of(content) in IN_GRAPHS and size <= LARGE:
            return "The file is damaged."
        largest_of[index] = int(largest)
        return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = dict(zip(rest, pool.map(reason_of, rest), strict=True))
    reasons = {index: reason for index, reason in found.items() if reason is not None}
    return Verified(reasons, max(largest_of.values(), default=0))


def is_utf_8(name: str) -> bool:
    """Returns whether TensorFlow can open a file of this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def mask_notes(paths: Sequence[str], *, decodes: bool) -> list[str]:
    """Returns a line where images may be masks of others.

    Args:
        paths: The images.
        decodes: Whether some may be decoded, if no names say it.
    """
    return _beside(paths) or (_of_few_greys(paths) if decodes else [])


def _beside(paths):
    """A line for images that have the name of others beside them but another suffix."""
    suffixes = collections.defaultdict(set)
    totals: collections.Counter[str] = collections.Counter()
    for path in paths:
        stem, suffix = os.path.splitext(path)
        suffixes[stem].add(suffix.lower())
        totals[suffix.lower()] += 1
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    for beside in suffixes.values():
        if len(beside) > 1:
            photo, *others = sorted(beside, key=_is_lossless)
            pairs.update((photo, other) for other in others)
    return [
        f"{count:,} {other} have the name of a {photo} next to them: masks? --only '*{photo}' "
        "leaves them out"
        for (photo, other), count in sorted(pairs.items())
        if count > max(1, totals[other] / 2)  # A few names may be alike by chance.
    ]


def _is_lossless(suffix):
    """Sorts photos before masks, which are saved without loss."""
    return suffix not in _LOSSY, suffix


def _of_few_greys(paths):
    """A line if a share of the images, but not nearly all, has very few grey levels."""
    lossless = [path for path in paths if not path.lower().endswith(_LOSSY)]
    if len(lossless) < _FEWEST:
        return []
    count = min(len(lossless), _MOST)
    some = [lossless[place * len(lossless) // count] for place in range(count)]
    flat = sum(on_all_cores(_has_few_greys, (pathlib.Path(path).read_bytes() for path in some)))
    if not 0 < flat / count * len(lossless) <= _ALL * len(paths):
        return []
    return [
        f"{flat} of {count} lossless files that were looked at have at most {_LEVELS} grey levels: "
        "masks? --only PATTERN or --exclude LIST leaves them out"
    ]


def _has_few_greys(encoded):
    try:
        return with_pixels(encoded, _few_greys)
    except ValueError:
        return False


def _few_greys(pixels):
    is_grey = (pixels == pixels[..., :1]).all()
    return bool(is_grey) and len(np.unique(pixels[..., 0])) <= _LEVELS
