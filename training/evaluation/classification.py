"""How good a classifier is: accuracy on every image exactly once, by class, and confusions."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import operator
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.files import atomic_write
from keras_vit.predicting import predict_batch
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples, evaluation_batches, open_source
from keras_vit.training.run.progress import Progress

from .calibration import Calibration, measure

CONFUSION_CSV = "confusion_matrix.csv"
CONFUSION_PNG = "confusion_matrix.png"
CALIBRATION_CSV = "calibration.csv"
CALIBRATION_PNG = "calibration.png"
PER_CLASS_CSV = "per_class.csv"
METRICS_JSON = "metrics.json"

# Beyond this the names of a picture's rows cannot be read.
MAX_NAMED_CLASSES = 60


class NonFiniteScores(ValueError):
    """A model gave NaN or infinity."""


@dataclasses.dataclass(frozen=True)
class Report:
    """What an evaluation found.

    Args:
        class_names: The K names.
        confusion: int `(K, K)`: images of the class of the row that were taken for the
            class of the column.
        in_top_5: Images whose class was among the five likeliest.
        loss: Mean cross-entropy, nats.
        skipped: `(path, reason)` of images that could not be read.
        images_per_second: Of decoding and the model together.
        calibration: Whether the probabilities mean what they say.
    """

    class_names: tuple[str, ...]
    confusion: np.ndarray
    in_top_5: int
    loss: float
    skipped: tuple[tuple[str, str], ...] = ()
    images_per_second: float = 0.0
    calibration: Calibration | None = None

    @property
    def count(self) -> int:
        """Images evaluated."""
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        """Images whose class was the likeliest."""
        return int(np.trace(self.confusion))

    @property
    def top_1(self) -> float:
        """Share of images whose class was the likeliest."""
        return self.correct / self.count

    @property
    def top_5(self) -> float:
        """Share of images whose class was among the five likeliest."""
        return self.in_top_5 / self.count

    @property
    def class_counts(self) -> np.ndarray:
        """Images of each class, int `(K,)`."""
        return self.confusion.sum(axis=1)

    @property
    def class_accuracies(self) -> np.ndarray:
        """Share of each class's images that were right, `(K,)`; NaN of a class without any."""
        counts = self.class_counts
        right = np.diag(self.confusion)
        return np.divide(right, counts, out=np.full(len(counts), np.nan), where=counts > 0)

    def __str__(self) -> str:
        lines = [
            f"images  {self.count} (each once)",
            f"top-1   {self.top_1:.4f}  ({self.correct} of {self.count})",
            f"top-5   {self.top_5:.4f}",
            f"loss    {self.loss:.4f}",
        ]
        if self.calibration is not None:
            lines.append(f"ECE     {self.calibration.expected_error:.4f}  (calibration error)")
        lines.append("")
        width = max(map(len, self.class_names))
        accuracies = self.class_accuracies
        for index, name in enumerate(self.class_names):
            of = f"of {self.class_counts[index]}"
            lines.append(f"  {name:<{width}}  {accuracies[index]:.4f}  {of}")
        if self.skipped:
            lines += ["", f"skipped {len(self.skipped)} images that could not be read:"]
            lines += [f"  {path}: {reason}" for path, reason in self.skipped]
        return "\n".join(lines)

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes the confusion matrix (CSV and picture), a table by class and all numbers.

        Without matplotlib the picture is left out; `picture_is_possible` tells before.

        Args:
            folder: Made if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        header = ("true \\ predicted", *self.class_names)
        rows = zip(self.class_names, self.confusion.tolist(), strict=True)
        _write_csv(folder / CONFUSION_CSV, [header, *((name, *row) for name, row in rows)])
        by_class = zip(
            self.class_names, self.class_counts.tolist(), self.class_accuracies, strict=True
        )
        _write_csv(
            folder / PER_CLASS_CSV,
            [
                ("class", "images", "accuracy"),
                *((name, count, f"{accuracy:.6g}") for name, count, accuracy in by_class),
            ],
        )
        with atomic_write(folder / METRICS_JSON) as path:
            path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")
        written = [CONFUSION_CSV, PER_CLASS_CSV, METRICS_JSON]
        if self.calibration is not None:
            self.calibration.write_csv(folder / CALIBRATION_CSV)
            written.append(CALIBRATION_CSV)
        if picture_is_possible():
            self._draw(folder / CONFUSION_PNG)
            written.append(CONFUSION_PNG)
            if self.calibration is not None:
                self.calibration.draw(folder / CALIBRATION_PNG)
                written.append(CALIBRATION_PNG)
        return [folder / name for name in written]

    def to_json(self) -> dict:
        """Returns the numbers as JSON can hold them."""
        return {
            "images": self.count,
            "correct": self.correct,
            "top_1": self.top_1,
            "top_5": self.top_5,
            "loss": self.loss,
            "images_per_second": self.images_per_second,
            "calibration": self.calibration and self.calibration.to_json(),
            "class_accuracy": {
                name: None if np.isnan(accuracy) else float(accuracy)
                for name, accuracy in zip(self.class_names, self.class_accuracies, strict=True)
            },
            "skipped": [list(item) for item in self.skipped],
        }

    def _draw(self, path):
        from matplotlib.figure import Figure

        num_classes = len(self.class_names)
        side = float(np.clip(0.35 * num_classes + 2.5, 5, 24))  # Inches.
        figure = Figure(figsize=(side, side), layout="constrained")
        axes = figure.add_subplot()
        shares = self.confusion / np.maximum(self.class_counts, 1)[:, np.newaxis]
        picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(picture, ax=axes, shrink=0.7, label="share of the true class")
        axes.set(xlabel="predicted", ylabel="true", title=f"top-1 {self.top_1:.2%}")
        if num_classes <= MAX_NAMED_CLASSES:
            axes.set_xticks(range(num_classes), self.class_names, rotation=90)
            axes.set_yticks(range(num_classes), self.class_names)
        if num_classes <= 20:
            for (row, column), count in np.ndenumerate(self.confusion):
                if count:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    axes.text(column, row, count, ha="center", va="center", color=color)
        with atomic_write(path) as partial:
            figure.savefig(partial, dpi=120)


def evaluate(
    model: keras.Model,
    examples: Examples,
    class_names: Sequence[str],
    *,
    preprocessing: Preprocessing,
    class_numbers: Sequence[int] | None = None,
    batch_size: int = 32,
    skipped: Sequence[tuple[str, str]] = (),
    from_logits: bool = False,
    progress: bool = False,
) -> Report:
    """Evaluates a model on every example exactly once.

    Args:
        model: From images to probabilities `(B, K)`, or to logits.
        examples: The examples.
        class_names: The K names, in the order of the model's outputs.
        preprocessing: How an image becomes the model's input.
        class_numbers: For each label of the examples the model's class; by default the
            same number.
        batch_size: Images that the model takes at once; changes no number.
        skipped: `(path, reason)` of images that the source left out, for the report.
        from_logits: Whether the model gives logits.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        A `Report`.

    Raises:
        ValueError: If there are no examples, or not every example was counted once.
        NonFiniteScores: If the model gives NaN or infinity; a ValueError.
    """
    if not len(examples):
        raise ValueError("There must be images to evaluate. Received: none")
    num_classes = len(class_names)
    numbers = np.arange(num_classes) if class_numbers is None else np.asarray(class_numbers)
    batches = evaluation_batches(examples, preprocessing=preprocessing, batch_size=batch_size)
    confusion = np.zeros((num_classes, num_classes), np.int64)
    in_top_5, losses, done = 0, 0.0, 0
    calibrations = []
    line = Progress("evaluate", len(examples)) if progress else None
    began = time.monotonic()
    for images, labels in batches:
        scores = predict_batch(model, images).astype(np.float64)
        if not np.isfinite(scores).all():
            raise NonFiniteScores(
                "The model's outputs must be finite numbers. Received: NaN or infinity in the "
                f"batch that starts with {examples.names[done]}"
            )
        labels = numbers[np.asarray(labels)]
        rows = np.arange(len(labels))
        np.add.at(confusion, (labels, scores.argmax(axis=1)), 1)
        # Equal scores are ordered by class, as argmax does: a head of zeros is no better
        # than chance in the top 5 either.
        order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        in_top_5 += int((order == labels[:, np.newaxis]).any(axis=1).sum())
        log_probabilities = _log_probabilities(scores, from_logits)
        losses -= float(log_probabilities[rows, labels].sum())
        calibrations.append(measure(np.exp(log_probabilities), labels))
        done += len(labels)
        if line:
            rate = done / max(time.monotonic() - began, 1e-9)
            line.show(done, {"images/s": f"{rate:.1f}"})
    if line:
        line.close()
    counts = np.bincount(numbers[examples.labels], minlength=num_classes)
    if done != len(examples) or (confusion.sum(axis=1) != counts).any():
        raise ValueError(
            "Every image must be counted exactly once. "
            f"Received: {done} predictions for {len(examples)} images"
        )
    rate = done / max(time.monotonic() - began, 1e-9)
    return Report(
        tuple(class_names),
        confusion,
        in_top_5,
        losses / done,
        tuple(skipped),
        rate,
        functools.reduce(operator.add, calibrations),
    )


def evaluate_classifier(
    classifier: Classifier,
    data: str | os.PathLike,
    *,
    data_dir: str | os.PathLike | None = None,
    split: str | None = None,
    strict: bool = False,
    batch_size: int = 32,
    progress: bool = False,
) -> Report:
    """Evaluates a classifier on a data set; classes are matched by their names.

    Of the data that the classifier was trained on, the images that were held out then are
    held out again.

    Args:
        classifier: The classifier.
        data: A folder, a CSV file or "tfds:NAME"; see `keras_vit.training.data`.
        data_dir: Of TFDS, or that paths in a CSV file start from.
        split: "train", "validation" or "test"; by default "test" where there is one, and
            all images of data without parts.
        strict: Whether an image that cannot be read is an error.
        batch_size: Images that the model takes at once; changes no number.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        A `Report`.

    Raises:
        ValueError: If the data cannot be opened, have no such split or have a class that
            the classifier does not know.
    """
    trained_on = classifier.recipe.get("data") or {}
    options: dict[str, Any] = {"holdout": 0.0}
    if trained_on.get("data") and _same_data(data, trained_on["data"]):
        seed = trained_on.get("split_seed", classifier.recipe["settings"]["seed"])
        exclude = tuple(trained_on["exclude"])
        options = {"holdout": trained_on["holdout"], "seed": seed, "exclude": exclude}
    source = open_source(data, data_dir=data_dir, strict=strict, **options)
    unknown = sorted(set(source.class_names) - set(classifier.class_names))
    if unknown:
        known = ", ".join(classifier.class_names[:10])
        raise ValueError(
            f"The data must have classes of the classifier ({known}"
            f"{', ...' if len(classifier.class_names) > 10 else ''}). "
            f"Received: {data}, with {', '.join(unknown[:10])}"
        )
    if split is None:
        split = "test" if "test" in source.splits else "train"
    if split not in source.splits:
        raise ValueError(
            f"The split must be one of the data's: {', '.join(source.splits)}. "
            f"Received: split={split!r}"
        )
    return evaluate(
        classifier.model,
        source.splits[split],
        classifier.class_names,
        preprocessing=classifier.preprocessing,
        class_numbers=[classifier.class_names.index(name) for name in source.class_names],
        batch_size=batch_size,
        skipped=source.skipped,
        progress=progress,
    )


def picture_is_possible() -> bool:
    """Returns whether matplotlib is there to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _same_data(data, other):
    return os.fspath(data) == other or os.path.realpath(data) == os.path.realpath(other)


def _log_probabilities(scores, from_logits):
    if from_logits:
        shifted = scores - scores.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return np.log(np.maximum(scores, keras.config.epsilon()))


def _write_csv(path, rows):
    with atomic_write(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
