"""Evaluation of multi-label images: average precision, F1, and a threshold for each class."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_vit.description.class_labels import DEFAULT_THRESHOLD, MULTILABEL

from .intervals import accuracy_text
from .per_class import ClassCounts, average_precision, best_threshold
from .reports import LEAST_PROBABILITY, EvaluationReport, number_or_none


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultilabelReport(EvaluationReport):
    """Average precision and F1 of a classifier on multi-label images.

    The loss is sigmoid cross-entropy, summed over the classes.

    Args:
        average_precisions: Average precision of each class, `(K,)`; NaN without images.
        micro_average_precision: Average precision of all labels together.
        exact: Images whose labels are all right.
        thresholds: Probability above which an image was given a label, `(K,)`.
        best_thresholds: The thresholds with the best F1 of each class on these images; see
            `per_class.best_threshold`.
        **fields: See `EvaluationReport`.
    """

    average_precisions: np.ndarray
    micro_average_precision: float
    exact: int
    thresholds: np.ndarray
    best_thresholds: tuple[float, ...]

    @property
    def score(self) -> float:
        """Mean average precision (mAP) over the classes, by which the best weights are chosen."""
        return self.counts.macro(self.average_precisions)

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes."""
        return self.counts.macro(self.counts.f1)

    @property
    def subset_accuracy(self) -> float:
        """Share of images whose labels are all right."""
        return self.exact / self.count

    @property
    def summary(self) -> str:
        """The main numbers in one line."""
        return (
            f"mAP {self.score:.4f}, F1 {self.macro_f1:.4f} (micro {self.counts.micro_f1:.4f}) of "
            f"{self.count} images"
        )

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The table by class."""
        counts = self.counts
        return {
            "images": counts.images,
            "AP": self.average_precisions,
            "F1": counts.known(counts.f1),
            "precision": counts.known(counts.precision),
            "recall": counts.known(counts.recall),
            "threshold": self.thresholds,
        }

    def lines(self) -> list[str]:
        """Returns the numbers of all images, a line each."""
        return [
            f"mAP     {self.score:.4f}  (mean over classes; micro "
            f"{self.micro_average_precision:.4f})",
            f"F1      {self.macro_f1:.4f}  (mean over classes; micro {self.counts.micro_f1:.4f})",
            f"exact   {accuracy_text(self.subset_accuracy, self.count)}  ({self.exact} images with "
            "all labels right; 95% interval)",
            f"loss    {self.loss:.4f}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""
        return {
            "task": MULTILABEL,
            "images": self.count,
            "mAP": number_or_none(self.score),
            "micro_AP": number_or_none(self.micro_average_precision),
            "macro_F1": number_or_none(self.macro_f1),
            "micro_F1": self.counts.micro_f1,
            "subset_accuracy": self.subset_accuracy,
            "loss": self.loss,
            "images_per_second": self.images_per_second,
            "by_class": self.by_class(),
            "skipped": [list(item) for item in self.skipped],
            **self.split_json(),
        }


def report_of_outputs(
    outputs: Iterable[tuple[np.ndarray, np.ndarray | None]],
    class_names: Sequence[str],
    numbers: np.ndarray,
    thresholds: Sequence[float] | None,
    *,
    from_logits: bool,
) -> tuple[MultilabelReport, tuple[np.ndarray, ...]]:
    """Returns the report of a model's outputs, and what `Answers` needs of each image.

    Args:
        outputs: Scores `(B, K)` and labels, zeros and ones `(B, M)`, of each batch.
        class_names: The K names.
        numbers: The class of the model for each of the M labels.
        thresholds: See `classification.evaluate`.
        from_logits: Whether scores are logits.
    """
    scores, given = map(np.concatenate, zip(*outputs, strict=True))
    labels = np.zeros(scores.shape, "uint8")
    labels[:, numbers] = given
    probabilities = sigmoid(scores) if from_logits else scores
    loss = _cross_entropy(labels, scores, from_logits)
    report = report_of(labels, probabilities, class_names, thresholds, loss=loss)
    return report, _decisions(labels > 0, probabilities, report.thresholds)


def report_of(
    labels: np.ndarray,
    probabilities: np.ndarray,
    class_names: Sequence[str],
    thresholds: Sequence[float] | None = None,
    *,
    loss: float = math.nan,
) -> MultilabelReport:
    """Returns the report of probabilities that were computed already.

    Args:
        labels: Zeros and ones `(N, K)`.
        probabilities: `(N, K)`.
        class_names: The K names.
        thresholds: See `classification.evaluate`.
        loss: See `MultilabelReport`.
    """
    classes = range(len(class_names))
    limits = np.asarray(thresholds or [DEFAULT_THRESHOLD for _ in classes], "float64")
    given, has = probabilities > limits, labels > 0
    of_class = [(has[:, k], probabilities[:, k]) for k in classes]
    return MultilabelReport(
        class_names=tuple(class_names),
        count=len(labels),
        counts=ClassCounts((given & has).sum(axis=0), given.sum(axis=0), has.sum(axis=0)),
        loss=loss,
        average_precisions=np.array([average_precision(*pair) for pair in of_class]),
        micro_average_precision=average_precision(has.ravel(), probabilities.ravel()),
        exact=int((given == has).all(axis=1).sum()),
        thresholds=limits,
        best_thresholds=tuple(best_threshold(*pair, DEFAULT_THRESHOLD) for pair in of_class),
    )


def _decisions(has, probabilities, thresholds):
    """The true and the given labels, the deciding probability of an image, and whether it is right.

    That is of the most confident wrong label, or of the least confident one if all are right.
    """
    given = probabilities > thresholds
    confidence = np.where(given, probabilities, 1 - probabilities)
    wrong = given != has
    right = ~wrong.any(axis=1)
    highest = np.where(wrong, confidence, -1.0).max(axis=1)
    return has, given, np.where(right, confidence.min(axis=1), highest), right


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of logits, without overflow."""
    return np.exp(-np.logaddexp(0, -logits.astype("float64")))


def _cross_entropy(labels, scores, from_logits):
    scores = scores.astype("float64")
    if from_logits:
        losses = np.logaddexp(0, scores) - labels * scores
    else:
        right = np.where(labels > 0, scores, 1 - scores)
        losses = -np.log(np.maximum(right, LEAST_PROBABILITY))
    return float(losses.sum(axis=1).mean())
