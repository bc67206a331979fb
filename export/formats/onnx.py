"""ONNX file of a classifier, in float32, float16 or 8 bits."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import tempfile
import types
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_vit.utils.fields import documented
from keras_vit.utils.files import CLASSES

from .export_format import (
    FLOAT_LAYERS,
    NAMES,
    CheckImages,
    OpenedExport,
    QuantizedFormat,
    Signature,
    import_export_package,
    json_texts,
    texts_of_json,
)

if TYPE_CHECKING:
    import numpy as np
    from onnx import GraphProto, ModelProto, NodeProto
    from onnxruntime import InferenceSession

    from keras_vit.predictor import Predictor

OPSET = 18  # ONNX 1.13 of 2022, which all current runtimes read.

# Metadata properties of a file by the names of the texts.
PROPERTIES = {name: pathlib.Path(name).stem for name in NAMES} | {CLASSES: "class_names"}

# With a constant operand, the weights, these are in 8 bits.
INTEGER_OPERATIONS = ("MatMul", "Gemm", "Conv")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ONNX(QuantizedFormat):
    """A classifier as an ONNX file.

    Input `images` `(batch, H, W, C)` uint8, RGB pixels of any size, which the file resizes and
    scales as evaluation does; or float32, preprocessed before. Outputs `probabilities`
    `(batch, K)` float32 and `valid` `(batch,)` bool, false and zeros for an image with NaN or
    infinity in its values or scores; the batch size is free. The file's metadata properties
    `description`, `class_names`, `preprocessing`, `origin`, `golden`, `check` and `checksums` are
    JSON, and `task` of a multi-label classifier. A model in mixed precision is exported as its
    float32 copy.

    Precisions:

    - "float32";
    - "float16": matrices in float16, half the bytes; computed in float32, since ONNX Runtime has no
      products in float16 on CPUs;
    - "int8": weights in int8 by channel, except for the first and the last layer; activations in
      8 bits into matrix products with weights, with ranges from calibration images; float32 in
      LayerNorm, GELU, attention, residual additions and a hybrid's convolutions. Convolutions of
      a BiT take and give 8 bits.
    """

    name = "onnx"
    suffix = ".onnx"
    precisions = ("float32", "float16", "int8")
    packages = ("onnx", "tf2onnx", "onnxruntime")  # The file, its converter, its runtime.

    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the file; see `ExportFormat.write`."""
        content = onnx_in_precision(classifier, images, self)
        import_export_package("onnx").save(content, path)
        return ()

    @staticmethod
    def add_texts(path, texts):
        """Adds the texts to the file's metadata properties, which are JSON."""
        # A protocol buffer behind another one adds its entries.
        content = import_export_package("onnx").ModelProto()
        for key, value in json_texts(texts, PROPERTIES).items():
            content.metadata_props.add(key=key, value=value)
        with path.open("ab") as file:
            file.write(content.SerializeToString())

    @staticmethod
    def open(path):
        """Returns the content of an ONNX file; see `ExportFormat.open`."""
        # Without optimisation nothing of the graph is run.
        stored = session_of(path, optimised=False).get_modelmeta().custom_metadata_map
        texts = texts_of_json(stored, PROPERTIES)
        return OpenedExport(texts, [path], lambda: {"serve": _signature(session_of(path))})


def onnx_in_precision(
    classifier: Predictor, images: CheckImages, options: QuantizedFormat, *, fused: bool = True
) -> ModelProto:
    """Returns a classifier as an `onnx.ModelProto` in a precision.

    Args:
        classifier: The classifier.
        images: The images of the export, for calibration.
        options: An `ONNX` or `OpenVINO`.
        fused: Under "int8", whether it is for ONNX Runtime; see `quantize`.
    """
    from .check_images import input_images

    content = onnx_content(classifier, options.input)
    if options.precision == "float16":
        store_in_float16(content)
    elif options.precision == "int8":
        calibration = input_images(options, classifier, images.calibration)
        content = quantize(content, calibration, fused=fused)
    return content


def onnx_content(classifier: Predictor, input: str, *, attention: bool = False) -> ModelProto:
    """Returns a classifier as an `onnx.ModelProto` in float32, with the outputs of `onnx`.

    Args:
        classifier: The classifier.
        input: "uint8" or "float".
        attention: Whether the Attention Rollout is an output; see `exported_model`.
    """
    from keras_vit.models.rebuild import float32_model

    from .exported_model import exported_model

    library = import_export_package("onnx")
    model = exported_model(
        float32_model(classifier.model),
        classifier.preprocessing,
        input=input,
        attention=attention,
    )
    content = _convert(model, library)
    graph = content.graph
    _mask_scores(graph, library)
    (images,) = graph.input
    free = [(tensor, 0, "batch") for tensor in (images, *graph.output)]
    if input == "uint8":
        free += [(images, 1, "height"), (images, 2, "width")]
    for tensor, axis, name in free:
        tensor.type.tensor_type.shape.dim[axis].dim_param = name
    library.checker.check_model(content)
    return content


def _convert(model, library):
    """Returns the ONNX content of a model; its output `probabilities` is called `scores` there.

    Each pass of the converter copies the constants of its graph and keeps the copies, 2 GB for a
    block of ViT-B/16. So the weights are inputs of the graph that it converts, and become
    constants afterwards.
    """
    import keras
    import tensorflow as tf

    trainable = len(model.trainable_variables)
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = {f"weight_{index}": variable for index, variable in enumerate(variables)}

    @tf.function(autograph=False)
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
        serve, signature, opset=OPSET, custom_op_handlers={"Erfc": (_write_erfc, [])}
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
    import numpy as np

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
    import numpy as np

    constants = {"mask_axes": np.array([1]), "zero_float32": np.array(0, "float32")}
    for name, value in constants.items():
        graph.initializer.append(library.numpy_helper.from_array(value, name))
    make_node = library.helper.make_node
    graph.node.append(make_node("Unsqueeze", ["valid", "mask_axes"], ["valid_column"]))
    where = make_node("Where", ["valid_column", "scores", "zero_float32"], ["probabilities"])
    graph.node.append(where)
    (scores,) = (output for output in graph.output if output.name == "scores")
    scores.name = "probabilities"


def store_in_float16(content: ModelProto) -> None:
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


def quantize(
    content: ModelProto, images: Iterable[np.ndarray], *, fused: bool = True
) -> ModelProto:
    """Returns a model with products in 8 bits, as pairs of QuantizeLinear and DequantizeLinear.

    Weights are symmetric by channel, activations uint8 with the range of the calibration images.
    See `INTEGER_PRECISIONS` and `FLOAT_LAYERS` for what stays in float32.

    Args:
        content: An `onnx.ModelProto`, whose constants are folded.
        images: Calibration images, as the model takes them, without the batch's dimension.
        fused: Whether the pairs are those that ONNX Runtime fuses. Its matrix products take 8 bits
            and a bias, and give float32. Its convolutions are integer ones only if they give 8
            bits, so they are in float32, except in a network of convolutions alone. Matrices have
            7 bits: on x86 without VNNI two products are added in 16 bits, which cuts off sums of
            8 x 8 bits. Other runtimes are faster and more exact without.
    """
    batches = iter([{"images": image[None]} for image in images])
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
            types.SimpleNamespace(get_next=lambda: next(batches, None)),
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


def fold_constants(content: ModelProto) -> None:
    """Replaces operations on constants, such as the reshape of a weight, by their results.

    Args:
        content: An `onnx.ModelProto`.
    """
    import numpy as np

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


def separate(graph: GraphProto, nodes: Sequence[NodeProto]) -> None:
    """Adds an operation without effect before nodes, which keeps a runtime from fusing them.

    Args:
        graph: An `onnx.GraphProto`.
        nodes: Some of its nodes, whose first inputs are float32.
    """
    if not nodes:
        return
    import numpy as np

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


def keep_padding(graph: GraphProto) -> None:
    """Adds an operation without effect between a padding with zeros and a max pool.

    ONNX Runtime before 1.32 fuses the two into one operation whose padding is never the
    maximum, so the stem of a BiT would give other values where all inputs are negative.

    Args:
        graph: An `onnx.GraphProto`.
    """
    padded = {node.output[0] for node in graph.node if node.op_type == "Pad"}
    pools = [node for node in graph.node if node.op_type == "MaxPool" and node.input[0] in padded]
    separate(graph, pools)


def replace(field: Any, messages: Iterable[Any]) -> None:
    """Sets a repeated field of a protocol buffer to messages, which may be of this field."""
    kept = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(kept)


def session_of(path: str | os.PathLike, *, optimised: bool = True) -> InferenceSession:
    """Returns a session of ONNX Runtime for an ONNX file."""
    library = import_export_package("onnxruntime")
    library.disable_telemetry_events()  # From 1.32 on it reports its use on Linux too.
    options = library.SessionOptions()
    if not optimised:
        options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
    # With a fallback an error is also printed, on four lines.
    return library.InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def _signature(session):
    """Returns the one signature of an ONNX file."""
    shapes = {output.name: output.shape for output in session.get_outputs()}
    *_, classes = shapes.get("probabilities") or [None]  # A name where it is not stated.
    return Signature(
        lambda batch: session.run(["probabilities"], {"images": batch})[0],
        takes_pixels=session.get_inputs()[0].type == "tensor(uint8)",
        classes=classes if isinstance(classes, int) else None,
    )
