"""Conversion of a model to TFLite, in float32, float16 or integers."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import Classifier
from keras_vit.models.rebuild import float32_model

from . import quantization
from .formats import INTEGER_PRECISIONS, QuantizedFormat, Written, import_export_package
from .exported_model import exported_model, precision_notes
from .quantization import FLOAT_LAYERS, RESIDUAL_PRODUCTS
from .tflite_metadata import add_metadata, image_classifier_metadata

# Limit of GPU and NPU delegates.
MAX_RANK = 4

# Operations in integers under int8; see `quantization.py`. XNNPACK's delegate has no 8-bit GELU or
# attention products, which would make them slower.
INTEGER_OPERATIONS = ("FULLY_CONNECTED", "CONV_2D")


def tflite_content(
    classifier: Classifier,
    files: Sequence[str],
    options: QuantizedFormat,
    batch_size: int | None,
    input_size: tuple[int, int] | None,
) -> tuple[bytes, Written]:
    """Returns the bytes of a classifier's TFLite file without its texts, and facts about it.

    Args:
        classifier: The classifier.
        files: Real images, for the check and for calibration.
        options: Precision, input and calibration images.
        batch_size: Images a call, or None for any number.
        input_size: The only size (H, W) of pixels, or None.
    """
    split = quantization.split(files, options.precision, options.calibration_images)
    preprocessing = classifier.preprocessing
    model = exported_model(
        float32_model(classifier.model), preprocessing, input=options.input, input_size=input_size
    )
    content = convert(model, batch_size, options.precision)
    if options.precision in INTEGER_PRECISIONS:
        images = quantization.inputs(classifier, split.calibration, options.input, input_size)
        content = quantize(content, options.precision, images, batch_size or 1)
    check_operations(content)
    if options.input == "uint8" and input_size is None:
        content = with_default_size(content, preprocessing.image_size)
    metadata = image_classifier_metadata(
        classifier.model.name, preprocessing.value_range if options.input == "float" else None
    )
    notes = (*precision_notes(classifier.model), *split.notes)
    if input_size is None:
        height, width = preprocessing.image_size
        notes += (
            f"MediaPipe resizes images to {height}x{width} pixels in its own way and then answers "
            "otherwise than predict: export for it with --input-size, the size of its images.",
        )
    return add_metadata(content, metadata), Written(split.check, notes, input_size=input_size)


def check_operations(content: bytes) -> None:
    """Raises if a TFLite model has custom operations or tensors of a rank above 4.

    Args:
        content: The file's bytes.
    """
    utils = import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    custom = {code.customCode.decode() for code in model.operatorCodes if code.customCode}
    if custom:
        raise ValueError(
            f"A TFLite file must have builtin operations only. Received: {sorted(custom)}"
        )
    high = {
        tensor.name.decode()
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.shape is not None and len(tensor.shape) > MAX_RANK
    }
    if high:
        raise ValueError(
            f"Tensors of a TFLite file must have rank {MAX_RANK} at most. "
            f"Received: {sorted(high)[:3]}"
        )


def convert(model, batch_size, precision):
    """Returns the bytes of a TFLite file in "float32" or "float16"; integers come later."""
    (images,) = model.inputs
    archive = keras.export.ExportArchive()

    def serve(images):
        answer = model(images, training=False)
        # MediaPipe takes every output for the scores of a head, so `valid` is none.
        mask = answer["valid"][:, tf.newaxis]
        return {"probabilities": tf.where(mask, answer["probabilities"], 0.0)}

    signature = tf.TensorSpec((batch_size, *images.shape[1:]), images.dtype, "images")
    archive.add_endpoint("serve", serve, input_signature=[signature])
    with tempfile.TemporaryDirectory() as folder:
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serve"])
        # Weights become constants, else each is read through a resource.
        converter.experimental_enable_resource_variables = False
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if precision == "float16":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.target_spec.supported_types = [tf.float16]
        return converter.convert()


def quantize(content, precision, images, batch_size):
    """Returns a float32 TFLite file's bytes with integer weights.

    Args:
        content: The file's bytes.
        precision: "dynamic_int8" or "int8".
        images: For "int8", calibration images `(H, W, C)`.
        batch_size: Images a call.
    """
    quantizer = import_export_package("ai_edge_quantizer.quantizer").Quantizer(bytearray(content))
    if precision == "dynamic_int8":
        quantizer.add_dynamic_config(regex=".*", operation_name="*", num_bits=8)
    else:
        for operation in INTEGER_OPERATIONS:
            quantizer.add_static_config(
                regex=".*", operation_name=operation, activation_num_bits=8, weight_num_bits=8
            )
            quantizer.add_dynamic_config(
                regex=f".*{RESIDUAL_PRODUCTS}.*", operation_name=operation, num_bits=8
            )
    quantizer.update_quantization_recipe(f".*{FLOAT_LAYERS}.*", "*", algorithm_key="no_quantize")
    # Progress bars that count operations, and a warning that calibration keeps all tensors.
    with contextlib.redirect_stderr(io.StringIO()):
        ranges = None
        if images:
            batches = [{"images": np.repeat(image[None], batch_size, 0)} for image in images]
            ranges = _ranges(content, quantizer.get_quantization_recipe(), batches)
        result = quantizer.quantize(ranges, enable_progress_report=False)
    return bytes(result.quantized_model)


def _ranges(content, recipe, batches):
    """Returns the smallest and the largest value of each tensor over all images, by its name.

    `Quantizer.calibrate` would take a moving average of the images' ranges, which cuts off values
    of about every second image.
    """
    library = "ai_edge_quantizer"
    manager = import_export_package(f"{library}.recipe_manager").RecipeManager()
    manager.load_quantization_recipe(recipe)
    calibrator = import_export_package(f"{library}.calibrator").Calibrator(
        bytearray(content),
        num_threads=os.cpu_count(),
        qsv_update_func=import_export_package(f"{library}.utils.qsv_utils").min_max_update,
    )
    calibrator.calibrate({"serve": batches}, manager)
    return calibrator.get_model_qsvs()


def with_default_size(content, image_size):
    """Returns a TFLite file's bytes with the size that pixels have if nobody resizes the input.

    The converter writes 1 for each free dimension, and MediaPipe takes that for the size.
    """
    utils = import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    graph = model.subgraphs[0]
    graph.tensors[graph.inputs[0]].shape[1:3] = image_size
    return bytes(utils.convert_object_to_bytearray(model))
