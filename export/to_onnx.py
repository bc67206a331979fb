"""An ONNX file, by Keras's exporter."""

from __future__ import annotations

import json
import os
import warnings

import keras
import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.models.rebuild import float32_model

from . import job
from .verify import Report

OPSET = 18  # ONNX 1.13, 2022: what every runtime in use reads.
OPSETS = range(13, 19)  # What tf2onnx writes.


def onnx(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    opset: int = OPSET,
    check_images=None,
    minimum_agreement: float = 0.99,
    overwrite: bool = False,
) -> Report:
    """Exports a classifier as an ONNX file, checked with ONNX Runtime, or not at all.

    Input `images` `(batch, H, W, C)` float32 in the preprocessing's value range, output
    `probabilities` `(batch, K)` float32; the batch size is free. The file's metadata
    properties `class_names`, `preprocessing`, `origin` and `check` are JSON.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The file to write, `*.onnx`.
        opset: Version of the standard operator set, 13 to 18.
        check_images: Real images to check on, files or a folder; the classifier's own
            samples by default.
        minimum_agreement: Least share of them with the Keras model's first class.
        overwrite: Whether a file that is there is replaced.

    Returns:
        A `Report`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, there is nothing to
            check on, or the check fails. Nothing is left behind.
        ImportError: If the extra `export` is not installed.
    """
    if opset not in OPSETS:
        raise ValueError(
            f"opset must be in {OPSETS.start} to {OPSETS.stop - 1}. Received: opset={opset}"
        )
    job.check_agreement(minimum_agreement)
    job.check_output(path, "onnx", overwrite=overwrite)
    library = job.needed("onnx")
    job.needed("tf2onnx")
    job.needed("onnxruntime")
    classifier = job.resolve(classifier)
    job.check_file_size(classifier.model, "onnx")
    files = job.check_files(classifier, check_images)

    def write(file):
        model = float32_model(classifier.model)
        shape = (None, *classifier.preprocessing.image_size, model.input_shape[-1])
        with warnings.catch_warnings():
            # Keras asks for `np.object`, of which NumPy warns.
            warnings.simplefilter("ignore", FutureWarning)
            model.export(
                file,
                format="onnx",
                verbose=False,
                opset_version=opset,
                input_signature=[keras.InputSpec(shape=shape, dtype="float32", name="images")],
            )
        content = library.load(file)
        _name_output(content.graph, "probabilities")
        _keep_padding(content.graph, library)
        for tensor in (*content.graph.input, *content.graph.output):
            tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
        library.helper.set_model_props(
            content,
            {
                "class_names": json.dumps(classifier.class_names),
                "preprocessing": classifier.preprocessing.to_json(),
                "origin": json.dumps(job.origin(classifier)),
            },
        )
        library.checker.check_model(content)
        library.save(content, file)

    def record(file, report):
        content = library.load(file)
        check = content.metadata_props.add()
        check.key, check.value = "check", json.dumps(report.figures())
        library.save(content, file)

    return job.run(
        classifier,
        path,
        "onnx",
        write=write,
        record=record,
        files=files,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
        notes=(f"Operator set {opset}.", *job.precision_notes(classifier.model)),
    )


def _keep_padding(graph, library):
    """Puts an operation that changes nothing between a padding with zeros and a max pool.

    ONNX Runtime makes one operation of the two, whose padding never wins against negative
    values: a BiT's root then gives other values.
    """
    padded = {node.output[0] for node in graph.node if node.op_type == "Pad"}
    lowest = library.numpy_helper.from_array(
        np.array(np.finfo("float32").min, "float32"), "lowest_float32"
    )
    nodes = []
    for node in graph.node:
        if node.op_type == "MaxPool" and node.input[0] in padded:
            kept = f"{node.input[0]}_kept"
            nodes.append(library.helper.make_node("Max", [node.input[0], lowest.name], [kept]))
            node.input[0] = kept
        nodes.append(node)
    if len(nodes) > len(graph.node):
        graph.initializer.append(lowest)
        nodes = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(nodes)


def _name_output(graph, name):
    """Names the graph's one output, which the converter calls after the last operation."""
    (output,) = graph.output
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [name if old == output.name else old for old in names]
    output.name = name
