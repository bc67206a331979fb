"""Conversion of a classifier to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import Classifier
from keras_vit.models.rebuild import float32_model

from . import quantization
from .formats import QuantizedFormat, Written, import_export_package
from .exported_model import exported_model, precision_notes
from .onnx_graph import fold_constants, keep_padding, replace
from .onnx_precisions import quantize, store_in_float16


def onnx_in_precision(
    classifier: Classifier,
    files: Sequence[str],
    options: QuantizedFormat,
    opset: int,
    further: Sequence[str] = (),
    *,
    fused: bool = True,
) -> tuple[Any, Written]:
    """Returns a classifier as an `onnx.ModelProto` in a precision, and facts about it.

    Args:
        classifier: The classifier.
        files: Real images, for the check and for calibration.
        options: Precision, input and calibration images.
        opset: Version of the standard operator set.
        further: Further outputs; see `exported_model`.
        fused: Under "int8", whether it is for ONNX Runtime; see `quantize`.
    """
    split = quantization.split(files, options.precision, options.calibration_images)
    content = onnx_content(classifier, opset, options.input, further)
    if options.precision == "float16":
        store_in_float16(content)
    elif options.precision == "int8":
        images = quantization.inputs(classifier, split.calibration, options.input)
        content = quantize(content, images, fused=fused)
    return content, Written(split.check, (*precision_notes(classifier.model), *split.notes))


def onnx_content(
    classifier: Classifier, opset: int, input: str, outputs: Sequence[str] = ()
) -> Any:
    """Returns a classifier as an `onnx.ModelProto` in float32, with the outputs of `onnx`.

    Args:
        classifier: The classifier.
        opset: Version of the standard operator set.
        input: "uint8" or "float".
        outputs: Further outputs; see `exported_model`.
    """
    library = import_export_package("onnx")
    model = exported_model(
        float32_model(classifier.model),
        classifier.preprocessing,
        input=input,
        outputs=outputs,
    )
    content = _convert(model, opset, library)
    _mask_scores(content.graph, library)
    sides = {1: "height", 2: "width"} if input == "uint8" else {}
    return _named_sizes(content, {0: "batch", **sides}, library)


def _named_sizes(content, names, library):
    """Returns an `onnx.ModelProto` whose free sizes have names, by the axes of its input."""
    (images,) = content.graph.input
    for axis, name in names.items():
        for tensor in (images, *content.graph.output) if name == "batch" else (images,):
            tensor.type.tensor_type.shape.dim[axis].dim_param = name
    library.checker.check_model(content)
    return content


def _convert(model, opset, library):
    """Returns the ONNX content of a model; its output `probabilities` is called `scores` there.

    Each pass of the converter copies the constants of its graph and keeps the copies, 2 GB for a
    block of ViT-B/16. So the weights are inputs of the graph that it converts, and become
    constants afterwards.
    """
    trainable = len(model.trainable_variables)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = {f"weight_{index}": variable for index, variable in enumerate(variables)}

    @tf.function
    def serve(images, *values):
        answer, _ = model.stateless_call(
            values[:trainable], values[trainable:], images, training=False
        )
        if "probabilities" in answer:
            answer["scores"] = answer.pop("probabilities")
        return answer

    (images,) = model.inputs
    signature = [
        tf.TensorSpec(images.shape, images.dtype, images.name),
        *(tf.TensorSpec(value.shape, value.dtype, name) for name, value in weights.items()),
    ]
    converter = import_export_package("tf2onnx")
    content, _ = converter.convert.from_function(
        serve, signature, opset=opset, custom_op_handlers={"Erfc": (_write_erfc, [])}
    )
    graph = content.graph
    for tensor in graph.input:
        if tensor.name in weights:
            value = keras.ops.convert_to_numpy(weights[tensor.name])
            graph.initializer.append(library.numpy_helper.from_array(value, tensor.name))
    replace(graph.input, [tensor for tensor in graph.input if tensor.name not in weights])
    fold_constants(content)
    keep_padding(graph)
    return content


def _write_erfc(graph, node, name, _):
    """Writes TensorFlow's erfc of the exact GELU, which ONNX lacks, as 1 - erf.

    Args:
        graph: A `tf2onnx.graph.Graph`.
        node: The operation.
        name: Its name.
    """
    values, results = node.input[0], node.output[0]
    shape, dtype = graph.get_shape(results), graph.get_dtype(results)
    graph.remove_node(name)
    one = graph.make_const(f"{name}/one", np.array(1, "float32")).output[0]
    erf = graph.make_node("Erf", [values], name=f"{name}/erf", shapes=[shape], dtypes=[dtype])
    graph.make_node(
        "Sub", [one, erf.output[0]], name=name, outputs=[results], shapes=[shape], dtypes=[dtype]
    )


def _mask_scores(graph, library):
    """Adds the output `probabilities`: the scores, or zeros where not valid.

    The converter would write a product with the mask, and NaN times 0 is NaN.
    """
    constants = {"mask_axes": np.array([1]), "zero_float32": np.array(0, "float32")}
    for name, value in constants.items():
        graph.initializer.append(library.numpy_helper.from_array(value, name))
    make_node = library.helper.make_node
    graph.node.append(make_node("Unsqueeze", ["valid", "mask_axes"], ["valid_column"]))
    where = make_node("Where", ["valid_column", "scores", "zero_float32"], ["probabilities"])
    graph.node.append(where)
    (scores,) = (output for output in graph.output if output.name == "scores")
    scores.name = "probabilities"
