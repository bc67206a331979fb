"""Verification of an export: by its golden samples anywhere, or against its classifier."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.description.tasks import MULTICLASS
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.fields import required
from keras_vit.utils.json_files import parse_json

from .all_formats import format_of
from .artefacts import open_export, reason_of, report_program
from .comparison import ExportReport, compare, run_export, size_of
from .contents import describe_contents
from .export_format import ROUNDING, OpenedExport
from .golden import checksum, parse_golden
from .options import VERIFY_SECONDS
from .part_checksums import check_parts
from .pillow_pixels import read_pixels
from .runtimes import SIGNATURES
from .texts import CHECK, GOLDEN, read_facts

# Largest difference of probabilities in float32, and of answers of the same export with integers.
TOLERANCE = 1e-3
# Where the check of the export measured more, twice as much, but not more than this, which exports
# with integers of earlier versions need.
LARGEST_TOLERANCE = 0.2

_NO_IMAGES = np.zeros(0)  # The program preprocesses files itself; see `runtimes`.


def verify(
    path: str | os.PathLike,
    classifier: Classifier | str | os.PathLike | None = None,
    *,
    check_images: str | os.PathLike | Iterable | None = None,
    time_limit: float = VERIFY_SECONDS,
) -> ExportReport:
    """Compares the parts of an export with their checksums, and its probabilities with known ones.

    Without a classifier, the probabilities are compared with the golden samples in the export: a
    few images with the probabilities that the Keras model gave. They must agree to `TOLERANCE`, or
    to twice the difference that was measured when the export was written. An export with integers
    must give what it gave itself when it was written, to `TOLERANCE`.

    Args:
        path: A folder or file that an export wrote. Its signatures of `runtimes.SIGNATURES` are
            run, in a separate process.
        classifier: A `Classifier`, or its folder, to compare with on `check_images`.
        check_images: Real images, files or a folder; by default the classifier's samples, or
            synthetic images.
        time_limit: Seconds in which the export must give all answers.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If a part of the export is missing, damaged or changed; if there are no golden
            samples or check images; or if the export cannot be run, gives no answer in time,
            another number of classes, no probabilities, or fails its golden samples.
        ImportError: If its runtime is not installed.
    """
    if classifier is None and check_images is not None:
        raise ValueError("check_images are compared with a classifier: pass it too.")
    with contextlib.ExitStack() as stack:
        files: list[str] = []
        remarks: tuple[str, ...] = ()
        if classifier is not None:
            from .check_images import found_check_images

            classifier = open_classifier(classifier)
            files, remarks = stack.enter_context(found_check_images(classifier, check_images))
        try:
            report = _compared(path, classifier, files, time_limit)
        except ImportError:
            raise
        except Exception as error:  # Each library raises different errors of damaged files.
            reason = reason_of(error)
            names_it = str(path) in reason
            raise ValueError(reason if names_it else f"{path} fails its check. {reason}") from error
    return dataclasses.replace(report, notes=(*remarks, *report.notes))


def _compared(path, classifier, files, time_limit):
    """The report of an export against its golden samples, or a classifier on image files."""
    opened = open_export(path)
    notes = check_parts(format_of(path), pathlib.Path(path), opened.texts)
    if classifier is None:
        report = _compare_with_golden(path, opened, time_limit)
    else:
        from .keras_comparison import compare_with_keras

        report_program(path)
        contents = describe_contents(opened.texts)
        report = compare_with_keras(path, {"": classifier}, files, contents, time_limit=time_limit)
    return dataclasses.replace(report, notes=(*report.notes, *notes))


def answers_to_golden(
    path: str | os.PathLike, golden: str, preprocessing: Preprocessing
) -> dict[str, np.ndarray]:
    """Returns the answers of a new export to golden samples, `(N, K)` by signature.

    Args:
        path: The export, which has no texts yet.
        golden: The text of `golden.json`.
        preprocessing: The classifier's preprocessing.
    """
    from keras_vit.images.decoding import apply_preprocessing

    samples = parse_golden(golden)
    images = [np.asarray(apply_preprocessing(_pixels(sample), preprocessing)) for sample in samples]
    answers = _run_golden(path, samples, np.stack(images))
    return {name: probabilities for name, (probabilities, _) in answers.items()}


def _pixels(sample):
    return read_pixels(io.BytesIO(sample.png), formats=("PNG",))


def _run_golden(path, samples, images=_NO_IMAGES, time_limit=None):
    """Returns an export's answers to golden samples and their seconds, by signature."""
    for number, sample in enumerate(samples, 1):
        if checksum(_pixels(sample)) != sample.sha256:
            raise ValueError(
                f"Golden sample {number} has other pixels than when it was written: Pillow here "
                "decodes PNG files differently, or the file is damaged."
            )
    with tempfile.TemporaryDirectory() as scratch:
        files = [os.path.join(scratch, f"{number}.png") for number in range(len(samples))]
        for file, sample in zip(files, samples, strict=True):
            pathlib.Path(file).write_bytes(sample.png)
        arrays = run_export(path, {"serve": images}, files, time_limit=time_limit)
    return {
        name: (arrays[f"{name}/probabilities"], arrays[f"{name}/seconds"])
        for name in SIGNATURES
        if f"{name}/probabilities" in arrays
    }


def _compare_with_golden(
    path: str | os.PathLike, opened: OpenedExport, time_limit: float
) -> ExportReport:
    if GOLDEN not in opened.texts:
        raise ValueError(
            "It holds no golden samples; compare it with its classifier (--classifier)."
        )
    samples = parse_golden(opened.texts[GOLDEN])
    description, _ = read_facts(opened.texts)
    names = required(description.labels.names, "class names")
    is_multiclass = description.labels.task == MULTICLASS
    for sample in samples:
        for row in (sample.probabilities, *sample.answers.values()):
            _check_rows(GOLDEN, np.array([row]), len(names), is_multiclass)
    limit = _limit(opened.texts)
    report_program(path)
    answers = _run_golden(path, samples, time_limit=time_limit)
    if not answers:
        raise ValueError(f"An export must have a signature of {', '.join(SIGNATURES)}.")
    checks, limits, known = [], [], "the Keras model's"
    for name, (received, seconds) in answers.items():
        _check_rows(f"The signature {name}", received, len(names), is_multiclass)
        has_own = all(name in sample.answers for sample in samples)
        expected = [sample.answers[name] if has_own else sample.probabilities for sample in samples]
        known = "its own when it was written" if has_own else known
        check = compare(name, np.array(expected), received, seconds=seconds)
        limits.append(TOLERANCE if has_own else limit)
        # Written so that NaN fails too.
        difference = check.largest_difference
        if not difference <= limits[-1]:
            raise ValueError(
                "An export must give the probabilities of its golden samples within "
                f"{limits[-1]:.1e}. Received: {difference:.1e} of the signature {name}"
            )
        checks.append(check)
    note = f"Golden samples: pixels equal, probabilities within {max(limits):.1e} of {known}."
    name, size = format_of(path).name, size_of(path)
    notes = (note, *describe_contents(opened.texts))
    return ExportReport(os.fspath(path), name, size, len(samples), tuple(checks), notes)


def _check_rows(source: str, rows: np.ndarray, classes: int, is_multiclass: bool) -> None:
    """Raises ValueError unless rows are probabilities, one for each class."""
    if rows.shape[1] != classes:
        raise ValueError(
            f"{source} must have a probability for each of the {classes} class names. "
            f"Received: {rows.shape[1]}"
        )
    if not ((rows >= -ROUNDING) & (rows <= 1 + ROUNDING)).all():
        raise ValueError(f"{source} must have probabilities, numbers from 0 to 1.")
    sums = rows.sum(axis=1, dtype="float64")
    if is_multiclass and not (abs(sums - 1) <= ROUNDING).all():
        raise ValueError(
            f"{source} must have probabilities whose sum is 1. Received: {sums[0]:.4g}"
        )


def _limit(texts: Mapping[str, str]) -> float:
    """Returns the largest difference to the Keras model's probabilities that passes."""
    check = parse_json(texts.get(CHECK, '{"checks": []}'), CHECK)
    try:
        measured: Sequence[float] = [part["largest_difference"] for part in check["checks"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{CHECK} must be the report of an export's check.") from error
    wrong = [value for value in measured if type(value) not in (int, float) or not 0 <= value <= 1]
    if wrong:
        raise ValueError(
            f"largest_difference in {CHECK} must be a number in [0, 1]. Received: {wrong[0]!r:.40}"
        )
    return min(max(TOLERANCE, 2 * max(measured, default=0.0)), LARGEST_TOLERANCE)
