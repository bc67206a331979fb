"""Reports of evaluations: numbers, text, numbers by class, files and a page."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.description.class_labels import MULTILABEL, SEPARATOR
from keras_vit.description.run_record import Reference
from keras_vit.images.samples import seen_picture
from keras_vit.preprocessing import Preprocessing
from keras_vit.reports.pages import (
    GridPicture,
    Line,
    calibration_chart,
    chart,
    columns,
    confusion_table,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    report_section,
    result_panel,
    with_photos,
    write_page,
)
from keras_vit.reports.report import (
    FACTS_TABLE,
    METRICS_JSON,
    NamedFact,
    Report,
    Table,
    fact_of_line,
)
from keras_vit.training.data import Examples
from keras_vit.training.data.examples import first_names
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.data.spec import NOT_LOOKED_FOR
from keras_vit.utils.files import REPORT, SKIPPED
from keras_vit.utils.intervals import exact_interval, wilson_interval
from keras_vit.utils.json_files import number_or_none

from .measures import (
    UNEQUAL,
    Calibration,
    ClassCounts,
    Share,
    accuracy_text,
    calibration_of,
    coverage_curve,
    coverage_table,
    independent_images,
)
from .references import beside_references, is_exceeded, most_frequent, reference_text

MAX_SHOWN = 100  # Errors on a page.
MAX_MATRIX = 20  # Classes of a confusion matrix on a page; more are listed as pairs.
_MAX_PAIRS = 20
_MAX_ROWS = 100  # Classes in the table of a page.
_MIN_IMAGES = 20  # The curve of risk and coverage of fewer is chance.

_TABLES = (
    FACTS_TABLE,
    "per_class",
    "answers",
    "skipped",
    "confusion",
    "calibration",
    "risk_coverage",
)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class EvaluationReport(abc.ABC):
    """The answers of a classifier to N images, and numbers about them; `str` gives the text.

    Args:
        class_names: The K names.
        true: The class of each image, int `(N,)`; for multi-label data whether it has each label,
            bool `(N, K)`.
        given: The answers, in the same form.
        probability: The probability of each answer, `(N,)`. For multi-label data, the probability
            of the most confident wrong decision, or of the least confident one if all are right.
        loss: Mean over images, nats.
        examples: The images; None where only the outputs are known.
        preprocessing: How an image became the model's input; None where it is not known.
        skipped: `(path, reason)` of images that could not be read.
        images_per_second: Speed of decoding and the model together.
        split_lines: What of the data was evaluated, and what was left out.
        new: The report on images that are new to the classifier's run, if others are reported on.
        simple: What simple numbers of the photos reach without the classifier, if it is known.
        is_shown_before: Whether each image shows a thing of which the run trained on an image, or
            chose its weights by one, bool `(N,)`; None where it is not known.
        ignores_copies: Whether copies were not looked for when the parts were drawn.
        run_test: The accuracy on the test images of the classifier's run, where others are reported
            on; None where it is not known.
        trained: Images of each class that the classifier was trained on, K numbers; None where
            they are not known.
        units: The thing or group of each image, int from 0 `(N,)`, whose images are counted
            together by intervals; None where each image stands alone.
    """

    class_names: tuple[str, ...]
    true: np.ndarray
    given: np.ndarray
    probability: np.ndarray
    loss: float
    examples: Examples | None = None
    preprocessing: Preprocessing | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    images_per_second: float = 0.0
    split_lines: tuple[str, ...] = ()
    new: EvaluationReport | None = None
    simple: Reference | None = None
    is_shown_before: np.ndarray | None = None
    ignores_copies: bool = False
    run_test: Reference | None = None
    trained: tuple[int, ...] | None = None
    units: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Images evaluated."""
        return len(self.true)

    @property
    def on_new_things(self) -> Share | None:
        """Share of right answers to images of things that were not trained on.

        None where all images are such, none is, or it is not known.
        """
        seen = self.is_shown_before
        if seen is None or not seen.any() or seen.all():
            return None
        return Share(self.right[~seen].mean(), self._worth(self.right, ~seen))

    @functools.cached_property
    def independent(self) -> int:
        """Independent images that the right answers are worth; see `independent_images`."""
        return self._worth(self.right, np.ones(self.count, bool))

    def _worth(self, right, chosen):
        if self.units is None:
            return int(chosen.sum())
        return independent_images(right[chosen], self.units[chosen])

    @property
    def interval_text(self) -> str:
        """What the interval is of."""
        if self.independent == self.count:
            return "95% interval"
        return f"95% interval of {self.independent} independent images"

    @property
    def things(self) -> str:
        """What the images say of things that were not trained on; "" if all show such things."""
        texts, seen = [], self.is_shown_before
        if seen is not None and (new := self.on_new_things) is not None:
            count = int((~seen).sum())
            text = f"{count} of them show things that were not trained on: {new} of these are right"
            texts.append(text)
        elif seen is not None and seen.any():
            texts.append(
                "none of them shows a thing that was not trained on: this test says nothing about "
                "new things"
            )
        if self.ignores_copies:
            texts.append(NOT_LOOKED_FOR)
        return "; ".join(texts)

    @property
    def num_things(self) -> int | None:
        """How many things the images show; None where each image stands alone."""
        return None if self.units is None else len(np.unique(self.units))

    @property
    def main_facts(self) -> list[NamedFact]:
        """The facts that stand at the end of a run and of an evaluation."""
        facts = self.facts()[:2]
        if self.things:
            facts.append(NamedFact("things", self.things, numbers={}))
        if self.run_test is not None:
            facts.append(NamedFact("run", self.compared_with_run, numbers={}))
        return facts

    @property
    def compared_with_run(self) -> str:
        """The accuracy on the test images of the run, and whether this one differs from it."""
        return ""

    @functools.cached_property
    def right(self) -> np.ndarray:
        """Whether each answer is right, bool `(N,)`."""
        return (self.true == self.given).reshape(self.count, -1).all(axis=1)

    @functools.cached_property
    def counts(self) -> ClassCounts:
        """Right and wrong answers by class."""
        return ClassCounts.of(self.true, self.given, len(self.class_names))

    @property
    @abc.abstractmethod
    def score(self) -> float:
        """The number by which the best weights are chosen."""

    @property
    @abc.abstractmethod
    def summary(self) -> str:
        """The main numbers in one line."""

    @property
    @abc.abstractmethod
    def columns(self) -> dict[str, Sequence]:
        """The table by class: from each heading to its K numbers; the first is "images"."""

    @abc.abstractmethod
    def facts(self) -> list[NamedFact]:
        """Returns the facts of all images; the first two are the main ones."""

    def tables(self) -> dict[str, Table]:
        """Returns the tables of the report by the names of their files."""
        columns = dict(self.columns)
        if self.trained is not None:
            columns["trained on"] = self.trained
        by_class = zip(self.class_names, *columns.values(), strict=True)
        tables = {"per_class": Table(("class", *columns), list(by_class))}
        if self.examples is not None:
            cells = (
                self.examples.names,
                map(self.text_of, self.true),
                map(self.text_of, self.given),
                self.probability.tolist(),
                self.right.astype(int).tolist(),
            )
            header = ("image", "true", "answer", "probability", "right")
            tables["answers"] = Table(header, list(zip(*cells, strict=True)))
        if self.skipped:
            tables[pathlib.Path(SKIPPED).stem] = Table(("path", "reason"), self.skipped)
        return tables

    def by_recall(self) -> Table:
        """Returns the table by class, the lowest recall first, classes without images last."""
        table = self.tables()["per_class"]
        order = np.argsort(self.counts.known(self.counts.recall), kind="stable")  # NaN last.
        return Table(table.columns, [table.rows[k] for k in order])

    def report(self) -> Report:
        """Returns the facts and tables of all images."""
        facts = [*map(fact_of_line, self.split_lines)]
        facts.append(NamedFact("images", f"{self.count} (each once)", numbers={}))
        facts += self.facts()[2:]
        if self.new is not None:
            text = f"images that are new to the run: {self.new.summary}"
            facts.append(NamedFact("new", text, numbers={}))
        counted = zip(self.class_names, self.counts.images, strict=True)
        absent, notes = [name for name, count in counted if not count], []
        if absent:
            more = f" and {len(absent) - 10} more" if len(absent) > 10 else ""
            notes = [f"not in the means, as no image has it: {', '.join(absent[:10])}{more}"]
        if self.skipped:
            notes += ["", f"images that could not be read: {len(self.skipped)}"]
            notes += describe_skipped(self.skipped)
        tables, main = self.tables(), self.main_facts
        return Report(facts, tables, "per_class", notes, main, self._numbers())

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as types of JSON; None where a class has no images."""
        return self.report().to_json()

    def _numbers(self):
        """What the JSON has in addition to the facts."""
        columns = {_JSON_NAMES.get(head, head): values for head, values in self.columns.items()}
        by_class = {
            name: {head: number_or_none(values[k]) for head, values in columns.items()}
            for k, name in enumerate(self.class_names)
        }
        return {
            **self._facts_of_things(),
            "loss": self.loss,
            "images_per_second": self.images_per_second,
            "by_class": by_class,
            "skipped": [list(item) for item in self.skipped],
            **({"split": list(self.split_lines)} if self.split_lines else {}),
            **({} if self.new is None else {"new": self.new.to_json()}),
        }

    def _facts_of_things(self):
        if self.is_shown_before is None:
            return {}
        new, share = int((~self.is_shown_before).sum()), self.on_new_things
        return {"new_things": {"images": new, "right": None if share is None else float(share)}}

    def __str__(self) -> str:
        return str(self.report())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}; print() shows all>"

    def write(self, folder: str | os.PathLike) -> list[pathlib.Path]:
        """Writes all numbers (JSON), the tables (CSV), and a page with the most confident errors.

        The files of an older evaluation are removed first, and the numbers are written last: where
        they are, all files are of one evaluation.

        Args:
            folder: Created if it does not exist.

        Returns:
            The files written.
        """
        folder = pathlib.Path(folder)
        page = folder / REPORT
        for name in (METRICS_JSON, REPORT, *(f"{table}.csv" for table in _TABLES)):
            (folder / name).unlink(missing_ok=True)
        parts = report_parts(self, error_pictures(self, MAX_SHOWN))
        write_page(page, "Evaluation", *parts)
        return [*self.report().write(folder), page]

    def text_of(self, classes: np.ndarray) -> str:
        """Returns the name of a class number, or the names of labels, bool `(K,)`, between ";"."""
        if classes.ndim:
            return SEPARATOR.join(self.class_names[k] for k in np.flatnonzero(classes).tolist())
        return self.class_names[int(classes)]


# Names in the JSON of columns of the table.
_JSON_NAMES = {"accuracy": "recall"}


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
        return wilson_interval(round(self.top_1 * self.independent), self.independent)

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
        low_before, _ = wilson_interval(round(before * images), images)
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


def report_parts(report: EvaluationReport, pictures: Mapping[int, GridPicture]) -> list[str]:
    """Returns the parts of a page about an `EvaluationReport`.

    Args:
        report: The report.
        pictures: The most confident errors, by `error_pictures`.
    """
    whole = report.report()
    header, *rows = report.by_recall().texts()
    facts = report_section(dataclasses.replace(whole, shown=""))
    tables = [facts, facts_table(rows[:_MAX_ROWS], header)]
    parts = [_panel(report), heading("Numbers"), columns(tables)]
    if len(rows) > _MAX_ROWS:
        parts.append(paragraph(f"The {_MAX_ROWS} of {len(rows):,} classes with the lowest recall."))
    if report.true.ndim == 1:  # One class an image.
        parts += [*_confusion(report, pictures), *_calibration(report)]
    wrong = int((~report.right).sum())
    text = f"{wrong:,} of {report.count:,} images have a wrong answer."
    if pictures:
        text += f" This page shows {len(pictures)} of them, the most confident first."
    if any(picture.seen for picture in pictures.values()):
        text += " Next to each photo is what the model saw of it."
    errors = picture_grid(pictures.values(), is_large=True)
    return [*parts, heading("Most confident errors"), paragraph(text), errors]


def _panel(report):
    """The main number."""
    if report.true.ndim == 2:
        return result_panel(report.score, "mAP, the mean of the average precision of the classes")
    low, high = report.interval
    text = f"of the images are right: {report.correct:,} of {report.count:,}"
    if report.num_things is not None and report.num_things < report.count:
        text += f", which show {report.num_things:,} things"
    text += f"; {report.interval_text} {low:.1%} to {high:.1%}{report.imbalance}."
    if report.things:
        text += f" {report.things[0].upper()}{report.things[1:]}."
    references = report.references
    if as_good := [each.name for each in references if not is_exceeded(each, report.score, low)]:
        text += f" This does not show that it is better than {' or '.join(as_good)}."
    marks = [(reference_text(each), each.accuracy) for each in references]
    return result_panel(report.score, text, (low, high), marks)


def error_pictures(
    report: EvaluationReport, count: int, relative: Callable[[str], str] | None = None
) -> dict[int, GridPicture]:
    """Returns the most confident errors, by their place in the report.

    Args:
        report: The report.
        count: The most pictures.
        relative: Shortens the name of an image; such a picture has no link to its file.
    """
    wrong = np.flatnonzero(~report.right)
    chosen = wrong[np.argsort(-report.probability[wrong], kind="stable")][:count]
    if report.examples is None or not len(chosen):
        return {}
    encoded = report.examples.take(chosen).encoded()  # In ascending order.
    images = {place: image for place, (image, _) in zip(sorted(chosen), encoded, strict=True)}
    pictures = {}
    for number in chosen.tolist():
        given, true = (
            report.text_of(classes[number]).replace(SEPARATOR, ", ") or "no label"
            for classes in (report.given, report.true)
        )
        caption = {f"answer ({report.probability[number]:.1%})": given, "true": true}
        name = report.examples.names[number]
        if relative is not None:
            name, caption = "", {**caption, relative(name): ""}
        encoded, preprocessing = images[number], report.preprocessing
        picture = GridPicture(name, encoded, caption, seen_picture(encoded, preprocessing))
        if preprocessing is not None:
            picture = picture._replace(bit_depth=preprocessing.bit_depth)
        pictures[number] = picture
    return pictures


def _confusion(report, pictures):
    """The confusion matrix, or of many classes the pairs that are confused most often."""
    photos = collections.defaultdict(list)
    for number, picture in pictures.items():
        pair = report.text_of(report.true[number]), report.text_of(report.given[number])
        photos[pair].append(picture)
    hint = " A click on an underlined number shows photos." if photos else ""
    if len(report.class_names) <= MAX_MATRIX:
        text = f"Rows are true classes, columns are answers, percent are of the row.{hint}"
        table = confusion_table(report.class_names, report.confusion, photos)
        return [heading("Confusion"), paragraph(text), table]
    wrong = [pair for pair in report.confusion_pairs() if pair[0] != pair[1]]
    wrong = sorted(wrong, key=lambda pair: -pair[2])[:_MAX_PAIRS]
    rows = [
        (f"{true} taken for {answer}", with_photos(count, (true, answer), count, photos))
        for true, answer, count in wrong
    ]
    text = f"The {len(rows)} most frequent ones.{hint}"
    return [heading("Confusion"), paragraph(text), facts_table(rows, ("confusion", "images"))]


def _calibration(report):
    """The accuracy by confidence, and the share of errors by the share of images answered."""
    bins = [row[2:] for row in report.calibration.table.rows if row[2]]
    intervals = [wilson_interval(round(count * accuracy), count) for count, _, accuracy in bins]
    title, parts = "Calibration", [calibration_chart(bins, intervals, _MIN_IMAGES)]
    text = (
        "Each dot is of photos whose answers have about the same probability, with the 95% "
        "interval of their accuracy; a larger dot has more photos. Below the dotted line answers "
        "are right less often than their probability says."
    )
    if report.count >= _MIN_IMAGES:
        rows = coverage_table(report.probability, report.risks).rows
        risk = Line("", [(share, errors) for share, errors, _ in rows], "series-1")
        parts.append(chart("Share of errors", [risk], "share of images answered", shares="xy"))
        title += ", risk and coverage"
        text += " The other chart has the errors among the most probable answers."
    return [heading(title), paragraph(text), columns(parts)]
