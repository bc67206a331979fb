"""Changes of ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .formats import import_export_package


def fold_constants(content: Any) -> None:
    """Replaces operations on constants, such as the reshape of a weight, by their results.

    Args:
        content: An `onnx.ModelProto`.
    """
    library = import_export_package("onnx")
    reference = import_export_package("onnx.reference")
    graph, numpy_helper = content.graph, library.numpy_helper
    opsets = {entry.domain: entry.version for entry in content.opset_import}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if not node.input or not all(name in constants for name in node.input):
            nodes.append(node)
            continue
        values = {name: numpy_helper.to_array(constants[name]) for name in node.input}
        step = reference.ReferenceEvaluator(node, opsets=opsets)
        for name, value in zip(node.output, step.run(None, values), strict=True):
            constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
    used = {name for node in nodes for name in node.input}
    replace(graph.node, nodes)
    replace(graph.initializer, [constants[name] for name in constants if name in used])


def separate(graph: Any, nodes: Sequence[Any]) -> None:
    """Adds an operation without effect before nodes, which keeps a runtime from fusing them.

    Args:
        graph: An `onnx.GraphProto`.
        nodes: Some of its nodes, whose first inputs are float32.
    """
    if not nodes:
        return
    library = import_export_package("onnx")
    lowest = library.numpy_helper.from_array(
        np.array(np.finfo("float32").min, "float32"), "lowest_float32"
    )
    before = {}
    for node in nodes:
        kept = f"{node.output[0]}_separate"
        before[node.output[0]] = library.helper.make_node(
            "Max", [node.input[0], lowest.name], [kept]
        )
        node.input[0] = kept
    graph.initializer.append(lowest)
    replace(
        graph.node,
        [
            each
            for node in graph.node
            for each in (before.get(node.output[0]), node)
            if each is not None
        ],
    )


def keep_padding(graph: Any) -> None:
    """Adds an operation without effect between a padding with zeros and a max pool.

    ONNX Runtime before 1.32 fuses the two into one operation whose padding is never the
    maximum, so the stem of a BiT would give other values where all inputs are negative.

    Args:
        graph: An `onnx.GraphProto`.
    """
    padded = {node.output[0] for node in graph.node if node.op_type == "Pad"}
    pools = [node for node in graph.node if node.op_type == "MaxPool" and node.input[0] in padded]
    separate(graph, pools)


def keep_scales(graph: Any) -> None:
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


def replace(field: Any, messages: Iterable[Any]) -> None:
    """Sets a repeated field of a protocol buffer to messages, which may be of this field."""
    kept = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(kept)
