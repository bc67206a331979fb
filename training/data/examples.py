"""Labelled images that are not in memory: what every source gives."""

from __future__ import annotations

import abc
import functools
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.image_headers import read_header
from keras_vit.images import upright_size

MOST_HEADERS = 100
_AHEAD = 16  # Encoded images.
# More than any machine has: as many calls at a time as it has cores, where 16 are the default.
_PARALLEL_CALLS = 1024


class Examples(abc.ABC):
    """Some labelled images of a source, in a fixed order.

    Only labels and names are in memory; the images stay where they are. What reads them is
    a `tf.data.Dataset` of elements `(handle, epoch, index)`: `read` makes the encoded bytes
    and the class number of a handle, and `index` is the place among these examples.
    """

    @property
    @abc.abstractmethod
    def labels(self) -> np.ndarray:
        """The class numbers, int32 `(N,)`."""

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """What each example is called: a path, or the data set's own id."""

    @abc.abstractmethod
    def take(self, indices: Iterable[int]) -> Examples:
        """Returns the examples at these places, in the order of these examples.

        Args:
            indices: Places, each from 0 to N - 1 and each once, in any order.

        Raises:
            ValueError: If a place does not exist or is there twice.
        """

    def part(self, index: int, count: int) -> Examples:
        """Returns the examples of one of several machines, as many as of the others or one less.

        Together they are all examples, each once, and no machine reads more than its own.

        Args:
            index: Of the machine, from 0.
            count: Machines.
        """
        return self.take(range(index, len(self), count))

    @abc.abstractmethod
    def ordered(self) -> tf.data.Dataset:
        """Returns every example once, in order, as epoch 0."""

    @abc.abstractmethod
    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        """Returns every example once, in an order of this epoch's own.

        Args:
            seed: With the number of the epoch it decides the order, and nothing else does.
            epoch: Its number, an int64 scalar.
            done: Examples to leave out at the beginning, an int64 scalar.
        """

    def shuffled(self, seed: int, start: int = 0) -> tf.data.Dataset:
        """Returns epoch after epoch without end, each in an order of its own.

        Args:
            seed: Decides the orders.
            start: Examples to leave out at the beginning.
        """
        first, done = divmod(start, len(self))

        def shuffled_epoch(epoch):
            left_out = tf.where(epoch == first, tf.constant(done, tf.int64), 0)
            return self.shuffled_epoch(seed, epoch, left_out)

        return tf.data.Dataset.range(first, tf.int64.max).flat_map(shuffled_epoch)

    def shuffled_pieces(self, seed: int, start: int = 0, count: int = 16) -> tf.data.Dataset:
        """Returns epoch after epoch in pieces that may be taken by one machine each.

        The data set is made from one of numbers, each of which is a piece of an epoch:
        where machines share the numbers, every example is there once in every epoch.

        Args:
            seed: With epoch and piece it decides the order within the piece.
            start: Examples to leave out at the beginning.
            count: Pieces of an epoch.
        """
        count = min(count, len(self))
        parts = [self.part(number, count) for number in range(count)]
        epoch, done = divmod(start, len(self))
        ends = np.cumsum([len(part) for part in parts])
        first = int(np.searchsorted(ends, done, side="right"))
        done -= int(ends[first]) - len(parts[first])
        first += epoch * count

        def piece(number):
            left_out = tf.where(number == first, tf.constant(done, tf.int64), 0)

            def of_part(place):
                found = parts[place].shuffled_epoch(seed, number // count, left_out)
                # Another index for each example of all parts.
                found = found.map(lambda *element: (*element[:-1], element[-1] * count + place))
                return found

            spec = of_part(0).element_spec
            branches = [
                functools.partial(lambda place: tf.data.experimental.to_variant(of_part(place)), n)
                for n in range(count)
            ]
            chosen = tf.switch_case(tf.cast(number % count, tf.int32), branches)
            return tf.data.experimental.from_variant(chosen, spec)

        return tf.data.Dataset.range(first, tf.int64.max).flat_map(piece)

    @abc.abstractmethod
    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the encoded image and the class number, int32, of a handle, in the graph.

        The handle may be that of a part of these examples. What is done here is done on all
        cores, and what makes the elements on one.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of examples."""

    def encoded(self) -> Iterator[tuple[bytes, int]]:
        """Yields every encoded image and its label once, in order; some are read ahead."""
        elements = self.ordered().map(
            lambda handle, *_: self.read(handle),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        for image, label in untuned(elements.prefetch(_AHEAD)).as_numpy_iterator():
            yield image, int(label)

    def content_hash(self) -> str:
        """Returns the SHA-256 of the encoded images and their labels, in order.

        Names and places do not count. All images are read, which takes far less time than a
        model needs for them.
        """
        digest = hashlib.sha256()
        for image, label in self.encoded():
            add_to_hash(digest, image, label)
        return digest.hexdigest()

    def split(self, share: float, seed: int) -> tuple[Examples, Examples]:
        """Returns two parts: the rest, and about `share` of every class.

        A class with two examples or more has one at least in both parts; a class with one
        is in the first part only.

        Args:
            share: Of each class, for the second part; more than 0, less than 1.
            seed: Decides which.

        Raises:
            ValueError: If the share is out of range.
        """
        if not 0 < share < 1:
            raise ValueError(f"The share must be more than 0 and less than 1. Received: {share}")
        rng = np.random.default_rng(seed)
        second = []
        for label in np.unique(self.labels):
            places = rng.permutation(np.flatnonzero(self.labels == label))
            count = min(max(round(share * len(places)), 1), len(places) - 1)
            second.append(places[:count])
        chosen = np.zeros(len(self), bool)
        chosen[np.concatenate(second)] = True
        return self.take(np.flatnonzero(~chosen)), self.take(np.flatnonzero(chosen))


def places(indices: Iterable[int], count: int) -> np.ndarray:
    """Returns indices in order, int64, or raises as `Examples.take` says."""
    wanted = np.asarray(list(indices), "int64").reshape(-1)
    found = np.unique(wanted)
    if len(found) != len(wanted) or (len(found) and not 0 <= found[0] <= found[-1] < count):
        raise ValueError(
            f"Indices must be from 0 to {count - 1}, each once. Received: {wanted.tolist()[:20]}"
        )
    return found


def add_to_hash(digest: Any, image: bytes, label: int) -> None:
    """Adds the next example to what `Examples.content_hash` computes.

    Args:
        digest: Of hashlib.
        image: The encoded image.
        label: Its class number.
    """
    digest.update(f"{int(label)} {len(image)} ".encode())
    digest.update(image)


def random_key(seed: int, *numbers: tf.Tensor) -> tf.Tensor:
    """Returns the seed of a stateless random operation.

    Of the operations of a pipeline: these run on CPUs, where TensorFlow's own choice of the
    algorithm is Philox. Named, it would be the same in ten times as many small operations.
    Independent of TensorFlow's global seed.

    Args:
        seed: The run's.
        *numbers: Integer scalars that tell this use of the seed from others.
    """
    key = tf.constant([seed, 0], tf.int64)
    for number in numbers:
        key = tf.random.experimental.stateless_fold_in(key, tf.cast(number, tf.int64))
    return key


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same data set, whose iterators end at once and on all cores from the start.

    TensorFlow (2.21) tunes a pipeline in a thread of its own, which may miss that it should
    stop: an iterator that is let go then waits until that thread next wakes by itself, about
    as long as it has run already and up to a minute. The thread also measures every element,
    which costs more than it gains where elements are small and all cores are wanted anyway.

    Args:
        dataset: What is iterated over; for all that it is made of too.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = _PARALLEL_CALLS
    return dataset.with_options(options)


def typical_size(examples: Examples, count: int = MOST_HEADERS) -> tuple[int, int]:
    """Returns the size of the image with the median area among an even choice of them.

    Args:
        examples: The examples; at least one.
        count: How many at most are looked at.

    Returns:
        Pixels (height, width), upright.
    """
    count = min(count, len(examples))
    chosen = examples.take(np.arange(count) * len(examples) // count)

    def size(handle, *_):
        return upright_size(read_header(chosen.read(handle)[0]))

    found = untuned(chosen.ordered().map(size)).as_numpy_iterator()
    sizes = [(int(height), int(width)) for height, width in found]
    sizes.sort(key=math.prod)
    return sizes[(count - 1) // 2]
