"""Accuracy, confusion matrix and calibration of a classifier, each image counted once."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import operator
import os
import pathlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples
from keras_vit.training.data.labels import class_counts, task_of
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.utils.files import atomic_write, write_csv
from keras_vit.utils.plots import new_figure

from . import multilabel
from .calibration import Calibration, calibration_of
from .held_out import choose_images
from .intervals import accuracy_text
from .mistakes import Answers
from .multilabel import MultilabelReport
from .per_class import ClassCounts, ConfusionPairs
from .predictions import predictions_of, without
from .reports import LEAST_PROBABILITY, EvaluationReport
from .selective import SelectiveAnswers, selective_answers

if TYPE_CHECKING:
    import keras

# Names in the JSON of columns of the table.
_JSON_NAMES = {"accuracy": "recall"}

CONFUSION_CSV = "confusion_matrix.csv"
CONFUSION_PNG = "confusion_matrix.png"
PAIRS_CSV = "confusion_pairs.csv"
CALIBRATION_CSV = "calibration.csv"
CALIBRATION_PNG = "calibration.png"
RISK_CSV = "risk_coverage.csv"
RISK_PNG = "risk_coverage.png"

# With more classes than these, the matrix is written as the pairs that occur and not drawn, and
# names of rows and numbers in cells are too small to read.
MAX_MATRIX_CLASSES = 1000
MAX_NAMED_CLASSES = 60
MAX_NUMBERED_CLASSES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationReport(EvaluationReport):
    """Accuracies of a classifier with one class an image; the loss is cross-entropy.

    Args:
        pairs: Images by true and predicted class.
        in_top_5: Images whose class was among the five most probable.
        calibration: Confidence and accuracy by confidence.
        selective: Which images are answered, by a classifier that may answer "unknown".
        **fields: See `EvaluationReport`; `counts` and `count` follow from `pairs`.
    """

    pairs: ConfusionPairs
    in_top_5: int
    calibration: Calibration | None = None
    selective: SelectiveAnswers | None = None
    counts: ClassCounts = dataclasses.field(init=False)
    count: int = dataclasses.field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "counts", self.pairs.by_class)
        object.__setattr__(self, "count", int(self.counts.images.sum()))

    @property
    def correct(self) -> int:
        """Images whose class was the most probable."""
        return int(self.counts.right.sum())

    @property
    def top_1(self) -> float:
        """Share of images whose class was the most probable."""
        return self.correct / self.count

    @property
    def score(self) -> float:
        """Top-1 accuracy, by which the best weights are chosen."""
        return self.top_1

    @property
    def summary(self) -> str:
        """The main numbers in one line."""
        top_1, top_5 = self._top_texts
        return f"top-1 {top_1}, top-5 {top_5} of {self.count} images"

    @property
    def _top_texts(self):
        """Both accuracies with their intervals."""
        return [accuracy_text(share, self.count) for share in (self.top_1, self.top_5)]

    @property
    def top_5(self) -> float:
        """Share of images whose class was among the five most probable."""
        return self.in_top_5 / self.count

    @functools.cached_property
    def confusion(self) -> np.ndarray:
        """Confusion matrix, int `(K, K)`: images by true class (row) and predicted (column)."""
        return self.pairs.matrix

    @property
    def class_counts(self) -> np.ndarray:
        """Images of each class, int `(K,)`."""
        return self.counts.images

    @property
    def class_accuracies(self) -> np.ndarray:
        """Accuracy of each class, `(K,)`; NaN for a class without images."""
        return self.counts.known(self.counts.recall)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The table by class; the accuracy of a class is its recall."""
        counts = self.counts
        return {
            "images": counts.images,
            "accuracy": self.class_accuracies,
            "precision": counts.known(counts.precision),
            "F1": counts.known(counts.f1),
        }

    @property
    def means(self) -> dict[str, float]:
        """Means over the classes that images have; the mean of recall is the balanced accuracy."""
        counts = self.counts
        return {
            "balanced_accuracy": counts.macro(counts.recall),
            "macro_precision": counts.macro(counts.precision),
            "macro_F1": counts.macro(counts.f1),
        }

    def texts(self) -> dict[str, list[str]]:
        """Returns the accuracy of each class with its interval."""
        classes = zip(self.class_accuracies.tolist(), self.class_counts.tolist(), strict=True)
        return {
            "accuracy": [accuracy_text(share, count) if count else "-" for share, count in classes]
        }

    def lines(self) -> list[str]:
        """Returns the numbers of all images, a line each."""
        means, (top_1, top_5) = self.means, self._top_texts
        lines = [
            f"top-1   {top_1}  {self.correct} of {self.count}; 95% interval",
            f"top-5   {top_5}",
            f"loss    {self.loss:.4f}",
        ]
        if self.calibration is not None:
            lines.append(f"ECE     {self.calibration.expected_error:.4f}  (calibration error)")
        if self.selective is not None:
            lines += self.selective.lines()
        lines.append(
            f"by class (means): accuracy {means['balanced_accuracy']:.4f} (balanced accuracy), "
            f"precision {means['macro_precision']:.4f}, F1 {means['macro_F1']:.4f}"
        )
        return lines

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes all numbers (JSON), and confusion matrix, classes, calibration and answers.

        The tables are CSV files, and the most confident errors an HTML page. With matplotlib
        installed, confusion matrix and calibration are also drawn (PNG). With more than
        `MAX_MATRIX_CLASSES` classes, the pairs of classes that occur are written instead of the
        matrix, which is not drawn.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        written, folder = super().write(folder), pathlib.Path(folder)
        is_matrix = len(self.class_names) <= MAX_MATRIX_CLASSES
        names = [self._write_confusion(folder, is_matrix)]
        if self.calibration is not None:
            self.calibration.write_csv(folder / CALIBRATION_CSV)
            names.append(CALIBRATION_CSV)
        if self.selective is not None:
            self.selective.write_csv(folder / RISK_CSV)
            names.append(RISK_CSV)
        if importlib.util.find_spec("matplotlib"):
            if is_matrix:
                self.draw(folder / CONFUSION_PNG)
                names.append(CONFUSION_PNG)
            if self.calibration is not None:
                self.calibration.draw(folder / CALIBRATION_PNG)
                names.append(CALIBRATION_PNG)
            if self.selective is not None:
                self.selective.draw(folder / RISK_PNG)
                names.append(RISK_PNG)
        return [*written, *(folder / name for name in names)]

    def _write_confusion(self, folder, is_matrix):
        """Writes the confusion matrix, or its pairs; returns the name of the file."""
        names, pairs = self.class_names, self.pairs
        if is_matrix:
            matrix = zip(names, self.confusion.tolist(), strict=True)
            header = ("true \\ predicted", *names)
            write_csv(folder / CONFUSION_CSV, [header, *((name, *row) for name, row in matrix)])
            return CONFUSION_CSV
        columns = (array.tolist() for array in (pairs.true, pairs.predicted, pairs.images))
        rows = ((names[i], names[j], count) for i, j, count in zip(*columns, strict=True))
        write_csv(folder / PAIRS_CSV, [("true", "predicted", "images"), *rows])
        return PAIRS_CSV

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON."""
        by_class = self.by_class()
        return {
            "images": self.count,
            "correct": self.correct,
            "top_1": self.top_1,
            "top_5": self.top_5,
            "loss": self.loss,
            **self.means,
            "images_per_second": self.images_per_second,
            "calibration": self.calibration and self.calibration.to_json(),
            **({"decision": self.selective.to_json()} if self.selective else {}),
            "class_accuracy": {name: numbers["accuracy"] for name, numbers in by_class.items()},
            "by_class": {
                name: {_JSON_NAMES.get(head, head): value for head, value in numbers.items()}
                for name, numbers in by_class.items()
            },
            "skipped": [list(item) for item in self.skipped],
            **self.split_json(),
        }

    def draw(self, path: str | os.PathLike) -> None:
        """Draws the confusion matrix.

        Raises:
            ImportError: Without matplotlib.
        """
        num_classes, title = len(self.class_names), accuracy_text(self.top_1, self.count)
        side = float(np.clip(0.35 * num_classes + 2.5, 5, 24))  # Inches.
        figure = new_figure((side, side), dpi=120)
        axes = figure.add_subplot()
        shares = self.confusion / np.maximum(self.class_counts, 1)[:, np.newaxis]
        cells = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(cells, ax=axes, shrink=0.7, label="share of the true class")
        axes.set(xlabel="predicted", ylabel="true", title=f"top-1 {title}")
        if num_classes <= MAX_NAMED_CLASSES:
            axes.set_xticks(range(num_classes), self.class_names, rotation=90)
            axes.set_yticks(range(num_classes), self.class_names)
        if num_classes <= MAX_NUMBERED_CLASSES:
            for (row, column), count in np.ndenumerate(self.confusion):
                if count:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    axes.text(column, row, count, ha="center", va="center", color=color)
        with atomic_write(path) as partial:
            figure.savefig(partial)


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
    abstains: bool = False,
) -> ClassificationReport | MultilabelReport:
    """Evaluates a model on every example exactly once, by the task of their labels.

    The probabilities of multi-label images are all in memory, 4 bytes each.

    Args:
        model: From images to probabilities `(B, K)`, or to logits.
        examples: The examples.
        class_names: The K names, in the order of the model's outputs.
        preprocessing: How an image becomes the model's input; see `evaluation_batches`.
        class_numbers: The model's class for each label of the examples; by default the
            same number.
        batch_size: Images in a batch; does not change the results.
        skipped: `(path, reason)` of images that the source left out, for the report.
        skip_unreadable: Whether image files that cannot be read are left out and reported as
            skipped, too; else they are an error.
        from_logits: Whether the model's outputs are logits.
        progress: Whether to show a line with the rate and the time left.
        thresholds: For multi-label examples the probability above which an image has a label,
            `(K,)`; 0.5 by default.
        abstains: Whether its outputs are `(B, K + 1)`, the last one "unknown".

    Returns:
        The report.

    Raises:
        ValueError: If there are no examples, or not every example was counted once.
        NonFiniteScores: If an output is NaN or infinite; a ValueError.
    """
    num_classes = len(class_names)
    numbers = np.arange(num_classes) if class_numbers is None else np.asarray(class_numbers)
    unreadable: list[tuple[int, str]] | None = [] if skip_unreadable else None
    began = time.monotonic()
    outputs = predictions_of(
        model,
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        progress="evaluate" if progress else None,
        unreadable=unreadable,
    )
    report: ClassificationReport | MultilabelReport
    if task_of(examples.labels) == MULTILABEL:
        report, decisions = multilabel.report_of_outputs(
            outputs,
            class_names,
            numbers,
            thresholds,
            from_logits=from_logits,
        )
    else:
        report, decisions = _report_of_outputs(
            outputs, class_names, numbers, abstains, from_logits=from_logits
        )
    examples, found_unreadable = without(examples, unreadable)
    rate = len(examples) / max(time.monotonic() - began, 1e-9)
    counts = np.zeros(num_classes, "int64")
    counts[numbers] = class_counts(examples.labels, len(numbers))
    counted = report.counts.images
    if (wrong := np.flatnonzero(counted != counts)).size:
        raise ValueError(
            "Every class must be counted as often as it is in the data. Received: "
            f"{counted[wrong[0]]} images of {class_names[wrong[0]]} for {counts[wrong[0]]}"
        )
    return dataclasses.replace(
        report,
        skipped=(*skipped, *found_unreadable),
        images_per_second=rate,
        answers=Answers(examples, report.class_names, *decisions),
    )


def _report_of_outputs(outputs, class_names, numbers, abstains, *, from_logits):
    """Returns the report of images with one class, and what `Answers` needs of each of them.

    Args:
        outputs: Scores `(B, K)` and labels `(B,)` of each batch, which are not kept.
        class_names: The K names.
        numbers: The class of the model for each label.
        abstains: See `evaluate`.
        from_logits: Whether scores are logits.
    """
    in_top_5, loss = 0, 0.0
    calibrations, selective = [], []
    answered = []
    for scores, labels in outputs:
        scores, labels = scores.astype(np.float64), numbers[labels]
        if abstains:
            scores, answers = selective_answers(scores, labels)
            selective.append(answers)
        given = scores.argmax(axis=1)
        in_top_5 += int(_is_in_top(5, scores, labels).sum())
        probabilities, of_labels = _probabilities(scores, labels, from_logits)
        loss -= float(of_labels.sum())
        answered.append((labels, given, np.take_along_axis(probabilities, given[:, np.newaxis], 1)))
        calibrations.append(calibration_of(probabilities, labels))
    true, given, probability = map(np.concatenate, zip(*answered, strict=True))
    report = ClassificationReport(
        class_names=tuple(class_names),
        pairs=ConfusionPairs.of(true, given, len(class_names)),
        in_top_5=in_top_5,
        loss=loss / len(true),
        calibration=functools.reduce(operator.add, calibrations),
        selective=functools.reduce(operator.add, selective) if selective else None,
    )
    return report, (true, given, probability[:, 0], true == given)


def evaluate_classifier(
    classifier: Classifier,
    data: Data,
    *,
    split: str | None = None,
    batch_size: int = 32,
    progress: bool = False,
    **data_options: Any,
) -> ClassificationReport | MultilabelReport:
    """Evaluates a classifier on a data set; classes are matched by their names.

    An image that the classifier's run trained on, chose its weights by or held out is known by its
    content: the report is about the images that were held out, and images that are new to the run
    have a separate report, `report.new`. `report.split_lines` say what was evaluated and what
    was left out. Runs of earlier versions and record files have no such record: there the data are
    split anew. Files that cannot be decoded are noticed when they are evaluated, unless a split
    depends on them.

    Args:
        classifier: The classifier.
        data: A folder, a CSV file, "tfds:NAME", arrays and so on; see `open_source`. Class
            numbers in arrays and a `tf.data.Dataset` follow the classifier. Or a `DataSpec`.
        split: "train", "validation", "calibration" or "test", in the run where it recorded its
            split; by default "test" if the run or the data have it, else all images.
        batch_size: Images in a batch; does not change the results.
        progress: Whether to show a line with the rate and the time left.
        **data_options: `data_dir`, `strict` and `follow_symlinks`; see `DataSpec`.

    Returns:
        The report of the classifier's task.

    Raises:
        ValueError: If the data cannot be opened, lack the split, have a class that the
            classifier does not know, or are multi-label where it gives one class.
    """
    images = choose_images(classifier, data_spec(data, **data_options), split)

    def report_of(examples: Examples) -> ClassificationReport | MultilabelReport:
        return evaluate_examples(
            classifier,
            examples,
            images.source.class_names,
            batch_size=batch_size,
            skipped=images.source.skipped if examples is images.examples else (),
            skip_unreadable=images.skip_unreadable,
            progress=progress,
        )

    new = None if images.new is None else report_of(images.new)
    return dataclasses.replace(report_of(images.examples), split_lines=images.lines, new=new)


def evaluate_examples(
    classifier: Classifier, examples: Examples, class_names: Sequence[str], **options: Any
) -> ClassificationReport | MultilabelReport:
    """Evaluates a classifier on examples; classes are matched by their names.

    Args:
        classifier: The classifier.
        examples: The examples.
        class_names: The classes of the examples, in the order of their numbers.
        **options: More arguments of `evaluate`.

    Raises:
        ValueError: As `evaluate`.
    """
    numbers = {name: number for number, name in enumerate(classifier.class_names)}
    return evaluate(
        classifier.model,
        examples,
        classifier.class_names,
        preprocessing=classifier.input_preprocessing,
        class_numbers=[numbers[name] for name in class_names],
        thresholds=classifier.thresholds,
        abstains=classifier.description.labels.abstains,
        **options,
    )


def _is_in_top(count, scores, labels):
    """Whether the score of each label is among the highest of its row, bool `(B,)`.

    Ties are ordered by class, as in argmax: a head of zeros is no better than chance.
    """
    own, labels = scores[np.arange(len(labels)), labels][:, np.newaxis], labels[:, np.newaxis]
    before = (scores > own) | ((scores == own) & (np.arange(scores.shape[1]) < labels))
    return before.sum(axis=1) < count


def _probabilities(scores, labels, from_logits):
    """The probabilities of all classes `(B, K)`, and their logarithm for the labels `(B,)`."""
    rows = np.arange(len(labels))
    if from_logits:
        shifted = scores - scores.max(axis=1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return np.exp(logarithms), logarithms[rows, labels]
    # Clipped for the loss alone: 1e-7 in each of many classes adds up.
    return scores, np.log(np.maximum(scores[rows, labels], LEAST_PROBABILITY))
