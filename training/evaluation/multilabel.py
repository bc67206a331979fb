"""Evaluation of several labels an image: average precision, F1, and a threshold for each class."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.files import write_csv, write_text
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks import DEFAULT_THRESHOLD, MULTILABEL
from keras_vit.text_tables import align_columns
from keras_vit.training.data import Examples
from keras_vit.training.data.sources import describe_skipped

from .mistakes import Answers
from .per_class import ClassCounts, average_precision, best_threshold
from .predictions import predictions_of, without

METRICS_JSON = "metrics.json"
PER_CLASS_CSV = "per_class.csv"


@dataclasses.dataclass(frozen=True)
class MultilabelReport:
    """Average precision and F1 of a classifier on a data set of several labels an image.

    Args:
        class_names: The K names.
        counts: Right and wrong labels by class.
        average_precisions: Average precision of each class, `(K,)`; NaN without images.
        micro_average_precision: That of all labels together.
        exact: Images whose labels are all right.
        count: Images evaluated.
        loss: Sigmoid cross-entropy summed over the classes, mean over images, nats.
        thresholds: Probability above which an image was given a label, `(K,)`.
        best_thresholds: Those with the best F1 of each class on these images; see
            `per_class.best_threshold`.
        skipped: `(path, reason)` of images that could not be read.
        images_per_second: Speed of decoding and the model together.
        answers: The labels given to each image.
    """

    class_names: tuple[str, ...]
    counts: ClassCounts
    average_precisions: np.ndarray
    micro_average_precision: float
    exact: int
    count: int
    loss: float
    thresholds: np.ndarray
    best_thresholds: tuple[float, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    images_per_second: float = 0.0
    answers: Answers | None = None

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

    def __str__(self) -> str:
        lines = [
            f"images  {self.count} (each once)",
            f"mAP     {self.score:.4f}  (mean over classes; micro "
            f"{self.micro_average_precision:.4f})",
            f"F1      {self.macro_f1:.4f}  (mean over classes; micro {self.counts.micro_f1:.4f})",
            f"exact   {self.subset_accuracy:.4f}  ({self.exact} images with all labels right)",
            f"loss    {self.loss:.4f}",
            "",
            align_columns([("class", *_COLUMNS), *self._rows("{:.4f}")], left=[0]),
        ]
        absent = [
            name
            for name, count in zip(self.class_names, self.counts.images, strict=True)
            if not count
        ]
        if absent:
            more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
            lines.append(f"not in the means, as no image has it: {', '.join(absent[:10])}{more}")
        if self.skipped:
            lines += ["", f"skipped {len(self.skipped)} images that could not be read:"]
            lines += [f"  {line}" for line in describe_skipped(self.skipped)]
        return "\n".join(lines)

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes all numbers (JSON), those of each class (CSV), and the answers.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [("class", *_COLUMNS), *self._rows("{:.6g}")]
        write_csv(folder / PER_CLASS_CSV, rows)
        write_text(folder / METRICS_JSON, json.dumps(self.to_json(), indent=2) + "\n")
        answers = self.answers.write(folder) if self.answers else []
        return [folder / PER_CLASS_CSV, folder / METRICS_JSON, *answers]

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""
        return {
            "task": MULTILABEL,
            "images": self.count,
            "mAP": _number(self.score),
            "micro_AP": _number(self.micro_average_precision),
            "macro_F1": _number(self.macro_f1),
            "micro_F1": self.counts.micro_f1,
            "subset_accuracy": self.subset_accuracy,
            "loss": self.loss,
            "images_per_second": self.images_per_second,
            "by_class": {
                name: dict(zip(_COLUMNS, map(_number, values), strict=True))
                for name, *values in self._columns()
            },
            "skipped": [list(item) for item in self.skipped],
        }

    def _columns(self):
        """Yields the name of each class, then its `_COLUMNS`."""
        counts = self.counts
        columns = (
            self.class_names,
            counts.images,
            self.average_precisions,
            counts.f1,
            counts.precision,
            counts.recall,
            self.thresholds,
        )
        for name, *values in zip(*columns, strict=True):
            yield name, *(value.item() for value in values)

    def _rows(self, form):
        """The same as text."""
        return [
            (name, str(images), *map(form.format, values))
            for name, images, *values in self._columns()
        ]


_COLUMNS = ("images", "AP", "F1", "precision", "recall", "threshold")


def _number(value):
    return None if math.isnan(value) else value


def evaluate(
    model: keras.Model,
    examples: Examples,
    class_names: Sequence[str],
    *,
    preprocessing: Preprocessing | None,
    class_numbers: Sequence[int] | None = None,
    batch_size: int = 32,
    skipped: Sequence[tuple[str, str]] = (),
    skip_unreadable: bool = False,
    from_logits: bool = False,
    progress: bool = False,
    thresholds: Sequence[float] | None = None,
) -> MultilabelReport:
    """Evaluates a model on every example exactly once.

    Arguments and errors but for `thresholds` are those of `classification.evaluate`. The
    probabilities of all images are in memory, 4 bytes each.

    Args:
        model: From images to probabilities `(B, K)`, or to logits.
        examples: The examples, of several labels.
        class_names: The K names, in the order of the model's outputs.
        preprocessing: How an image becomes the model's input; see `evaluation_batches`.
        class_numbers: The model's class for each label of the examples.
        batch_size: Images in a batch; does not change the results.
        skipped: `(path, reason)` of images that the source left out, for the report.
        skip_unreadable: Whether image files that cannot be read are left out and reported as
            skipped, too; else they are an error.
        from_logits: Whether the model's outputs are logits.
        progress: Whether to show a line with the rate and the time left.
        thresholds: Probability above which an image has a label, `(K,)`; 0.5 by default.
    """
    unreadable: list[tuple[int, str]] | None = [] if skip_unreadable else None
    began = time.monotonic()
    found = predictions_of(
        model,
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        progress="evaluate" if progress else None,
        unreadable=unreadable,
    )
    scores, given = map(np.concatenate, zip(*found, strict=True))
    examples, found_unreadable = without(examples, unreadable)
    rate = len(examples) / max(time.monotonic() - began, 1e-9)
    labels = np.zeros(scores.shape, "uint8")
    labels[:, range(len(class_names)) if class_numbers is None else class_numbers] = given
    probabilities = sigmoid(scores) if from_logits else scores
    report = report_of(
        labels,
        probabilities,
        class_names,
        thresholds,
        loss=_cross_entropy(labels, scores, from_logits),
        skipped=[*skipped, *found_unreadable],
        images_per_second=rate,
    )
    answers = _answers(examples, labels > 0, probabilities, report)
    return dataclasses.replace(report, answers=answers)


def report_of(
    labels: np.ndarray,
    probabilities: np.ndarray,
    class_names: Sequence[str],
    thresholds: Sequence[float] | None = None,
    *,
    loss: float = math.nan,
    skipped: Sequence[tuple[str, str]] = (),
    images_per_second: float = 0.0,
) -> MultilabelReport:
    """Returns the report of probabilities that were computed already.

    Args:
        labels: Zeros and ones `(N, K)`.
        probabilities: `(N, K)`.
        class_names: The K names.
        thresholds: See `evaluate`.
        loss: See `MultilabelReport`.
        skipped: See `MultilabelReport`.
        images_per_second: See `MultilabelReport`.
    """
    classes = range(len(class_names))
    limits = np.asarray(thresholds or [DEFAULT_THRESHOLD for _ in classes], "float64")
    given, has = probabilities > limits, labels > 0
    of_class = [(has[:, k], probabilities[:, k]) for k in classes]
    return MultilabelReport(
        tuple(class_names),
        ClassCounts((given & has).sum(axis=0), given.sum(axis=0), has.sum(axis=0)),
        np.array([average_precision(*pair) for pair in of_class]),
        average_precision(has.ravel(), probabilities.ravel()),
        exact=int((given == has).all(axis=1).sum()),
        count=len(labels),
        loss=loss,
        thresholds=limits,
        best_thresholds=tuple(best_threshold(*pair, DEFAULT_THRESHOLD) for pair in of_class),
        skipped=tuple(skipped),
        images_per_second=images_per_second,
    )


def _answers(examples, has, probabilities, report):
    given = probabilities > report.thresholds
    sureness = np.where(given, probabilities, 1 - probabilities)
    wrong = given != has
    right = ~wrong.any(axis=1)
    surest = np.where(wrong, sureness, -1.0).max(axis=1)
    return Answers(
        examples,
        report.class_names,
        has,
        given,
        np.where(right, sureness.min(axis=1), surest),
        right,
    )


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of logits, without overflow."""
    return np.exp(-np.logaddexp(0, -logits.astype("float64")))


def _cross_entropy(labels, scores, from_logits):
    scores = scores.astype("float64")
    if from_logits:
        losses = np.logaddexp(0, scores) - labels * scores
    else:
        epsilon = keras.config.epsilon()
        right = np.where(labels > 0, scores, 1 - scores)
        losses = -np.log(np.maximum(right, epsilon))
    return float(losses.sum(axis=1).mean())
