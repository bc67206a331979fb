"""The split of a run, recorded by the content of its images."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.utils.files import SPLIT, atomic_write
from keras_vit.utils.safe_text import for_line

from .content import UNKNOWN

if TYPE_CHECKING:
    from .examples import Examples

NEW = "new"
PARTS = ("train", "validation", "calibration", "test")
_OF_PIXELS = "_pixels"  # Behind a part, in the names of the file's arrays.
_SHOWN = "shown"  # In the file.


class Contents(NamedTuple):
    """The content of N images.

    Args:
        fingerprints: The fingerprints of their bytes, uint64 `(N,)`.
        pixels: The fingerprints of their pixels, uint64 `(N,)`; None if a record has none.
    """

    fingerprints: np.ndarray
    pixels: np.ndarray | None = None


def read_fingerprints(splits: Mapping[str, Examples]) -> dict[str, np.ndarray | None]:
    """Returns the fingerprints of the images of each part, uint64 `(N,)`; None if not known.

    All images are read, so a run calls this once.

    Args:
        splits: The images by the name of their part.
    """
    return {name: examples.fingerprints() for name, examples in splits.items()}


def read_pixel_fingerprints(splits: Mapping[str, Examples]) -> dict[str, np.ndarray | None]:
    """As `read_fingerprints`, of the pixels: all images are decoded."""
    return {name: examples.pixel_fingerprints() for name, examples in splits.items()}


@dataclasses.dataclass(frozen=True)
class SplitRecord:
    """Which images a run trained on, chose its best weights by, and held out.

    Args:
        parts: The fingerprints of the images of each of `PARTS`, uint64, in ascending order, each
            once. A part that is not given is empty.
        pixels: The fingerprints of their pixels likewise; None in a record of an older version,
            which knows images by their bytes alone.
        shown: The fingerprints of held-out images that show things of which the run trained on
            others, or chose its weights by others.
    """

    parts: dict[str, np.ndarray]
    pixels: dict[str, np.ndarray] | None = None
    shown: np.ndarray = dataclasses.field(default_factory=lambda: np.array([], "uint64"))

    def __post_init__(self):
        empty = np.array([], "uint64")
        object.__setattr__(self, "parts", {name: self.parts.get(name, empty) for name in PARTS})
        if self.pixels is not None:
            pixels = {name: self.pixels.get(name, empty) for name in PARTS}
            object.__setattr__(self, "pixels", pixels)

    @classmethod
    def of(
        cls,
        fingerprints: Mapping[str, np.ndarray | None],
        pixels: Mapping[str, np.ndarray | None] | None = None,
    ) -> SplitRecord | None:
        """Returns the record of a run's images; None where their content is not known.

        Args:
            fingerprints: The result of `read_fingerprints`.
            pixels: The result of `read_pixel_fingerprints`.
        """
        parts = _without_unknown(fingerprints)
        of_pixels = None if pixels is None else _without_unknown(pixels)
        return cls(parts, of_pixels) if any(map(len, parts.values())) else None

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
        pixels = {part: arrays[name] for part in PARTS if (name := part + _OF_PIXELS) in arrays}
        return cls(arrays, pixels or None, arrays.get(_SHOWN, np.array([], "uint64")))

    def write(self, folder: pathlib.Path) -> None:
        """Writes the record to a classifier's folder, 16 bytes for each image."""
        pixels = {part + _OF_PIXELS: numbers for part, numbers in (self.pixels or {}).items()}
        with atomic_write(folder / SPLIT) as partial:
            arrays = {**self.parts, **pixels, _SHOWN: self.shown}
            np.savez(partial, **arrays)  # type: ignore[arg-type]

    def with_calibration(self, examples: Examples) -> SplitRecord:
        """Returns the record with images that a classifier was calibrated on: no longer its test.

        Args:
            examples: The images. Without a known content nothing is recorded.
        """
        numbers, pixels = examples.fingerprints(), None
        if numbers is None:
            return self
        if self.pixels is not None:
            pixels = _for_calibration(self.pixels, examples.pixel_fingerprints())
        return dataclasses.replace(self, parts=_for_calibration(self.parts, numbers), pixels=pixels)

    def contents_of(self, examples: Examples) -> Contents | None:
        """Returns the content of images as the record knows it; None if it is not known.

        Images whose bytes the record has are not decoded: the number of their pixels is `UNKNOWN`.

        Args:
            examples: The images, `Examples`.
        """
        numbers = examples.fingerprints()
        if numbers is None or self.pixels is None:
            return None if numbers is None else Contents(numbers)
        pixels = np.full(len(numbers), UNKNOWN, "uint64")
        others = np.flatnonzero(self.part_of(numbers) == NEW)
        if len(others):
            pixels[others] = examples.take(others).pixel_fingerprints()
        return Contents(numbers, pixels)

    def differences(self, splits: Mapping[str, Examples]) -> list[str]:
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

    def has(
        self, part: str, fingerprints: np.ndarray, pixels: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns whether each image was in a part of the run, bool `(N,)`; see `Contents`."""
        inside = np.isin(fingerprints, self.parts[part])
        if pixels is None or self.pixels is None:
            return inside
        return inside | np.isin(pixels, self.pixels[part])

    def has_seen(self, fingerprints: np.ndarray, pixels: np.ndarray | None = None) -> np.ndarray:
        """Returns whether the run trained on each image, or chose by it, bool `(N,)`.

        An image that shows a thing of such images counts too.
        """
        chosen = self.has("validation", fingerprints, pixels)
        chosen |= np.isin(fingerprints, self.shown)
        return self.has("train", fingerprints, pixels) | chosen

    def part_of(self, fingerprints: np.ndarray, pixels: np.ndarray | None = None) -> np.ndarray:
        """Returns the part of each image, text `(N,)`: one of `PARTS`, or `NEW`.

        An image whose copies were in several parts is in the last of them.
        """
        parts = np.full(len(fingerprints), NEW, object)
        for part in PARTS:
            parts[self.has(part, fingerprints, pixels)] = part
        return parts


def _for_calibration(parts, numbers):
    """The fingerprints of each part, with more of images for calibration."""
    known = np.setdiff1d(numbers, [UNKNOWN]).astype("uint64")
    calibration = np.union1d(parts["calibration"], known)
    return {**parts, "calibration": calibration, "test": np.setdiff1d(parts["test"], known)}


def _without_unknown(fingerprints):
    """The known fingerprints of each part, in ascending order, each once."""
    return {
        name: np.setdiff1d(numbers, [UNKNOWN]).astype("uint64")
        for name, numbers in fingerprints.items()
        if numbers is not None
    }


def notes_of_seen(
    splits: Mapping[str, Examples], record: SplitRecord | None, where: str
) -> list[str]:
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
        contents = record.contents_of(splits[part]) if part in splits else None
        if contents is not None and (seen := int(record.has_seen(*contents).sum())):
            notes.append(
                f"{seen} of the {len(splits[part])} {part} images were trained on, or chosen by, "
                f"{where}: new images may have a lower accuracy"
            )
    return notes
