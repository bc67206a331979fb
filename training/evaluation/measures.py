"""Numbers of an evaluation: accuracies, numbers by class, calibration, risk.

By class they are scikit-learn's with `zero_division=0`; means over classes leave out those that no
image has. Temperature scaling is by Guo et al., 2017 (arXiv:1706.04599).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import numpy as np

from keras_vit.reports.report import Table
from keras_vit.utils.intervals import wilson_interval

NUM_BINS = 15  # As in Guo et al., "On Calibration of Modern Neural Networks", 2017.
MAX_ROWS = 1000  # In the table of the curve.
_RANGE = (0.05, 20.0)  # Bounds of 1 / T.

UNEQUAL = 5  # Times as many images of the largest class as of the smallest.


def accuracy_text(accuracy: float, images: int) -> str:
    """Returns an accuracy with its 95% interval by Wilson, such as "86.4% (84.1 to 88.4)".

    The interval is of images that are drawn independently. Intervals narrower than a percent are
    printed with a further digit.

    Args:
        accuracy: The share of images with the right answer.
        images: The images, at least 1.
    """
    low, high = wilson_interval(accuracy * images, images)
    digits = 1 if high - low >= 0.01 else 2
    share, least, most = (f"{100 * value:.{digits}f}" for value in (accuracy, low, high))
    return f"{share}% ({least} to {most})"


def independent_images(right: np.ndarray, groups: np.ndarray) -> int:
    """Returns how many independent images would have the variance of the mean of right answers.

    Images of one thing, or of one group, are often right or wrong together. An interval for all of
    them would then be too narrow. The number is the smaller one of two. Simulations are in
    docs/evaluation.md.

    - By the variance between groups: the deviation of a group is divided by the share of the images
      in others (CR3 of Cameron and Miller, 2015), relative to equal groups.
    - By the agreement within groups and their sizes (Kish, 1965), as the groups with the rarer
      answer may be small by chance where others are large; see `_agreement`.

    Args:
        right: Whether, or with which share, each answer is right, `(N,)`; or the change of that,
            from -1 to 1.
        groups: Group of each image, int from 0 `(N,)`.
    """
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    deviations = right - right.mean()
    if not deviations.any() or len(sizes) == 1:
        return len(sizes)  # All alike leave it open.
    factors = (1 - 1 / len(sizes)) / (1 - sizes / len(right))
    variance = np.square(np.bincount(numbers, deviations) * factors).sum()
    by_variance = len(right) * np.square(deviations).sum() / max(variance, 1e-12)
    mean_size = np.square(sizes).sum() / len(right)  # An average over the images.
    by_agreement = len(right) / (1 + (mean_size - 1) * _agreement(right, numbers, sizes))
    return max(1, round(min(len(right), by_variance, by_agreement)))


def _agreement(right, numbers, sizes):
    """How much more often than by chance the rarer answer is shared within a group, 0 to 1.

    As if one more image had it, in a group that agrees: few do not show that groups do not.
    """
    rarer = right - round(float(right.mean()))  # 0 for the usual answer.
    squares = np.bincount(numbers, np.square(rarer))
    shared = np.square(np.bincount(numbers, rarer)) - squares  # Over the pairs of a group.
    several = sizes > 1
    pairs = (shared[several] / (sizes[several] - 1)).sum()
    agreeing = (pairs + 1) / (squares[several].sum() + 1)
    by_chance = rarer.mean() ** 2 / np.square(rarer).mean()
    return max(0.0, agreeing - by_chance) / max(1 - by_chance, 1e-12)


class Share(float):
    """A share of images, printed by `accuracy_text`.

    Args:
        value: The share.
        images: The independent images.
    """

    _images: int

    def __new__(cls, value: float, images: int) -> Self:
        share = super().__new__(cls, value)
        share._images = images
        return share

    def __getnewargs__(self):  # For copies.
        return float(self), self._images

    def __str__(self) -> str:
        return accuracy_text(float(self), self._images)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values that are corrected for their number (Holm, 1979), in their order."""
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    corrected = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    result = np.empty(len(values))
    result[order] = np.minimum(corrected, 1)
    return result.tolist()


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


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Confidence and accuracy of predictions, by confidence.

    Bin m holds the predictions with a confidence in `((m - 1) / M, m / M]`.

    Args:
        counts: Predictions in each bin, int `(M,)`.
        confidence_sums: Sum of their confidences, `(M,)`.
        correct_counts: Correct ones among them, int `(M,)`.
    """

    counts: np.ndarray
    confidence_sums: np.ndarray
    correct_counts: np.ndarray

    @property
    def count(self) -> int:
        """Number of predictions."""
        return int(self.counts.sum())

    @property
    def expected_error(self) -> float:
        """The expected calibration error: ECE = sum over bins of n_m / n |acc_m - conf_m|."""
        return float(np.abs(self.correct_counts - self.confidence_sums).sum() / self.count)

    @property
    def table(self) -> Table:
        """A row for each bin; confidence and accuracy are means."""
        edges = np.linspace(0, 1, len(self.counts) + 1)
        with np.errstate(invalid="ignore"):  # An empty bin has no means.
            means = self.confidence_sums / self.counts, self.correct_counts / self.counts
        columns = (values.tolist() for values in (edges[:-1], edges[1:], self.counts, *means))
        header = ("above", "up_to", "images", "confidence", "accuracy")
        return Table(header, list(zip(*columns, strict=True)))


def calibration_of(
    confidence: np.ndarray, is_right: np.ndarray, *, num_bins: int = NUM_BINS
) -> Calibration:
    """Returns the calibration of a classifier's most probable classes.

    Args:
        confidence: Their probabilities, `(N,)`.
        is_right: Whether each is the image's class, bool `(N,)`.
        num_bins: Bins of equal width, M.
    """
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    return Calibration(
        counts=np.bincount(bins, minlength=num_bins),
        confidence_sums=np.bincount(bins, confidence, minlength=num_bins),
        correct_counts=np.bincount(bins[is_right], minlength=num_bins),
    )


def coverage_curve(confidence: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Returns the share of errors among the n images with the highest confidence, n from 1.

    Images of the same confidence are answered together. The mean of the curve is its area, AURC
    (Geifman et al., 2019).

    Args:
        confidence: The probability of each answer, `(N,)`.
        is_right: Whether it is right, bool `(N,)`.

    Returns:
        `(N,)`.
    """
    order = np.argsort(-confidence, kind="stable")
    errors, confidence = np.cumsum(~is_right[order]), confidence[order]
    # The last image of each confidence.
    last = np.searchsorted(-confidence, -confidence, side="right") - 1
    return errors[last] / (last + 1)


def coverage_table(confidence: np.ndarray, risks: np.ndarray) -> Table:
    """Returns a curve of `coverage_curve` with the least confidence, at most `MAX_ROWS` rows."""
    count, ordered = len(risks), -np.sort(-confidence)
    places = np.unique(np.linspace(0, count - 1, MAX_ROWS).astype(int))
    columns = ((places + 1) / count, risks[places], ordered[places])
    rows = list(zip(*(values.tolist() for values in columns), strict=True))
    return Table(("coverage", "risk", "confidence"), rows)


def scaled_probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Returns softmax(z / T) of each row.

    Args:
        logits: z, `(N, K)`.
        temperature: T, positive.

    Returns:
        float64 `(N, K)`.
    """
    scaled = np.asarray(logits, "float64") / temperature
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature with the least cross-entropy; one for all classes.

    Labels count as probabilities that leave 1 / (N + 2) to the other answers (Platt, 1999), so that
    a few images, all of them right, do not give certainty.

    Args:
        logits: `(N, K)`, N at least 1.
        labels: Class numbers `(N,)`.

    Returns:
        T, from 0.05 to 20.
    """
    scores = np.asarray(logits, "float64")
    rest = 1 / (len(scores) + 2)
    targets = np.full(scores.shape, rest / scores.shape[1])
    targets[np.arange(len(labels)), labels] += 1 - rest

    def slope(factor):  # The derivative of the cross-entropy, which is convex in 1 / T.
        probabilities = scaled_probabilities(scores, 1 / factor)
        return ((probabilities - targets) * scores).sum()

    from scipy.optimize import brentq  # As slow to import as SciPy's other functions together.

    low, high = _RANGE
    if slope(low) >= 0:
        return 1 / low
    if slope(high) <= 0:
        return 1 / high
    return 1 / brentq(slope, low, high, xtol=1e-9)
