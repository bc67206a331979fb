"""Reading labelled images from TensorFlow Datasets and from sharded TFRecord files."""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import pathlib
import re
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from .examples import Examples, ascending_places, random_key, without_autotune
from .image_files import SPLITS

BUFFER_BYTES = 512 * 2**20  # Shuffle buffer of encoded images.
READ_BYTES = 4 * 2**20  # Read buffer of a file.

# Features as in the ImageNet files of TensorFlow's model garden; other programs write "label".
IMAGE, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
PLAIN_LABEL = "label"
CLASSES = "classes.txt"
INDEX = "index.npz"  # Counts, sizes, labels and names; without it all files are scanned once.

# train-00000-of-00008.tfrecord, train-00000-of-00008, train.tfrecord
_FILE = re.compile(r"(?P<stem>.+?)(?P<shard>-\d{5}-of-\d{5})?(?P<suffix>\.tfrecords?)?")
_SCAN_BATCH = 256  # Records.


class Records(abc.ABC):
    """A split in record files, which can only be read sequentially.

    Attributes:
        count: Number of records.
        mean_bytes: Approximate size of an encoded image.
    """

    count: int
    mean_bytes: float

    @property
    @abc.abstractmethod
    def labels(self) -> np.ndarray:
        """Class numbers of all records, int32 `(count,)`."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """Names of all records."""

    @abc.abstractmethod
    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """Returns the handles of records `start` to `stop - 1`; other files are not opened."""

    @abc.abstractmethod
    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the encoded image and the class number, int32, of a handle (graph operations)."""


class RecordExamples(Examples):
    """Some examples of one split in record files.

    Records have no random access, so an epoch is shuffled by a buffer of up to 512 MiB of
    encoded images. A smaller split is shuffled completely.

    Args:
        records: The split.
        chosen: Ascending places in the split of these examples.
    """

    def __init__(self, records: Records, chosen: np.ndarray):
        self._records = records
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def labels(self) -> np.ndarray:
        return self._records.labels[self._chosen]

    @property
    def names(self) -> list[str]:
        names = self._records.names
        return [names[place] for place in self._chosen]

    def take(self, indices: Iterable[int]) -> RecordExamples:
        return RecordExamples(self._records, self._chosen[ascending_places(indices, len(self))])

    def part(self, index: int, count: int) -> RecordExamples:
        # Contiguous parts: two machines share at most the file at their border.
        start, stop = (len(self) * number // count for number in (index, index + 1))
        return RecordExamples(self._records, self._chosen[start:stop])

    def ordered(self) -> tf.data.Dataset:
        return self._elements(tf.constant(0, tf.int64))

    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        elements = self._elements(epoch)
        size = max(1, min(len(self), int(BUFFER_BYTES / self._records.mean_bytes)))
        first, second = tf.unstack(random_key(seed, epoch))
        spec = elements.element_spec
        parts = tf.nest.flatten(spec)
        # Not `Dataset.shuffle`: it keeps the first epoch's seed and depends on TensorFlow's
        # global seed.
        shuffled = tf.raw_ops.ShuffleDataset(
            input_dataset=tf.data.experimental.to_variant(elements),
            buffer_size=size,
            seed=first,
            seed2=second,
            output_types=[part.dtype for part in parts],
            output_shapes=[part.shape for part in parts],
            reshuffle_each_iteration=False,
        )
        elements = tf.data.experimental.from_variant(shuffled, spec)
        return elements.skip(done)

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return self._records.read(handle)

    def _elements(self, epoch):
        """Returns `(handle, epoch, index)`, in order."""
        indices = tf.data.Dataset.range(len(self))
        epochs = tf.data.Dataset.from_tensors(epoch).repeat()
        return tf.data.Dataset.zip(self._handles, epochs, indices)

    @functools.cached_property
    def _handles(self):
        """The handles, in order; records before the first and after the last are not read."""
        start, stop = (self._chosen[0], self._chosen[-1] + 1) if len(self) else (0, 0)
        # Built once, outside of any graph: a TFDS builder creates its data set in Python.
        with tf.init_scope():
            handles = self._records.dataset(int(start), int(stop))
            if stop - start == len(self):
                return handles
            wanted = np.zeros(stop - start, bool)
            wanted[self._chosen - start] = True
            wanted = tf.data.Dataset.from_tensor_slices(wanted)
            handles = tf.data.Dataset.zip(handles, wanted)
            handles = handles.filter(lambda handle, wanted: wanted)
            return handles.map(lambda handle, wanted: handle)


class TfdsRecords(Records):
    """Records that a TFDS builder reads; handles are `(encoded image, class number)`.

    A subclass sets `count` and `mean_bytes`, and says how a record is read.
    """

    @abc.abstractmethod
    def elements(self, *, with_ids: bool) -> tf.data.Dataset:
        """Returns `(encoded image, class number)` of all records, always in the same order.

        Args:
            with_ids: Whether the record's TFDS id, a string, is the third component.
        """

    @property
    def labels(self) -> np.ndarray:
        return self._labels_and_names[0]

    @property
    def names(self) -> list[str]:
        return self._labels_and_names[1]

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return handle

    @functools.cached_property
    def _labels_and_names(self) -> tuple[np.ndarray, list[str]]:
        """Class numbers and ids, read in one pass at first use."""
        elements = self.elements(with_ids=True).map(lambda _, label, name: (label, name))
        found = list(without_autotune(elements).as_numpy_iterator())
        labels = np.array([label for label, _ in found], "int32")
        return labels, [name.decode() for _, name in found]


class SplitRecords(TfdsRecords):
    """One split of a TFDS builder.

    Args:
        builder: A prepared `tfds.core.DatasetBuilder`.
        split: The split's name.
        image: The key of its image.
        label: The key of its class.
    """

    def __init__(self, builder: Any, split: str, image: str, label: str):
        self._builder, self._split = builder, split
        self._image, self._label = image, label
        info = builder.info.splits[split]
        self.count = info.num_examples
        self.mean_bytes = max(1.0, info.num_bytes / max(1, info.num_examples))
        self._files = _tfrecords(builder, split)

    def elements(self, *, with_ids: bool) -> tf.data.Dataset:
        return self._read(self._split, with_ids)

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        if not self._files:
            return self._read(f"{self._split}[{start}:{stop}]", with_ids=False)
        # Same records, without the work of TFDS on each one: a quarter of a JPEG's time.
        lengths = self._builder.info.splits[self._split].shard_lengths
        return read_tfrecords(self._files, lengths, start, stop)

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        if not self._files:
            return handle
        known = self._builder.info.features
        features = tfds.features.FeaturesDict({k: known[k] for k in (self._image, self._label)})
        decoders = {self._image: tfds.decode.SkipDecoding()}
        values = features.deserialize_example(handle, decoders=decoders)
        return values[self._image], tf.cast(values[self._label], tf.int32)

    def _read(self, split: str, with_ids: bool) -> tf.data.Dataset:
        features = self._builder.info.features
        elements = self._builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(
                {self._image: features[self._image], self._label: features[self._label]},
                decoders={self._image: tfds.decode.SkipDecoding()},
            ),
            read_config=tfds.ReadConfig(
                add_tfds_id=with_ids,
                try_autocache=False,
                interleave_cycle_length=1,  # File by file, in the order of slices.
            ),
        )

        def element(record):
            values = record[self._image], tf.cast(record[self._label], tf.int32)
            return (*values, record["tfds_id"]) if with_ids else values

        return elements.map(element)


def read_tfrecords(
    files: Sequence[str], counts: Sequence[int] | np.ndarray, start: int, stop: int
) -> tf.data.Dataset:
    """Returns records `start` to `stop - 1` of TFRecord files, opening only the files needed.

    Args:
        files: Paths, in order.
        counts: Number of records in each file.
        start: First record, counted over all files.
        stop: End of the range, exclusive.
    """
    ends = np.cumsum(counts)
    first, last = np.searchsorted(ends, [start, max(start, stop - 1)], side="right")
    before = int(ends[first] - counts[first])
    found = tf.data.TFRecordDataset(list(files[first : last + 1]), "", READ_BYTES)
    return found.skip(start - before).take(stop - start)


def _tfrecords(builder, split):
    """Returns the TFRecord files of a prepared split; empty for another file format."""
    info = builder.info.splits[split]
    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        return []
    files = [str(path) for path in info.filepaths]
    return files if files and all(map(tf.io.gfile.exists, files)) else []


def open_records(
    name: str, data_dir: str | os.PathLike | None
) -> tuple[tuple[str, ...], dict[str, RecordExamples]]:
    """Returns the class names and the labelled splits of a data set.

    It is downloaded and prepared if necessary.

    Args:
        name: Name in TensorFlow Datasets: `NAME`, `NAME:version`, `NAME/config`.
        data_dir: Folder of prepared data sets; by default that of TensorFlow Datasets.

    Raises:
        ValueError: If it is unknown, cannot be prepared, or does not have one image and one
            label per example.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # Network, checksum and import errors among others.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            "The name after tfds: must be a data set of TensorFlow Datasets that is prepared in "
            f"data_dir or can be downloaded. Received: {name!r}, data_dir={data_dir}. {reason}"
        ) from error
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    labels = [key for key, value in features.items() if isinstance(value, tfds.features.ClassLabel)]
    image, label = _choice("image", images, name), _choice("label", labels, name)
    splits = {}
    for split in ("train", "validation", "test"):
        if split in builder.info.splits and builder.info.splits[split].num_examples:
            records = SplitRecords(builder, split, image, label)
            _, first = records.read(next(iter(records.dataset(0, 1))))
            if first >= 0:  # -1: labels of this split are not public.
                splits[split] = RecordExamples(records, np.arange(records.count))
    return tuple(features[label].names), splits


def _choice(wanted: str, keys: list[str], name: str) -> str:
    """Returns the key to use: the wanted one, or the only one."""
    if wanted in keys:
        return wanted
    if len(keys) != 1:
        raise ValueError(
            f"A data set must have one {wanted}, or one named {wanted!r}. "
            f"Received: {name}, with {keys or 'none'}"
        )
    return keys[0]


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
        found = read_tfrecords(self._shards.files, self._shards.counts, start, stop)
        labels = tf.data.Dataset.from_tensor_slices(self._shards.labels[start:stop])
        return tf.data.Dataset.zip(found, labels)

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        record, label = handle
        image = {IMAGE: tf.io.FixedLenFeature([], tf.string)}
        return tf.io.parse_single_example(record, image)[IMAGE], label


def record_files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Returns the TFRecord files of a folder, in order, by the prefix of their names."""
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
            or `SPLIT.tfrecord`, and `classes.txt`: one name per line, in the order of their
            numbers from 0. `write_records` writes such folders. Files of other programs must
            have the image in the feature `image/encoded` and its class number in
            `image/class/label` or `label`; they are scanned once to count the examples.

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
    """Writes the index, which saves `open_tfrecords` from scanning all files."""
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
        found = (
            f"number {missing[0]} is missing" if missing else f"{len(files)} of {sorted(totals)}"
        )
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
        with np.load(path, allow_pickle=False) as arrays:
            index = dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is damaged: remove it, and the files are scanned instead."
        ) from error
    found = {}
    for split, files in by_split.items():
        names = [os.path.basename(path) for path in files]
        sizes = [os.path.getsize(path) for path in files]
        if names != list(index.get(f"{split}/files", [])):
            raise ValueError(
                f"{path} must list the files of {split}: remove it, and they are scanned instead. "
                f"Received: {len(names)} files, the first is {names[0]}"
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
    """Reads all records of files without an index."""
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
            for has_image, labels, names in without_autotune(batches).as_numpy_iterator():
                wrong = np.flatnonzero(~has_image | (labels < 0))
                if len(wrong):
                    raise ValueError(
                        f"Every example must have the features {IMAGE} and {LABEL}, or "
                        f"{PLAIN_LABEL}. Received: record {count + wrong[0]} of {path}"
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
                f"{path} must be a complete TFRecord file of tf.train.Example. It cannot be read "
                f"after {count} records: {error.message.splitlines()[0]}"
            ) from error
        counts.append(count)
    labels = np.concatenate([np.zeros(0, "int32"), *all_labels])
    return Shards(tuple(map(str, files)), np.array(counts), labels, np.array(all_names, "S"))
