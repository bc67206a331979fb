"""`find_drift`: a folder of photos against the reference of a classifier, or another folder."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.description.drift_reference import ALARM_LEVEL
from keras_vit.images.listing import image_files
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.monitoring.monitor import check_alarm_level, required_reference, signals_of
from keras_vit.monitoring.signals import (
    CLASS,
    FAMILIARITY,
    MAX_OUTPUTS,
    OUTPUT,
    PROBABILITY,
    MeasuredClassifier,
    counts_of,
)
from keras_vit.utils.files import atomic_folder, check_folder
from keras_vit.utils.progress import progress_bar
from keras_vit.utils.safe_text import for_line

from .drift_report import DriftReport, Strange, write_files
from .shift_tests import label_shift, shift_tests

_SHOWN = 24  # The strangest photos of the page.


def find_drift(
    model: Classifier | str | os.PathLike,
    photos: str | os.PathLike | Iterable[str | os.PathLike],
    *,
    like: str | os.PathLike | None = None,
    alarm_level: float = ALARM_LEVEL,
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    progress: bool = False,
) -> DriftReport:
    """Tests whether photos are like those that a classifier was calibrated on.

    Args:
        model: A classifier's folder, or an export, with the reference that `calibrate` keeps.
        photos: A folder of photos, or files and folders; labels are not needed.
        like: Photos to compare with instead of the calibration images.
        alarm_level: Probability of an alarm if nothing has drifted, of all tests together.
        batch_size: Images in a batch.
        output: Folder, new or empty, for `drift.html` and `drift.json`; None writes nothing.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If there is no reference, it is of another model, or there are no photos that
            can be read.

    Example:
    >>> find_drift("runs/pets", "week32").drifted
    ('brightness',)
    """
    check_alarm_level(alarm_level)
    if output is not None:
        check_folder(output)
    folders = [image_files(photos)] + ([] if like is None else [image_files(like)])
    classifier = open_classifier(model)
    reference = required_reference(classifier)
    measured = MeasuredClassifier(classifier)
    names = signals_of(reference, measured)
    kept, signals, lines = _measure(classifier, measured, folders[0], batch_size, progress)
    against, known = f"{reference.images:,} calibration images", reference.counts
    if like is not None:
        of_like, found, skipped = _measure(classifier, measured, folders[1], batch_size, progress)
        against, known = f"{len(of_like):,} photos in {like}", counts_of(found)
        lines += skipped
    lines.insert(0, f"photos  {len(kept):,} against {against}")
    if FAMILIARITY not in names:
        lines.append("strange without familiarity: an export, or no training images in calibrate")
    # The strangest are shown; an export has only their probability.
    by = FAMILIARITY if FAMILIARITY in names else PROBABILITY
    class_names = classifier.known_classes
    outputs = {f"{OUTPUT} {number}": name for number, name in enumerate(class_names)}
    if f"{OUTPUT} 0" not in signals:
        lines.append(f"outputs of the classes are not tested: more than {MAX_OUTPUTS:,} classes")
    elif f"{OUTPUT} 0" not in known:
        lines.append("outputs of the classes are not tested: calibrate again (keras-vit calibrate)")
    tested = {name: values for name, values in signals.items() if name in {*names, *outputs}}
    tests = [
        dataclasses.replace(test, signal=OUTPUT, class_name=outputs[test.signal])
        if test.signal in outputs
        else test
        for test in shift_tests(known, tested)
    ]
    classes = _classes(reference, known[CLASS], signals[CLASS], class_names, lines)
    drift = DriftReport(tuple(tests), classes, tuple(lines), alarm_level)
    if output is None:
        return drift
    order = np.argsort(signals[by], kind="stable")[:_SHOWN]
    strange = []
    for place in order:
        share = _share(known[by], signals[by][place])
        strange.append(Strange(kept[place], class_names[signals[CLASS][place]], share))
    with atomic_folder(output) as folder:
        written = write_files(folder, drift, strange, by)
    return dataclasses.replace(drift, written=tuple(pathlib.Path(output, name) for name in written))


def _measure(classifier, measured, files: Sequence[str], batch_size, progress):
    """The files that can be read, their signals `(N,)`, and lines about the others."""
    kept: list[str] = []
    parts: list[dict[str, np.ndarray]] = []
    skipped: list[tuple[str, str]] = []
    answering = classifier.answering
    size = batch_size if answering.input_preprocessing else 1  # Pixels differ in size.
    with progress_bar(len(files), "photos", disable=not progress) as bar:
        for start in range(0, len(files), size):
            inputs, places = [], []
            for file in files[start : start + size]:
                try:
                    inputs.append(answering.input_of(pathlib.Path(file).read_bytes()))
                    places.append(file)
                except (ValueError, OSError) as error:
                    skipped.append((file, str(error)))
            bar.update(len(files[start : start + size]))
            if not inputs:
                continue
            rows, leverages = measured.answers(inputs)
            if not np.isfinite(rows).all():
                raise ValueError(
                    "The model's outputs must be finite numbers. Received: NaN or infinity in the "
                    f"batch that starts with {places[0]}"
                )
            kept += places
            parts.append(measured.signals(inputs, rows, leverages, with_outputs=True))
    lines = [f"skipped {for_line(file)}: {for_line(reason)}" for file, reason in skipped[:5]]
    if len(skipped) > 5:
        lines.append(f"skipped {len(skipped) - 5} further files that cannot be read")
    if not kept:
        raise ValueError(
            f"There must be photos that can be read. Received: none; {'; '.join(lines[:3])}"
        )
    return kept, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, lines


def _classes(reference, known, answers, names, lines):
    """The share of each class in what the photos are compared with, and among the photos.

    Both are estimated by the most probable classes: the counts of the former and the answers
    `(N,)`. For the calibration images the estimate is their share itself.
    """
    if not reference.confusion:
        lines.append("classes without an estimate: a multi-label classifier")
        return {}
    before = label_shift(
        reference.confusion, np.repeat(list(known), list(known.values())), len(names)
    )
    now = label_shift(reference.confusion, answers, len(names))
    if before is None or now is None:
        lines.append("classes without an estimate: the calibration images do not tell them apart")
        return {}
    return dict(zip(names, zip(before.tolist(), now.tolist(), strict=True), strict=True))


def _share(counts, number):
    """The share of the reference that is at least as strange."""
    return sum(count for n, count in counts.items() if n <= number) / sum(counts.values())
