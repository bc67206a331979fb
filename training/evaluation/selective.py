"""Answers of a classifier that may answer "unknown": coverage, risk, and the curve of both."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import numpy as np

from keras_vit.prediction import split_answers
from keras_vit.utils.files import atomic_write, write_csv
from keras_vit.utils.plots import new_figure

from .intervals import exact_interval

MAX_ROWS = 1000  # In the curve's table.


@dataclasses.dataclass(frozen=True)
class SelectiveAnswers:
    """Which images are answered, and which answers are right.

    Args:
        confidence: The calibrated probability of the most probable class, `(N,)`.
        is_right: Whether that class is right, bool `(N,)`.
        is_answered: Whether the image has an answer, bool `(N,)`.
        is_wrong: Whether it has an answer that is wrong, bool `(N,)`.
    """

    confidence: np.ndarray
    is_right: np.ndarray
    is_answered: np.ndarray
    is_wrong: np.ndarray

    def __add__(self, other: SelectiveAnswers) -> SelectiveAnswers:
        return SelectiveAnswers(
            np.append(self.confidence, other.confidence),
            np.append(self.is_right, other.is_right),
            np.append(self.is_answered, other.is_answered),
            np.append(self.is_wrong, other.is_wrong),
        )

    @property
    def count(self) -> int:
        """Images."""
        return len(self.confidence)

    @property
    def answered(self) -> int:
        """Images with an answer."""
        return int(self.is_answered.sum())

    @property
    def wrong(self) -> int:
        """Images with a wrong answer."""
        return int(self.is_wrong.sum())

    @functools.cached_property
    def risks(self) -> np.ndarray:
        """The share of errors by the number of images answered, `(N,)`; see `coverage_curve`."""
        return coverage_curve(self.confidence, self.is_right)

    @property
    def aurc(self) -> float:
        """The area under the risk-coverage curve (Geifman et al., 2019): the mean risk."""
        return float(self.risks.mean())

    def lines(self) -> list[str]:
        """Returns the numbers, a line each."""
        low, high = exact_interval(self.answered, self.count)
        lines = [
            f"answered {self.answered / self.count:.4f}  ({self.answered} of {self.count}; "
            f"95%: {low:.4f} to {high:.4f})"
        ]
        if self.answered:
            low, high = exact_interval(self.wrong, self.answered)
            lines.append(
                f"wrong   {self.wrong / self.answered:.4f}  of these ({self.wrong}; "
                f"95%: {low:.4f} to {high:.4f})"
            )
        lines.append(f"AURC    {self.aurc:.4f}  (mean share of errors over all coverages)")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""
        return {
            "images": self.count,
            "answered": self.answered,
            "wrong": self.wrong,
            "AURC": self.aurc,
        }

    def write_csv(self, path: str | os.PathLike) -> None:
        """Writes the curve: coverage, risk, and the least confidence, at most `MAX_ROWS` rows."""
        places = np.unique(np.linspace(0, self.count - 1, MAX_ROWS).astype(int))
        confidence = -np.sort(-self.confidence)
        rows = (
            (f"{(n + 1) / self.count:.6g}", f"{self.risks[n]:.6g}", f"{confidence[n]:.6g}")
            for n in places
        )
        write_csv(path, [("coverage", "risk", "confidence"), *rows])

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the curve, and the answers as a point.

        Raises:
            ImportError: Without matplotlib.
        """
        figure = new_figure((5, 4), dpi=120)
        axes = figure.add_subplot()
        axes.plot(np.arange(1, self.count + 1) / self.count, self.risks, label="by probability")
        if self.answered:
            point = (self.answered / self.count, self.wrong / self.answered)
            axes.plot(*point, "o", color="C1", label="the answers")
        axes.set(xlabel="coverage (share of images answered)", ylabel="risk (share of errors)")
        axes.set(xlim=(0, 1), title=f"AURC {self.aurc:.4f}")
        axes.legend()
        with atomic_write(path) as partial:
            figure.savefig(partial)


def coverage_curve(confidence: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Returns the share of errors among the n images with the highest confidence, n from 1.

    Images of the same confidence are answered together.

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


def selective_answers(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, SelectiveAnswers]:
    """Returns the probabilities of the classes, and which images are answered rightly.

    Args:
        rows: Outputs of a calibrated model, `(N, K + 1)`.
        labels: Class numbers, `(N,)`.

    Returns:
        Calibrated probabilities `(N, K)`, and the answers.
    """
    known, is_unknown = split_answers(rows.astype("float64"))
    is_right = known.argmax(axis=1) == labels
    answers = SelectiveAnswers(known.max(axis=1), is_right, ~is_unknown, ~is_right & ~is_unknown)
    return known, answers
