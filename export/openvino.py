"""OpenVINO folder of a classifier, in float32 or 8 bits."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_vit.description.description_texts import read_texts
from keras_vit.utils.fields import documented

from .formats import (
    OpenedExport,
    QuantizedFormat,
    Signature,
    Written,
    further_outputs,
    import_export_package,
    output_names,
)
from .onnx_file import OPSET
from .texts import NAMES, write_texts

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenVINO(QuantizedFormat):
    """Exports a classifier for OpenVINO and checks it there.

    The folder holds `model.xml` and `model.bin`, with input and outputs as the ONNX file of
    `keras_vit.export.onnx`: `images` `(batch, H, W, C)` uint8 pixels of any size, or preprocessed
    float32; `probabilities` `(batch, K)` and `valid` `(batch,)`. It also holds
    `description.json`, `classes.txt`, `preprocessing.json`, `origin.json`, `golden.json`,
    `check.json` and `checksums.json`, and of a multi-label classifier `task.json`. For a model
    server the name of the folder is a number: `pets/1`. A model in mixed precision is exported as
    its float32 copy.

    The precision is "float32"; or "int8": weights in int8 by channel, except for the first and the
    last layer; activations in 8 bits at the input of matrix products with weights and of
    convolutions, with ranges from calibration images; float32 elsewhere.
    """

    name = "openvino"
    marker = "model.xml"
    precisions = ("float32", "int8")
    # OpenVINO, and the packages that write the ONNX file that it reads.
    packages = ("openvino", "onnx", "tf2onnx", "onnxruntime")

    outputs: tuple[str, ...] = further_outputs()

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the model; see `ExportFormat.write`."""
        from . import onnx_conversion, onnx_graph

        content, written = onnx_conversion.onnx_in_precision(
            classifier, files, self, OPSET, output_names(self.outputs), fused=False
        )
        if self.precision == "int8":
            onnx_graph.keep_scales(content.graph)
        library = import_export_package("openvino", "openvino")
        model = openvino_core().read_model(content.SerializeToString())
        library.save_model(model, path / self.marker, compress_to_fp16=False)
        return written

    add_texts = staticmethod(write_texts)

    @staticmethod
    def open(path):
        """Returns the content of an OpenVINO folder; see `ExportFormat.open`."""
        import_export_package("openvino", "openvino")
        model = path / OpenVINO.marker
        files = [model, model.with_suffix(".bin")]
        return OpenedExport(read_texts(path, NAMES), files, lambda: {"serve": _signature(model)})


@functools.cache
def openvino_core() -> Any:
    """Returns the one `Core` of OpenVINO in this process.

    Each `Core` replaces the stack on which signals are handled, and when it goes it puts back the
    one that it found. Of two that go in the order in which they came, the second puts back memory
    that is freed already, and the next signal, such as Ctrl-C, ends the process.
    """
    return import_export_package("openvino", "openvino").Core()


def _signature(path):
    """Returns the one signature of an OpenVINO model, computed in float32.

    By default OpenVINO computes in bfloat16 where the CPU has it.
    """
    library = import_export_package("openvino", "openvino")
    model = openvino_core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    takes_pixels = model.input("images").get_element_type() == library.Type.u8
    # A request for each call: the model's own one is shared by all threads, and so are its outputs.
    return Signature(
        lambda batch: model.create_infer_request().infer({"images": batch})["probabilities"],
        takes_pixels=takes_pixels,
    )
