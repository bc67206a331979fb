"""The split of a run, recorded by the content of its images."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any, TypeVar

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.utils.files import SPLIT, atomic_write
from keras_vit.utils.safe_text import for_line

Result = TypeVar("Result")

_FILES_AT_ONCE = 256

UNKNOWN = 0  # The fingerprint of an image that was not read.
NEW = "new"
PARTS = ("train", "validation", "calibration", "test")


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on macOS and Windows.
        return os.cpu_count() or 1


def on_all_cores(function: Callable[[bytes], Result], images: Iterable[bytes]) -> Iterator[Result]:
    """Yields what a function makes of each image file, in order, on all cores."""
    waiting = iter(images)
    with ThreadPoolExecutor(usable_cores()) as pool:  # Pillow decodes without Python's lock.
        while some := list(itertools.islice(waiting, 8 * usable_cores())):
            yield from pool.map(function, some)


def fingerprint(encoded: bytes) -> int:
    """Returns a 64-bit number for the content of an encoded image, never `UNKNOWN`."""
    return int.from_bytes(hashlib.sha256(encoded).digest()[:8], "little") or 1


def file_fingerprints(paths: Sequence[str]) -> np.ndarray:
    """Returns the `fingerprint` of the content of each file, uint64 `(N,)`.

    The number of a file that cannot be read is `UNKNOWN`.
    """

    def read(path):
        try:
            return fingerprint(pathlib.Path(path).read_bytes())
        except OSError:
            return UNKNOWN

    with ThreadPool(4 * usable_cores()) as pool:  # They mostly wait for the disk.
        return np.array(pool.map(read, paths, _FILES_AT_ONCE), "uint64")


def read_fingerprints(splits: Mapping[str, Any]) -> dict[str, np.ndarray | None]:
    """Returns the fingerprints of the images of each part, uint64 `(N,)`; None if not known.

    All images are read, so a run calls this once.

    Args:
        splits: The images by the name of their part.
    """
    return {name: examples.fingerprints() for name, examples in splits.items()}


@dataclasses.dataclass(frozen=True)
class SplitRecord:
    """Which images a run trained on, chose its best weights by, and held out.

    Args:
        parts: The fingerprints of the images of each of `PARTS`, uint64, in ascending order, each
            once. A part that is not given is empty.
    """

    parts: dict[str, np.ndarray]

    def __post_init__(self):
        parts = {name: self.parts.get(name, np.array([], "uint64")) for name in PARTS}
        object.__setattr__(self, "parts", parts)

    @classmethod
    def of(cls, fingerprints: Mapping[str, np.ndarray | None]) -> SplitRecord | None:
        """Returns the record of a run's images; None where their content is not known.

        Args:
            fingerprints: The result of `read_fingerprints`.
        """
        parts = {
            name: np.setdiff1d(numbers, [UNKNOWN]).astype("uint64")
            for name, numbers in fingerprints.items()
            if numbers is not None
        }
        return cls(parts) if any(map(len, parts.values())) else None

    @classmethod
    def read(cls, folder: str | os.PathLike | None) -> SplitRecord | None:
        """Returns the record in a classifier's folder; None without one.

        Args:
            folder: The folder. A file, or None, has no record.

        Raises:
            ValueError: If the file is damaged.
        """
        if folder is None or not (path := pathlib.Path(folder) / SPLIT).is_file():
            return None
        arrays = load_arrays(path)
        if any(part not in arrays or arrays[part].dtype != np.uint64 for part in PARTS):
            raise ValueError(f"{path} must have 64-bit numbers of {', '.join(PARTS)}.")
        return cls(arrays)

    def write(self, folder: pathlib.Path) -> None:
        """Writes the record to a classifier's folder, 8 bytes for each image."""
        with atomic_write(folder / SPLIT) as partial:
            np.savez(partial, **self.parts)  # type: ignore[arg-type]

    def differences(self, splits: Mapping[str, Any]) -> list[str]:
        """Returns how the content of present images differs from the recorded one, a line each.

        Args:
            splits: The present images by the name of their part.
        """
        new: list[str] = []
        moved: list[str] = []
        gone = np.concatenate([*self.parts.values()])
        for part, examples in splits.items():
            numbers = examples.fingerprints()
            if numbers is not None:
                is_new, named = self.part_of(numbers) == NEW, np.array(examples.names, object)
                new += named[is_new].tolist()
                moved += named[~is_new & ~self.has(part, numbers)].tolist()
                gone = np.setdiff1d(gone, numbers)
        lines = []
        for how, names in (("new", new), ("in another part of the data", moved)):
            if names:
                lines.append(f"{len(names)} {how} ({'; '.join(map(for_line, names[:3]))})")
        return [*lines, f"{len(gone)} gone"] if len(gone) else lines

    def has(self, part: str, fingerprints: np.ndarray) -> np.ndarray:
        """Returns whether each image was in a part of the run, bool `(N,)`."""
        return np.isin(fingerprints, self.parts[part])

    def has_seen(self, fingerprints: np.ndarray) -> np.ndarray:
        """Returns whether the run trained on each image, or chose by it, bool `(N,)`."""
        return self.has("train", fingerprints) | self.has("validation", fingerprints)

    def part_of(self, fingerprints: np.ndarray) -> np.ndarray:
        """Returns the part of each image, text `(N,)`: one of `PARTS`, or `NEW`.

        An image whose copies were in several parts is in the last of them.
        """
        parts = np.full(len(fingerprints), NEW, object)
        for part in PARTS:
            parts[self.has(part, fingerprints)] = part
        return parts


def notes_of_seen(splits: Mapping[str, Any], record: SplitRecord | None, where: str) -> list[str]:
    """Returns a line for each held-out part with images that a run trained on, or chose by.

    Args:
        splits: The images by the name of their part.
        record: What the run recorded; None if it is not known.
        where: Human-readable name of the run.
    """
    notes: list[str] = []
    if record is None:
        return notes
    for part in ("calibration", "test"):
        numbers = splits[part].fingerprints() if part in splits else None
        if numbers is not None and (seen := int(record.has_seen(numbers).sum())):
            notes.append(
                f"{seen} of the {len(numbers)} {part} images were trained on, or chosen by, "
                f"{where}: new images may have a lower accuracy"
            )
    return notes
