"""A mix of two data sets, in which the second has a given share of the training examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .examples import Examples, ascending_places


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

    def repeated(self, times: np.ndarray) -> MixedExamples:
        first, second = self._parts
        border = len(first)
        parts = first.repeated(times[:border]), second.repeated(times[border:])
        return MixedExamples(*parts, self._share)

    def ordered(self) -> tf.data.Dataset:
        first, second = (self._encoded(number, self._parts[number].ordered()) for number in (0, 1))
        return first.concatenate(second)

    def shuffled(self, seed: int, start: int = 0) -> tf.data.Dataset:
        before = math.floor(start * self._share)  # Examples of the second drawn before `start`.
        streams = [
            self._encoded(number, part.shuffled(seed, done))
            for number, (part, done) in enumerate(
                zip(self._parts, (start - before, before), strict=True)
            )
        ]
        # float64 holds the products exactly enough for any number of steps.
        counts = tf.data.Dataset.range(start, tf.int64.max).map(
            lambda place: tf.floor(
                tf.cast(place + [0, 1], tf.float64) * tf.constant(self._share, tf.float64)
            )
        )
        choices = counts.map(lambda ends: tf.cast(ends[1] - ends[0], tf.int64))
        return tf.data.Dataset.choose_from_datasets(streams, choices)

    def shuffled_epoch(self, seed: int, epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
        raise ValueError("Two data sets that are mixed have no epochs in common.")

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return handle

    def _encoded(self, number, elements):
        """Elements whose handle is the encoded image with its label, of either data set."""
        part = self._parts[number]
        offset = len(self._parts[0]) if number else 0
        return elements.map(
            lambda handle, epoch, index: (part.read(handle), epoch, index + offset),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
