"""Labelled images on disk, with seeded shuffling, splitting and hashing."""

from __future__ import annotations

import abc
import copy
import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_vit import images as image_formats
from keras_vit.description.class_labels import MULTILABEL, SEPARATOR
from keras_vit.images.transcoding import decode_file

from . import lazy_tensorflow as tf
from .labels import (
    class_counts,
    class_numbers,
    first_names,
    label_array,
    relabelled,
    task_of,
)
from .split_record import fingerprint

_AHEAD = 16  # Encoded images.
# More than the cores of any machine. TensorFlow limits it to their number; its default is 16.
_PARALLEL_CALLS = 1024


class Examples(abc.ABC):
    """Labelled images in a fixed order.

    Only labels and names are in memory. Images are read by a `tf.data.Dataset` of elements
    `(handle, epoch, index)`: `read` returns the encoded bytes and the label of a handle, and
    `index` is the place among these examples.
    """

    @property
    @abc.abstractmethod
    def labels(self) -> np.ndarray:
        """The class numbers, int32 `(N,)`; for multi-label images uint8 `(N, K)`."""

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the examples: paths, or ids of the data set."""

    @abc.abstractmethod
    def take(self, indices: Iterable[int]) -> Examples:
        """Returns some of the examples, in their present order.

        Args:
            indices: Numbers from 0 to N - 1, each once, in any order.

        Raises:
            ValueError: If a number is out of range or repeated.
        """

    @abc.abstractmethod
    def relabelled(self, numbers: np.ndarray, num_classes: int | None = None) -> Examples:
        """Returns the examples with other labels; see `labels.relabelled`."""

    @abc.abstractmethod
    def repeated(self, times: np.ndarray) -> Examples:
        """Returns the examples, each so many times in a row.

        Args:
            times: How often each occurs, int `(N,)`; 0 leaves it out.
        """

    @abc.abstractmethod
    def ordered(self) -> tf.data.Dataset:
        """Returns every example once, in order, as epoch 0."""

    @abc.abstractmethod
    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        """Returns every example once, in the order of an epoch.

        Args:
            seed: The order depends on the seed and the epoch only.
            epoch: Number of the epoch, an int64 scalar.
            done: Examples to skip at the beginning, an int64 scalar.
        """

    def shuffled(self, seed: int, start: int = 0) -> tf.data.Dataset:
        """Returns epochs without end, each in another order.

        Args:
            seed: Decides the orders.
            start: Examples to skip at the beginning.
        """
        first, done = divmod(start, len(self))

        def shuffled_epoch(epoch):
            skipped = tf.where(epoch == first, tf.constant(done, tf.int64), 0)
            return self.shuffled_epoch(seed, epoch, skipped)

        return tf.data.Dataset.range(first, tf.int64.max).flat_map(shuffled_epoch)

    @abc.abstractmethod
    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the encoded image and the label of a handle (graph operations).

        The label is a row of `labels`: int32, or uint8 `(K,)`. The handle may belong to a part
        of these examples. This function runs on all cores in parallel; the elements themselves
        are made on one.
        """

    def read_decodable(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what `read` does, the image as one that `decode_image` decodes."""
        encoded, label = self.read(handle)
        return image_formats.decoding.decodable(encoded), label

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    def encoded(self) -> Iterator[tuple[bytes, Any]]:
        """Yields every encoded image and its label once, in order."""
        elements = self.ordered().map(
            lambda handle, *_: self.read(handle),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        yield from without_autotune(elements.prefetch(_AHEAD)).as_numpy_iterator()

    def content_hash(self) -> str:
        """Returns the SHA-256 of the encoded images and their labels, in order.

        It does not depend on names and places. All images are read, which takes far less
        time than a model's forward pass.
        """
        digest = hashlib.sha256()
        for image, label in self.encoded():
            add_to_hash(digest, image, label)
        return digest.hexdigest()

    def fingerprints(self) -> np.ndarray | None:
        """Returns a number for the content of each image, uint64 `(N,)`; see `split_record`.

        None for record files: all of their bytes would have to be read.
        """
        return np.array([fingerprint(image) for image, _ in self.encoded()], "uint64")


class RandomAccessExamples(Examples):
    """Examples that are read in any order, each by a key.

    Args:
        keys: What `read` finds the images by: paths, object `(N,)`, or places, int `(N,)`.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
    """

    def __init__(self, keys: np.ndarray, labels: np.ndarray):
        self.keys, self._labels = keys, label_array(labels)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def labels(self) -> np.ndarray:
        return self._labels

    def take(self, indices: Iterable[int]) -> Self:
        return self._at(ascending_places(indices, len(self)))

    def repeated(self, times: np.ndarray) -> Self:
        return self._at(np.repeat(np.arange(len(self)), times))

    def relabelled(self, numbers: np.ndarray, num_classes: int | None = None) -> Self:
        return self._with(self.keys, relabelled(self._labels, numbers, num_classes))

    def ordered(self) -> tf.data.Dataset:
        epoch = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        return epoch.flat_map(lambda epoch: self._epoch(epoch, tf.range(len(self))))

    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        key = random_key(seed, epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(len(self)), key)
        return self._epoch(epoch, order[done:])  # Nothing before the start is read.

    def _epoch(self, epoch, order):
        # One operation for all keys: one for each costs more. The tensors are made outside of the
        # graph of an epoch, which would hold a copy of them in its text.
        with tf.init_scope(), tf.device("CPU:0"):
            dtype = tf.string if self.keys.dtype == object else tf.int64
            all_keys = tf.constant(self.keys, dtype, [len(self)])
            all_labels = tf.constant(self._labels)
        keys, labels = tf.gather(all_keys, order), tf.gather(all_labels, order)
        slices = tf.data.Dataset.from_tensor_slices
        epochs = tf.data.Dataset.from_tensors(epoch).repeat()
        return tf.data.Dataset.zip(slices((keys, labels)), epochs, slices(tf.cast(order, tf.int64)))

    def _at(self, places):
        return self._with(self.keys[places], self._labels[places])

    def _with(self, keys, labels):
        changed = copy.copy(self)
        changed.keys, changed._labels = keys, labels
        return changed


@dataclasses.dataclass(frozen=True)
class Source:
    """Labelled images in splits.

    Args:
        class_names: The classes in the order of their numbers.
        splits: "train" and "test", "validation" where the data have all three, and "calibration"
            where they have it. A single validation or test split is "test", whatever its name in
            the data.
        skipped: Files that cannot be decoded and are left out, each with the reason.
        notes: Lines about the data for the user.
        groups: The group of each image by its name; None where images are not grouped.
    """

    class_names: tuple[str, ...]
    splits: dict[str, Examples]
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    notes: tuple[str, ...] = ()
    groups: Mapping[str, int] | None = None

    @property
    def task(self) -> str:
        """The task of the labels: "multiclass" or "multilabel"."""
        return task_of(next(iter(self.splits.values())).labels)

    @property
    def class_line(self) -> str:
        """The first classes with the number of their images in all parts."""
        parts = [class_counts(part.labels, len(self.class_names)) for part in self.splits.values()]
        counts = np.sum(parts, axis=0).tolist()
        found = [f"{name} {n:,}" for name, n in zip(self.class_names, counts, strict=True) if n]
        return first_names(found)

    def with_classes(self, class_names: Sequence[str]) -> Source:
        """Returns the images with more classes, or the classes in another order.

        Args:
            class_names: The names, which include the classes of the images.
        """
        places = {name: number for number, name in enumerate(class_names)}
        numbers = np.array([places[name] for name in self.class_names], "int32")
        count = len(class_names) if self.task == MULTILABEL else None
        splits = {
            split: examples.relabelled(numbers, count) for split, examples in self.splits.items()
        }
        return dataclasses.replace(self, class_names=tuple(class_names), splits=splits)


def ascending_places(indices: Iterable[int], count: int) -> np.ndarray:
    """Returns indices in ascending order, int64.

    Raises:
        ValueError: If an index is not from 0 to `count - 1`, or repeated.
    """
    wanted = indices if isinstance(indices, np.ndarray) else list(indices)
    wanted = np.asarray(wanted, "int64").reshape(-1)
    found = np.unique(wanted)
    if len(found) != len(wanted) or (len(found) and not 0 <= found[0] <= found[-1] < count):
        raise ValueError(
            f"Indices must be from 0 to {count - 1}, each once. Received: {wanted.tolist()[:20]}"
        )
    return found


def add_to_hash(digest: Any, image: bytes, label: Any) -> None:
    """Adds an example to the hash that `Examples.content_hash` computes.

    Args:
        digest: A hash object of hashlib.
        image: The encoded image.
        label: Its class number, or multi-label zeros and ones `(K,)`.
    """
    numbers = SEPARATOR.join(map(str, class_numbers(label)))
    digest.update(f"{numbers} {len(image)} ".encode())
    digest.update(image)


def random_key(seed: int, *numbers: tf.Tensor) -> tf.Tensor:
    """Returns the seed of a stateless random operation in an input pipeline.

    It does not depend on TensorFlow's global seed. Pipelines run on CPUs, where TensorFlow's
    default algorithm is Philox; choosing it explicitly gives the same numbers with ten times
    as many small operations.

    Args:
        seed: The seed of the run.
        *numbers: Integer scalars that distinguish this use of the seed.

    Returns:
        An int64 tensor `(2,)`.
    """
    key = tf.constant([seed, 0], tf.int64)
    for number in numbers:
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(number, tf.int64))
    return key


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the data set with autotuning off and all cores used from the start.

    TensorFlow (2.21) tunes a pipeline in a separate thread, which can miss its stop signal:
    deleting an iterator then waits until that thread wakes by itself, about as long as it has
    run already and up to a minute. The thread also measures every element, which costs more
    than it gains for small elements that should use all cores anyway.

    Args:
        dataset: The outermost data set; the option holds for its inputs too.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = _PARALLEL_CALLS
    return dataset.with_options(options)


def typical_size(examples: Examples, count: int = 100) -> tuple[int, int]:
    """Returns the size of the image with the median area, from evenly spaced examples.

    Args:
        examples: The examples; at least one.
        count: Largest number of images to read.

    Returns:
        Pixels (height, width), upright.
    """
    count = min(count, len(examples))
    chosen = examples.take(np.arange(count) * len(examples) // count)
    sizes = [decode_file(encoded).shape[:2] for encoded, _ in chosen.encoded()]
    height, width = sorted(sizes, key=math.prod)[(count - 1) // 2]
    return height, width
