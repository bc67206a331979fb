"""Labelled images in sharded TFRecord files, read and written."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import pathlib
import re
from typing import Any

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.description import check_class_names
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.images.transcoding import transcoded
from keras_vit.utils.files import CLASSES, atomic_folder, check_folder
from keras_vit.utils.progress import ProgressBar, progress_bar

from . import lazy_tensorflow as tf
from .examples import Examples, Source, add_to_hash, without_autotune
from .labels import class_numbers, label_array, multi_hot
from .parts import SPLITS
from .record_examples import READ_BYTES, RecordExamples, Records, read_tfrecords

# Features as in the ImageNet files of TensorFlow's model garden; other programs write "label".
IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
PLAIN_LABEL = "label"
INDEX = "index.npz"  # Counts, sizes, labels and names; without it all files are scanned once.
SHARD_MEBIBYTES = 128

# train-00000-of-00008.tfrecord, train-00000-of-00008, train.tfrecord
_FILE = re.compile(r"(?P<stem>.+?)(?P<shard>-\d{5}-of-\d{5})?(?P<suffix>\.tfrecords?)?")
_PARTS = ("files", "bytes", "counts", "labels", "names")  # Parts of the index, for each split.
_SCAN_BATCH = 256  # Records.


def record_files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the TFRecord files of a folder, in order, by the prefix of their names.

    Empty for a path that is no folder.
    """
    found: dict[str, list[pathlib.Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _FILE.fullmatch(path.name)
        if match and (match["shard"] or match["suffix"]) and not path.name.startswith("."):
            found.setdefault(match["stem"], []).append(path)
    return found


def open_tfrecords(
    folder: str | os.PathLike, task: str | None = None
) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names and the splits of a folder of TFRecord files.

    Args:
        folder: Holds `SPLIT-00000-of-00008.tfrecord` and so on (the suffix may be missing),
            or `SPLIT.tfrecord`, and `classes.txt`: one name per line, in the order of their
            numbers from 0. `write_records` writes such folders. Files of other programs must
            have the image in the feature `image/encoded` and its class number in
            `image/class/label` or `label`; they are scanned once to count the examples. If
            any has several class numbers, others may have none.
        task: "multilabel" for multi-label data in which every image has one label, or none.

    Raises:
        ValueError: If there are no such files, a file is missing, damaged or of another size
            than in the index, the class names are missing, or a label has no name.
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise ValueError(f"TFRecord files must be in a folder. Received: {folder}, not a folder")
    by_stem = record_files(folder)
    if not by_stem:
        raise ValueError(
            "A folder of TFRecord files must hold train-00000-of-00008.tfrecord and so on, or "
            f"train.tfrecord. Received: {folder}, without such files"
        )
    for files in by_stem.values():
        _check_complete(files)
    class_names = _class_names(folder)
    by_split = _by_split(folder, by_stem)
    index = _read_index(folder, by_split)
    if index is None:
        index = _scan(folder, by_split, len(class_names), task)
    splits: dict[str, Examples] = {}
    for split, shards in index.items():
        labels = shards.labels
        if labels.ndim == 2 and labels.shape[1] != len(class_names):
            raise ValueError(
                f"{folder / CLASSES} must have a name for each of the {labels.shape[1]} classes. "
                f"Received: {len(class_names)} names"
            )
        if labels.ndim == 1:
            _check_numbers(folder, split, labels, np.arange(len(labels)), len(class_names))
        splits[split] = RecordExamples(ShardRecords(shards))
    return class_names, splits


def _check_complete(files):
    shards = [re.search(r"-(\d{5})-of-(\d{5})", path.name) for path in files]
    numbers = [(int(shard[1]), int(shard[2])) if shard else None for shard in shards]
    count = max((total for _, total in filter(None, numbers)), default=None)
    wanted = [(number, count) for number in range(count or 0)]
    if count is not None and numbers != wanted:
        missing = [number for number, _ in wanted if (number, count) not in numbers]
        found = f"number {missing[0]} is missing" if missing else f"{len(files)} of {count}"
        raise ValueError(
            f"All shards of a split must exist, with the same total. Received: {files[0].name} and "
            f"others in {files[0].parent}; {found}"
        )


def _class_names(folder):
    path = folder / CLASSES
    if not path.is_file():
        raise ValueError(
            f"The names of the classes must be in {path}, one per line, in the order of their "
            "numbers. Received: no such file"
        )
    names = tuple(path.read_text(encoding="utf-8").splitlines())
    if len(set(names)) != len(names) or not all(map(str.strip, names)):
        raise ValueError(f"{path} must have one name per line, each once. Received: {names[:10]}")
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
        stored = sum(os.path.getsize(file) for files in by_split.values() for file in files)
        index = load_arrays(path, stored)
        listed = {split: [index[f"{split}/{part}"] for part in _PARTS] for split in by_split}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged: remove it, and the files are scanned instead. {error}"
        ) from error
    found = {}
    for split, files in by_split.items():
        written_names, written_sizes, counts, labels, ids = listed[split]
        names = [os.path.basename(path) for path in files]
        if names != written_names.tolist() or not _fits(len(files), *listed[split][1:]):
            raise ValueError(
                f"{path} must list the files of {split}: remove it, and they are scanned instead. "
                f"Received: {len(names)} files, the first is {names[0]}"
            )
        for file, written in zip(files, written_sizes, strict=True):
            if (size := os.path.getsize(file)) != written:
                raise ValueError(
                    f"{file} is damaged: it must have {written} bytes, as written. Received: {size}"
                )
        found[split] = Shards(tuple(map(str, files)), counts, labels, ids)
    return found


def _check_numbers(folder, split, numbers, records, num_classes):
    """Raises unless each class number has a class name; `records` are their places."""
    wrong = np.flatnonzero((numbers < 0) | (numbers >= num_classes))
    if len(wrong):
        raise ValueError(
            f"Labels must be from 0 to {num_classes - 1}, as {folder / CLASSES} has "
            f"{num_classes} names. Received: {numbers[wrong[0]]} in record "
            f"{records[wrong[0]]} of {split}"
        )


def _fits(num_files, sizes, counts, labels, ids):
    """Whether the arrays of an index are of so many files, and of one another."""
    whole = all(array.dtype.kind in "iu" for array in (sizes, counts, labels))
    return (
        whole
        and ids.dtype.kind == "S"
        and sizes.shape == counts.shape == (num_files,)
        and labels.shape[:1] == ids.shape == (counts.sum(dtype=object),)
        and (labels.ndim == 1 or (labels.ndim == 2 and labels.max(initial=0) <= 1))
        and min(counts, default=0) >= 0
    )


def _scan(folder, by_split, num_classes, task):
    """Reads all records of files without an index; returns the shards of each split."""
    scanned = {split: list(map(_scan_file, files)) for split, files in by_split.items()}
    all_counts = [counts for parts in scanned.values() for _, counts, _ in parts]
    several = task == MULTILABEL or any((counts > 1).any() for counts in all_counts)
    found = {}
    for split, files in by_split.items():
        for path, (_, counts, _) in zip(files, scanned[split], strict=True):
            if not several and not counts.all():
                raise _without_label(path, int(np.argmin(counts)))
        numbers, counts, names = map(np.concatenate, zip(*scanned[split], strict=True))
        if several:
            records = np.repeat(np.arange(len(counts)), counts)
            _check_numbers(folder, split, numbers, records, num_classes)
            labels = multi_hot(np.split(numbers, np.cumsum(counts)[:-1]), num_classes)
        else:
            labels = numbers.astype("int32")
        sizes = np.array([len(counts) for _, counts, _ in scanned[split]])
        found[split] = Shards(tuple(map(str, files)), sizes, labels, names)
    return found


def _without_label(path, record):
    return ValueError(
        f"Every example must have the features {IMAGE} and {LABEL}, or {PLAIN_LABEL} (--task "
        f"multilabel allows images without a label). Received: record {record} of {path}"
    )


def _scan_file(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the class numbers of a file's records, one after the other, how many each has, and
    the records' names.
    """
    features = {
        IMAGE: tf.io.FixedLenFeature([], tf.string, ""),
        LABEL: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        PLAIN_LABEL: tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        NAME: tf.io.FixedLenFeature([], tf.string, ""),
    }

    def found(records):
        parsed = tf.io.parse_example(records, features)
        # The other feature counts where a record does not have the first.
        records = tf.range(parsed[LABEL].nrows())
        absent = parsed[LABEL].row_lengths() == 0
        either = tf.concat([parsed[LABEL], parsed[PLAIN_LABEL]], 0)
        labels = tf.gather(either, records + tf.where(absent, tf.size(absent, tf.int64), 0))
        has_image = tf.strings.length(parsed[IMAGE]) > 0
        return has_image, labels.values, labels.row_lengths(), parsed[NAME]

    batches = tf.data.TFRecordDataset(str(path), "", READ_BYTES).batch(_SCAN_BATCH)
    batches = batches.map(found, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    numbers, lengths = [np.zeros(0, "int64")], [np.zeros(0, "int64")]
    names: list[bytes] = []
    try:
        for has_image, part, of_record, part_names in without_autotune(batches).as_numpy_iterator():
            if not has_image.all():
                raise _without_label(path, len(names) + int(np.argmin(has_image)))
            numbers.append(part)
            lengths.append(of_record)
            names += part_names.tolist()
    except tf.errors.OpError as error:
        raise ValueError(
            f"{path} must be a complete TFRecord file of tf.train.Example. It cannot be read "
            f"after {len(names)} records: {error.message.splitlines()[0]}"
        ) from error
    named = [name or f"{path.name}__{i}".encode() for i, name in enumerate(names)]
    return np.concatenate(numbers), np.concatenate(lengths), np.array(named, "S")


@dataclasses.dataclass(frozen=True)
class Shards:
    """The TFRecord files of one split, and their index.

    Args:
        files: Paths, in order.
        counts: Number of examples in each file.
        labels: Class numbers of all examples, int32.
        names: Names of all examples, bytes.
    """

    files: tuple[str, ...]
    counts: np.ndarray
    labels: np.ndarray
    names: np.ndarray


class ShardRecords(Records):
    """One split in TFRecord files of `tf.train.Example`.

    Args:
        shards: The files.
    """

    def __init__(self, shards: Shards):
        self._shards = shards
        self.count = int(shards.counts.sum())
        size = sum(os.path.getsize(path) for path in shards.files)
        self.mean_bytes = max(1.0, size / max(1, self.count))

    @property
    def labels(self) -> np.ndarray:
        return self._shards.labels

    @functools.cached_property
    def names(self) -> list[str]:
        return [name.decode() for name in self._shards.names.tolist()]

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        return read_tfrecords(self._shards.files, self._shards.counts, start, stop)

    def image(self, record: Any) -> tf.Tensor:
        image = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
        return tf.io.parse_single_example(record, image)[IMAGE]


def write_records(
    source: Source,
    folder: str | os.PathLike,
    *,
    seed: int = 0,
    shard_mebibytes: float = SHARD_MEBIBYTES,
    progress: bool = False,
) -> dict[str, Shards]:
    """Writes the splits of a source as `SPLIT-00000-of-00008.tfrecord` and so on.

    Encoded images are copied unchanged, except that all but JPEG and PNG become PNG. Their order
    is drawn by the seed, so that each shard is a sample of all classes. The folder appears
    after everything has been written, read back and compared.

    Args:
        source: The data, from `open_source`.
        folder: New or empty. It receives the shards, `classes.txt` and `index.npz`.
        seed: Decides the order.
        shard_mebibytes: Size at which a shard is closed.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        Files, counts, labels and names of each split.

    Raises:
        ValueError: If the folder is not empty, a class name is not one line of text, or the size
            not positive.
        OSError: If the files cannot be written, or differ when they are read back.
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    check_class_names(source.class_names)
    if shard_mebibytes <= 0:
        raise ValueError(
            f"A shard must have a positive size. Received: shard_mebibytes={shard_mebibytes}"
        )
    all_names = [name for examples in source.splits.values() for name in examples.names]
    # Files are named relative to their common folder, so that moved data keep their names.
    is_files = all(map(os.path.isabs, all_names))
    root = os.path.join(os.path.commonpath(all_names), "") if is_files else ""
    total = sum(map(len, source.splits.values()))
    with (
        atomic_folder(folder) as scratch,
        progress_bar(total, "write", disable=not progress) as bar,
    ):
        text = "".join(f"{name}\n" for name in source.class_names)
        (scratch / CLASSES).write_text(text, encoding="utf-8")
        written, digests = {}, {}
        for split, examples in source.splits.items():
            names = np.array([os.fsencode(name.removeprefix(root)) for name in examples.names])
            written[split], digests[split] = _write_split(
                scratch,
                split,
                examples,
                names=names,
                seed=seed,
                shard_bytes=shard_mebibytes * 2**20,
                bar=bar,
            )
        write_index(scratch, written)
        _, splits = open_tfrecords(scratch)
        for split, examples in splits.items():
            if examples.content_hash() != digests[split]:
                raise OSError(
                    f"The files of {split} differ from what was written: is the disk damaged?"
                )
    return {
        split: dataclasses.replace(
            shards, files=tuple(str(folder / os.path.basename(path)) for path in shards.files)
        )
        for split, shards in written.items()
    }


def _write_split(
    folder: pathlib.Path,
    split: str,
    examples: Examples,
    *,
    names: np.ndarray,
    seed: int,
    shard_bytes: float,
    bar: ProgressBar,
) -> tuple[Shards, str]:
    """Writes the shards of a split.

    Args:
        folder: An existing folder.
        split: First part of the files' names.
        examples: The images, which are written in an order drawn by the seed.
        names: Names of the examples, bytes `(N,)`.
        seed: Decides the order.
        shard_bytes: Size at which a shard is closed.
        bar: Updated after every image.

    Returns:
        The shards, and the SHA-256 of all images and labels in them.
    """
    elements = examples.shuffled(seed).take(len(examples))
    elements = elements.map(
        lambda handle, epoch, index: (*examples.read(handle), index),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    ).prefetch(16)
    paths: list[pathlib.Path] = []
    counts: list[int] = []
    order, labels = [], []
    digest, size = hashlib.sha256(), math.inf
    with contextlib.ExitStack() as open_file:
        for encoded, label, index in without_autotune(elements).as_numpy_iterator():
            if size >= shard_bytes:
                open_file.close()
                # The total, and with it the final name, is known at the end.
                paths.append(folder / f"{split}-{len(paths):05d}.tfrecord")
                counts.append(0)
                writer = open_file.enter_context(tf.io.TFRecordWriter(str(paths[-1])))
                size = 0
            encoded = transcoded(encoded, small=True)
            record = _example(encoded, class_numbers(label), names[index])
            writer.write(record)
            size += len(record)
            counts[-1] += 1
            add_to_hash(digest, encoded, label)
            order.append(index)
            labels.append(label)
            bar.update()
    files = []
    for path in paths:
        final = path.with_name(f"{path.stem}-of-{len(paths):05d}.tfrecord")
        path.rename(final)
        files.append(str(final))
    shards = Shards(tuple(files), np.array(counts), label_array(labels), names[order])
    return shards, digest.hexdigest()


def _example(encoded: bytes, labels: list[int], name: bytes) -> bytes:
    features = {
        IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_index(folder: pathlib.Path, splits: dict[str, Shards]) -> None:
    """Writes the index, which saves `open_tfrecords` from scanning all files."""
    arrays: dict[str, Any] = {}
    for split, shards in splits.items():
        arrays[f"{split}/files"] = np.array([os.path.basename(path) for path in shards.files])
        arrays[f"{split}/bytes"] = np.array([os.path.getsize(path) for path in shards.files])
        arrays[f"{split}/counts"] = shards.counts
        arrays[f"{split}/labels"] = shards.labels
        arrays[f"{split}/names"] = shards.names
    np.savez_compressed(folder / INDEX, **arrays)
