"""The public functions of the export formats, `keras_vit.export.onnx` and others."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_vit.utils.synonyms import no_such_arguments

from .formats.export_format import ExportFormat
from .formats.html import HTML
from .formats.onnx import ONNX
from .formats.openvino import OpenVINO
from .formats.saved_model import SavedModel
from .formats.tflite import TFLite

if TYPE_CHECKING:
    from keras_vit.predictor import AnyClassifier

    from .check import ExportReport


def _export_function(format_type: type[ExportFormat], what: str) -> Callable[..., ExportReport]:
    """Returns the public function of a format, which writes and checks an export.

    Args:
        format_type: The format.
        what: Where a classifier is written and checked, the end of the docstring's first sentence.
    """

    def export(classifier: AnyClassifier, path: str | os.PathLike, **options: Any) -> ExportReport:
        """Exports a classifier {what}.

        Args:
            classifier: A `Classifier`, or anything that `keras_vit.load_classifier` takes, except
                for exports.
            path: The file or folder to write.
            **options: The fields of `{format_name}`.

        Returns:
            An `ExportReport`; `print` it for the table.

        Raises:
            ValueError: If an option is out of range, the output exists, there are no check images,
                or the check fails. Nothing is written then.
            ImportError: If a package that the format needs is not installed.
        """
        fields = [field.name for field in dataclasses.fields(format_type)]
        if unknown := [option for option in options if option not in fields]:
            raise no_such_arguments(f"export.{format_type.name}", unknown, fields)
        from .publish import write_export  # With TensorFlow.

        return write_export(format_type(**options), classifier, path)

    export.__doc__ = (export.__doc__ or "").format(what=what, format_name=format_type.__name__)
    export.__name__ = export.__qualname__ = format_type.name
    return export


onnx = _export_function(ONNX, "as an ONNX file and checks it in ONNX Runtime")
tflite = _export_function(TFLite, "as a TFLite file and checks it in LiteRT's interpreter")
litert = tflite  # As Keras and Google call it now.
openvino = _export_function(OpenVINO, "for OpenVINO and checks it there")
saved_model = _export_function(SavedModel, "as a SavedModel and checks it in TensorFlow")
html = _export_function(HTML, "as a web page and checks it in Chromium with the network off")
