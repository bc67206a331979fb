"""Images in record files, read from front to back; TensorFlow Datasets by name."""

from __future__ import annotations

import abc
import functools
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from .examples import Examples, places, random_key

# Encoded images that are shuffled together: about the shuffle buffer's share of memory.
BLOCK_BYTES = 512 * 2**20


class Records(abc.ABC):
    """Images in record files, which can only be read from front to back.

    Args:
        count: How many there are.
        mean_bytes: Of an encoded image, about.
    """

    count: int
    mean_bytes: float

    @property
    @abc.abstractmethod
    def labels(self) -> np.ndarray:
        """All class numbers, int32."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """What each example is called."""

    @abc.abstractmethod
    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """Returns `(handle, label)` of these places, without reading the files of others."""

    @abc.abstractmethod
    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """Returns the encoded image of a handle, in the graph."""


class RecordExamples(Examples):
    """Some examples of one split in record files.

    Records cannot be read at random, so the order of an epoch is that of the files but for
    blocks of up to 512 MiB of encoded images, each shuffled on its own. Where the blocks
    begin differs from epoch to epoch; a smaller split is one block and shuffled wholly.
    In memory are two blocks, the one in use and the next.

    Args:
        records: What reads the split.
        chosen: The places in the split that belong to these examples, in order.
    """

    def __init__(self, records: Records, chosen: np.ndarray):
        self._records = records
        self._chosen = chosen

    def __len__(self):
        return len(self._chosen)

    @property
    def labels(self):
        return self._records.labels[self._chosen]

    @property
    def names(self):
        names = self._records.names
        return [names[place] for place in self._chosen]

    def take(self, indices):
        return RecordExamples(self._records, self._chosen[places(indices, len(self))])

    def part(self, index, count):
        # One after another: each machine opens its own files, but for those at the ends.
        start, stop = (len(self) * number // count for number in (index, index + 1))
        return RecordExamples(self._records, self._chosen[start:stop])

    def ordered(self):
        zero = tf.constant(0, tf.int64)
        return self._elements().map(lambda index, content: (*content, zero, index))

    def shuffled_epoch(self, seed, epoch, done):
        count = len(self)
        size = max(1, min(count, int(BLOCK_BYTES / self._records.mean_bytes)))
        elements = self._elements()
        key = random_key(seed, epoch)
        # One block if all fits in one; else a shorter one first, of another length in every
        # epoch.
        short = tf.random.stateless_uniform([], key, 0, size, tf.int64, "philox")
        short = short if size < count else tf.constant(0, tf.int64)
        blocks = elements.take(short).batch(size)
        blocks = blocks.concatenate(elements.skip(short).batch(size)).prefetch(1)

        def shuffled_block(block, content):
            key = random_key(seed, epoch, block + 1)
            index, (handle, label) = content
            places = tf.range(tf.size(index))
            order = tf.random.experimental.stateless_shuffle(places, key, "philox")
            # Not the whole block reordered: that would be a copy of its bytes.
            return tf.data.Dataset.from_tensor_slices(order).map(
                lambda place: (handle[place], label[place], epoch, index[place])
            )

        return blocks.enumerate().flat_map(shuffled_block).skip(done)

    def read(self, handle):
        return self._records.read(handle)

    def _elements(self):
        """Returns `(index, (handle, label))`, in order."""
        start, stop = (self._chosen[0], self._chosen[-1] + 1) if len(self) else (0, 0)
        elements = self._records.dataset(int(start), int(stop)).enumerate()
        if stop - start == len(self):
            return elements
        indices = np.full(stop - start, -1, "int64")
        indices[self._chosen - start] = np.arange(len(self))
        indices = tf.constant(indices)
        elements = elements.map(lambda place, content: (indices[place], content))
        return elements.filter(lambda index, content: index >= 0)


class SplitRecords(Records):
    """Reads one split of a builder, always in the same order.

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

    @property
    def labels(self):
        return self._labels_and_names[0]

    @property
    def names(self):
        return self._labels_and_names[1]

    def dataset(self, start, stop):
        return self._read(f"{self._split}[{start}:{stop}]", with_ids=False)

    def read(self, handle):
        return handle

    def _read(self, split, with_ids):
        """Returns `(encoded image, label)`, with the data set's ids behind if asked for."""
        import tensorflow_datasets as tfds

        features = self._builder.info.features
        elements = self._builder.as_dataset(
            split=split,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(
                {self._image: features[self._image], self._label: features[self._label]},
                decoders={self._image: tfds.decode.SkipDecoding()},
            ),
            read_config=tfds.ReadConfig(add_tfds_id=with_ids, try_autocache=False),
        )

        def element(record):
            values = record[self._image], tf.cast(record[self._label], tf.int32)
            return (*values, record["tfds_id"]) if with_ids else values

        return elements.map(element)

    @functools.cached_property
    def _labels_and_names(self) -> tuple[np.ndarray, list[str]]:
        """All class numbers and ids, read in one pass at first use."""
        elements = self._read(self._split, with_ids=True)
        found = list(elements.map(lambda _, label, name: (label, name)).as_numpy_iterator())
        labels = np.array([label for label, _ in found], "int32")
        return labels, [name.decode() for _, name in found]


def open_records(
    name: str, data_dir: str | pathlib.Path | None
) -> tuple[tuple[str, ...], dict[str, RecordExamples]]:
    """Returns the class names and the labelled splits of a data set.

    It is downloaded and prepared if it is not there.

    Args:
        name: As TensorFlow Datasets has it: `NAME`, `NAME:version`, `NAME/config`.
        data_dir: Where prepared data sets are; by default where the library puts them.

    Raises:
        ValueError: If it is unknown, cannot be prepared, or has no image with one label.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as error:  # Of any type: networks, checksums, import errors.
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            "The name after tfds: must be a data set that TensorFlow Datasets has, prepared in "
            f"data_dir or to be downloaded. Received: {name!r}, data_dir={data_dir}. {said[0]}"
        ) from error
    features = builder.info.features
    images = [key for key, value in features.items() if isinstance(value, tfds.features.Image)]
    labels = [key for key, value in features.items() if isinstance(value, tfds.features.ClassLabel)]
    image, label = _choice("image", images, name), _choice("label", labels, name)
    splits = {}
    for split in ("train", "validation", "test"):
        if split in builder.info.splits and builder.info.splits[split].num_examples:
            records = SplitRecords(builder, split, image, label)
            ((_, first),) = records.dataset(0, 1).as_numpy_iterator()
            if first >= 0:  # -1: the labels of this split were not published.
                splits[split] = RecordExamples(records, np.arange(records.count))
    return tuple(features[label].names), splits


def _choice(wanted, keys, name):
    if wanted in keys:
        return wanted
    if len(keys) != 1:
        raise ValueError(
            f"A data set must have one {wanted}, or one called {wanted!r}. "
            f"Received: {name}, with {keys or 'none'}"
        )
    return keys[0]
