"""OpenVINO folder of a classifier, in float32 or 8 bits."""

from __future__ import annotations

import os
from collections.abc import Iterable

from keras_vit.classifier import Classifier

from . import publish, quantization
from .comparison import CHECK, OPENVINO_FILE, ExportReport
from .onnx_file import onnx_content
from .onnx_graph import separate
from .onnx_precisions import quantize
from .options import INPUTS, ONNX_OPSET


def openvino(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    precision: str = "float32",
    input: str = INPUTS[0],
    calibration_images: str | os.PathLike | Iterable | None = None,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier for OpenVINO and checks it there.

    The folder holds `model.xml` and `model.bin`, with input and outputs as the ONNX file of
    `keras_vit.export.onnx`: `images` `(batch, H, W, C)` uint8 pixels of any size, or preprocessed
    float32; `probabilities` `(batch, K)` and `valid` `(batch,)`. Beside them are `classes.txt`,
    `preprocessing.json`, `origin.json`, `golden.json` and `check.json`, and of several labels an
    image `task.json`.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The folder to write; for a model server its name is a number: `pets/1`.
        precision: "float32"; or "int8": weights in int8 by channel, except for the first and
            the last layer; activations in 8 bits at the input of matrix products with weights
            and of convolutions, with ranges from calibration images; float32 elsewhere.
        input: "uint8" for pixels, "float" for preprocessed images.
        calibration_images: For "int8", real images for the ranges of the activations, files
            or a folder; see `quantization.split`.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class; by
            default 0.99 in float, 0.98 in integers.
        overwrite: Whether an older export is replaced.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, there are no check
            images, or the check fails. Nothing is written then.
        ImportError: If the extra `export` is not installed.
    """
    minimum_agreement = publish.check_precision("openvino", precision, minimum_agreement)
    publish.check_input(input)
    classifier, files = publish.prepare(
        classifier,
        path,
        "openvino",
        packages=["openvino", "onnx", "tf2onnx", "onnxruntime"],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    notes = publish.precision_notes(classifier.model)
    split = quantization.split(files, precision, calibration_images)
    with publish.new_output(path, "openvino", overwrite=overwrite) as folder:
        content = onnx_content(classifier, ONNX_OPSET, input)
        if precision == "int8":
            images = quantization.inputs(classifier, split.calibration, input)
            content = quantize(content, images, outputs=False)
            _keep_scales(content.graph)
        library = publish.import_export_package("openvino")
        model = library.Core().read_model(content.SerializeToString())
        library.save_model(model, folder / OPENVINO_FILE, compress_to_fp16=False)
        publish.write_texts(folder, publish.texts_of(classifier, files))
        report = publish.check_export(
            folder,
            path,
            {"": classifier},
            split.check,
            minimum_agreement=minimum_agreement,
            notes=(*notes, *split.notes),
        )
        publish.write_texts(folder, {CHECK: report.to_text()})
    return report


def _keep_scales(graph):
    """Adds an operation without effect between products in 8 bits and a reshape.

    OpenVINO 2026.4 moves the scales of the channels behind the reshape and then fails, where no
    bias is in between. It leaves out biases of zeros.
    """
    made_by = {name: node for node in graph.node for name in node.output}
    to_array = publish.import_export_package("onnx").numpy_helper.to_array
    zeros = {tensor.name for tensor in graph.initializer if not to_array(tensor).any()}

    def product_before(node):
        source = made_by.get(node.input[0])
        while source is not None and source.op_type == "Add" and zeros.intersection(source.input):
            source = made_by.get(next(name for name in source.input if name not in zeros))
        return source is not None and source.op_type == "MatMul"

    separate(graph, [n for n in graph.node if n.op_type == "Reshape" and product_before(n)])
