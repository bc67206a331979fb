"""OpenVINO folder of a classifier, in float32 or 8 bits."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING

from keras_vit.description.description_texts import read_texts
from keras_vit.utils.fields import documented

from .export_format import (
    NAMES,
    CheckImages,
    OpenedExport,
    QuantizedFormat,
    Signature,
    import_export_package,
    write_texts,
)
from .onnx import onnx_in_precision, separate

if TYPE_CHECKING:
    from onnx import GraphProto
    from openvino import Core

    from keras_vit.predictor import Predictor


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenVINO(QuantizedFormat):
    """A classifier as a folder of OpenVINO.

    It holds `model.xml` and `model.bin`, with input and outputs as the ONNX file of
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

    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the model; see `ExportFormat.write`."""
        content = onnx_in_precision(classifier, images, self, fused=False)
        if self.precision == "int8":
            keep_scales(content.graph)
        library = import_export_package("openvino", "openvino")
        model = openvino_core().read_model(content.SerializeToString())
        library.save_model(model, path / self.marker, compress_to_fp16=False)
        return ()

    add_texts = staticmethod(write_texts)

    @staticmethod
    def open(path):
        """Returns the content of an OpenVINO folder; see `ExportFormat.open`."""
        import_export_package("openvino", "openvino")
        model = path / OpenVINO.marker
        files = [model, model.with_suffix(".bin")]
        return OpenedExport(read_texts(path, NAMES), files, lambda: {"serve": _signature(model)})


@functools.cache
def openvino_core() -> Core:
    """Returns the one `Core` of OpenVINO in this process.

    Each `Core` replaces the stack on which signals are handled, and when it goes it puts back the
    one that it found. Of two that go in the order in which they came, the second puts back memory
    that is freed already, and the next signal, such as Ctrl-C, ends the process.
    """
    return import_export_package("openvino", "openvino").Core()


def keep_scales(graph: GraphProto) -> None:
    """Adds an operation without effect between products in 8 bits and a reshape.

    OpenVINO 2026.4 moves the scales of the channels behind the reshape and then fails, where no
    bias is in between. It leaves out biases of zeros.

    Args:
        graph: An `onnx.GraphProto` in 8 bits.
    """
    made_by = {name: node for node in graph.node for name in node.output}
    to_array = import_export_package("onnx").numpy_helper.to_array
    zeros = {tensor.name for tensor in graph.initializer if not to_array(tensor).any()}

    def product_before(node):
        source = made_by.get(node.input[0])
        while source is not None and source.op_type == "Add" and zeros.intersection(source.input):
            source = made_by.get(next(name for name in source.input if name not in zeros))
        return source is not None and source.op_type == "MatMul"

    separate(graph, [n for n in graph.node if n.op_type == "Reshape" and product_before(n)])


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
