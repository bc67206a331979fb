"""`compare_classifiers`: a new classifier against an old one, on images that neither trained on."""

from __future__ import annotations

import dataclasses
import os
from typing import NamedTuple

import numpy as np

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.description.class_labels import MULTICLASS
from keras_vit.opening import open_predictor
from keras_vit.predictor import AnyClassifier
from keras_vit.reports.report import Report, Table, fact_of_line
from keras_vit.training.data import Examples, Source
from keras_vit.training.data.sources import with_things_among
from keras_vit.training.data.spec import NOT_LOOKED_FOR, Data, data_spec
from keras_vit.training.data.things import unit_numbers
from keras_vit.training.evaluation.classification import evaluate_examples
from keras_vit.training.evaluation.held_out import choose_images
from keras_vit.utils.files import check_file
from keras_vit.utils.progress import to_stderr
from keras_vit.utils.safe_text import for_line

from .paired import FAILS, UNCLEAR, Measure, Verdict, judge, measures_of, parse_gates

# Why an interval of a class may be without 0 where its p-value is above 5%.
CORRECTION = (
    "classes p-values are corrected for the number of classes (Holm); the intervals are not, each "
    "is 95% by itself"
)
_MAX_CLASSES = 20  # In the table: the least certain to be as good.


@dataclasses.dataclass(frozen=True, repr=False)
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
        if FAILS in outcomes:
            return 1
        return 3 if UNCLEAR in outcomes else 0

    def report(self) -> Report:
        """Returns the table of the measures, of the classes the least certain, and the flips."""
        by_class = [measure for measure in self.measures if measure.class_name is not None]
        by_class.sort(key=lambda measure: measure.interval[0])
        others = [measure for measure in self.measures if measure.class_name is None]
        rows = [
            (measure.name, str(measure), measure.p_value_text, f"{measure.count:,}")
            for measure in (*others, *by_class[:_MAX_CLASSES])
        ]
        header = ("metric", "NEW against OLD (95%)", "McNemar p", "images")
        flips = Table(("image", "true", "old", "new"), self.flips)
        tables = {"measures": Table(header, rows), "flips": flips}
        notes = [f"gate    {verdict}" for verdict in self.verdicts]
        if len(by_class) > 1:
            notes.insert(0, CORRECTION)
        facts = [fact_of_line(line) for line in self.lines]
        return Report(facts, tables, "measures", notes)

    def __str__(self) -> str:
        return str(self.report())

    def __repr__(self) -> str:
        main = self.measures[0]
        gates = "".join(f"; {verdict.gate}: {verdict.outcome}" for verdict in self.verdicts)
        return (
            f"<Comparison: {main.name} {main} on {main.count:,} images{gates}; print() shows all>"
        )


def compare_classifiers(
    old: AnyClassifier,
    new: AnyClassifier,
    data: Data,
    *,
    gate: str | None = None,
    split: str | None = None,
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    progress: bool = False,
    **options: object,
) -> Comparison:
    """Compares two classifiers on the same images; classes are matched by their names.

    Args:
        old: A `Classifier`, or anything that `keras_vit.load_classifier` takes.
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
    >>> comparison = compare_classifiers("runs/old", "runs/new", "photos", gate="top_1 > -0.5")
    >>> holds = comparison.exit_code == 0
    """
    gates, spec = parse_gates(gate), data_spec(data, options)
    if output is not None:
        check_file(output, ".csv")
    classifiers = [open_predictor(old), open_predictor(new)]
    _check_pair(classifiers, gates)
    images = _common_images(classifiers, spec, split)
    log = to_stderr if progress else None
    reports = [
        evaluate_examples(
            classifier,
            images.examples,
            images.class_names,
            batch_size=batch_size,
            progress=progress,
        )
        for classifier in classifiers
    ]
    source, lines = with_things_among([reports[0].examples], images.source, spec, log)
    if spec.ignores_copies:
        lines = [f"things  {NOT_LOOKED_FOR}"]
    units = unit_numbers(reports[0].examples, source)
    images = images._replace(lines=[*images.lines, *lines])
    comparison = _comparison(classifiers, images, reports, gates, units)
    if output is not None:
        comparison.report().tables["flips"].write_csv(output)
    return comparison


def _check_pair(classifiers, gates):
    """Raises ValueError unless two classifiers can be compared by the gates."""
    for word, classifier in zip(("OLD", "NEW"), classifiers, strict=True):
        if classifier.task != MULTICLASS:
            raise ValueError(
                "Both classifiers must have the task multiclass, one class an image. "
                f"Received: {classifier.task} for {word}"
            )
    abstains = any(classifier.description.labels.abstains for classifier in classifiers)
    if not abstains and any(gate.metric == "coverage" for gate in gates):
        raise ValueError(
            'A gate on coverage needs a classifier that answers "unknown" (keras-vit calibrate). '
            "Received: two that always answer"
        )


class _Images(NamedTuple):
    """The images that two classifiers are compared on.

    Args:
        examples: The images, labelled with numbers of `class_names`.
        class_names: The classes that both have, in the order of OLD.
        lines: What of the data is compared and what is left out.
        source: What the images are of.
    """

    examples: Examples
    class_names: list[str]
    lines: list[str]
    source: Source


def _common_images(classifiers, spec, split):
    """Returns the images that are held out or new for both, of classes that both have."""
    old_names, new_names = (classifier.class_names for classifier in classifiers)
    all_names = tuple(dict.fromkeys((*old_names, *new_names)))
    chosen = [
        choose_images(classifier, spec, split, all_names, together=True)
        for classifier in classifiers
    ]
    lines = [
        f"{word:<7} {line}"
        for word, images in zip(("OLD", "NEW"), chosen, strict=True)
        for line in images.lines
    ]

    # Held-out and new images lie in one part of the data.
    names = set.intersection(*(_names_of(images, split) for images in chosen))
    source = chosen[1].source
    pool = max(source.splits.values(), key=lambda pool: len(names.intersection(pool.names)))
    examples = pool.take([place for place, name in enumerate(pool.names) if name in names])
    if not len(examples):
        raise ValueError(
            "There must be images that neither classifier's run trained on. "
            f"Received: none in {spec.name}"
        )
    if rest := len(names) - len(examples):
        lines.append(f"images  {rest} in other parts of the data are left out")

    common = [name for name in old_names if name in new_names]
    is_common = np.isin(np.array(source.class_names, object)[examples.labels], common)
    if not is_common.any():
        raise ValueError(
            "There must be images of classes that both classifiers have. Received: none in "
            f"{spec.name}"
        )
    if apart := int((~is_common).sum()):
        others = _some(sorted(set(source.class_names) - set(common)))
        lines.append(
            f"images  {apart} of classes that only one of the two has are left out: {others}"
        )
    numbers = [common.index(name) if name in common else 0 for name in source.class_names]
    examples = examples.take(np.flatnonzero(is_common)).relabelled(np.array(numbers, "int32"))
    return _Images(examples, common, lines, source)


def _names_of(images, split):
    """Returns the names of the images that one classifier is evaluated on."""
    names = set(images.examples.names)
    if split is None and images.new is not None:
        names.update(images.new.names)
    return names


def _comparison(classifiers, images, reports, gates, units):
    """Returns what the reports on the same images say."""
    old, new = reports
    names, class_names = old.examples.names, images.class_names
    if list(names) != list(new.examples.names):
        raise ValueError("Both classifiers must read the same images. Received: others for NEW")
    number_of = {name: number for number, name in enumerate(class_names)}
    true = np.array([number_of[old.class_names[number]] for number in old.true])
    measures = measures_of(old, new, true, class_names, units)
    verdicts = [
        judge(gate, [measure for measure in measures if measure.metric == gate.metric])
        for gate in gates
    ]
    flips = [
        (names[place], class_names[true[place]], old.answers[place], new.answers[place])
        for place in np.flatnonzero(old.right != new.right)
    ]

    folders = [
        name_of_folder(classifier.folder) or classifier.source or "a classifier in memory"
        for classifier in classifiers
    ]
    lines = [
        f"models  OLD {folders[0]}, NEW {folders[1]}",
        f"images  {old.count:,} of {len(class_names):,} classes that both have",
        f"top-1   OLD {old.top_1}, NEW {new.top_1}; 95% intervals",
        *images.lines,
    ]
    for word, report, other in (("OLD", old, new), ("NEW", new, old)):
        if report.is_answered is None and other.is_answered is not None:
            lines.append(
                f"unknown {word} answers every image, without a bound: it is not calibrated"
            )
    if skipped := {*images.source.skipped, *old.skipped}:
        lines.append(f"skipped files that cannot be read: {len(skipped)}")
    if without := sorted(set(class_names) - {class_names[number] for number in true}):
        lines.append(f"classes {len(without)} have no images and no recall: {_some(without)}")
    return Comparison(tuple(measures), tuple(verdicts), tuple(map(for_line, lines)), tuple(flips))


def _some(names):
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
