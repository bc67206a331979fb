"""Answers of a classifier: what they say of one image.

Neither TensorFlow nor Keras is imported here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from keras_vit.description.class_labels import UNKNOWN


class Prediction(NamedTuple):
    """A classifier's prediction for one image file.

    Args:
        path: The image file.
        top: `(class name, probability)`, the most likely first; empty if there is an error.
        error: Why the image could not be read or classified, or None.
        labels: The predicted classes, the most likely first: the first of `top`, or with a
            multi-label classifier each class whose probability is above its threshold;
            ("unknown",) if the classifier is not sure enough.
        may_be_unknown: Whether the classifier may answer "unknown".
        is_multilabel: Whether an image may have any number of labels.
    """

    path: str
    top: list[tuple[str, float]]
    error: str | None = None
    labels: tuple[str, ...] = ()
    may_be_unknown: bool = False
    is_multilabel: bool = False

    @property
    def label(self) -> str | None:
        """The answer: the most probable class, or "unknown" if the classifier is not sure enough.

        With a multi-label classifier the most probable of `labels`. None without a label, and for
        an image that could not be read.
        """
        return self.labels[0] if self.labels else None

    @property
    def probability(self) -> float | None:
        """The probability of the most probable class; None for an image that could not be read.

        It is the label's, except for "unknown": there it was too low for an answer.
        """
        return self.top[0][1] if self.top else None

    @property
    def is_unknown(self) -> bool:
        """Whether the answer is "unknown", and not the first of `top`."""
        return self.may_be_unknown and self.labels == (UNKNOWN,)

    @property
    def text(self) -> str | None:
        """The answer where it is not the most probable class: "unknown (0.61 beagle)"."""
        if not self.is_unknown:
            return None
        name, probability = self.top[0]
        return f"{UNKNOWN} ({probability:.2f} {name})"

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<{self.path}: {self.error}>"
        if self.is_unknown:
            return f"<{self.path}: {self.text}>"
        if self.label is None:
            return f"<{self.path}: no label>"
        answers = dict(self.top)
        named = [f"{name} {answers[name]:.2f}" if name in answers else name for name in self.labels]
        return f"<{self.path}: {', '.join(named)}>"

    def to_json(self) -> dict[str, Any]:
        """Returns the prediction as types of JSON, with labels where an image may have several."""
        entry: dict[str, Any] = {
            "path": self.path,
            "top": [{"class": name, "probability": value} for name, value in self.top],
        }
        if self.is_multilabel:
            entry["labels"] = list(self.labels)
        elif self.labels and self.may_be_unknown:
            entry["answer"] = self.label
        return entry if self.error is None else {**entry, "error": self.error}


def split_answers(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the probabilities of the classes, and which images are unknown.

    Args:
        rows: Outputs of a calibrated model, `(N, K + 1)`.

    Returns:
        Calibrated probabilities `(N, K)`, and bool `(N,)`.
    """
    taken = rows[:, -1:]
    return rows[:, :-1] / np.where(taken < 1, 1 - taken, 1), rows[:, -1] > 0


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the places of the highest scores, the highest first.

    Ties go to the lower place.

    Args:
        scores: `(K,)`.
        count: At most so many are returned.
    """
    return np.argsort(-scores, kind="stable")[:count]
