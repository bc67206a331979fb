"""Public function of each export format; its keyword arguments are the options of the format."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from keras_vit.classifier import Classifier

from .comparison import ExportReport
from .formats import ExportFormat
from .html_page import HTML
from .onnx_file import ONNX
from .openvino import OpenVINO
from .publish import write_export
from .saved_model_folder import SavedModel
from .tflite_file import TFLite

Options = ParamSpec("Options")


def export_function(
    format_type: Callable[Options, ExportFormat],
) -> Callable[
    Concatenate[Classifier | str | os.PathLike, str | os.PathLike, Options], ExportReport
]:
    """Returns the public function of a format; its keyword arguments are the fields.

    Args:
        format_type: The class, whose docstring lists the fields; see `fields.documented`.
    """
    known: Any = format_type

    def export(
        classifier: Classifier | str | os.PathLike,
        path: str | os.PathLike,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> ExportReport:
        return write_export(format_type(*args, **options), classifier, path)

    parameters = list(inspect.signature(export).parameters.values())[:2]
    signature = inspect.signature(known)
    parameters += signature.parameters.values()
    function: Any = export
    function.__signature__ = inspect.Signature(parameters, return_annotation="ExportReport")
    function.__name__ = function.__qualname__ = known.name
    function.__doc__ = _documentation(known)
    return export


def _documentation(format_type):
    """Returns the docstring of a format's function, made from the docstring of its class."""
    return format_type.__doc__.replace(
        "    Args:\n",
        "    Args:\n"
        "        classifier: A `Classifier`, or its folder.\n"
        "        path: The folder or file to write.\n",
    ).rstrip() + (
        "\n\n    Returns:\n"
        "        An `ExportReport`; `print` it for the table.\n"
        "\n    Raises:\n"
        "        ValueError: If an argument is out of range, the output exists, there are no\n"
        "            check images, or the check fails. Nothing is written then.\n"
        "        ImportError: If the extra that it needs is not installed.\n"
        "    "
    )


saved_model = export_function(SavedModel)
tflite = export_function(TFLite)
onnx = export_function(ONNX)
openvino = export_function(OpenVINO)
html = export_function(HTML)
