"""Confusions, precision, recall, F1 and average precision by class, and their means; NumPy alone.

The numbers are scikit-learn's with `zero_division=0`. Means over classes leave out those that no
image has.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class ClassCounts:
    """Right and wrong decisions by class.

    Args:
        right: Images that have the class and were given it, int `(K,)`.
        predicted: Images that were given the class, int `(K,)`.
        images: Images that have the class, int `(K,)`.
    """

    right: np.ndarray
    predicted: np.ndarray
    images: np.ndarray

    @property
    def precision(self) -> np.ndarray:
        """Share of the images given a class that have it, `(K,)`."""
        return _ratio(self.right, self.predicted)

    @property
    def recall(self) -> np.ndarray:
        """Share of the images of a class that were given it, `(K,)`."""
        return _ratio(self.right, self.images)

    @property
    def f1(self) -> np.ndarray:
        """Harmonic mean of precision and recall, `(K,)`."""
        return _ratio(2 * self.right, self.predicted + self.images)

    @property
    def micro_f1(self) -> float:
        """F1 of all decisions together."""
        total = self.predicted.sum() + self.images.sum()
        return float(_ratio(2 * self.right.sum(), total))

    def known(self, values: np.ndarray) -> np.ndarray:
        """Returns values `(K,)` with NaN for each class that no image has."""
        return np.where(self.images > 0, values, np.nan)

    def macro(self, values: np.ndarray) -> float:
        """Returns the mean of values `(K,)` over the classes that images have; NaN without any."""
        present = self.images > 0
        return float(values[present].mean()) if present.any() else float("nan")


@dataclasses.dataclass(frozen=True)
class ConfusionPairs:
    """Images by true and predicted class: a confusion matrix without its zeros.

    Memory grows with images and classes, and not with the square of the classes.

    Args:
        true: Class numbers of the P pairs that occur, ascending, int `(P,)`.
        predicted: Class numbers, int `(P,)`; ascending for each true class.
        images: Images of each pair, int `(P,)`.
        num_classes: K.
    """

    true: np.ndarray
    predicted: np.ndarray
    images: np.ndarray
    num_classes: int

    @classmethod
    def of(cls, true: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int) -> Self:
        """Returns the pairs of true and predicted class numbers `(N,)` of N images."""
        numbers = np.asarray(true, "int64") * num_classes + np.asarray(predicted, "int64")
        pairs, images = np.unique(numbers, return_counts=True)
        return cls(*np.divmod(pairs, num_classes), images, num_classes)

    @property
    def matrix(self) -> np.ndarray:
        """Images by true class (row) and predicted class (column), int `(K, K)`."""
        matrix = np.zeros((self.num_classes, self.num_classes), "int64")
        matrix[self.true, self.predicted] = self.images
        return matrix

    @property
    def by_class(self) -> ClassCounts:
        """Right and wrong answers by class."""
        right = self.true == self.predicted
        return ClassCounts(
            self._sums(self.true[right], self.images[right]),
            self._sums(self.predicted, self.images),
            self._sums(self.true, self.images),
        )

    def _sums(self, classes, images):
        # The sums of float64 are exact.
        return np.bincount(classes, images, self.num_classes).astype("int64")


def average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    """Returns the area under the steps of the precision-recall curve; NaN without a positive.

        AP = sum over n of (R_n - R_(n-1)) P_n

    with precision and recall at each score from the highest. Equal scores are one step.

    Args:
        labels: Zeros and ones `(N,)`.
        scores: `(N,)`.
    """
    right, predicted, _ = _cuts(labels, scores)
    if not right[-1]:
        return float("nan")
    steps = np.diff(right, prepend=0) / right[-1]
    return float((steps * right / predicted).sum())


def best_threshold(labels: np.ndarray, scores: np.ndarray, default: float = 0.5) -> float:
    """Returns the threshold with the best F1, an image having the class above it.

    It is the middle between two neighbouring scores, or below the lowest half of that. Of
    thresholds with the same F1 it is the highest.

    Args:
        labels: Zeros and ones `(N,)`.
        scores: Probabilities `(N,)`.
        default: Without a positive, or where no threshold gives an image the class.
    """
    right, predicted, at = _cuts(labels, scores)
    if not right[-1] or at[0] <= 0:
        return default
    middles = (at + np.append(at[1:], 0.0)) / 2
    f1 = np.where(at > 0, 2 * right / (predicted + right[-1]), -1)  # None is below a score of 0.
    return float(middles[f1.argmax()])


def _cuts(labels, scores):
    """Positives and images at or above each different score, from the highest, and the scores."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order].astype("float64")
    last = np.flatnonzero(np.append(np.diff(ordered) != 0, True))  # The last of equal scores.
    return labels[order].cumsum(dtype="int64")[last], last + 1, ordered[last]


def _ratio(part, whole):
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)
