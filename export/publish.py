"""Steps of every export: check the arguments, write to a temporary path, compare, rename."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Iterator

import keras
import scipy.special
import tensorflow as tf

from keras_vit._version import __version__
from keras_vit.description import description_texts
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.without_paths import without_paths
from keras_vit.models.rebuild import check_not_quantized, computes_in_float32
from keras_vit.opening import open_predictor
from keras_vit.predictor import AnyClassifier, Predictor
from keras_vit.utils.files import atomic_folder, atomic_write, check_file, check_folder
from keras_vit.utils.intervals import exact_interval

from .check import ExportReport, compare_with_keras, golden_json, size_of
from .checksums import checksums
from .formats.check_images import images_of_export
from .formats.export_format import (
    CHECK,
    CHECKSUMS,
    GOLDEN,
    INTEGER_PRECISIONS,
    MINIMUM_AGREEMENT,
    ORIGIN,
    ExportFormat,
    check_is_no_pattern,
    import_export_package,
)

# Level at which check images show that the answers of integers agree too rarely.
SIGNIFICANCE = 0.05


def write_export(
    export: ExportFormat, classifier: AnyClassifier, path: str | os.PathLike
) -> ExportReport:
    """Writes a classifier as an export and compares it with the Keras model.

    Args:
        export: The format, with its options.
        classifier: A `Classifier`, or anything that `keras_vit.load_classifier` takes, except for
            exports.
        path: The folder or file to write.

    Returns:
        The `ExportReport`.

    Raises:
        ValueError: If the classifier is an export, the output exists, the model is too large for
            the format, there are no check images, or the check fails. Nothing is written then.
        ImportError: If a package that the format needs is not installed.
    """
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise ValueError(
            "Exports must be written on Keras's TensorFlow backend, which reads what any other "
            f"trained. Received: KERAS_BACKEND={backend}"
        )
    check_output(path, type(export), overwrite=export.overwrite)
    for package in export.packages:
        import_export_package(package)
    classifier = open_predictor(classifier)
    if classifier.is_export:
        raise ValueError(
            "An export must be made of a Keras model: give the folder of the classifier that was "
            f"exported. Received: {classifier.source}, an export"
        )
    if export.suffix == ".tflite":
        rule = "TFLite's converter takes a model before model.quantize, and has its own --precision"
        check_not_quantized(classifier.model, rule)
    bytes_of_weights = 4 * classifier.model.count_params()
    if export.max_bytes is not None and bytes_of_weights > export.max_bytes:
        raise ValueError(
            f"An export to {export.name} holds at most 2 GiB; export to saved_model instead. "
            f"Received: a model of {bytes_of_weights / 2**30:.2f} GiB in float32"
        )
    with (
        images_of_export(export, classifier) as images,
        new_output(path, type(export), overwrite=export.overwrite) as partial,
    ):
        notes = images.notes
        if not export.runs_in_tensorflow and not computes_in_float32(classifier.model):
            notes += ("The model computes in reduced precision; this is its float32 copy.",)
        notes += export.write(partial, classifier, images)
        model_bytes = partial.stat().st_size
        export.add_texts(partial, texts_of(classifier))
        report, answers = compare_with_keras(partial, classifier, images, notes)
        precision = getattr(export, "precision", "float32")  # Only some formats have others.
        notes = check_agreement(report, classifier, precision, export.minimum_agreement)
        export.add_texts(partial, {GOLDEN: golden_json(images, answers)})
        report = dataclasses.replace(
            report,
            path=os.fspath(path),
            size=size_of(partial),
            notes=(*report.notes, *notes),
        )
        export.add_texts(partial, {CHECK: report.to_text()})
        parts = checksums(partial, export.open(partial).texts, model_bytes)
        export.add_texts(partial, {CHECKSUMS: json.dumps(parts, indent=2) + "\n"})
    return report


def check_agreement(
    report: ExportReport, classifier: Predictor, precision: str, least: float | None = None
) -> tuple[str, ...]:
    """Returns remarks about the agreement of an export with the Keras model.

    Float answers differ by rounding alone, so a share of `least` must be equal. Integers turn an
    answer where the Keras model is near a tie or near its bound of "unknown", and one such image is
    more than 2% of 32. So they are refused where the images show that the share is less: if `least`
    of all images agreed, so few of these would in under 5% of the cases.

    Args:
        report: The comparison.
        classifier: The exported classifier.
        precision: The precision of the export.
        least: The share of check images, or None for the default of the precision.

    Raises:
        ValueError: If too few answers agree.
    """
    least = MINIMUM_AGREEMENT[precision] if least is None else least
    count, share = report.num_images, report.agreement
    equal, integers = round(share * count), precision in INTEGER_PRECISIONS
    # The mean share of labels varies less than a binomial one.
    chance = scipy.special.bdtr(equal, count, least)
    if chance < SIGNIFICANCE if integers else share < least:
        answer = "labels" if classifier.task == MULTILABEL else "first class"
        raise ValueError(
            f"An export must have the Keras model's {answer} on {least:.1%} of the check images, "
            "else it is removed; more check images measure this better. "
            f"Received: {share:.1%} of {count} images"
        )
    if not integers:
        return ()
    low, high = exact_interval(equal, count)
    note = (
        f"Integers keep {share:.1%} of the answers of {count} images "
        f"(95% interval {100 * low:.1f} to {100 * high:.1f})"
    )
    if not classifier.description.labels.abstains:
        return (f"{note}.",)
    return (f"{note}, unknown included; the bound on the errors was not tested on this export.",)


def texts_of(classifier: Predictor) -> dict[str, str]:
    """Returns what an export knows of its classifier: texts by their names.

    Args:
        classifier: The exported classifier.
    """
    origin = {
        "made_by": f"keras_vit {__version__}",
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": classifier.model.name,
        "parameters": classifier.model.count_params(),
        "recipe": without_paths(classifier.recipe),
    }
    return {
        **description_texts.texts_of(classifier.description),
        ORIGIN: json.dumps(origin, indent=2) + "\n",
    }


def check_output(
    path: str | os.PathLike, format_type: type[ExportFormat], *, overwrite: bool = False
) -> None:
    """Raises unless an export can be written to a path.

    Only an older export of the same format is replaced.

    Args:
        path: The folder or file to write.
        format_type: The format.
        overwrite: Whether an older export is replaced.

    Raises:
        ValueError: If the path exists and may not be replaced, or has the wrong suffix.
    """
    check_is_no_pattern(path, format_type)
    if format_type.marker:
        check_folder(path, marker=format_type.marker, overwrite=overwrite)
    else:
        check_file(path, format_type.suffix, overwrite=overwrite)


@contextlib.contextmanager
def new_output(
    path: str | os.PathLike, format_type: type[ExportFormat], *, overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Yields a temporary path, which is renamed to `path` at the end of the block.

    See `check_output` for arguments and errors. If the block raises, nothing is written.
    """
    if format_type.marker:
        with atomic_folder(path, marker=format_type.marker, overwrite=overwrite) as partial:
            yield partial
        return
    with atomic_write(path) as partial:
        yield partial
        check_output(path, format_type, overwrite=overwrite)
