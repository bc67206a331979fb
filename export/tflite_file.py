"""TFLite (LiteRT) file of a classifier, in float32, float16 or integers, with metadata."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import tempfile
import zipfile
from collections.abc import Iterable
from typing import Any, NamedTuple

import flatbuffers
import keras
import numpy as np
import tensorflow as tf

from keras_vit.classifier import Classifier
from keras_vit.files import CLASSES
from keras_vit.models.rebuild import float32_model

from . import publish, quantization
from .comparison import CHECK, ExportReport
from .exported_model import exported_model
from .options import INPUTS

INTEGER_PRECISIONS = ("dynamic_int8", "int8")

# Limit of GPU and NPU delegates.
MAX_RANK = 4

# Operations in integers under int8; see `quantization.py`. XNNPACK's delegate has no 8-bit GELU or
# attention products, which would make them slower.
INTEGER_OPERATIONS = ("FULLY_CONNECTED", "CONV_2D")

# Metadata follows `metadata_schema.fbs` of the TensorFlow Lite Support library, version 1.0.0,
# whose own writer cannot be installed beside today's protobuf.
LABELS = "labels.txt"
METADATA_NAME = "TFLITE_METADATA"  # Name of the buffer.
METADATA_IDENTIFIER = b"M001"


def tflite(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    precision: str = "float32",
    input: str = INPUTS[0],
    input_size: tuple[int, int] | None = None,
    batch_size: int | None = 1,
    calibration_images: str | os.PathLike | Iterable | None = None,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float | None = None,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier as a TFLite file and checks it in LiteRT's interpreter.

    The signature `serve` takes `images` `(batch_size, H, W, C)` uint8, RGB pixels that the file
    resizes and scales as evaluation does; or float32, preprocessed before. Pixels have the
    classifier's size, until the interpreter resizes its input to another. It gives
    `probabilities` `(batch_size, K)` float32, zeros for an image with NaN or infinity in its
    values or scores. The file has builtin operations only and tensors of rank 4 at most. Its
    TFLite metadata refers to `labels.txt` and, for float32, holds the normalisation. The file is
    also a ZIP archive of `labels.txt`, `preprocessing.json`, `origin.json`, `golden.json` and
    `check.json`, and of several labels `task.json`.

    Precisions:

    - "float32";
    - "float16": weights in float16, and activations where the device computes in it;
    - "dynamic_int8": weights in int8 by channel, except for the first and the last layer;
      activations are float32, quantised by row inside matrix products;
    - "int8": weights as in "dynamic_int8"; activations in int8 in matrix products with
      weights and convolutions, with ranges from calibration images; float32 in LayerNorm,
      GELU, attention and residual additions.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The file to write, `*.tflite`.
        precision: "float32", "float16", "dynamic_int8" or "int8".
        input: "uint8" for pixels, "float" for preprocessed images.
        input_size: The only size (height, width) of the pixels, for devices whose accelerator
            needs fixed shapes; by default the interpreter may resize its input.
        batch_size: Images a call; a fixed number is fastest on phones, None allows any.
        calibration_images: For "int8", real images for the ranges of the activations, files
            or a folder; see `quantization.split`.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class; by
            default 0.99 in float, 0.98 in integers.
        overwrite: Whether an older file is replaced.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, the model has an
            operation that is not builtin, there are no check images, or the check fails.
            Nothing is written then.
        ImportError: If the extra `export` is not installed.
    """
    minimum_agreement = publish.check_precision("tflite", precision, minimum_agreement)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be positive or None. Received: {batch_size}")
    publish.check_input(input, input_size)
    is_integer = precision in INTEGER_PRECISIONS
    classifier, files = publish.prepare(
        classifier,
        path,
        "tflite",
        packages=["ai_edge_litert.interpreter", *(["ai_edge_quantizer"] if is_integer else [])],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    notes = publish.precision_notes(classifier.model)
    split = quantization.split(files, precision, calibration_images)
    with publish.new_output(path, "tflite", overwrite=overwrite) as file:
        model = exported_model(
            float32_model(classifier.model),
            classifier.preprocessing,
            input=input,
            input_size=input_size,
        )
        content = _convert(model, batch_size, precision)
        if is_integer:
            images = quantization.inputs(classifier, split.calibration, input, input_size)
            content = _quantize(content, precision, images, batch_size or 1)
        check_operations(content)
        if input == "uint8" and input_size is None:
            content = _with_default_size(content, classifier.preprocessing.image_size)
        metadata = image_classifier_metadata(
            classifier.model.name,
            classifier.preprocessing.value_range if input == "float" else None,
        )
        file.write_bytes(add_metadata(content, metadata))
        texts = publish.texts_of(classifier, files, input_size)
        _append(file, {LABELS if name == CLASSES else name: texts[name] for name in texts})
        report = publish.check_export(
            file,
            path,
            {"": classifier},
            split.check,
            minimum_agreement=minimum_agreement,
            notes=(*notes, *split.notes),
        )
        _append(file, {CHECK: report.to_text()})
    return report


def _append(file, texts):
    """Appends files to a TFLite file, which is then also a ZIP archive."""
    with zipfile.ZipFile(file, "a") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


def check_operations(content: bytes) -> None:
    """Raises if a TFLite model has custom operations or tensors of a rank above 4.

    Args:
        content: The file's bytes.
    """
    utils = publish.import_export_package("ai_edge_litert.tools.flatbuffer_utils")
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


def _convert(model, batch_size, precision):
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


def _quantize(content, precision, images, batch_size):
    """Returns a float32 TFLite file's bytes with integer weights.

    Args:
        content: The file's bytes.
        precision: "dynamic_int8" or "int8".
        images: For "int8", calibration images `(H, W, C)`.
        batch_size: Images a call.
    """
    quantizer = publish.import_export_package("ai_edge_quantizer.quantizer").Quantizer(
        bytearray(content)
    )
    if precision == "dynamic_int8":
        quantizer.add_dynamic_config(regex=".*", operation_name="*", num_bits=8)
    else:
        for operation in INTEGER_OPERATIONS:
            quantizer.add_static_config(
                regex=".*", operation_name=operation, activation_num_bits=8, weight_num_bits=8
            )
    quantizer.update_quantization_recipe(
        f".*{quantization.FLOAT_LAYERS}.*", "*", algorithm_key="no_quantize"
    )
    # Progress bars that count operations, and a warning that calibration keeps all tensors.
    with contextlib.redirect_stderr(io.StringIO()):
        ranges = None
        if images:
            batches = [{"images": np.repeat(image[None], batch_size, 0)} for image in images]
            ranges = quantizer.calibrate({"serve": batches}, num_threads=os.cpu_count())
        result = quantizer.quantize(ranges, enable_progress_report=False)
    return bytes(result.quantized_model)


def _with_default_size(content, image_size):
    """Returns a TFLite file's bytes with the size that pixels have if nobody resizes the input.

    The converter writes 1 for each free dimension, and MediaPipe takes that for the size.
    """
    utils = publish.import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    graph = model.subgraphs[0]
    graph.tensors[graph.inputs[0]].shape[1:3] = image_size
    return bytes(utils.convert_object_to_bytearray(model))


class MetadataEnum(enum.IntEnum):
    """Values of the metadata schema's enums and unions."""

    TENSOR_AXIS_LABELS = 2  # AssociatedFileType.
    RGB = 1  # ColorSpaceType.
    FEATURE_PROPERTIES = 1  # ContentProperties.
    IMAGE_PROPERTIES = 2
    NORMALIZATION_OPTIONS = 1  # ProcessUnitOptions.


class MetadataTable(NamedTuple):
    """A table of the metadata schema: values of its fields by their number in the schema."""

    fields: dict[int, Any]


def image_classifier_metadata(name: str, value_range=None) -> bytes:
    """Returns TFLite metadata: the normalisation of the images and the file of the labels.

    Args:
        name: Name of the model.
        value_range: Values of pixels 0 and 255, numbers or one for each channel; None for a
            model that takes uint8.
    """
    # A union is two fields: its type, then its table.
    image = MetadataTable(
        {0: MetadataEnum.IMAGE_PROPERTIES, 1: MetadataTable({0: MetadataEnum.RGB})}
    )
    units = []
    values = (0.0, 255.0) if value_range is None else value_range
    low, high = (np.atleast_1d(np.array(value, "float64")) for value in values)
    if value_range is not None:
        std = 255 / (high - low)
        mean = -low * std
        normalization = MetadataTable({0: mean.tolist(), 1: std.tolist()})
        units = [MetadataTable({0: MetadataEnum.NORMALIZATION_OPTIONS, 1: normalization})]
    labels = MetadataTable(
        {0: LABELS, 1: "Class names, one a line.", 2: MetadataEnum.TENSOR_AXIS_LABELS}
    )
    images = MetadataTable(
        {
            0: "images",
            1: "RGB pixels, resized as preprocessing.json says, then normalised."
            if units
            else "RGB pixels.",
            3: image,
            **({4: units} if units else {}),
            5: MetadataTable({0: high.tolist(), 1: low.tolist()}),
        }
    )
    probabilities = MetadataTable(
        {
            0: "probabilities",
            1: "Probability of each class.",
            3: MetadataTable({0: MetadataEnum.FEATURE_PROPERTIES, 1: MetadataTable({})}),
            5: MetadataTable({0: [1.0], 1: [0.0]}),
            6: [labels],
        }
    )
    model = MetadataTable(
        {
            0: name,
            1: "Image classifier.",
            3: [MetadataTable({2: [images], 3: [probabilities]})],
            7: "1.0.0",
        }
    )
    builder = flatbuffers.Builder()
    builder.Finish(_write_metadata(builder, model), file_identifier=METADATA_IDENTIFIER)
    return bytes(builder.Output())


def add_metadata(content: bytes, metadata: bytes) -> bytes:
    """Returns a TFLite file's bytes with metadata in it.

    Args:
        content: The file's bytes.
        metadata: See `image_classifier_metadata`.
    """
    schema = publish.import_export_package("ai_edge_litert.schema_py_generated")
    utils = publish.import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(metadata)
    entry.name, entry.buffer = METADATA_NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return bytes(utils.convert_object_to_bytearray(model))


def _write_metadata(builder, value):
    """Writes a table, a string or a vector after its contents, and returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        if isinstance(value[0], float):
            builder.StartVector(4, len(value), 4)
            for number in reversed(value):
                builder.PrependFloat32(number)
        else:
            offsets = [_write_metadata(builder, item) for item in value]
            builder.StartVector(4, len(offsets), 4)
            for offset in reversed(offsets):
                builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    written = {
        place: field if isinstance(field, MetadataEnum) else _write_metadata(builder, field)
        for place, field in value.fields.items()
    }
    builder.StartObject(max(value.fields, default=-1) + 1)
    for place, field in written.items():
        if isinstance(field, MetadataEnum):
            builder.PrependInt8Slot(place, int(field), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(place, field, 0)
    return builder.EndObject()
