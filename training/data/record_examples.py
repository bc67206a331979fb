"""Examples in TFRecord files, which can only be read sequentially."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from . import lazy_tensorflow as tf
from .examples import Examples, ascending_places, random_key
from .labels import relabelled

BUFFER_BYTES = 512 * 2**20  # Shuffle buffer of encoded images.
READ_BYTES = 4 * 2**20  # Read buffer of a file.


class NotPrepared(ValueError):
    """Data or weights would have to be downloaded first; the message names them."""


class Records:
    """The TFRecord files of one split.

    Args:
        files: Paths, in order.
        counts: Number of records in each file.
        num_bytes: Approximate size of all files.
        image: Function from a record to its encoded image (graph operations).
        labels: Returns the labels of all records, as `Examples.labels`; called at first use.
        names: Returns their names; called at first use.
    """

    def __init__(
        self,
        files: Sequence[str],
        counts: Sequence[int] | np.ndarray,
        num_bytes: int,
        image: Callable[[Any], tf.Tensor],
        labels: Callable[[], np.ndarray],
        names: Callable[[], list[str]],
    ):
        self.files, self.counts, self.image = list(files), np.asarray(counts), image
        self._read_labels, self._read_names = labels, names
        self.count = int(self.counts.sum())
        self.mean_bytes = max(1.0, num_bytes / max(1, self.count))

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """Labels of all records."""
        return self._read_labels()

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of all records."""
        return self._read_names()

    def dataset(self, start: int, stop: int) -> tf.data.Dataset:
        """Returns records `start` to `stop - 1`; other files are not opened."""
        ends = np.cumsum(self.counts)
        first, last = np.searchsorted(ends, [start, max(start, stop - 1)], side="right")
        before = int(ends[first] - self.counts[first])
        found = tf.data.TFRecordDataset(self.files[first : last + 1], "", READ_BYTES)
        return found.skip(start - before).take(stop - start)


class RecordExamples(Examples):
    """Some examples of one split in record files.

    Records have no random access, so an epoch is shuffled by a buffer of up to 512 MiB of
    encoded images. A smaller split is shuffled completely.

    Args:
        records: The split.
        chosen: Ascending places in the split of these examples; a place may occur again. None: all.
        labels: Labels of all records, in place of those in the files.
    """

    def __init__(
        self,
        records: Records,
        chosen: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ):
        self._records = records
        self._chosen = np.arange(records.count) if chosen is None else chosen
        self._new_labels = labels

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def labels(self) -> np.ndarray:
        return self._all_labels[self._chosen]

    @property
    def _all_labels(self):
        return self._records.labels if self._new_labels is None else self._new_labels

    @property
    def names(self) -> list[str]:
        names = self._records.names
        return [names[place] for place in self._chosen]

    def take(self, indices: Iterable[int]) -> RecordExamples:
        return self._at(self._chosen[ascending_places(indices, len(self))])

    def repeated(self, times: np.ndarray) -> RecordExamples:
        return self._at(np.repeat(self._chosen, times))

    def relabelled(self, numbers: np.ndarray, num_classes: int | None = None) -> RecordExamples:
        labels = relabelled(self._all_labels, numbers, num_classes)
        return RecordExamples(self._records, self._chosen, labels)

    def _at(self, places):
        return RecordExamples(self._records, places, self._new_labels)

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

    def fingerprints(self) -> None:
        return None  # All bytes of the files would have to be read.

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        record, label = handle
        return self._records.image(record), label

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
            labels = tf.data.Dataset.from_tensor_slices(self._all_labels[start:stop])
            handles = tf.data.Dataset.zip(self._records.dataset(int(start), int(stop)), labels)
            times = np.bincount(self._chosen - start, minlength=stop - start)
            if (times == 1).all():
                return handles
            handles = tf.data.Dataset.zip(handles, tf.data.Dataset.from_tensor_slices(times))
            if times.max() > 1:
                return handles.flat_map(
                    lambda handle, count: tf.data.Dataset.from_tensors(handle).repeat(count)
                )
            handles = handles.filter(lambda handle, count: count > 0)
            return handles.map(lambda handle, count: handle)
