"""Confusions, precision, recall, F1 and average precision by class, and their means; NumPy alone.

The numbers are scikit-learn's with `zero_division=0`. Means over classes leave out those that no
image has.
"""

from __future__ import annotations

import dataclasses
from typing import Self

import numpy as np


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

    @classmethod
    def of(cls, true: np.ndarray, given: np.ndarray, num_classes: int) -> Self:
        """Returns the counts of class numbers `(N,)`, or of multi-label data, bool `(N, K)`."""
        if true.ndim == 2:
            return cls(*(array.sum(axis=0) for array in (true & given, given, true)))
        counted = (true[true == given], given, true)
        return cls(*(np.bincount(numbers, minlength=num_classes) for numbers in counted))

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


def confusion_pairs(
    true: np.ndarray, given: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a confusion matrix without its zeros, as memory does not hold the square of K.

    Args:
        true: Class numbers of N images, `(N,)`.
        given: The class that each was given, `(N,)`.
        num_classes: K.

    Returns:
        Of the P pairs that occur, in the order of the matrix: the true and the given class, and
        the images, int `(P,)` each.
    """
    pairs, images = np.unique(true.astype("int64") * num_classes + given, return_counts=True)
    return *np.divmod(pairs, num_classes), images


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
