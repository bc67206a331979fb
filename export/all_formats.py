"""The export formats, and the format of an export.

The modules of the formats are called `*_folder` and `*_file`, because a module `saved_model` would
hide the function `keras_vit.export.saved_model`.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable

from .export_format import ExportFormat
from .html_page import HTML
from .onnx_file import ONNX
from .openvino_folder import OpenVINO
from .saved_model_folder import SavedModel
from .tflite_file import TFLite
from .web_folder import Web

FORMATS: dict[str, type[ExportFormat]] = {
    format_type.name: format_type for format_type in (SavedModel, TFLite, ONNX, OpenVINO, HTML, Web)
}


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
    markers = any_of(known.marker for known in FORMATS.values() if known.marker)
    suffixes = any_of(known.suffix for known in FORMATS.values() if known.suffix)
    raise ValueError(
        f"An export must be a folder with {markers}, or a file ending in {suffixes}. "
        f"Received: {path}"
    )


def any_of(names: Iterable[str]) -> str:
    """Returns names as "a, b or c"."""
    *first, last = names
    return " or ".join(filter(None, (", ".join(first), last)))
