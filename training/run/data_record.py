"""The images of a run: name, content, label and part of each, and how other images differ."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_vit.checkpoints.formats import damaged_file, load_arrays
from keras_vit.description.tasks import SEPARATOR
from keras_vit.training.data.examples import Source
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import Contents
from keras_vit.utils.files import DATA, atomic_write
from keras_vit.utils.safe_text import for_line

_MAX_NAMED = 3  # Images in a line.
_FIELDS = ("names", "labels", "parts", "sha256")


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The images of a run, in the order in which the data give them.

    Args:
        names: Paths relative to the data, or names in a data set.
        sha256: The SHA-256 of each encoded image, in hexadecimal; 64 zeros for images in record
            files, which are known by their names alone.
        labels: The class of each image, or its labels.
        parts: The part of the data: train, validation, calibration or test.
    """

    names: Sequence[str]
    sha256: Sequence[str]
    labels: Sequence[str]
    parts: Sequence[str]

    @classmethod
    def of(
        cls, source: Source, contents: Mapping[str, Contents | None], data: DataSpec
    ) -> DataRecord:
        """Returns the record of images in splits.

        Args:
            source: The images in splits.
            contents: Their `read_contents`.
            data: Where they are from.
        """
        names: list[str] = []
        digests: list[str] = []
        labels: list[str] = []
        parts: list[str] = []
        in_folder = isinstance(data.data, str) and os.path.exists(data.data)
        for part, examples in source.splits.items():
            known = contents[part]
            names += [data.relative(name) if in_folder else name for name in examples.names]
            none = "0" * 64
            digests += [none] * len(examples) if known is None else _hexadecimal(known.sha256)
            labels += [_label(label, source.class_names) for label in examples.labels]
            parts += [part] * len(examples)
        return cls(names, digests, labels, parts)

    @classmethod
    def read(cls, folder: str | os.PathLike) -> DataRecord | None:
        """Returns the record in the folder of a run; None in one of an earlier version.

        Raises:
            ValueError: If the file is damaged.
        """
        path = pathlib.Path(folder) / DATA
        if not path.is_file():
            return None
        arrays = load_arrays(path)
        if not arrays.keys() & set(_FIELDS):
            return None  # An unfinished run of an earlier version.
        try:
            names, labels, parts = (_texts(arrays[name]) for name in _FIELDS[:3])
            record = cls(names, _hexadecimal(arrays["sha256"]), labels, parts)
            if len({len(names), len(labels), len(parts), len(record.sha256)}) != 1:
                raise ValueError("fields of several lengths")
        except (KeyError, ValueError, AttributeError) as error:
            raise damaged_file("The record of a run's images", path, str(error)) from error
        return record

    def write(self, folder: pathlib.Path) -> None:
        """Writes the record to the folder of a run."""
        arrays = {name: _bytes(getattr(self, name)) for name in _FIELDS[:3]}
        digests = np.frombuffer(bytes.fromhex("".join(self.sha256)), "uint8").reshape(-1, 32)
        with atomic_write(folder / DATA) as partial:
            np.savez(partial, sha256=digests, **arrays)  # type: ignore[arg-type]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, SHA-256, label and part of each image."""
        return list(zip(self.names, self.sha256, self.labels, self.parts, strict=True))

    def to_json(self) -> dict[str, object]:
        """Returns the fingerprint of all images: SHA-256 over their sorted rows."""
        digest = hashlib.sha256()
        for row in sorted(self.rows):
            digest.update("\0".join(row).encode("utf-8", "surrogateescape") + b"\n")
        by_content = sum(digest.strip("0") != "" for digest in self.sha256)
        return {
            "sha256": digest.hexdigest(),
            "images": len(self.names),
            "images_by_content": by_content,
        }

    def differences(self, now: DataRecord) -> list[str]:
        """Returns a line for each way in which other images differ, which names up to three.

        Args:
            now: The other images.
        """
        gone = collections.Counter(self.rows) - collections.Counter(now.rows)
        new = collections.Counter(now.rows) - collections.Counter(self.rows)
        by_name = {row[0]: row for row in gone}
        by_content = {row[1]: row for row in gone if row[1].strip("0")}
        found: dict[str, list[str]] = collections.defaultdict(list)
        for row in new:
            before = by_name.get(row[0]) or by_content.get(row[1])
            if before is None or not gone[before]:
                found["new"].append(row[0])
                continue
            gone[before] -= 1
            if row[0] != before[0]:
                found["under another name"].append(f"{row[0]}, before {before[0]}")
            if row[1] != before[1]:
                found["with other content"].append(row[0])
            if row[2] != before[2]:
                found["of another class"].append(f"{row[0]}: {row[2]}, before {before[2]}")
            if row[3] != before[3]:
                found["in another part of the data"].append(row[0])
        if left := [row[0] for row in gone.elements()]:
            found["gone"] = left
        lines = [f"{_images(len(names))} {how} ({_named(names)})" for how, names in found.items()]
        if not lines and self.rows != now.rows:
            lines.append("the images are in another order")
        return lines


def _images(count):
    return f"{count} image{'s' if count > 1 else ''}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return for_line("; ".join(names[:_MAX_NAMED])) + more


def _label(label, class_names) -> str:
    places = np.flatnonzero(label) if np.ndim(label) else [label]
    return SEPARATOR.join(class_names[place] for place in places) if class_names else ""


def _hexadecimal(digests: np.ndarray) -> list[str]:
    if digests.dtype != np.uint8 or digests.ndim != 2 or digests.shape[1] != 32:
        raise ValueError("SHA-256 of another size")
    return [row.tobytes().hex() for row in digests]


def _bytes(texts: Iterable[str]) -> np.ndarray:
    joined = "\0".join(texts).encode("utf-8", "surrogateescape")
    return np.frombuffer(joined, "uint8")


def _texts(array: np.ndarray) -> list[str]:
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ValueError("no texts")
    return array.tobytes().decode("utf-8", "surrogateescape").split("\0")
