"""The door to a classifier: an export in its own runtime, or any model whose classes have names.

An export that takes pixels is opened without TensorFlow and Keras, except for a SavedModel.
"""

from __future__ import annotations

import importlib
import os
import pathlib

from keras_vit.checkpoints.weight_sources import find_weights
from keras_vit.classifier import Classifier
from keras_vit.utils.files import model_in


def open_classifier(model: Classifier | str | os.PathLike) -> Classifier:
    """Returns a model of any origin as a classifier.

    Args:
        model: Anything that `keras_vit.open_model` takes, whose classes have names; a
            `Classifier` is returned.

    Raises:
        ValueError: As `keras_vit.open_model`.
        OSError: If a file cannot be read.
    """
    if isinstance(model, Classifier):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            "A classifier is a Classifier or its folder, which keras_vit.save_classifier(folder, "
            f"model, class_names) writes. Received: {type(model).__name__}"
        )
    if os.path.exists(model):
        path = find_weights(model, None, (None, None))
        if isinstance(path, pathlib.Path) and model_in(path) is None and is_export(path):
            # By name, as export/ is built on this file.
            return importlib.import_module("keras_vit.export.artefacts").load_artefact(path)
    opening = importlib.import_module("keras_vit.models.opening")  # With Keras.
    return opening.open_model(model).classifier()


def is_export(path: pathlib.Path) -> bool:
    """Returns whether a path looks like an export of this package."""
    return _format_of(path) is not None


def runs_without_tensorflow(anything: str | os.PathLike) -> bool:
    """Returns whether something is an export whose runtime is not TensorFlow."""
    path = pathlib.Path(anything)
    found = None if model_in(path) else _format_of(path)
    return found is not None and not found.runs_in_tensorflow


def _format_of(path):
    try:
        return importlib.import_module("keras_vit.export.formats").format_of(path)
    except ValueError:
        return None
