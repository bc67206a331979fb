"""TFLite (LiteRT) file of a classifier, in float32, float16 or integers, with metadata."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import tempfile
import threading
import zipfile
from typing import TYPE_CHECKING, ClassVar

from keras_vit.preprocessing import MAX_SIDE
from keras_vit.utils.fields import Rule, documented, image_size, setting
from keras_vit.utils.files import CLASSES

from .export_format import (
    FLOAT_LAYERS,
    INTEGER_PRECISIONS,
    NAMES,
    RESIDUAL_PRODUCTS,
    CheckImages,
    OpenedExport,
    QuantizedFormat,
    Signature,
    import_export_package,
)

if TYPE_CHECKING:
    from keras_vit.predictor import Predictor

LABELS = "labels.txt"  # Class names in the file, to which its metadata refer.

_MAX_TEXT = 2**26  # Bytes of a text.

# Operations whose activations are integers. XNNPACK's delegate has no 8-bit GELU or attention
# products, which would make them slower.
INTEGER_OPERATIONS = ("FULLY_CONNECTED", "CONV_2D")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class TFLite(QuantizedFormat):
    """A classifier as a TFLite file.

    The signature `serve` takes `images` `(1, H, W, C)` uint8, RGB pixels that the file resizes and
    scales as evaluation does; or float32, preprocessed before. Pixels have the classifier's size,
    until the interpreter resizes its input to another. It gives `probabilities` `(1, K)` float32,
    zeros for an image with NaN or infinity in its values or scores. The file has builtin operations
    only. Its TFLite metadata refers to `labels.txt` and, for preprocessed images, holds the
    normalisation. The file is also a ZIP archive of `description.json`, `labels.txt`,
    `preprocessing.json`, `origin.json`, `golden.json`, `check.json` and `checksums.json`, and of a
    multi-label classifier `task.json`. A model in mixed precision is exported as its float32 copy.

    Precisions:

    - "float32";
    - "float16": weights in float16, and activations where the device computes in it;
    - "dynamic_int8": weights in int8 by channel, except for the first and the last layer;
      activations are float32, quantised by row inside matrix products;
    - "int8": weights as in "dynamic_int8"; activations in int8 in matrix products with
      weights and convolutions, with ranges from calibration images; float32 in LayerNorm,
      GELU, attention and residual additions.
    """

    name = "tflite"
    suffix = ".tflite"
    precisions = ("float32", "float16", "dynamic_int8", "int8")

    input_size: tuple[int, int] | None = setting(
        None,
        "the only size of the pixels, such as 480x640, for devices whose accelerator needs fixed "
        "shapes",
        unit="HxW",
        absent="any: the interpreter may resize its input",
        parse=image_size,
        limits=(f"sides from 1 to {MAX_SIDE}", lambda side: 1 <= side <= MAX_SIDE),
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "input_size is for input='uint8', as preprocessed images have the classifier's size",
            ("input_size", "input"),
            lambda options: options.input_size is None or options.input == "uint8",
        ),
    )

    @property
    def packages(self) -> tuple[str, ...]:
        """LiteRT, and the quantizer for integers."""
        quantizer = ("ai_edge_quantizer",) if self.precision in INTEGER_PRECISIONS else ()
        return ("ai_edge_litert.interpreter", *quantizer)

    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the file; see `ExportFormat.write`."""
        from keras_vit.models.rebuild import float32_model

        from .check_images import input_images
        from .exported_model import exported_model

        preprocessing, size = classifier.preprocessing, self.input_size
        model = exported_model(
            float32_model(classifier.model), preprocessing, input=self.input, input_size=size
        )
        content = convert(model, self.precision)
        if self.precision in INTEGER_PRECISIONS:
            calibration = input_images(self, classifier, images.calibration)
            content = quantize(content, self.precision, calibration)
        metadata = image_classifier_metadata(
            classifier.model.name, preprocessing.value_range if self.input == "float" else None
        )
        flexible = self.input == "uint8" and size is None
        content = finished(content, metadata, preprocessing.image_size if flexible else None)
        path.write_bytes(content)
        if size is not None:
            return ()
        height, width = preprocessing.image_size
        note = (
            f"MediaPipe resizes images to {height}x{width} pixels in its own way and then answers "
            "otherwise than predict: export for it with --input-size, the size of its images."
        )
        return (note,)

    @staticmethod
    def add_texts(path, texts):
        """Appends the texts to the file, which is then also a ZIP archive."""
        with zipfile.ZipFile(path, "a") as archive:
            for name, text in texts.items():
                archive.writestr(LABELS if name == CLASSES else name, text)

    @staticmethod
    def open(path):
        """Returns the content of a TFLite file; see `ExportFormat.open`."""
        import_export_package("ai_edge_litert.interpreter", "tflite")
        texts = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for entry in archive.infolist():
                    name = CLASSES if entry.filename == LABELS else entry.filename
                    if name in NAMES and entry.file_size <= _MAX_TEXT:
                        texts[name] = archive.read(entry).decode("utf-8")
        return OpenedExport(texts, [path], lambda: {"serve": _signature(path)})


def convert(model, precision):
    """Returns the bytes of a TFLite file in "float32" or "float16"; integers come later.

    Args:
        model: What `exported_model` returns.
        precision: "float32" or "float16"; integers have float32 here.
    """
    import keras
    import tensorflow as tf

    (images,) = model.inputs
    archive = keras.export.ExportArchive()

    def serve(images):
        answer = model(images, training=False)
        # MediaPipe takes every output for the scores of a head, so `valid` is none.
        mask = tf.reshape(answer["valid"], (1, 1))
        return {"probabilities": tf.where(mask, answer["probabilities"], 0.0)}

    signature = tf.TensorSpec((1, *images.shape[1:]), images.dtype, "images")
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


def quantize(content, precision, images=()):
    """Returns a float32 TFLite file's bytes with integer weights.

    Args:
        content: The file's bytes.
        precision: One of `INTEGER_PRECISIONS`.
        images: Calibration images `(H, W, C)`, for "int8".
    """
    quantizer = import_export_package("ai_edge_quantizer.quantizer").Quantizer(bytearray(content))
    if precision == "dynamic_int8":
        quantizer.add_dynamic_config(regex=".*", operation_name="*", num_bits=8)
    else:
        for operation in INTEGER_OPERATIONS:
            quantizer.add_static_config(
                regex=".*", operation_name=operation, activation_num_bits=8, weight_num_bits=8
            )
            residual = f".*{RESIDUAL_PRODUCTS}.*"
            quantizer.add_dynamic_config(regex=residual, operation_name=operation, num_bits=8)
    quantizer.update_quantization_recipe(f".*{FLOAT_LAYERS}.*", "*", algorithm_key="no_quantize")
    # Progress bars that count operations, and a warning that calibration keeps all tensors.
    with contextlib.redirect_stderr(io.StringIO()):
        ranges = None
        if images:
            batches = [{"images": image[None]} for image in images]
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


def finished(
    content: bytes, metadata: bytes = b"", image_size: tuple[int, int] | None = None
) -> bytes:
    """Returns a TFLite file's bytes with metadata and a default size of its pixels.

    Args:
        content: The file's bytes.
        metadata: See `image_classifier_metadata`.
        image_size: The size that pixels have if nobody resizes the input, or None. The converter
            writes 1 for each free dimension, and MediaPipe takes that for the size.
    """
    schema = import_export_package("ai_edge_litert.schema_py_generated")
    utils = import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    if image_size is not None:
        graph = model.subgraphs[0]
        graph.tensors[graph.inputs[0]].shape[1:3] = image_size
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(metadata)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return bytes(utils.convert_object_to_bytearray(model))


def image_classifier_metadata(name: str, value_range=None) -> bytes:
    """Returns TFLite metadata: the normalisation of the images and the file of the labels.

    It follows `metadata_schema.fbs` of the TensorFlow Lite Support library, version 1.0.0, whose
    own writer cannot be installed with today's protobuf: a table is a dict from the number of a
    field in the schema to its value, and an enum is a whole number. A union is two fields: its
    type, then its table.

    Args:
        name: Name of the model.
        value_range: Values of pixels 0 and 255, numbers or one for each channel; None for a
            model that takes uint8.
    """
    import flatbuffers
    import numpy as np

    # 3: content (2: image properties, 0: RGB); 5: statistics (0: largest, 1: smallest values).
    images = {0: "images", 3: {0: 2, 1: {0: 1}}, 5: {0: [255.0], 1: [0.0]}}
    if value_range is not None:
        low, high = (np.atleast_1d(np.array(value, "float64")) for value in value_range)
        std = 255 / (high - low)
        # 4: process units (1: normalization options, 0: mean, 1: standard deviation).
        images[4] = [{0: 1, 1: {0: (-low * std).tolist(), 1: std.tolist()}}]
        images[5] = {0: high.tolist(), 1: low.tolist()}
    probabilities = {
        0: "probabilities",
        3: {0: 1, 1: {}},  # Feature properties.
        5: {0: [1.0], 1: [0.0]},
        6: [{0: LABELS, 2: 2}],  # Associated files: labels of the tensor's axis.
    }
    model = {0: name, 3: [{2: [images], 3: [probabilities]}], 7: "1.0.0"}
    builder = flatbuffers.Builder()
    builder.Finish(_write_metadata(builder, model), file_identifier=b"M001")
    return bytes(builder.Output())


def _write_metadata(builder, value):
    """Writes a table, a string or a vector after its contents, and returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        is_float = isinstance(value[0], float)
        parts = value if is_float else [_write_metadata(builder, item) for item in value]
        builder.StartVector(4, len(parts), 4)
        for part in reversed(parts):
            (builder.PrependFloat32 if is_float else builder.PrependUOffsetTRelative)(part)
        return builder.EndVector()
    fields = {
        place: field if isinstance(field, int) else _write_metadata(builder, field)
        for place, field in value.items()
    }
    builder.StartObject(max(value, default=-1) + 1)
    for place, field in fields.items():
        if isinstance(value[place], int):
            builder.PrependInt8Slot(place, field, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(place, field, 0)
    return builder.EndObject()


def _signature(path):
    """Returns the one signature of a TFLite file."""
    import numpy as np

    interpreter = import_export_package("ai_edge_litert.interpreter", "tflite").Interpreter(
        os.fspath(path), num_threads=os.cpu_count()
    )
    run = interpreter.get_signature_runner("serve")
    lock = threading.Lock()  # The interpreter holds the images and the answers of one call.
    details = run.get_input_details()["images"]
    _, height, width, _ = map(int, details["shape_signature"])  # -1 for any.

    def call(batch):
        answers = []
        for image in batch:
            with lock:
                answers.append(run(images=image[None])["probabilities"][0])
        return np.stack(answers)

    takes_pixels = details["dtype"] == np.uint8
    size = (height, width) if takes_pixels and height > 0 else None
    return Signature(call, takes_pixels=takes_pixels, input_size=size)
