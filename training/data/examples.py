"""Labelled images on disk: their labels, order, parts and mixes."""

from __future__ import annotations

import abc
import copy
import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL
from keras_vit.images.transcoding import decode_file

from .content import encoded_pixel_fingerprint, fingerprint

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from keras_vit.preprocessing import Preprocessing

else:

    class _Lazy:
        """A module that is imported when a name of it is first used.

        Image files are listed and split without TensorFlow.
        """

        def __init__(self, name):
            self._name = name

        def __getattr__(self, name):
            return getattr(importlib.import_module(self._name), name)

    tf, tfds = map(_Lazy, ("tensorflow", "tensorflow_datasets"))

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
# A key of an image, or an encoded image, and its label.
Handle: TypeAlias = "tuple[tf.Tensor, tf.Tensor]"

_AHEAD = 16  # Encoded images.
# More than the cores of any machine. TensorFlow limits it to their number; its default is 16.
_PARALLEL_CALLS = 1024


class Examples(abc.ABC):
    """Labelled images in a fixed order.

    Only labels and names are in memory. Images are read by a `tf.data.Dataset` of elements
    `(handle, epoch, index)`: `read` returns the encoded bytes and the label of a handle, and
    `index` is the place among these examples.
    """

    # The arguments and the result of the last `evaluation_batches` of these examples.
    last_evaluation: tuple[tuple[Preprocessing, int, bool, bool], tf.data.Dataset] | None = None

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

        @unconverted
        def shuffled_epoch(epoch):
            skipped = tf.where(epoch == first, tf.constant(done, tf.int64), 0)
            return self.shuffled_epoch(seed, epoch, skipped)

        return tf.data.Dataset.range(first, tf.int64.max).flat_map(shuffled_epoch)

    @abc.abstractmethod
    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the encoded image and the label of a handle (graph operations).

        The label is a row of `labels`: int32, or uint8 `(K,)`. The handle may belong to a part
        of these examples. This function runs on all cores in parallel; the elements themselves
        are made on one.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    def encoded(self) -> Iterator[tuple[bytes, int | np.ndarray]]:
        """Yields every encoded image and its label once, in order."""
        elements = self.ordered().map(
            unconverted(lambda handle, *_: self.read(handle)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        yield from without_autotune(elements.prefetch(_AHEAD)).as_numpy_iterator()

    def fingerprints(self) -> np.ndarray | None:
        """Returns a number for the content of each image, uint64 `(N,)`; see `split_record`.

        None for record files: all of their bytes would have to be read.
        """
        return np.array([fingerprint(image) for image, _ in self.encoded()], "uint64")

    def pixel_fingerprints(self) -> np.ndarray | None:
        """Returns a number for the pixels of each image, uint64 `(N,)`; None as `fingerprints`."""
        numbers = [encoded_pixel_fingerprint(image) for image, _ in self.encoded()]
        return np.array(numbers, "uint64")


class KeyedExamples(Examples):
    """Examples of one data set, each with a key.

    Args:
        keys: What images are found by: paths, object `(N,)`, or places in the data, int `(N,)`.
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
        places = ascending_places(indices, len(self))
        return self._with(self.keys[places], self._labels[places])

    def relabelled(self, numbers: np.ndarray, num_classes: int | None = None) -> Self:
        return self._with(self.keys, relabelled(self._labels, numbers, num_classes))

    def _with(self, keys, labels):
        changed = copy.copy(self)
        changed.keys, changed._labels = keys, labels
        changed.last_evaluation = None
        return changed


class RandomAccessExamples(KeyedExamples):
    """Examples that are read in any order, by their keys."""

    def ordered(self) -> tf.data.Dataset:
        return self._epoch(tf.constant(0, tf.int64), tf.range(len(self)))

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


def ascending_places(indices: Iterable[int], count: int) -> np.ndarray:
    """Returns indices in ascending order, int64.

    Raises:
        ValueError: If an index is not from 0 to `count - 1`, or repeated.
    """
    values = np.asarray([*indices], "int64")
    ascending = np.unique(values)
    is_inside = np.all((ascending >= 0) & (ascending < count))
    if len(ascending) != len(values) or not is_inside:
        raise ValueError(
            f"Indices must be from 0 to {count - 1}, each once. Received: {values.tolist()[:20]}"
        )
    return ascending


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


def unconverted(function: Callable) -> Callable:
    """Returns a function for `tf.data` that AutoGraph leaves as it is.

    AutoGraph rewrites the source of a function for `if` and loops over tensors, which none here
    has, and takes ten times as long as tracing the function.
    """
    return tf.autograph.experimental.do_not_convert(function)


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


class MixedExamples(Examples):
    """The examples of two data sets, of the same classes.

    In order, the second data set follows the first. In training every run of 1 / share examples
    has one of the second, whatever the batch size; each data set is shuffled in its own epochs.

    Args:
        first: Examples.
        second: Examples.
        share: Share of the second in training, in (0, 1).
    """

    def __init__(self, first: Examples, second: Examples, share: float):
        self._parts = (first, second)
        self._share = share

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def labels(self) -> np.ndarray:
        return np.concatenate([part.labels for part in self._parts])

    @property
    def names(self) -> Sequence[str]:
        return [name for part in self._parts for name in part.names]

    def take(self, indices: Iterable[int]) -> Examples:
        chosen = ascending_places(indices, len(self))
        first, second = self._parts
        border = int(np.searchsorted(chosen, len(first)))
        taken = (first.take(chosen[:border]), second.take(chosen[border:] - len(first)))
        kept = [part for part in taken if len(part)]
        return MixedExamples(*taken, self._share) if len(kept) == 2 else (kept or taken)[0]

    def relabelled(self, numbers: np.ndarray, num_classes: int | None = None) -> MixedExamples:
        first, second = (part.relabelled(numbers, num_classes) for part in self._parts)
        return MixedExamples(first, second, self._share)

    def ordered(self) -> tf.data.Dataset:
        first, second = (self._encoded(number, self._parts[number].ordered()) for number in (0, 1))
        return first.concatenate(second)

    def shuffled(self, seed: int, start: int = 0) -> tf.data.Dataset:
        before = math.floor(start * self._share)  # Examples of the second drawn before `start`.
        first, second = self._parts
        streams = [
            self._encoded(0, first.shuffled(seed, start - before)),
            self._encoded(1, second.shuffled(seed, before)),
        ]

        @unconverted
        def stream_of(index):
            # float64 holds the products exactly enough for any number of steps.
            ends = tf.cast(index + [0, 1], tf.float64) * tf.constant(self._share, tf.float64)
            return tf.cast(tf.floor(ends[1]) - tf.floor(ends[0]), tf.int64)

        choices = tf.data.Dataset.range(start, tf.int64.max).map(stream_of)
        return tf.data.Dataset.choose_from_datasets(streams, choices)

    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        raise ValueError("Two data sets that are mixed have no epochs in common.")

    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        return handle

    def _encoded(self, number, elements):
        """Elements whose handle is the encoded image with its label, of either data set."""
        part = self._parts[number]
        offset = len(self._parts[0]) if number else 0
        return elements.map(
            unconverted(lambda handle, epoch, index: (part.read(handle), epoch, index + offset)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )


def task_of(labels: np.ndarray) -> str:
    """Returns the task of labels: int32 `(N,)` class numbers, or uint8 `(N, K)`."""
    return MULTILABEL if labels.ndim == 2 else MULTICLASS


def label_array(labels: npt.ArrayLike) -> np.ndarray:
    """Returns labels as int32 `(N,)` or uint8 `(N, K)`."""
    array = np.asarray(labels)
    return array.astype("uint8" if array.ndim == 2 else "int32", copy=False)


def multi_hot(numbers: Sequence[Iterable[int]], num_classes: int) -> np.ndarray:
    """Returns the class numbers of each image as zeros and ones, uint8 `(N, K)`."""
    labels = np.zeros((len(numbers), num_classes), "uint8")
    for row, of_image in zip(labels, numbers, strict=True):
        row[list(of_image)] = 1
    return labels


def relabelled(
    labels: np.ndarray, numbers: np.ndarray, num_classes: int | None = None
) -> np.ndarray:
    """Returns labels with other class numbers, or as multi-label zeros and ones.

    Args:
        labels: As `Examples.labels`, of K classes.
        numbers: The new number of each class, int32 `(K,)`, each once.
        num_classes: M, for multi-label zeros and ones: the result has the shape `(N, M)`. None for
            class numbers; each row of zeros and ones has one 1 then.
    """
    if num_classes is None:
        labels = labels.argmax(axis=1) if labels.ndim == 2 else labels
        return label_array(numbers[labels])
    hot = np.zeros((len(labels), num_classes), "uint8")
    if labels.ndim == 2:
        hot[:, numbers] = labels
    else:
        hot[np.arange(len(labels)), numbers[labels]] = 1
    return hot


def class_numbers(label: npt.ArrayLike) -> list[int]:
    """Returns the class numbers of one image's label, ascending."""
    array = np.asarray(label)
    return np.flatnonzero(array).tolist() if array.ndim else [int(array)]


def class_counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the images of each class, int `(K,)`."""
    if labels.ndim == 2:
        return labels.sum(axis=0, dtype="int64")
    return np.bincount(labels, minlength=num_classes)


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the different class names: in numerical order if all are numbers, else sorted."""
    names = set(names)
    numbers = all(map(_NUMBER.fullmatch, names))
    return tuple(sorted(names, key=lambda name: (float(name), name) if numbers else name))


def places_by_class(labels: np.ndarray) -> list[np.ndarray]:
    """Returns the places of each class number that occurs, ascending, by ascending number.

    Args:
        labels: Class numbers `(N,)`.
    """
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, starts)


def balanced_class_weight(labels: np.ndarray, class_names: Sequence[str]) -> tuple[float, ...]:
    """Returns the weight of each class in the loss, with which classes weigh the same.

    With n_k of the N images in class k of K, N / (K n_k) as in scikit-learn, whose mean over all
    images is 1; and for multi-label images (N - n_k) / n_k, so that images with a label weigh as
    much as those without.

    Args:
        labels: Labels of the training images, as `Examples.labels`.
        class_names: The K names.

    Raises:
        ValueError: If a class has no image, or every image has a label.
    """
    counts = class_counts(labels, len(class_names))
    if not counts.all():
        raise ValueError(
            "Every class must have a training image. "
            f"Received: none of {class_names[int(np.argmin(counts))]}"
        )
    if task_of(labels) == MULTICLASS:
        return tuple((len(labels) / (len(class_names) * counts)).tolist())
    if (counts == len(labels)).any():
        raise ValueError(
            "For balanced class weights no label may be on every image. "
            f"Received: {class_names[int(np.argmax(counts))]}"
        )
    return tuple(((len(labels) - counts) / counts).tolist())
