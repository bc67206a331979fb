"""Exports as classifiers: the same predictions, computed in the runtime of the export."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.description import Description
from keras_vit.images.transcoding import with_size
from keras_vit.predictor import Predictor
from keras_vit.utils.fields import required
from keras_vit.utils.files import CLASSES, PREPROCESSING, check_holds_one_model
from keras_vit.utils.quiet_tensorflow import check_not_forked, import_tensorflow_quietly
from keras_vit.utils.safe_text import for_line

from .export_format import OpenedExport, Signature, check_is_no_pattern, read_facts
from .table import format_of

_CHANNELS = 3
_MAX_REASON = 1000  # Letters.


class RuntimeModel:
    """An export in its own runtime, with what prediction and evaluation need of a Keras model.

    `takes_pixels` is whether its input is uint8 and it does the preprocessing itself.

    Args:
        signature: The signature of pixels.
        image_size: Pixels (height, width).
        files: The files that hold the weights.
        path: The export, which is opened again where a pickle of this is read.

    Raises:
        ValueError: If its answers are not a row of probabilities for each image; also in
            `predict_on_batch`.
    """

    def __init__(
        self,
        signature: Signature,
        image_size: tuple[int, int],
        files: Sequence[pathlib.Path],
        path: pathlib.Path,
    ):
        self._path = os.path.abspath(path)
        self.takes_pixels = signature.takes_pixels
        sides = (None, None) if self.takes_pixels else image_size
        self.input_shape = (None, *sides, _CHANNELS)
        self._dtype = "uint8" if self.takes_pixels else "float32"
        self._signature, self._files = signature, files
        classes = signature.classes
        if classes is None:
            size = signature.input_size or image_size
            classes = self._answers(np.zeros((1, *size, _CHANNELS), self._dtype)).shape[1]
        self.output_shape = (None, classes)

    def __reduce__(self):
        return _open_model, (self._path,)

    def __repr__(self) -> str:
        return f"<export {self._files[0]}>"

    @property
    def weights(self) -> list[np.ndarray]:
        """The bytes of its files, by which result files identify weights."""
        return [np.fromfile(file, "uint8") for file in self._files]

    def predict_on_batch(self, images: np.ndarray) -> np.ndarray:
        """Returns probabilities `(B, K)`; as of a Keras model they may be NaN.

        Args:
            images: `(B, H, W, 3)` float32, preprocessed; or uint8 pixels of any height and width.
        """
        size = self._signature.input_size
        batch = images if size is None else [with_size(image, size) for image in images]
        probabilities = self._answers(np.asarray(batch, self._dtype))
        # An export gives zeros for an image that is not valid.
        return np.where(probabilities.any(axis=1, keepdims=True), probabilities, np.nan)

    def _answers(self, batch):
        try:
            return self._signature.probabilities(batch)
        except Exception as error:  # Each runtime raises different errors.
            if isinstance(error, ValueError):
                raise
            raise ValueError(f"{self._files[0]} cannot be run. {reason_of(error)}") from error


def load_artefact(path: str | os.PathLike) -> Predictor:
    """Returns an export of this package as a classifier that its own runtime computes.

    Class names, task, thresholds, preprocessing and recipe are read from the export. Images are
    decoded and preprocessed as for the classifier that was exported.

    Args:
        path: A folder of SavedModel or OpenVINO, or a file that an export wrote. It
            is a program that is run, so it must be from people you trust.

    Raises:
        ValueError: If it is no export, not one of this package, or cannot be run.
        OSError: If it cannot be read.
        ImportError: If its runtime is not installed.
    """
    check_not_forked()
    path = pathlib.Path(path)
    with _errors_of(path):
        opened = open_export(path)
        description, recipe = read_facts(opened.texts)
        image_size = required(description.preprocessing, "preprocessing").image_size
        report_program(os.path.abspath(path))
        # Not a Keras model, but it has all that is called of one.
        model: Any = RuntimeModel(opened.signatures()["serve"], image_size, opened.files, path)
        if not model.takes_pixels:  # TensorFlow resizes the images.
            import_tensorflow_quietly()
        return Predictor.of(model, description, recipe, path)


def read_artefact(path: pathlib.Path) -> tuple[Description, dict[str, Any]]:
    """Returns the description and the recipe in an export, whose runtime is not started.

    Raises:
        ValueError: As `load_artefact`.
        OSError: If it cannot be read.
        ImportError: If a package that reads its format is not installed.
    """
    with _errors_of(path):
        return read_facts(open_export(path).texts)


@contextlib.contextmanager
def _errors_of(path):
    """Raises ValueError for what a runtime raises while an export is opened."""
    try:
        yield
    except (ImportError, OSError):
        raise
    except Exception as error:  # Each runtime raises different errors.
        raise ValueError(f"{path} cannot be opened as an export. {reason_of(error)}") from error


def _open_model(path):
    return load_artefact(path).model


def open_export(path: str | os.PathLike) -> OpenedExport:
    """Returns the content of an export without running it.

    Raises:
        ValueError: If it is no export of this package.
        Exception: Any other one of a damaged file.
    """
    export_format = format_of(path)
    check_is_no_pattern(path, export_format)
    check_holds_one_model(path)
    opened = export_format.open(pathlib.Path(path))
    missing = [name for name in (CLASSES, PREPROCESSING) if name not in opened.texts]
    if missing:
        raise ValueError(
            "It must hold the class names and the preprocessing that keras-vit export writes. "
            f"Missing: {', '.join(missing)}"
        )
    return opened


def reason_of(error: Exception) -> str:
    """Returns the first line of an error of any runtime, which may quote a whole graph."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}..."


@functools.cache
def report_program(path: str) -> None:
    """Reports on stderr that an export is run, once for each path, which is absolute."""
    logging.getLogger(__name__).warning(
        "%s is an export and is run as a program; open only exports of people you trust",
        for_line(path),
    )
