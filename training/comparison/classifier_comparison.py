"""`compare_classifiers`: a new classifier against an old one, on images that neither trained on."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.description.tasks import MULTICLASS
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.prediction import predict_batch
from keras_vit.training.data import Examples, evaluation_batches
from keras_vit.training.data.outputs import check_output
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.classification import ClassificationReport, evaluate_examples
from keras_vit.training.evaluation.held_out import choose_images
from keras_vit.training.evaluation.intervals import accuracy_text
from keras_vit.utils.fields import required
from keras_vit.utils.files import atomic_folder, check_folder
from keras_vit.utils.safe_text import for_line
from keras_vit.utils.text_tables import align_columns

from .comparison_files import Flips, table_rows, write_files
from .gates import FAILS, UNCLEAR, Gate, Verdict, judge, parse_gates
from .measures import Measure, Outcomes, measures_of

TURNS = 11  # Turns of the measurement of speed: the interval of the median needs 6.


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A new classifier against an old one; `str` gives the summary.

    Args:
        measures: All numbers with their intervals.
        verdicts: What the images say about each gate.
        lines: What was compared and what was left out.
        written: The files that were written.
    """

    measures: tuple[Measure, ...]
    verdicts: tuple[Verdict, ...]
    lines: tuple[str, ...]
    written: tuple[pathlib.Path, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 if a gate fails, else 3 if one is undecided, else 0."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return 1 if FAILS in outcomes else 3 if UNCLEAR in outcomes else 0

    def __str__(self) -> str:
        gates = [f"gate    {verdict}" for verdict in self.verdicts]
        table = align_columns(table_rows(self.measures), left=[0])
        return "\n".join([*self.lines, "", table, *gates])


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
        output: Folder, new or empty, for the page, JSON, Markdown and JUnit; None writes nothing.
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
        check_folder(output)
        check_output(output, spec.data)
    classifiers = [open_classifier(old), open_classifier(new)]
    common = _common_classes(*classifiers)
    _check_gates(gates, classifiers)
    examples, names, lines = _images(classifiers, spec, split)
    apart = _apart(classifiers, examples, names, common, batch_size)
    shared = [number for number, name in enumerate(names) if name in common]
    examples = examples.take(np.flatnonzero(np.isin(examples.labels, shared)))
    examples = examples.relabelled(_numbers(names, common))
    if not len(examples):
        raise ValueError(
            "There must be images of classes that both classifiers have. Received: none in "
            f"{spec.name}"
        )
    reports = [
        _report(classifier, examples, common, batch_size, progress) for classifier in classifiers
    ]
    of_old, of_new = map(_outcomes, reports)
    answers, others = (required(report.answers, "answers") for report in reports)
    if list(answers.examples.names) != list(others.examples.names):
        raise ValueError("Both classifiers must read the same images. Received: others for NEW")
    true = np.asarray(answers.examples.labels)
    ratios = _speed_ratios(classifiers, answers.examples, batch_size)
    measures = measures_of(of_old, of_new, true, common, ratios)
    verdicts = tuple(
        judge(gate, [measure for measure in measures if measure.metric == gate.metric])
        for gate in gates
    )
    without = sorted(set(common) - {common[k] for k in true})
    top_1 = [accuracy_text(report.top_1, report.count) for report in reports]
    lines = [
        f"images  {len(true):,} of {len(common):,} classes that both have",
        f"top-1   OLD {top_1[0]}, NEW {top_1[1]}; 95% intervals",
        *lines,
        *apart,
    ]
    if reports[0].skipped:
        lines.append(f"skipped {len(reports[0].skipped)} files that cannot be read")
    if without:
        lines.append(f"classes {len(without)} have no images and no recall: {_some(without)}")
    found = Comparison(tuple(measures), verdicts, tuple(map(for_line, lines)))
    if output is None:
        return found
    flips = Flips(answers.examples, [common[k] for k in true], of_old, of_new)
    with atomic_folder(output) as folder:
        titles = [_title(old), _title(new)]
        files = write_files(folder, titles, found.measures, verdicts, lines, flips)
    written = tuple(pathlib.Path(output, name) for name in files)
    return dataclasses.replace(found, written=written)


def _title(model):
    return str(model.folder or "") if isinstance(model, Classifier) else os.fspath(model)


def _some(names):
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _common_classes(old, new):
    for word, classifier in (("OLD", old), ("NEW", new)):
        if classifier.task != MULTICLASS:
            raise ValueError(
                "Both classifiers must have the task multiclass, one class an image. "
                f"Received: {classifier.task} for {word}"
            )
    common = [name for name in old.class_names if name in set(new.class_names)]
    if not common:
        raise ValueError(
            "Both classifiers must have a class in common. Received: "
            f"{_some(old.class_names)} and {_some(new.class_names)}"
        )
    return common


def _check_gates(gates: Sequence[Gate], classifiers: Sequence[Classifier]) -> None:
    abstains = any(classifier.description.labels.abstains for classifier in classifiers)
    if not abstains and any(gate.metric == "coverage" for gate in gates):
        raise ValueError(
            'A gate on coverage needs a classifier that answers "unknown" (keras-vit calibrate). '
            "Received: two that always answer"
        )


def _images(classifiers, spec, split):
    """The images that both hold out or that are new to both, with their class names."""
    known = dict.fromkeys(name for classifier in classifiers for name in classifier.class_names)
    chosen = [choose_images(classifier, spec, split, tuple(known)) for classifier in classifiers]
    parts = []  # The images of each classifier: held out, and new to its run.
    for images in chosen:
        new = [images.new] if split is None and images.new is not None else []
        parts.append([images.examples, *new])
    of_old, of_new = ({name for part in of for name in part.names} for of in parts)
    wanted, source = of_old & of_new, chosen[1].source
    usable = [
        (pool, [place for place, name in enumerate(pool.names) if name in wanted])
        for pool in source.splits.values()
    ]
    # Held-out and new images lie in one part of the data.
    pool, places = max(usable, key=lambda item: len(item[1]))
    if not places:
        raise ValueError(
            "There must be images that neither classifier's run trained on. "
            f"Received: none in {spec.name}"
        )
    words = ("OLD", "NEW")
    lines = [
        f"{word:<7} {line}" for word, of in zip(words, chosen, strict=True) for line in of.lines
    ]
    both = [len(wanted.intersection(part.names)) for part in parts[1]]
    if len(both) > 1 and all(both):
        lines.append(
            f"images  {both[0]} that NEW's run held out and {both[1]} that are new to it are "
            "compared together"
        )
    if rest := len(wanted) - len(places):
        lines.append(f"images  {rest} in other parts of the data are left out")
    return pool.take(places), source.class_names, lines


def _numbers(names, common):
    """For each class of the data its number among the common ones; 0 where it is not used."""
    places = {name: number for number, name in enumerate(common)}
    return np.array([places.get(name, 0) for name in names], "int32")


def _apart(classifiers, examples: Examples, names, common, batch_size):
    """A line for each classifier with the images of classes that only it has."""
    lines = []
    for word, classifier in zip(("OLD", "NEW"), classifiers, strict=True):
        own = [name for name in classifier.class_names if name not in set(common)]
        numbers = [number for number, name in enumerate(names) if name in own]
        if not own:
            continue
        line = f"apart   {len(own)} classes that only {word} has: {_some(own)}"
        places = np.flatnonzero(np.isin(examples.labels, numbers))
        if len(places):
            of_own = examples.take(places).relabelled(_numbers(names, own))
            report = _report(classifier, of_own, own, batch_size, False)
            line += f"; {report.correct} of their {report.count} images are right"
        lines.append(line)
    return lines


def _report(classifier, examples, names, batch_size, progress) -> ClassificationReport:
    report = evaluate_examples(
        classifier,
        examples,
        names,
        batch_size=batch_size,
        skip_unreadable=examples.local,
        progress=progress,
    )
    if not isinstance(report, ClassificationReport):
        raise ValueError(f"Both classifiers must have one class an image. Received: {report}")
    return report


def _outcomes(report):
    answers, selective = report.answers, report.selective
    names = np.array(report.class_names, object)
    answered = None if selective is None else selective.is_answered
    return Outcomes(names[answers.given], answers.probability, answers.right, answered)


def _speed_ratios(classifiers, examples, batch_size):
    """The speed of NEW's model by OLD's number's in each turn, on the same images."""
    examples = examples.take(range(min(batch_size, len(examples))))
    models = []
    for classifier in classifiers:
        preprocessing = classifier.input_preprocessing
        batches = evaluation_batches(
            examples, preprocessing=preprocessing, batch_size=len(examples)
        )
        models.append((classifier.model, [np.asarray(images) for images, _ in batches]))

    def seconds(model, batches):
        began = time.perf_counter()
        for images in batches:
            predict_batch(model, images)
        return time.perf_counter() - began

    for model in models:
        seconds(*model)  # Compiles.
    ratios = []
    for turn in range(TURNS):
        order = (0, 1) if turn % 2 else (1, 0)
        took = {place: seconds(*models[place]) for place in order}
        ratios.append(took[0] / max(took[1], 1e-9))
    return ratios
