"""The export formats, and the format of an export.

The modules of the formats are called `*_folder` and `*_file`, because a module `saved_model` would
hide the function `keras_vit.export.saved_model`.
"""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping

from .formats import ExportFormat

# The class of each format: module and name. The first are those that servers read.
_CLASSES = {
    "onnx": ("keras_vit.export.onnx_file", "ONNX"),
    "tflite": ("keras_vit.export.tflite_file", "TFLite"),
    "openvino": ("keras_vit.export.openvino", "OpenVINO"),
    "saved_model": ("keras_vit.export.saved_model_folder", "SavedModel"),
    "html": ("keras_vit.export.html_page", "HTML"),
}


class _Formats(Mapping[str, type[ExportFormat]]):
    """The classes by `ExportFormat.name`; the module of one is imported when it is looked up."""

    def __getitem__(self, name: str) -> type[ExportFormat]:
        module, class_name = _CLASSES[name]
        return getattr(importlib.import_module(module), class_name)

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


FORMATS = _Formats()


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
