"""The table of the export formats, the format of a path, and the one to write.

Neither TensorFlow nor Keras nor NumPy is imported here: a new process runs an export in its own
runtime alone.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection

from keras_vit.utils.files import model_in
from keras_vit.utils.synonyms import argument_here, nearest_names

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


def format_to_write(
    path: str | os.PathLike, name: str | None, options: Collection[str]
) -> type[ExportFormat]:
    """Returns the format of an export that does not exist yet.

    Args:
        path: The file or folder to write.
        name: A key of `FORMATS` or `ALIASES`; by default the suffix of the path gives it.
        options: Names of fields of the format.

    Raises:
        ValueError: If the format is unknown or has no such option.
    """
    by_suffix = {known.suffix: key for key, known in FORMATS.items() if known.suffix}
    key = by_suffix.get(pathlib.Path(path).suffix) if name is None else ALIASES.get(name, name)
    if key not in FORMATS:
        raise ValueError(
            f"The path must end in {', '.join(by_suffix)}, or format be one of "
            f"{', '.join((*FORMATS, *ALIASES))}. "
            f"Received: {os.fspath(path)}, format={name!r}"
        )
    fields = [field.name for field in dataclasses.fields(FORMATS[key])]
    for option in options:
        if option not in fields:
            known_options = argument_here(option, fields) or nearest_names(option, fields)
            raise ValueError(f"{option} is no option of {key}. {known_options}")
    return FORMATS[key]


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
