"""The table of the export formats, and the format of a path.

Neither TensorFlow nor Keras nor NumPy is imported here: a new process runs an export in its own
runtime alone.
"""

from __future__ import annotations

import os
import pathlib

from keras_vit.utils.files import model_in

from .export_format import ExportFormat, any_of
from .html import HTML
from .onnx import ONNX
from .openvino import OpenVINO
from .saved_model import SavedModel
from .tflite import TFLite

# By their names; the first are those that servers read.
FORMATS: dict[str, type[ExportFormat]] = {
    export_format.name: export_format
    for export_format in (ONNX, TFLite, OpenVINO, SavedModel, HTML)
}

# Other names of formats: TFLite is called LiteRT now.
ALIASES = {"litert": "tflite"}


def format_of(path: str | os.PathLike) -> type[ExportFormat]:
    """Returns an export's format.

    Raises:
        ValueError: If it is neither a folder nor a file that an export writes.
    """
    path = pathlib.Path(path)
    for format_type in FORMATS.values():
        if format_type.marker and (path / format_type.marker).is_file():
            return format_type
        if format_type.suffix and path.suffix == format_type.suffix and path.is_file():
            return format_type
    markers = any_of(each.marker for each in FORMATS.values() if each.marker)
    suffixes = any_of(each.suffix for each in FORMATS.values() if each.suffix)
    raise ValueError(
        f"An export must be a folder with {markers}, or a file ending in {suffixes}. "
        f"Received: {path}{'' if path.exists() else ', which does not exist'}"
    )


def is_export(path: str | os.PathLike) -> bool:
    """Returns whether a path looks like an export of this package."""
    return _format_or_none(path) is not None


def runs_without_tensorflow(anything: str | os.PathLike) -> bool:
    """Returns whether something is an export whose runtime is not TensorFlow."""
    export_format = None if model_in(pathlib.Path(anything)) else _format_or_none(anything)
    return export_format is not None and not export_format.runs_in_tensorflow


def _format_or_none(path):
    try:
        return format_of(path)
    except ValueError:
        return None
