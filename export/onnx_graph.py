"""Changes of ONNX graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .export_format import import_export_package


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


def replace(field: Any, messages: Iterable[Any]) -> None:
    """Sets a repeated field of a protocol buffer to messages, which may be of this field."""
    kept = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(kept)
