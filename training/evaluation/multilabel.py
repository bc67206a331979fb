"""Evaluation of multi-label images: average precision, F1, and a threshold for each class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.description.class_labels import DEFAULT_THRESHOLD

from .per_class import average_precision, best_threshold
from .reports import MultilabelReport

LEAST_PROBABILITY = 1e-7  # In the logarithm of a loss; the epsilon of Keras's configuration.


def report_of_outputs(
    outputs: Iterable[tuple[np.ndarray, np.ndarray | None]],
    class_names: Sequence[str],
    numbers: np.ndarray,
    thresholds: Sequence[float] | None,
    *,
    from_logits: bool,
) -> MultilabelReport:
    """Returns the report of a model's outputs.

    Args:
        outputs: Scores `(B, K)` and labels, zeros and ones `(B, M)`, of each batch.
        class_names: The K names.
        numbers: The class of the model for each of the M labels.
        thresholds: See `classification.evaluate`.
        from_logits: Whether scores are logits.
    """
    scores, given = map(np.concatenate, zip(*outputs, strict=True))
    scores, labels = scores.astype("float64"), np.zeros(scores.shape, "uint8")
    labels[:, numbers] = given
    if from_logits:
        losses = np.logaddexp(0, scores) - labels * scores
        scores = np.exp(-np.logaddexp(0, -scores))  # The sigmoid, without overflow.
    else:
        right = np.where(labels > 0, scores, 1 - scores)
        losses = -np.log(np.maximum(right, LEAST_PROBABILITY))
    loss = float(losses.sum(axis=1).mean())
    return report_of(labels, scores, class_names, thresholds, loss=loss)


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
    limits = np.asarray(thresholds or [DEFAULT_THRESHOLD for _ in class_names], "float64")
    given, has = probabilities > limits, labels > 0
    of_class = list(zip(has.T, probabilities.T, strict=True))
    confidence, wrong = np.where(given, probabilities, 1 - probabilities), given != has
    highest = np.where(wrong, confidence, -1.0).max(axis=1)
    return MultilabelReport(
        class_names=tuple(class_names),
        true=has,
        given=given,
        probability=np.where(wrong.any(axis=1), highest, confidence.min(axis=1)),
        loss=loss,
        average_precisions=np.array([average_precision(*pair) for pair in of_class]),
        micro_average_precision=average_precision(has.ravel(), probabilities.ravel()),
        thresholds=limits,
        best_thresholds=tuple(best_threshold(*pair, DEFAULT_THRESHOLD) for pair in of_class),
    )
