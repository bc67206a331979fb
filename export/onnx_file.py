"""ONNX file of a classifier."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
from collections.abc import Iterable

import keras
import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.models.rebuild import float32_model

from . import publish
from .comparison import ExportReport
from .options import MINIMUM_AGREEMENT, ONNX_OPSET, ONNX_OPSETS
from .validity import with_validity


def onnx(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    opset: int = ONNX_OPSET,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float = MINIMUM_AGREEMENT,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier as an ONNX file and checks it in ONNX Runtime.

    Input `images` `(batch, H, W, C)` float32 in the preprocessing's value range, outputs
    `probabilities` `(batch, K)` float32 and `valid` `(batch,)` bool, false and zeros for an image
    with NaN or infinity in its pixels or scores; the batch size is free. The file's metadata
    properties `class_names`, `preprocessing`, `origin` and `check` are JSON, and `task` of
    several labels an image.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The file to write, `*.onnx`.
        opset: Version of the standard operator set, 13 to 18.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class.
        overwrite: Whether an older file is replaced.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, there are no check
            images, or the check fails. Nothing is written then.
        ImportError: If the extra `export` is not installed.
    """
    if opset not in ONNX_OPSETS:
        raise ValueError(
            f"opset must be in {ONNX_OPSETS.start} to {ONNX_OPSETS.stop - 1}. "
            f"Received: opset={opset}"
        )
    classifier, files = publish.prepare(
        classifier,
        path,
        "onnx",
        packages=["onnx", "tf2onnx", "onnxruntime"],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    notes = (f"Operator set {opset}.", *publish.precision_notes(classifier.model))
    with publish.new_output(path, "onnx", overwrite=overwrite) as file:
        _write(file, classifier, opset)
        report = publish.check_export(
            file, path, {"": classifier}, files, minimum_agreement=minimum_agreement, notes=notes
        )
        _add_properties(file, {"check": json.dumps(report.to_json())})
    return report


def _write(file, classifier, opset):
    """Writes the ONNX file of a classifier."""
    library = publish.import_export_package("onnx")
    image_size = classifier.preprocessing.image_size
    model = with_validity(float32_model(classifier.model), image_size)
    shape = (None, *image_size, model.input_shape[-1])
    with warnings.catch_warnings():
        # Keras uses `np.object`, for which NumPy warns.
        warnings.simplefilter("ignore", FutureWarning)
        model.export(
            file,
            format="onnx",
            verbose=False,
            opset_version=opset,
            input_signature=[keras.InputSpec(shape=shape, dtype="float32", name="images")],
        )
    content = library.load(file)
    _name_outputs(content.graph, ("scores", "valid"))
    _mask_scores(content.graph, library)
    _keep_padding(content.graph, library)
    for tensor in (*content.graph.input, *content.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    library.checker.check_model(content)
    library.save(content, file)
    _add_properties(
        file,
        {
            "class_names": json.dumps(classifier.class_names),
            "preprocessing": classifier.preprocessing.to_json(),
            "origin": json.dumps(publish.origin(classifier)),
            **{
                pathlib.Path(name).stem: text
                for name, text in publish.task_files(classifier).items()
            },
        },
    )


def _add_properties(file, properties):
    """Adds metadata properties to an ONNX file."""
    library = publish.import_export_package("onnx")
    content = library.load(file)
    for key, value in properties.items():
        entry = content.metadata_props.add()
        entry.key, entry.value = key, value
    library.save(content, file)


def _keep_padding(graph, library):
    """Adds an operation without effect between a padding with zeros and a max pool.

    ONNX Runtime before 1.32 fuses the two into one operation whose padding is never the
    maximum, so the stem of a BiT would give other values where all inputs are negative.
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
    graph.output[0].name = "probabilities"


def _name_outputs(graph, names):
    """Renames the graph's outputs, which the converter names after their last operations."""
    renamed = {output.name: name for output, name in zip(graph.output, names, strict=True)}
    for node in graph.node:
        for places in (node.input, node.output):
            places[:] = [renamed.get(old, old) for old in places]
    for output in graph.output:
        output.name = renamed[output.name]
