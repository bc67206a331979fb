"""`compare_classifiers`: a new classifier against an old one, on images that neither trained on."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.classifier import Classifier
from keras_vit.description.class_labels import MULTICLASS
from keras_vit.opening import open_classifier
from keras_vit.training.data.image_files import FileExamples
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.classification import evaluate_examples
from keras_vit.training.evaluation.held_out import choose_images
from keras_vit.training.evaluation.measures import Share
from keras_vit.utils.fields import required
from keras_vit.utils.files import check_file
from keras_vit.utils.report import Report, Table
from keras_vit.utils.safe_text import for_line

from .paired import FAILS, UNCLEAR, Measure, Verdict, judge, measures_of, parse_gates

# Why an interval of a class may be without 0 where its p-value is above 5%.
CORRECTION = (
    "classes p-values are corrected for the number of classes (Holm); the intervals are not, each "
    "is 95% by itself"
)
_MAX_CLASSES = 20  # In the table: the least certain to be as good.


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A new classifier against an old one; `str` gives the summary.

    Args:
        measures: All numbers with their intervals.
        verdicts: What the images say about each gate.
        lines: What was compared and what was left out.
        flips: `(image, class, OLD's answer, NEW's answer)` where one of the two is right.
    """

    measures: tuple[Measure, ...]
    verdicts: tuple[Verdict, ...]
    lines: tuple[str, ...]
    flips: tuple[tuple[str, str, str, str], ...]

    @property
    def exit_code(self) -> int:
        """1 if a gate fails, else 3 if one is undecided, else 0."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return 1 if FAILS in outcomes else 3 if UNCLEAR in outcomes else 0

    def report(self) -> Report:
        """Returns the table of the measures, of the classes the least certain, and the flips."""
        by_class = [measure for measure in self.measures if measure.class_name is not None]
        by_class.sort(key=lambda measure: measure.interval[0])
        others = [measure for measure in self.measures if measure.class_name is None]
        rows = [
            (measure.name, str(measure), p_value_text(measure.p_value), f"{measure.count:,}")
            for measure in (*others, *by_class[:_MAX_CLASSES])
        ]
        header = ("metric", "NEW against OLD (95%)", "McNemar p", "images")
        flips = Table(("image", "true", "old", "new"), self.flips)
        tables = {"measures": Table(header, rows), "flips": flips}
        notes = [f"gate    {verdict}" for verdict in self.verdicts]
        if len(by_class) > 1:
            notes.insert(0, CORRECTION)
        return Report(self.lines, {}, tables, "measures", notes)

    def __str__(self) -> str:
        return str(self.report())


def compare_classifiers(
    old: Classifier | str | os.PathLike,
    new: Classifier | str | os.PathLike,
    data: Data,
    *,
    gate: str | None = None,
    split: str | None = None,
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    progress: bool = False,
    **options: Any,
) -> Comparison:
    """Compares two classifiers on the same images; classes are matched by their names.

    Args:
        old: A classifier's folder, an export of any format, or what else `open_model` opens.
        new: The same.
        data: The images, as for `evaluate_classifier`. Class numbers in arrays follow OLD, then
            the classes that only NEW has.
        gate: Conditions such as "top_1 > -0.5, negative_flips < 1%"; see docs/compare.md.
        split: "train", "validation", "calibration" or "test"; by default the images that each
            run held out or that are new to it.
        batch_size: Images in a batch.
        output: A new CSV file of the images that only one of the two has right; None writes none.
        progress: Whether to show lines with the rate and the time left.
        **options: Other fields of `DataSpec` that evaluations read.

    Raises:
        ValueError: If a gate cannot be parsed, a classifier is multi-label, the two have no
            class in common, or there are no labelled images that both held out.

    Example:
    >>> found = compare_classifiers("runs/old", "runs/new", "photos", gate="top_1 > -0.5")
    >>> found.exit_code
    0
    """
    gates, spec = parse_gates(gate), data_spec(data, **options)
    if output is not None:
        check_file(output, ".csv")
    classifiers = [open_classifier(old), open_classifier(new)]
    for word, classifier in zip(("OLD", "NEW"), classifiers, strict=True):
        if classifier.task != MULTICLASS:
            raise ValueError(
                "Both classifiers must have the task multiclass, one class an image. "
                f"Received: {classifier.task} for {word}"
            )
    known = set(classifiers[1].class_names)
    common = [name for name in classifiers[0].class_names if name in known]
    abstains = [classifier.description.labels.abstains for classifier in classifiers]
    if not any(abstains) and any(gate.metric == "coverage" for gate in gates):
        raise ValueError(
            'A gate on coverage needs a classifier that answers "unknown" (keras-vit calibrate). '
            "Received: two that always answer"
        )
    examples, names, lines = _images(classifiers, spec, split)
    places = {name: number for number, name in enumerate(common)}
    is_common = np.isin(examples.labels, [k for k, name in enumerate(names) if name in places])
    numbers = np.array([places.get(name, 0) for name in names], "int32")
    apart = len(examples) - int(is_common.sum())
    examples = examples.take(np.flatnonzero(is_common)).relabelled(numbers)
    if not len(examples):
        raise ValueError(
            "There must be images of classes that both classifiers have. Received: none in "
            f"{spec.name}"
        )
    reports: list[Any] = [
        evaluate_examples(
            classifier,
            examples,
            common,
            batch_size=batch_size,
            skip_unreadable=isinstance(examples, FileExamples),
            progress=progress,
        )
        for classifier in classifiers
    ]
    of_old, of_new = reports
    evaluated, others = (required(report.examples, "examples") for report in reports)
    if list(evaluated.names) != list(others.names):
        raise ValueError("Both classifiers must read the same images. Received: others for NEW")
    true = np.asarray(evaluated.labels)
    measures = measures_of(of_old, of_new, true, common)
    top_1 = [Share(report.score, report.count) for report in reports]
    old, new = (name_of_folder(classifier.folder) for classifier in classifiers)
    lines = [
        f"models  OLD {old}, NEW {new}",
        f"images  {len(true):,} of {len(common):,} classes that both have",
        f"top-1   OLD {top_1[0]}, NEW {top_1[1]}; 95% intervals",
        *lines,
    ]
    if any(abstains) and not all(abstains):
        word = "OLD" if abstains[1] else "NEW"
        lines.append(f"unknown {word} answers every image, without a bound: it is not calibrated")
    if apart:
        others = sorted(set(names) - set(common))
        lines.append(
            f"images  {apart} of classes that only one of the two has are left out: {_some(others)}"
        )
    if reports[0].skipped:
        lines.append(f"skipped {len(reports[0].skipped)} files that cannot be read")
    if without := sorted(set(common) - {common[k] for k in true}):
        lines.append(f"classes {len(without)} have no images and no recall: {_some(without)}")
    flips = [
        (evaluated.names[place], common[true[place]], of_old.answers[place], of_new.answers[place])
        for place in np.flatnonzero(of_old.right != of_new.right)
    ]
    verdicts = [
        judge(gate, [measure for measure in measures if measure.metric == gate.metric])
        for gate in gates
    ]
    found = Comparison(tuple(measures), tuple(verdicts), tuple(map(for_line, lines)), tuple(flips))
    if output is not None:
        found.report().tables["flips"].write_csv(output)
    return found


def p_value_text(p_value: float | None) -> str:
    """Returns a p-value with four digits, as "<0.0001" where they would be zeros; "" for None."""
    if p_value is None:
        return ""
    return f"{p_value:.4f}" if p_value >= 0.00005 else "<0.0001"


def _some(names):
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _images(classifiers, spec, split):
    """The images that both hold out or that are new to both, with their class names."""
    known = dict.fromkeys(name for classifier in classifiers for name in classifier.class_names)
    chosen = [choose_images(classifier, spec, split, tuple(known)) for classifier in classifiers]
    names = [set(images.examples.names) for images in chosen]
    for own, images in zip(names, chosen, strict=True):
        if split is None and images.new is not None:
            own.update(images.new.names)
    wanted, source = names[0] & names[1], chosen[1].source
    # Held-out and new images lie in one part of the data.
    pool = max(source.splits.values(), key=lambda pool: len(wanted.intersection(pool.names)))
    places = [place for place, name in enumerate(pool.names) if name in wanted]
    if not places:
        raise ValueError(
            "There must be images that neither classifier's run trained on. "
            f"Received: none in {spec.name}"
        )
    lines = [
        f"{word:<7} {line}"
        for word, of in zip(("OLD", "NEW"), chosen, strict=True)
        for line in of.lines
    ]
    if rest := len(wanted) - len(places):
        lines.append(f"images  {rest} in other parts of the data are left out")
    return pool.take(places), source.class_names, lines
