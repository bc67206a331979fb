"""A TFLite file for phones and small computers, float or quantised."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import PREPROCESSING, Classifier, image_files
from keras_vit.models.rebuild import float32_model

from . import job, litert_metadata
from .verify import Report, load_images

# GPU and NPU delegates take no more.
MAX_RANK = 4

# Enough for the ranges of the activations, which is all that calibration reads.
MAX_CALIBRATION_IMAGES = 128

# The first and the last layer, which are left in float as is usual: that adds a twentieth to
# ViT-B/16's bytes, a hundredth to its work, and takes off a quarter of the error or more.
FLOAT_LAYERS = ".*(patch_embedding|predictions).*"

# What is computed in integers under int8. The rest (LayerNorm, softmax, GELU, the products of
# attention, residual additions) stays float: in 8 bits it ruins a Vision Transformer, whose
# residual stream has a few values far above all others, and it is little of the work. GELU and
# the products of attention would even be slower: XNNPACK's delegate leaves them out in 8 bits.
INTEGER_OPERATIONS = ("FULLY_CONNECTED", "CONV_2D")


class Precision(NamedTuple):
    """How numbers are stored and computed.

    Args:
        minimum_agreement: Default share of check images with the Keras model's first class.
        convert: Sets up the converter, or None.
        quantize: Function of a quantizer that says what is quantised, or None.
    """

    minimum_agreement: float
    convert: Callable[[Any], None] | None = None
    quantize: Callable[[Any], None] | None = None


def _in_float16(converter):
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def _dynamic(quantizer):
    quantizer.add_dynamic_config(regex=".*", operation_name="*", num_bits=8)


def _static(quantizer):
    for operation in INTEGER_OPERATIONS:
        quantizer.add_static_config(
            regex=".*", operation_name=operation, activation_num_bits=8, weight_num_bits=8
        )


PRECISIONS = {
    "float32": Precision(0.99),
    "float16": Precision(0.99, convert=_in_float16),
    "dynamic_int8": Precision(0.98, quantize=_dynamic),
    "int8": Precision(0.98, quantize=_static),
}


def tflite(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    precision: str = "float32",
    batch_size: int | None = 1,
    calibration_images=None,
    check_images=None,
    minimum_agreement: float | None = None,
    overwrite: bool = False,
) -> Report:
    """Exports a classifier as a TFLite file, checked, or not at all.

    The signature `serve` takes `images` `(batch_size, H, W, C)` float32 in the
    preprocessing's value range and gives `probabilities` `(batch_size, K)` float32. Builtin
    operations only, tensors of rank 4 at most. TFLite metadata holds the normalisation and
    names `labels.txt`; it and `preprocessing.json`, `origin.json` and `check.json` are in
    the file, which is also a ZIP archive.

    Precisions:

    - "float32";
    - "float16": weights in float16, and activations where the device computes in it;
    - "dynamic_int8": weights in int8 by channel, but for the first and the last layer;
      activations are float32, and become int8 inside matrix products, by the row;
    - "int8": weights as in "dynamic_int8"; activations in int8 in matrix products with
      weights and convolutions, with ranges from calibration images; float32 in LayerNorm,
      GELU, attention and residual additions.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The file to write, `*.tflite`.
        precision: One of those above.
        batch_size: Images a call, fixed: what phones run fastest. None leaves it free.
        calibration_images: For `int8`, real images whose activations give the ranges, files
            or a folder; by default every second one of the check images, which is then not
            checked on.
        check_images: Real images to check on, files or a folder; the classifier's own
            samples by default.
        minimum_agreement: Least share of them with the Keras model's first class; 0.99 for
            float, 0.98 for integers by default.
        overwrite: Whether a file that is there is replaced.

    Returns:
        A `Report`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, the model has an
            operation that is not builtin, there is nothing to check on, or the check fails.
            Nothing is left behind.
        ImportError: If the extra `export` is not installed.
    """
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {tuple(PRECISIONS)}. Received: precision={precision!r}"
        )
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be positive or None. Received: {batch_size}")
    row = PRECISIONS[precision]
    if minimum_agreement is None:
        minimum_agreement = row.minimum_agreement
    job.check_agreement(minimum_agreement)
    job.check_output(path, "tflite", overwrite=overwrite)
    job.needed("ai_edge_litert.interpreter")
    if row.quantize:
        job.needed("ai_edge_quantizer")
    classifier = job.resolve(classifier)
    job.check_file_size(classifier.model, "tflite")
    files = job.check_files(classifier, check_images)
    calibration_files: list[str] = []
    notes: tuple[str, ...] = ()
    if precision == "int8":
        files, calibration_files = _split(files, calibration_images)
        notes = (f"Ranges of activations from {len(calibration_files)} images.",)

    def write(file):
        content = _convert(float32_model(classifier.model), classifier, batch_size, row)
        if row.quantize:
            content = _quantize(content, row, classifier, calibration_files, batch_size or 1)
        check_operations(content)
        metadata = litert_metadata.describe(
            classifier.model.name, classifier.preprocessing.value_range
        )
        file.write_bytes(litert_metadata.insert(content, metadata))
        names = "".join(f"{name}\n" for name in classifier.class_names)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(litert_metadata.LABELS, names)
            archive.writestr(PREPROCESSING, classifier.preprocessing.to_json())
            archive.writestr("origin.json", json.dumps(job.origin(classifier), indent=2))

    def record(file, report):
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("check.json", json.dumps(report.figures(), indent=2))

    return job.run(
        classifier,
        path,
        "tflite",
        write=write,
        record=record,
        files=files,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
        notes=(*job.precision_notes(classifier.model), *notes),
    )


def check_operations(content: bytes) -> None:
    """Raises if a TFLite model has custom operations or tensors of a rank above 4.

    Args:
        content: The file's bytes.
    """
    flatbuffers = job.needed("ai_edge_litert.tools.flatbuffer_utils")
    model = flatbuffers.read_model_from_bytearray(bytearray(content))
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


def _convert(model, classifier, batch_size, row):
    shape = (batch_size, *classifier.preprocessing.image_size, model.input_shape[-1])
    archive = keras.export.ExportArchive()
    archive.add_endpoint(
        "serve",
        lambda images: {"probabilities": model(images, training=False)},
        input_signature=[tf.TensorSpec(shape, "float32", "images")],
    )
    with tempfile.TemporaryDirectory() as folder:
        archive.write_out(folder, verbose=False)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=["serve"])
        # Weights become constants, else each is read through a resource.
        converter.experimental_enable_resource_variables = False
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if row.convert:
            row.convert(converter)
        return converter.convert()


def _quantize(content, row, classifier, calibration_files, batch_size):
    quantizer = job.needed("ai_edge_quantizer.quantizer").Quantizer(bytearray(content))
    row.quantize(quantizer)
    quantizer.update_quantization_recipe(FLOAT_LAYERS, "*", algorithm_key="no_quantize")
    # Its progress bars count operations, and it warns that all tensors are kept, which is
    # what calibration is.
    with contextlib.redirect_stderr(io.StringIO()):
        ranges = None
        if calibration_files:
            images = load_images(classifier, calibration_files)
            batches = [{"images": np.repeat(image[None], batch_size, 0)} for image in images]
            ranges = quantizer.calibrate({"serve": batches}, num_threads=os.cpu_count())
        result = quantizer.quantize(ranges, enable_progress_report=False)
    return bytes(result.quantized_model)


def _split(files, calibration_images):
    """Returns the files to check on and those to calibrate on, which are others."""
    if calibration_images is not None:
        return files, image_files(calibration_images)[:MAX_CALIBRATION_IMAGES]
    if len(files) < 2:
        raise ValueError(
            "precision=int8 needs images to calibrate on and others to check on. "
            f"Received: {len(files)} image"
        )
    return files[1::2], files[::2][:MAX_CALIBRATION_IMAGES]
