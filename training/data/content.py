"""Numbers for the content of images, by their bytes and by their pixels, on all cores."""

from __future__ import annotations

import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import TypeVar

import numpy as np

from keras_vit.images.transcoding import with_pixels

Result = TypeVar("Result")

_FILES_AT_ONCE = 256

UNKNOWN = 0  # The fingerprint of an image that was not read.


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on macOS and Windows.
        return os.cpu_count() or 1


def at_once() -> int:
    """Returns how many image files `on_all_cores` reads at once."""
    return 8 * usable_cores()


def on_all_cores(function: Callable[[bytes], Result], images: Iterable[bytes]) -> Iterator[Result]:
    """Yields what a function makes of each image file, in order, on all cores."""
    waiting = iter(images)
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow decodes without Python's lock.
        while some := list(itertools.islice(waiting, at_once())):
            yield from pool.map(function, some)


def fingerprint(encoded: bytes) -> int:
    """Returns a 64-bit number for the content of an encoded image, never `UNKNOWN`."""
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "little") or 1


def pixel_fingerprint(pixels: np.ndarray) -> int:
    """Returns a 64-bit number for upright pixels, uint8 `(H, W, 3)`, or uint16 of 16-bit images.

    It is `UNKNOWN` for an image of one color.
    """
    return number_of_digest(pixels, pixel_digest(pixels))


def pixel_digest(pixels: np.ndarray) -> bytes:
    """Returns a hash of upright pixels, equal only for equal ones; see `pixel_fingerprint`."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def number_of_digest(pixels: np.ndarray, digest: bytes) -> int:
    """Returns the `pixel_fingerprint` of pixels with this `pixel_digest`."""
    if (pixels[0] == pixels[0, 0]).all() and (pixels == pixels[0, 0]).all():
        return UNKNOWN
    return int.from_bytes(digest[:8], "little") or 1


def encoded_pixel_fingerprint(encoded: bytes) -> int:
    """Returns the `pixel_fingerprint` of an encoded image; `UNKNOWN` if it cannot be decoded."""
    try:
        return with_pixels(encoded, pixel_fingerprint, None)
    except ValueError:
        return UNKNOWN


def file_fingerprints(paths: Sequence[str]) -> np.ndarray:
    """Returns the `fingerprint` of the content of each file, uint64 `(N,)`.

    The number of a file that cannot be read is `UNKNOWN`.
    """
    # They mostly wait for the disk.
    return _of_files(paths, fingerprint, 4 * usable_cores())


def file_pixel_fingerprints(paths: Sequence[str]) -> np.ndarray:
    """Returns the `pixel_fingerprint` of each file, uint64 `(N,)`.

    Every file is decoded in its whole size, on all cores: files that were saved again without
    loss, or without their metadata, have the same number. It is `UNKNOWN` where a file cannot be
    read, and for an image of one color.
    """
    return _of_files(paths, encoded_pixel_fingerprint, usable_cores())


def _of_files(paths, number_of, threads):
    def read(path):
        try:
            return number_of(pathlib.Path(path).read_bytes())
        except OSError:
            return UNKNOWN

    with ThreadPool(threads) as pool:
        return np.array(pool.map(read, paths, _FILES_AT_ONCE), "uint64")
