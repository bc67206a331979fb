"""Runtimes: modules that read images, and open exports and trainers."""

from __future__ import annotations

import importlib
import os
import pathlib
from types import ModuleType
from typing import Any

from keras_vit.utils.files import model_in

# With the table of commands the only modules of this package that are imported by a text.
_MODULES = {
    "images": "keras_vit.images.decoding",
    "formats": "keras_vit.export.formats",
    "artefacts": "keras_vit.export.artefacts",
}


def _module(name) -> ModuleType:
    return importlib.import_module(_MODULES[name])


def is_export(path: pathlib.Path) -> bool:
    """Returns whether a path looks like an export of this package."""
    return _format_of(path) is not None


def runs_without_tensorflow(anything: str | os.PathLike) -> bool:
    """Returns whether something is an export whose runtime is not TensorFlow."""
    path = pathlib.Path(anything)
    export_format = None if model_in(path) else _format_of(path)
    return export_format is not None and not export_format.runs_in_tensorflow


def _format_of(path):
    try:
        return _module("formats").format_of(path)
    except ValueError:
        return None


def open_export(path: str | os.PathLike) -> Any:
    """Returns the `Classifier` of an export, in its own runtime.

    Raises:
        ValueError: If it is none, or damaged.
        ImportError: If its runtime is not installed.
    """
    return _module("artefacts").load_artefact(path)


def preprocess_images(images: object, preprocessing: object) -> Any:
    """Returns images as a model's input; `keras_vit.Preprocessing` describes both."""
    return _module("images").preprocess_images(images, preprocessing)
