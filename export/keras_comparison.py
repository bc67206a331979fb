"""Comparison of an export, in its own runtime, with its Keras model."""

from __future__ import annotations

import functools
import io
import os
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images.transcoding import transcoded
from keras_vit.prediction import predict_batch

from .all_formats import format_of
from .check_images import load_images
from .comparison import ExportReport, compare, run_export, size_of
from .pillow_pixels import read_pixels, with_size
from .runtimes import SIGNATURES


def compare_with_keras(
    path: str | os.PathLike,
    classifiers: Mapping[str, Classifier],
    files: Sequence[str],
    notes: Iterable[str] = (),
    *,
    time_limit: float | None = None,
) -> ExportReport:
    """Runs an export in a new process and compares its probabilities with Keras's.

    Args:
        path: The export.
        classifiers: The exported classifiers by the suffix of their signatures: "" for
            `serve`, "_384x384" for `serve_384x384`.
        files: Image files.
        notes: Remarks for the user, kept in the report.
        time_limit: See `run_export`.

    Returns:
        The `ExportReport`.

    Raises:
        ValueError: If the export cannot be run or gives another number of classes.
    """
    format_name = format_of(path).name
    images = {
        f"serve{suffix}": load_images(classifier, files)
        for suffix, classifier in classifiers.items()
    }
    answers = run_export(path, images, files, time_limit=time_limit)
    checks, notes = [], list(notes)
    for suffix, classifier in classifiers.items():
        inputs = images[f"serve{suffix}"]
        if f"serve{suffix}/input_size" in answers:
            read = functools.partial(_read_as_program, size=answers[f"serve{suffix}/input_size"])
            inputs, predicted = load_images(classifier, files, read), inputs
            notes += _decoding_notes(classifier, inputs, predicted)
        probabilities, seconds = _run_keras(classifier, inputs)
        for kind in SIGNATURES:
            signature = f"{kind}{suffix}"
            if f"{signature}/probabilities" not in answers:
                continue
            checks.append(
                compare(
                    signature,
                    probabilities,
                    answers[f"{signature}/probabilities"],
                    keras_seconds=seconds,
                    seconds=answers[f"{signature}/seconds"],
                    thresholds=classifier.thresholds,
                )
            )
    return ExportReport(
        os.fspath(path), format_name, size_of(path), len(files), tuple(checks), tuple(notes)
    )


def _read_as_program(file, size):
    """Returns an image's pixels as the program `runtimes.py` gives them to a signature."""
    content = transcoded(pathlib.Path(file).read_bytes())
    return with_size(read_pixels(io.BytesIO(content)), size if size.all() else None)


def _decoding_notes(classifier, images, predicted):
    """Returns a remark if `predict` decodes files differently, as TensorFlow does JPEG.

    Args:
        classifier: The exported classifier.
        images: `(N, H, W, C)`, preprocessed from Pillow's pixels.
        predicted: The same, preprocessed from the pixels of `predict`.
    """
    differ = np.flatnonzero((images != predicted).any(axis=(1, 2, 3)))
    if not len(differ):
        return []
    answers = (predict_batch(classifier.model, batch[differ]) for batch in (images, predicted))
    difference = np.abs(np.subtract(*answers)).max()
    return [
        f"Pillow decodes or resizes {len(differ)} of {len(images)} files otherwise than predict "
        f"does: its probabilities differ by at most {difference:.1e}."
    ]


def _run_keras(classifier, images):
    """Returns the Keras model's probabilities and seconds, one image a call."""
    probabilities, seconds = [], []
    predict_batch(classifier.model, images[:1])  # Compiles.
    for index in range(len(images)):
        start = time.perf_counter()
        probabilities.append(predict_batch(classifier.model, images[index : index + 1])[0])
        seconds.append(time.perf_counter() - start)
    return np.asarray(probabilities, "float32"), np.array(seconds)
