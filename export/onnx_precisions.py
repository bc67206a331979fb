"""Weights of an ONNX model in float16, and its products in 8 bits."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from .export_format import import_export_package
from .onnx_graph import replace
from .quantization import FLOAT_LAYERS

# With a constant operand, the weights, these are in 8 bits.
INTEGER_OPERATIONS = ("MatMul", "Gemm", "Conv")


def store_in_float16(content: Any) -> None:
    """Changes matrices of a model to float16; they are cast to float32 before they are used.

    A runtime casts them once, when it loads the model. A graph that computes in float16 would be
    slower on CPUs, for which ONNX Runtime has no such products, and the squares of LayerNorm may
    exceed the range of float16.

    Args:
        content: An `onnx.ModelProto`.
    """
    library = import_export_package("onnx")
    graph, casts = content.graph, []
    for tensor in graph.initializer:
        if tensor.data_type == library.TensorProto.FLOAT and len(tensor.dims) > 1:
            name, stored = tensor.name, f"{tensor.name}_float16"
            values = library.numpy_helper.to_array(tensor).astype("float16")
            tensor.CopyFrom(library.numpy_helper.from_array(values, stored))
            to = library.TensorProto.FLOAT
            casts.append(library.helper.make_node("Cast", [stored], [name], f"{name}_cast", to=to))
    replace(graph.node, [*casts, *graph.node])


def quantize(content: Any, images: Iterable[np.ndarray], *, outputs: bool = True) -> Any:
    """Returns a model with products in 8 bits, as pairs of QuantizeLinear and DequantizeLinear.

    Weights are symmetric int8 by channel, activations uint8 with the range of the calibration
    images. See `quantization.py` for what stays in float32.

    Args:
        content: An `onnx.ModelProto`, whose constants are folded.
        images: Calibration images, as the model takes them, without the batch's dimension.
        outputs: Whether the results of products are in 8 bits too. ONNX Runtime has its fast
            products only then; other runtimes are faster and more exact without.
    """
    library = import_export_package("onnx")
    quantization = import_export_package("onnxruntime.quantization")
    shapes = import_export_package("onnxruntime.quantization.shape_inference")
    constants = {tensor.name for tensor in content.graph.initializer}
    in_float = [
        node.name
        for node in content.graph.node
        if node.op_type in INTEGER_OPERATIONS
        and (node.input[1] not in constants or re.search(FLOAT_LAYERS, node.name))
    ]
    with tempfile.TemporaryDirectory() as folder:
        given, prepared, quantized = (os.path.join(folder, f"{n}.onnx") for n in range(3))
        library.save(content, given)
        shapes.quant_pre_process(given, prepared, skip_optimization=True, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared,
            quantized,
            _Batches(images),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=INTEGER_OPERATIONS,
            nodes_to_exclude=in_float,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            extra_options={
                "OpTypesToExcludeOutputQuantization": () if outputs else INTEGER_OPERATIONS
            },
        )
        return library.load(quantized)


class _Batches:
    """Calibration images one by one, with the method of ONNX Runtime's CalibrationDataReader."""

    def __init__(self, images: Iterable[np.ndarray]):
        self._images = iter(images)

    def get_next(self) -> dict[str, np.ndarray] | None:
        image = next(self._images, None)
        return None if image is None else {"images": image[np.newaxis]}
