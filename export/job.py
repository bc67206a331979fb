"""What every export shares: write, check in the artefact's own runtime, then publish."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import os
import pathlib
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_vit._version import __version__
from keras_vit.classifier import Classifier, image_files, load_classifier
from keras_vit.files import atomic_folder, atomic_write, check_file, check_folder
from keras_vit.models.rebuild import computes_in_float32

from .verify import MAX_IMAGES, Report, ask_keras, verify

SAMPLES = "samples"  # Folder of real images inside a classifier's folder.

SAVED_MODEL = "saved_model.pb"  # In every SavedModel's folder.

# FlatBuffers and protocol buffers have 32-bit offsets.
MAX_FILE_SIZE = 2**31 - 1  # Bytes.


def run(
    classifier: Classifier,
    path: str | os.PathLike,
    format_name: str,
    *,
    write: Callable[[pathlib.Path], object],
    record: Callable[[pathlib.Path, Report], object],
    files,
    minimum_agreement: float,
    overwrite: bool,
    notes=(),
    variants: dict[str, Classifier] | None = None,
) -> Report:
    """Writes an artefact, checks it and puts it in its place: all of it, or nothing.

    Args:
        classifier: The classifier to export.
        path: The artefact's final path.
        format_name: "saved_model", "tflite" or "onnx".
        write: Writes the artefact to a path.
        record: Adds the check's report to the artefact at a path.
        files: Real images to check on.
        minimum_agreement: Least share of images with the Keras model's first class.
        overwrite: Whether an artefact that is there is replaced.
        notes: What the user should know besides.
        variants: Classifiers that other signatures are checked against, by the suffix of
            the signatures' names.

    Returns:
        The `Report`.

    Raises:
        ValueError: If the artefact does not run, or agrees with the Keras model on too few
            images.
    """
    with new_output(path, format_name, overwrite=overwrite) as scratch:
        variants = {"": classifier, **(variants or {})}
        references = {name: ask_keras(variant, files) for name, variant in variants.items()}
        write(scratch)
        report = verify(scratch, format_name, references, notes)
        if report.agreement < minimum_agreement:
            raise ValueError(
                f"The export must give the Keras model's first class on {minimum_agreement:.1%} "
                f"of the images, or it is not kept; more check images tell better. "
                f"Received: {report.agreement:.1%} of {report.num_images} images"
            )
        report = dataclasses.replace(report, path=os.fspath(path))
        record(scratch, report)
    return report


def resolve(classifier: Classifier | str | os.PathLike) -> Classifier:
    """Returns a classifier, read from its folder where a path is given."""
    if isinstance(classifier, (str, os.PathLike)):
        return load_classifier(classifier)
    return classifier


def check_files(classifier: Classifier, check_images=None) -> list[str]:
    """Returns the images to check on: those given, or the classifier's own samples.

    Of more than `verify.MAX_IMAGES`, an evenly spread choice.

    Raises:
        ValueError: If there are none.
    """
    if check_images is None:
        samples = classifier.folder and classifier.folder / SAMPLES
        if not samples or not samples.is_dir():
            raise ValueError(
                "An export is checked on real images: give some with check_images "
                f"(--check-images), as the classifier keeps none. Received: {classifier.folder}"
            )
        check_images = samples
    files = image_files(check_images)
    step = max(len(files) / MAX_IMAGES, 1)
    return [files[int(index * step)] for index in range(min(len(files), MAX_IMAGES))]


def check_agreement(minimum_agreement: float) -> None:
    """Raises unless an agreement is a share."""
    if not 0 <= minimum_agreement <= 1:
        raise ValueError(
            f"minimum_agreement must be a share in [0, 1]. Received: {minimum_agreement}"
        )


def check_file_size(model: keras.Model, format_name: str) -> None:
    """Raises if a float32 model cannot be one file of a format with 32-bit offsets."""
    size = 4 * model.count_params()
    if size > MAX_FILE_SIZE:
        raise ValueError(
            f"A {format_name} file holds at most 2 GiB; export to saved_model instead. "
            f"Received: a model of {size / 2**30:.2f} GiB in float32"
        )


def precision_notes(model: keras.Model) -> tuple[str, ...]:
    """Returns what to tell of a model that is exported as its float32 copy."""
    if computes_in_float32(model):
        return ()
    return ("The model computes in reduced precision; this is its float32 copy.",)


def origin(classifier: Classifier) -> dict:
    """Returns where an artefact comes from, as JSON can hold it."""
    return {
        "made_by": f"keras_vit {__version__}",
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": classifier.model.name,
        "parameters": classifier.model.count_params(),
        "recipe": classifier.recipe,
    }


def needed(module: str):
    """Returns a module of the `export` extra, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This export needs {module.split('.')[0]}: pip install 'keras-vit[export]'. {error}"
        ) from error


def new_output(path: str | os.PathLike, format_name: str, *, overwrite: bool = False):
    """Gives a path that takes the place of `path` if the block succeeds."""
    if format_name == "saved_model":
        return atomic_folder(path, marker=SAVED_MODEL, overwrite=overwrite)
    check_output(path, format_name, overwrite=overwrite)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path)


def check_output(path: str | os.PathLike, format_name: str, *, overwrite: bool = False) -> None:
    """Raises unless an artefact can be written to a path.

    Raises:
        ValueError: If something is there that may not be replaced, or the suffix is wrong.
    """
    if format_name == "saved_model":
        check_folder(path, marker=SAVED_MODEL, overwrite=overwrite)
    else:
        check_file(path, f".{format_name}", overwrite=overwrite)
