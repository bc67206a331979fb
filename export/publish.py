"""Steps of every export: check the arguments, write to a temporary path, compare, rename."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator

import keras
import tensorflow as tf

from keras_vit._version import __version__
from keras_vit.classifier import Classifier, open_classifier
from keras_vit.description import description_texts
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.without_paths import without_paths
from keras_vit.utils.files import atomic_folder, atomic_write, check_file, check_folder

from .check import ExportReport, checksums, compare_with_keras, golden_json, size_of
from .check_images import found_check_images, golden_files
from .formats import (
    ExportFormat,
    QuantizedFormat,
    check_is_no_pattern,
    import_export_package,
)
from .texts import CHECK, CHECKSUMS, GOLDEN, ORIGIN


def write_export(
    export: ExportFormat, classifier: Classifier | str | os.PathLike, path: str | os.PathLike
) -> ExportReport:
    """Writes a classifier as an export and compares it with the Keras model.

    Args:
        export: The format, with its options.
        classifier: A `Classifier`, or its folder.
        path: The folder or file to write.

    Returns:
        The `ExportReport`.

    Raises:
        ValueError: If the output exists, the model is too large for the format, there are no check
            images, or the check fails. Nothing is written then.
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
    classifier = open_classifier(classifier)
    check_model_size(classifier.model, type(export))
    needs_real = isinstance(export, QuantizedFormat) and export.calibrates_on_check_images
    with found_check_images(classifier, export.check_images, needs_real) as (files, notes):
        return _written(export, classifier, path, files, notes)


def _written(export, classifier, path, files, notes):
    """The report of an export that is written and checked."""
    format_type = type(export)
    with (
        tempfile.TemporaryDirectory() as scratch,
        new_output(path, format_type, overwrite=export.overwrite) as partial,
    ):
        size = getattr(export, "input_size", None)  # Only some formats have a fixed one.
        golden, synthetic, line = golden_files(scratch, classifier, export.samples, size)
        written = export.write(partial, classifier, files)
        model_bytes = partial.stat().st_size
        export.add_texts(partial, texts_of(classifier))
        report, answers = compare_with_keras(
            partial,
            {"": classifier, **written.variants},
            written.check_files,
            (*notes, *written.notes, f"{line[0].upper()}{line[1:]}."),
            golden=golden,
        )
        if report.agreement < export.least_agreement:
            answer = "labels" if classifier.task == MULTILABEL else "first class"
            raise ValueError(
                f"An export must have the Keras model's {answer} on {export.least_agreement:.1%} "
                "of the check images, else it is removed; more check images measure this better. "
                f"Received: {report.agreement:.1%} of {report.num_images} images"
            )
        if export.has_integers and classifier.description.labels.abstains:
            stay = (
                f"{report.agreement:.1%} of the answers are the same as in Keras, unknown "
                "included. The bound on the errors was not tested on this export."
            )
            report = dataclasses.replace(report, notes=(*report.notes, stay))
        export.add_texts(partial, {GOLDEN: golden_json(golden, answers, synthetic=synthetic)})
        report = dataclasses.replace(report, path=os.fspath(path), size=size_of(partial))
        export.add_texts(partial, {CHECK: report.to_text()})
        parts = checksums(partial, export.open(partial).texts, model_bytes)
        export.add_texts(partial, {CHECKSUMS: json.dumps(parts, indent=2) + "\n"})
    return report


def texts_of(classifier: Classifier) -> dict[str, str]:
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
    path = pathlib.Path(path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        yield partial
        check_output(path, format_type, overwrite=overwrite)


def check_model_size(model: keras.Model, format_type: type[ExportFormat]) -> None:
    """Raises ValueError if a float32 model is too large for a format."""
    size = 4 * model.count_params()
    if format_type.max_bytes is not None and size > format_type.max_bytes:
        raise ValueError(
            f"An export to {format_type.name} holds at most 2 GiB; export to saved_model instead. "
            f"Received: a model of {size / 2**30:.2f} GiB in float32"
        )
