"""Labelled images in sharded TFRecord files, read from front to back."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .image_files import SPLITS
from .records import READ_BYTES, RecordExamples, Records, read_tfrecords
from .untuned import untuned

# As the ImageNet files of TensorFlow's model garden have them; "label" is what others write.
IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
PLAIN_LABEL = "label"
CLASSES = "classes.txt"
INDEX = "index.npz"  # Counts, sizes, labels and names; without it all files are read once.

# train-00000-of-00008.tfrecord, train-00000-of-00008, train.tfrecord
_FILE = re.compile(r"(?P<stem>.+?)(?P<shard>-\d{5}-of-\d{5})?(?P<suffix>\.tfrecords?)?")
_SCAN_BATCH = 256  # Records.


@dataclasses.dataclass(frozen=True)
class Shards:
    """The files of one split.

    Args:
        files: Their paths, in order.
        counts: Examples of each.
        labels: All class numbers, in order, int32.
        names: What the examples are called; bytes, in order.
    """

    files: tuple[str, ...]
    counts: np.ndarray
    labels: np.ndarray
    names: np.ndarray


class ShardRecords(Records):
    """Reads one split.

    Args:
        shards: Its files.
    """

    def __init__(self, shards: Shards):
        self._shards = shards
        self.count = int(shards.counts.sum())
        size = sum(os.path.getsize(path) for path in shards.files)
        self.mean_bytes = max(1.0, size / max(1, self.count))

    @property
    def labels(self):
        return self._shards.labels

    @functools.cached_property
    def names(self):
        return [name.decode() for name in self._shards.names.tolist()]

    def dataset(self, start, stop):
        found = read_tfrecords(self._shards.files, self._shards.counts, start, stop)
        labels = tf.data.Dataset.from_tensor_slices(self._shards.labels[start:stop])
        return tf.data.Dataset.zip(found, labels)

    def read(self, handle):
        record, label = handle
        image = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
        return tf.io.parse_single_example(record, image)[IMAGE], label


def record_files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the TFRecord files of a folder by what their names begin with, in order."""
    found: dict[str, list[pathlib.Path]] = {}
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match and (match["shard"] or match["suffix"]) and not path.name.startswith("."):
            found.setdefault(match["stem"], []).append(path)
    return found


def open_tfrecords(
    folder: str | os.PathLike,
) -> tuple[tuple[str, ...], dict[str, RecordExamples]]:
    """Returns the class names and the splits of a folder of TFRecord files.

    Args:
        folder: Holds `SPLIT-00000-of-00008.tfrecord` and so on (the suffix may be missing),
            or `SPLIT.tfrecord`, and `classes.txt`: one name a line, in the order of their
            numbers from 0. `write_records` writes such folders. Of files from elsewhere
            each example must have the image in the feature `image/encoded` and its number
            in `image/class/label` or `label`; they are read once to count them.

    Raises:
        ValueError: If there are no such files, one is missing, damaged or of another size
            than was written, the names of classes are missing, or a label has no name.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise ValueError(f"TFRecord files are in a folder. Received: {folder}, which is not one")
    by_stem = record_files(folder)
    if not by_stem:
        raise ValueError(
            "A folder of TFRecord files must hold train-00000-of-00008.tfrecord and so on, or "
            f"train.tfrecord. Received: {folder}, without"
        )
    for files in by_stem.values():
        _check_complete(files)
    class_names = _class_names(folder)
    by_split = _by_split(folder, by_stem)
    index = _read_index(folder, by_split)
    splits = {}
    for split, files in by_split.items():
        shards = index[split] if index else _scan(files)
        wrong = np.flatnonzero((shards.labels < 0) | (shards.labels >= len(class_names)))
        if len(wrong):
            raise ValueError(
                f"Labels must be from 0 to {len(class_names) - 1}, as {folder / CLASSES} has "
                f"{len(class_names)} names. Received: {shards.labels[wrong[0]]} in record "
                f"{wrong[0]} of {split}"
            )
        records = ShardRecords(shards)
        splits[split] = RecordExamples(records, np.arange(records.count))
    return class_names, splits


def write_index(folder: pathlib.Path, splits: dict[str, Shards]) -> None:
    """Writes what `open_tfrecords` would otherwise have to read all files for."""
    arrays: dict[str, Any] = {}
    for split, shards in splits.items():
        arrays[f"{split}/files"] = np.array([os.path.basename(path) for path in shards.files])
        arrays[f"{split}/bytes"] = np.array([os.path.getsize(path) for path in shards.files])
        arrays[f"{split}/counts"] = shards.counts
        arrays[f"{split}/labels"] = shards.labels
        arrays[f"{split}/names"] = shards.names
    np.savez_compressed(folder / INDEX, **arrays)


def _check_complete(files):
    counted = [re.search(r"-(\d{5})-of-(\d{5})", path.name) for path in files]
    if not any(counted):
        return
    there = {int(match[1]) for match in counted if match}
    totals = {int(match[2]) for match in counted if match}
    total = max(totals)
    missing = sorted(set(range(total)) - there)
    if missing or len(totals) > 1 or len(files) != total:
        what = f"number {missing[0]} is missing" if missing else f"{len(files)} of {sorted(totals)}"
        raise ValueError(
            f"All shards must be there, of one writing. Received: {files[0].name} and others in "
            f"{files[0].parent}; {what}"
        )


def _class_names(folder):
    path = folder / CLASSES
    if not path.is_file():
        raise ValueError(
            f"The names of the classes must be in {path}, one a line, in the order of their "
            "numbers. Received: no such file"
        )
    names = tuple(path.read_text(encoding="utf-8").splitlines())
    if len(set(names)) != len(names) or not all(map(str.strip, names)):
        raise ValueError(f"{path} must have one name a line, each once. Received: {names[:10]}")
    return names


def _by_split(folder, by_stem):
    known = {stem: SPLITS.get(re.split(r"[-_.]", stem)[-1].lower()) for stem in by_stem}
    if len(by_stem) == 1 and not any(known.values()):
        return {"train": next(iter(by_stem.values()))}
    if not all(known.values()) or len(set(known.values())) != len(known):
        raise ValueError(
            f"TFRecord files must be named after one split each ({', '.join(SPLITS)}). "
            f"Received: {folder}, with {', '.join(by_stem)}"
        )
    return {known[stem]: files for stem, files in by_stem.items()}


def _read_index(folder, by_split):
    path = folder / INDEX
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            index = dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: remove it, and the files are counted.") from error
    found = {}
    for split, files in by_split.items():
        names = [os.path.basename(path) for path in files]
        sizes = [os.path.getsize(path) for path in files]
        if names != list(index.get(f"{split}/files", [])):
            raise ValueError(
                f"{path} must list the files of {split}: remove it, and they are counted. "
                f"Received: {len(names)} files, {names[0]} and on"
            )
        for name, size, written in zip(names, sizes, index[f"{split}/bytes"], strict=True):
            if size != written:
                raise ValueError(
                    f"{folder / name} is damaged: it must have {written} bytes, as written. "
                    f"Received: {size}"
                )
        parts = (index[f"{split}/{part}"] for part in ("counts", "labels", "names"))
        found[split] = Shards(tuple(map(str, files)), *parts)
    return found


def _scan(files: Sequence[pathlib.Path]) -> Shards:
    """Reads all records of files that have no index."""
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string, ""),
        LABEL: tf.io.FixedLenFeature([], tf.int64, -1),
        PLAIN_LABEL: tf.io.FixedLenFeature([], tf.int64, -1),
        NAME: tf.io.FixedLenFeature([], tf.string, ""),
    }

    def found(records):
        parsed = tf.io.parse_example(records, features)
        label = tf.where(parsed[LABEL] < 0, parsed[PLAIN_LABEL], parsed[LABEL])
        return tf.strings.length(parsed[IMAGE]) > 0, label, parsed[NAME]

    counts, all_labels, all_names = [], [], []
    for path in files:
        batches = tf.data.TFRecordDataset(str(path), "", READ_BYTES).batch(_SCAN_BATCH)
        batches = batches.map(found, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        count = 0
        try:
            for has_image, labels, names in untuned(batches).as_numpy_iterator():
                wrong = np.flatnonzero(~has_image | (labels < 0))
                if len(wrong):
                    raise ValueError(
                        f"Every example must have the features {IMAGE} and {LABEL}, or "
                        f"{PLAIN_LABEL}. Received: record {count + wrong[0]} of {path}, without"
                    )
                numbers = range(count, count + len(labels))
                all_names += [
                    name or f"{path.name}__{number}".encode()
                    for name, number in zip(names.tolist(), numbers, strict=True)
                ]
                all_labels.append(labels.astype("int32"))
                count += len(labels)
        except tf.errors.OpError as error:
            raise ValueError(
                f"{path} must be a TFRecord file of tf.train.Example, whole. It cannot be read "
                f"after {count} records: {error.message.splitlines()[0]}"
            ) from error
        counts.append(count)
    labels = np.concatenate([np.zeros(0, "int32"), *all_labels])
    return Shards(tuple(map(str, files)), np.array(counts), labels, np.array(all_names, "S"))
