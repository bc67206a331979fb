"""Calibration of a classifier: expected calibration error and reliability diagram."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_vit.utils.files import atomic_write, write_csv
from keras_vit.utils.plots import new_figure

NUM_BINS = 15  # As in Guo et al., "On Calibration of Modern Neural Networks", 2017.


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Confidence and accuracy of predictions, by confidence.

    Bin m holds the predictions with a confidence in `((m - 1) / M, m / M]`. Sums, not
    means, are stored, so that parts of a data set can be added.

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
    def confidences(self) -> np.ndarray:
        """Mean confidence of each bin; NaN for an empty one."""
        return _mean(self.confidence_sums, self.counts)

    @property
    def accuracies(self) -> np.ndarray:
        """Share of correct predictions in each bin; NaN for an empty one."""
        return _mean(self.correct_counts, self.counts)

    @property
    def expected_error(self) -> float:
        """The expected calibration error: ECE = sum over bins of n_m / n |acc_m - conf_m|."""
        return float(np.abs(self.correct_counts - self.confidence_sums).sum() / self.count)

    @property
    def maximum_error(self) -> float:
        """The largest |acc_m - conf_m| of a bin that is not empty."""
        return float(np.nanmax(np.abs(self.accuracies - self.confidences)))

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy: positive if the classifier is overconfident."""
        return float((self.confidence_sums.sum() - self.correct_counts.sum()) / self.count)

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            self.counts + other.counts,
            self.confidence_sums + other.confidence_sums,
            self.correct_counts + other.correct_counts,
        )

    def __str__(self) -> str:
        return (
            f"calibration error  {self.expected_error:.4f} expected, "
            f"{self.maximum_error:.4f} at most, of {self.count} images\n"
            f"mean confidence    {self.overconfidence:+.4f} above accuracy"
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""
        return {
            "images": self.count,
            "expected_error": self.expected_error,
            "maximum_error": self.maximum_error,
            "overconfidence": self.overconfidence,
            "bin_counts": self.counts.tolist(),
            "bin_confidence_sums": self.confidence_sums.tolist(),
            "bin_correct_counts": self.correct_counts.tolist(),
        }

    def write_csv(self, path: str | os.PathLike) -> None:
        """Writes a CSV file with a row for each bin."""
        edges = np.linspace(0, 1, len(self.counts) + 1)
        columns = (edges[:-1], edges[1:], self.counts, self.confidences, self.accuracies)
        rows: list[tuple] = [("above", "up_to", "images", "confidence", "accuracy")]
        for low, high, count, confidence, accuracy in zip(*columns, strict=True):
            values = (f"{confidence:.6g}", f"{accuracy:.6g}") if count else ("", "")
            rows.append((f"{low:.6g}", f"{high:.6g}", count, *values))
        write_csv(path, rows)

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the reliability diagram: accuracy and share of images by confidence.

        Raises:
            ImportError: Without matplotlib.
        """
        edges = np.linspace(0, 1, len(self.counts) + 1)
        figure = new_figure((5, 6), dpi=120)
        upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 1))
        bars = {"align": "edge", "width": 1 / len(self.counts), "edgecolor": "white"}
        upper.bar(edges[:-1], np.nan_to_num(self.accuracies), label="accuracy", **bars)
        upper.plot((0, 1), (0, 1), "k--", linewidth=1, label="perfectly calibrated")
        upper.plot(self.confidences, self.accuracies, "o", color="C1", label="mean of the bin")
        upper.set(ylabel="accuracy", ylim=(0, 1), xlim=(0, 1))
        upper.set_title(f"expected calibration error {self.expected_error:.4f}")
        upper.legend(loc="upper left")
        lower.bar(edges[:-1], self.counts / self.count, color="grey", **bars)
        lower.set(xlabel="confidence", ylabel="share of images")
        with atomic_write(path) as partial:
            figure.savefig(partial)


def calibration_of(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, num_bins: int = NUM_BINS
) -> Calibration:
    """Returns the calibration of a classifier's most probable classes.

    Args:
        probabilities: `(N, K)`, rows that sum to 1.
        labels: Class indices `(N,)`.
        num_bins: Bins of equal width, M.

    Raises:
        ValueError: If shapes do not fit or a row does not sum to 1.
    """
    scores, classes = np.asarray(probabilities, np.float64), np.asarray(labels)
    if scores.ndim != 2 or classes.shape != scores.shape[:1] or not len(classes):
        raise ValueError(
            "Probabilities must be (N, K) and labels (N,), N at least 1. Received: shapes "
            f"{scores.shape} and {classes.shape}"
        )
    # float32 softmax sums to 1 within about 1e-6.
    if (scores < 0).any() or (np.abs(scores.sum(axis=1) - 1) > 1e-3).any():
        raise ValueError("Every row must hold probabilities, which sum to 1. Received: other sums")
    confidence = scores.max(axis=1)
    correct = scores.argmax(axis=1) == classes
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    return Calibration(
        counts=np.bincount(bins, minlength=num_bins),
        confidence_sums=np.bincount(bins, confidence, minlength=num_bins),
        correct_counts=np.bincount(bins[correct], minlength=num_bins),
    )


def _mean(sums, counts):
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
