"""Weights of an ONNX model in float16, and its products in 8 bits."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from .formats import import_export_package
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


def quantize(content: Any, images: Iterable[np.ndarray], *, fused: bool = True) -> Any:
    """Returns a model with products in 8 bits, as pairs of QuantizeLinear and DequantizeLinear.

    Weights are symmetric by channel, activations uint8 with the range of the calibration images.
    See `quantization.py` for what stays in float32.

    Args:
        content: An `onnx.ModelProto`, whose constants are folded.
        images: Calibration images, as the model takes them, without the batch's dimension.
        fused: Whether the pairs are those that ONNX Runtime fuses. Its matrix products take 8 bits
            and a bias, and give float32. Its convolutions are integer ones only if they give 8
            bits, so they are in float32, except in a network of convolutions alone. Matrices have
            7 bits: on x86 without VNNI two products are added in 16 bits, which cuts off sums of
            8 x 8 bits. Other runtimes are faster and more exact without.
    """
    library = import_export_package("onnx")
    quantization = import_export_package("onnxruntime.quantization")
    shapes = import_export_package("onnxruntime.quantization.shape_inference")
    with tempfile.TemporaryDirectory() as folder:
        given, prepared, quantized = (os.path.join(folder, f"{n}.onnx") for n in range(3))
        library.save(content, given)
        # The optimisation makes a product of a matrix product and its bias.
        shapes.quant_pre_process(
            given, prepared, skip_optimization=not fused, skip_symbolic_shape=True
        )
        graph = library.load(prepared).graph
        constants = {tensor.name for tensor in graph.initializer}
        products = [node for node in graph.node if node.op_type in INTEGER_OPERATIONS]
        in_float = [
            node.name
            for node in products
            if node.input[1] not in constants or re.search(FLOAT_LAYERS, node.name)
        ]
        matrices = [
            node.input[1]
            for node in products
            if node.op_type == "Gemm" and node.name not in in_float
        ]
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
                "OpTypesToExcludeOutputQuantization": (
                    () if fused and not matrices else INTEGER_OPERATIONS
                ),
                "TensorQuantOverrides": {
                    name: [{"axis": 1, "reduce_range": True}] for name in matrices if fused
                },
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
