"""Steps of every export: check the arguments, write to a temporary path, compare, rename.

The function of each format reads from top to bottom: `prepare` checks the arguments and finds
the check images, the file is written inside `new_output`, `check_export` runs it in its own
runtime and compares its probabilities with the Keras model's, and the end of the block renames
it to its final path.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_vit import description_files
from keras_vit._version import __version__
from keras_vit.classifier import Classifier
from keras_vit.files import (
    atomic_folder,
    atomic_write,
    check_file,
    check_folder,
)
from keras_vit.models.rebuild import computes_in_float32
from keras_vit.optional_packages import import_optional
from keras_vit.preprocessing import MAX_SIDE
from keras_vit.tasks import MULTILABEL

from .comparison import (
    FOLDERS,
    ExportReport,
    as_classifier,
    compare_with_keras,
    find_check_images,
)
from .golden import GOLDEN, golden_json
from .options import INPUTS, PRECISIONS

ORIGIN = "origin.json"

# FlatBuffers and protocol buffers have 32-bit offsets.
MAX_FILE_SIZE = 2**31 - 1  # Bytes.


def prepare(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    format_name: str,
    *,
    packages: Sequence[str] = (),
    check_images: str | os.PathLike | Iterable | None,
    minimum_agreement: float,
    overwrite: bool,
) -> tuple[Classifier, list[str]]:
    """Checks what can be checked before an export, and returns its classifier and check images.

    Args:
        classifier: A `Classifier`, or its folder.
        path: The folder or file to write.
        format_name: One of `options.FORMATS`.
        packages: Modules of the extra `export` that the export imports later.
        check_images: See `find_check_images`.
        minimum_agreement: Least agreement with the Keras model; see `SignatureCheck`.
        overwrite: Whether an older export is replaced.

    Raises:
        ValueError: If an argument is out of range, the output exists, the model is too large
            for the format, or there are no check images.
        ImportError: If one of `packages` is not installed.
    """
    if not 0 <= minimum_agreement <= 1:
        raise ValueError(
            f"minimum_agreement must be a share in [0, 1]. Received: {minimum_agreement}"
        )
    check_output(path, format_name, overwrite=overwrite)
    for package in packages:
        import_export_package(package)
    classifier = as_classifier(classifier)
    if format_name != "saved_model":
        check_file_size(classifier.model, format_name)
    return classifier, find_check_images(classifier, check_images)


def check_precision(
    format_name: str, precision: str, minimum_agreement: float | None = None
) -> float:
    """Returns the least agreement of a precision: the given one, or the default.

    Args:
        format_name: A key of `options.PRECISIONS`.
        precision: The precision of the export.
        minimum_agreement: The given one.

    Raises:
        ValueError: If the format does not have the precision.
    """
    defaults = PRECISIONS[format_name]
    if precision not in defaults:
        raise ValueError(
            f"precision must be one of {tuple(defaults)} for {format_name}. "
            f"Received: precision={precision!r}"
        )
    return defaults[precision] if minimum_agreement is None else minimum_agreement


def check_input(input: str, input_size: Sequence[int] | None = None) -> None:
    """Raises unless a file can take this input.

    Args:
        input: "uint8" or "float".
        input_size: The only size (height, width) of uint8 pixels, or None for any.

    Raises:
        ValueError: If it is another, or a size does not fit.
    """
    if input not in INPUTS:
        raise ValueError(f"input must be one of {INPUTS}. Received: input={input!r}")
    if input_size is None:
        return
    if input != "uint8":
        raise ValueError(
            "input_size is for input='uint8'; preprocessed images have the classifier's size. "
            f"Received: input={input!r}, input_size={input_size!r}"
        )
    if len(input_size) != 2 or not all(1 <= side <= MAX_SIDE for side in input_size):
        raise ValueError(
            f"input_size must be two numbers (height, width) from 1 to {MAX_SIDE}. "
            f"Received: {input_size!r}"
        )


def check_output(path: str | os.PathLike, format_name: str, *, overwrite: bool = False) -> None:
    """Raises unless an export can be written to a path.

    Only an older export of the same format is replaced.

    Args:
        path: The folder or file to write.
        format_name: One of `options.FORMATS`.
        overwrite: Whether an older export is replaced.

    Raises:
        ValueError: If the path exists and may not be replaced, or has the wrong suffix.
    """
    if format_name in FOLDERS:
        check_folder(path, marker=FOLDERS[format_name], overwrite=overwrite)
    else:
        check_file(path, f".{format_name}", overwrite=overwrite)


@contextlib.contextmanager
def new_output(
    path: str | os.PathLike, format_name: str, *, overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Yields a temporary path, which is renamed to `path` at the end of the block.

    See `check_output` for arguments and errors. If the block raises, nothing is written.
    """
    if format_name in FOLDERS:
        with atomic_folder(path, marker=FOLDERS[format_name], overwrite=overwrite) as partial:
            yield partial
        return
    path = pathlib.Path(path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        yield partial
        check_output(path, format_name, overwrite=overwrite)


def check_export(
    partial: pathlib.Path,
    path: str | os.PathLike,
    classifiers: Mapping[str, Classifier],
    files: Sequence[str],
    *,
    minimum_agreement: float,
    notes: Sequence[str] = (),
) -> ExportReport:
    """Compares a new export with its Keras model; raises if they disagree too often.

    Args:
        partial: The export, at its temporary path.
        path: Its final path, for the report.
        classifiers: See `compare_with_keras`.
        files: Image files.
        minimum_agreement: Least agreement with the Keras model; see `SignatureCheck`.
        notes: Remarks for the user, kept in the report.

    Returns:
        The `ExportReport`.

    Raises:
        ValueError: If the export cannot be run, or agrees on too few images.
    """
    report = compare_with_keras(partial, classifiers, files, notes)
    if report.agreement < minimum_agreement:
        several = any(classifier.task == MULTILABEL for classifier in classifiers.values())
        answer = "labels" if several else "first class"
        raise ValueError(
            f"An export must have the Keras model's {answer} on {minimum_agreement:.1%} of "
            "the check images, else it is removed; more check images measure this better. "
            f"Received: {report.agreement:.1%} of {report.num_images} images"
        )
    return dataclasses.replace(report, path=os.fspath(path))


def check_file_size(model: keras.Model, format_name: str) -> None:
    """Raises if a float32 model is too large for a file format with 32-bit offsets."""
    size = 4 * model.count_params()
    if size > MAX_FILE_SIZE:
        raise ValueError(
            f"An export to {format_name} holds at most 2 GiB; export to saved_model instead. "
            f"Received: a model of {size / 2**30:.2f} GiB in float32"
        )


def precision_notes(model: keras.Model) -> tuple[str, ...]:
    """Returns a remark if a model is converted to float32 for its export."""
    if computes_in_float32(model):
        return ()
    return ("The model computes in reduced precision; this is its float32 copy.",)


def origin(classifier: Classifier) -> dict:
    """Returns the versions, date, model and recipe of an export, for JSON."""
    return {
        "made_by": f"keras_vit {__version__}",
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": classifier.model.name,
        "parameters": classifier.model.count_params(),
        "recipe": classifier.recipe,
    }


def texts_of(
    classifier: Classifier, files: Sequence[str], input_size: tuple[int, int] | None = None
) -> dict[str, str]:
    """Returns the texts that an export holds beside the model, by their file names.

    Args:
        classifier: The exported classifier.
        files: The check images.
        input_size: See `golden_json`.
    """
    return {
        **description_files.texts_of(classifier.description),
        ORIGIN: json.dumps(origin(classifier), indent=2) + "\n",
        GOLDEN: golden_json(classifier, files, input_size),
    }


def write_texts(folder: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Writes texts into the folder of an export."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def import_export_package(module: str) -> Any:
    """Returns a module of the extra `export`; see `import_optional`."""
    return import_optional(module, "This export", "export")
