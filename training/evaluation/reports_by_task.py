"""Reports of evaluations by task: one class an image, and multi-label."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.run_record import Reference
from keras_vit.reports.pages import Photos, result_panel
from keras_vit.reports.report import NamedFact, Table
from keras_vit.utils.intervals import exact_interval, wilson_interval
from keras_vit.utils.json_files import number_or_none
from keras_vit.utils.safe_text import first_names

from .measures import (
    UNEQUAL,
    Calibration,
    Share,
    accuracy_text,
    calibration_of,
    coverage_curve,
    coverage_table,
)
from .references import beside_references, is_exceeded, most_frequent, reference_text
from .report_page import MAX_MATRIX, calibration_section, matrix_section, pairs_section
from .reports import EvaluationReport


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ClassificationReport(EvaluationReport):
    """Accuracies of a classifier with one class an image; the loss is cross-entropy.

    Args:
        in_top_5: Images whose class was among the five most probable.
        is_answered: Whether each image has an answer, bool `(N,)`, by a classifier that may answer
            "unknown"; None for others.
        **fields: See `EvaluationReport`.
    """

    in_top_5: int
    is_answered: np.ndarray | None = None

    @property
    def answers(self) -> np.ndarray:
        """The name of the most probable class of each image, object `(N,)`."""
        return np.array(self.class_names, object)[self.given]

    @property
    def correct(self) -> int:
        """Images whose class was the most probable."""
        return int(self.right.sum())

    @property
    def top_1(self) -> float:
        """Share of images whose class was the most probable."""
        return Share(self.correct / self.count, self.independent)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the top-1 accuracy."""
        return wilson_interval(self.top_1 * self.independent, self.independent)

    @property
    def score(self) -> float:
        """Top-1 accuracy, by which the best weights are chosen."""
        return float(self.top_1)

    @property
    def top_5(self) -> float | None:
        """Share of images whose class was among the five most probable; None of five or fewer."""
        if len(self.class_names) <= 5:
            return None
        return Share(self.in_top_5 / self.count, self.independent)

    @property
    def references(self) -> list[Reference]:
        """What the accuracy must exceed for the classifier to be of use."""
        always = most_frequent(self.true, self.class_names)
        return [always] if self.simple is None else [always, self.simple]

    @property
    def beside_references(self) -> str:
        """The references, and whether the accuracy is not better than they are."""
        return beside_references(self.score, self.interval[0], self.references)

    @property
    def summary(self) -> str:
        """The main numbers in one line."""
        top_5 = "" if self.top_5 is None else f", top-5 {self.top_5}"
        text = f"top-1 {self.top_1}{top_5} of {self.count} images{self.imbalance}"
        text += f"; {self.beside_references}"
        return f"{text}; {self.things}" if self.things else text

    @property
    def compared_with_run(self) -> str:
        """The accuracy on the test images of the run, and whether this one differs from it."""
        if self.run_test is None:
            return ""
        name, before, images = self.run_test
        low_before, _ = wilson_interval(before * images, images)
        verdict = "not shown to differ"
        if is_exceeded(Reference("here", self.score, self.independent), before, low_before):
            verdict = "clearly lower"
        elif is_exceeded(self.run_test, self.score, self.interval[0]):
            verdict = "clearly higher"
        return f"{accuracy_text(before, images)} on {name}, {self.score:.1%} here: {verdict}"

    @property
    def imbalance(self) -> str:
        """The balanced accuracy where classes are unequal and top-1 says little; else ""."""
        images = self.counts.images
        present = images > 0
        if images.max() <= UNEQUAL * images[present].min():
            return ""
        largest = f"{images.max() / self.count:.0%} of them are {self.class_names[images.argmax()]}"
        text = f"; {largest}, balanced accuracy {100 * self.means['balanced_accuracy']:.1f}%"
        missed = np.flatnonzero(present & (self.counts.recall == 0))
        if len(missed):
            names = [f"{self.class_names[k]} (0 of {images[k]})" for k in missed]
            text += f", nothing right of {first_names(names, 3)}"
        return text

    @property
    def confusion(self) -> np.ndarray:
        """Confusion matrix, int `(K, K)`: images by true class (row) and predicted (column)."""
        matrix = np.zeros((len(self.class_names), len(self.class_names)), "int64")
        np.add.at(matrix, (self.true, self.given), 1)
        return matrix

    @property
    def columns(self) -> dict[str, Sequence]:
        """The table by class; the accuracy of a class is its recall, NaN without images."""
        counts, images = self.counts, self.counts.images.tolist()
        accuracies = zip(counts.known(counts.recall).tolist(), images, strict=True)
        return {
            "images": images,
            "accuracy": [Share(accuracy, count) for accuracy, count in accuracies],
            "precision": counts.known(counts.precision).tolist(),
            "F1": counts.known(counts.f1).tolist(),
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

    @functools.cached_property
    def calibration(self) -> Calibration:
        """Confidence and accuracy by confidence."""
        return calibration_of(self.probability, self.right)

    @functools.cached_property
    def risks(self) -> np.ndarray:
        """The share of errors by the number of images answered, `(N,)`; see `coverage_curve`."""
        return coverage_curve(self.probability, self.right)

    @property
    def decision(self) -> dict[str, float] | None:
        """Images, answered ones and wrong answers of a classifier that may answer "unknown"."""
        if self.is_answered is None:
            return None
        return {
            "images": self.count,
            "answered": int(self.is_answered.sum()),
            "wrong": int((self.is_answered & ~self.right).sum()),
            "AURC": float(self.risks.mean()),
        }

    def facts(self) -> list[NamedFact]:
        """Returns the facts of all images."""
        low, high = self.interval
        top_1 = {
            "images": self.count,
            "correct": self.correct,
            "independent_images": self.independent,
            "top_1": float(self.top_1),
        }
        references = {name: share for name, share, _ in self.references}
        facts = [
            NamedFact(
                "top-1",
                f"{self.score:.1%}, {self.correct} of {self.count}{self.imbalance}",
                f"{self.interval_text} {low:.1%} to {high:.1%}",
                top_1,
            ),
            NamedFact("reference", self.beside_references, numbers={"references": references}),
        ]
        if self.top_5 is not None:
            facts.append(NamedFact("top-5", f"{self.top_5}", numbers={"top_5": float(self.top_5)}))
        facts.append(NamedFact("loss", f"{self.loss:.4f}", numbers={"loss": self.loss}))
        error = self.calibration.expected_error
        numbers = {"calibration_error": error}
        facts.append(NamedFact("ECE", f"{error:.4f}", "calibration error", numbers))
        facts += self._facts_of_decision()
        means = self.means
        text = (
            f"mean accuracy {means['balanced_accuracy']:.1%} (balanced accuracy), mean precision "
            f"{means['macro_precision']:.4f}, mean F1 {means['macro_F1']:.4f}"
        )
        return [*facts, NamedFact("classes", text, numbers=means)]

    def _facts_of_decision(self):
        """The answers of a classifier that may answer "unknown", and how many are wrong."""
        decision = self.decision
        if decision is None:
            return []
        answered, wrong = decision["answered"], decision["wrong"]
        low, high = exact_interval(answered, self.count)
        origin = f"95% interval {low:.1%} to {high:.1%}"
        share = f"{answered / self.count:.1%}, {answered} of {self.count}"
        facts = [NamedFact("answered", share, origin, {"decision": decision})]
        if answered:
            low, high = exact_interval(wrong, answered)
            origin = f"95% interval {low:.1%} to {high:.1%}"
            share = f"{wrong / answered:.1%} of the answers, {wrong} of {answered}"
            facts.append(NamedFact("wrong", share, origin, {}))
        origin = "mean share of errors over all coverages"
        return [*facts, NamedFact("AURC", f"{decision['AURC']:.4f}", origin, {})]

    def tables(self) -> dict[str, Table]:
        """Returns the tables of the report by the names of their files."""
        tables = super().tables()
        tables["confusion"] = Table(("true", "answer", "images"), self.confusion_pairs())
        tables["calibration"] = self.calibration.table
        if self.is_answered is not None:
            tables["risk_coverage"] = coverage_table(self.probability, self.risks)
        return tables

    def panel(self) -> str:
        """Returns the accuracy with its interval and its references, HTML."""
        low, high = self.interval
        text = f"of the images are right: {self.correct:,} of {self.count:,}"
        if self.num_things is not None and self.num_things < self.count:
            text += f", which show {self.num_things:,} things"
        text += f"; {self.interval_text} {low:.1%} to {high:.1%}{self.imbalance}."
        if self.things:
            text += f" {self.things[0].upper()}{self.things[1:]}."
        as_good = [each for each in self.references if not is_exceeded(each, self.score, low)]
        if as_good:
            names = " or ".join(each.name for each in as_good)
            text += f" This does not show that it is better than {names}."
        marks = [(reference_text(each), each.accuracy) for each in self.references]
        return result_panel(self.score, text, (low, high), marks)

    def charts(self, photos: Photos) -> list[str]:
        """Returns the confusion matrix, or of many classes the most frequent pairs; calibration."""
        if len(self.class_names) <= MAX_MATRIX:
            confusion = matrix_section(self.class_names, self.confusion, photos)
        else:
            confusion = pairs_section(self.confusion_pairs(), photos)
        return confusion + calibration_section(self.calibration, self.probability, self.risks)

    def confusion_pairs(self) -> list[tuple[str, str, int]]:
        """Returns the true class, the given one and the images of each pair that occurs.

        This is the confusion matrix without its zeros: memory does not hold the square of K.
        """
        names, classes = self.class_names, len(self.class_names)
        pairs, images = np.unique(
            self.true.astype("int64") * classes + self.given, return_counts=True
        )
        counted = zip(pairs.tolist(), images.tolist(), strict=True)
        return [(names[pair // classes], names[pair % classes], count) for pair, count in counted]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class MultilabelReport(EvaluationReport):
    """Average precision and F1 of a classifier on multi-label images.

    The loss is sigmoid cross-entropy, summed over the classes.

    Args:
        average_precisions: Average precision of each class, `(K,)`; NaN without images.
        micro_average_precision: Average precision of all labels together.
        thresholds: Probability above which an image was given a label, `(K,)`.
        best_thresholds: The thresholds with the best F1 of each class on these images; see
            `measures.best_threshold`.
        **fields: See `EvaluationReport`.
    """

    average_precisions: np.ndarray
    micro_average_precision: float
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
        return Share(float(self.right.mean()), self.independent)

    @property
    def summary(self) -> str:
        """The main numbers in one line."""
        return (
            f"mAP {self.score:.4f}, F1 {self.macro_f1:.4f} (micro {self.counts.micro_f1:.4f}) of "
            f"{self.count} images"
        )

    @property
    def columns(self) -> dict[str, Sequence]:
        """The table by class."""
        counts = self.counts
        return {
            "images": counts.images.tolist(),
            "AP": self.average_precisions.tolist(),
            "F1": counts.known(counts.f1).tolist(),
            "precision": counts.known(counts.precision).tolist(),
            "recall": counts.known(counts.recall).tolist(),
            "threshold": self.thresholds.tolist(),
        }

    def facts(self) -> list[NamedFact]:
        """Returns the facts of all images."""
        micro, mean = self.micro_average_precision, "mean over classes; micro"
        count = {"task": MULTILABEL, "images": self.count}
        precision = {"mAP": number_or_none(self.score), "micro_AP": number_or_none(micro)}
        f1 = {"macro_F1": number_or_none(self.macro_f1), "micro_F1": self.counts.micro_f1}
        exact = f"{self.right.sum()} images with all labels right; {self.interval_text}"
        share = {"subset_accuracy": float(self.subset_accuracy)}
        return [
            NamedFact("mAP", f"{self.score:.4f}", f"{mean} {micro:.4f}", count | precision),
            NamedFact("F1", f"{self.macro_f1:.4f}", f"{mean} {self.counts.micro_f1:.4f}", f1),
            NamedFact("exact", f"{self.subset_accuracy}", exact, share),
            NamedFact("loss", f"{self.loss:.4f}", numbers={"loss": self.loss}),
        ]

    def panel(self) -> str:
        """Returns the mean average precision, HTML."""
        return result_panel(self.score, "mAP, the mean of the average precision of the classes")
