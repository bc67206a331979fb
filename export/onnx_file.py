"""ONNX file of a classifier, in float32, float16 or 8 bits."""

from __future__ import annotations

import dataclasses
import mmap
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vit.utils.fields import documented, setting
from keras_vit.utils.files import CLASSES

from .formats import (
    OpenedExport,
    QuantizedFormat,
    Signature,
    Written,
    further_outputs,
    import_export_package,
    output_names,
)
from .texts import NAMES, json_texts, texts_of_json

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

OPSET = 18  # ONNX 1.13 of 2022, which all current runtimes read.
OPSETS = range(13, 19)  # The operator sets that tf2onnx writes.

_METADATA_PROPS = 14  # Number of the field in `ModelProto` of onnx.proto.

# Metadata properties of a file by the names of the texts.
PROPERTIES = {name: pathlib.Path(name).stem for name in NAMES} | {CLASSES: "class_names"}


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class ONNX(QuantizedFormat):
    """Exports a classifier as an ONNX file and checks it in ONNX Runtime.

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

    opset: int = setting(
        OPSET,
        "version of the standard operator set",
        unit="N",
        limits=(f"in {OPSETS.start} to {OPSETS.stop - 1}", lambda value: value in OPSETS),
    )

    outputs: tuple[str, ...] = further_outputs()

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the file; see `ExportFormat.write`."""
        from .onnx import onnx_in_precision

        content, written = onnx_in_precision(
            classifier, files, self, self.opset, output_names(self.outputs)
        )
        import_export_package("onnx").save(content, path)
        return written._replace(notes=(f"Operator set {self.opset}.", *written.notes))

    @staticmethod
    def add_texts(path, texts):
        """Adds the texts to the file's metadata properties, which are JSON."""
        library = import_export_package("onnx")
        content = library.load(path)
        for key, value in json_texts(texts, PROPERTIES).items():
            entry = content.metadata_props.add()
            entry.key, entry.value = key, value
        library.save(content, path)

    @staticmethod
    def open(path):
        """Returns the content of an ONNX file; see `ExportFormat.open`."""
        _onnxruntime()
        with open(path, "rb") as file:  # Mapped: of the weights nothing is read here.
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        texts = texts_of_json(_properties(content), PROPERTIES)
        return OpenedExport(texts, [path], lambda: {"serve": _signature(session_of(path))})

    @staticmethod
    def content(path):
        """Returns the bytes of a file without its metadata; see `ExportFormat.content`."""
        fields = _fields(path.read_bytes())
        return [whole for number, whole, _ in fields if number != _METADATA_PROPS]


def _onnxruntime():
    """Returns ONNX Runtime, which must not report its use: from 1.32 on it does so on Linux too."""
    library = import_export_package("onnxruntime")
    library.disable_telemetry_events()
    return library


def session_of(path):
    """Returns a session of ONNX Runtime for an ONNX file."""
    # With a fallback an error is also printed, on four lines.
    return _onnxruntime().InferenceSession(
        os.fspath(path), providers=["CPUExecutionProvider"], enable_fallback=0
    )


def _properties(content):
    """Returns the metadata properties of a file's bytes: messages with a key and a value.

    Without the runtime, which reads the whole graph, and may not survive a damaged one.
    """
    properties = {}
    for number, _, value in _fields(content):
        if number == _METADATA_PROPS:
            entry = {part: bytes(text).decode("utf-8") for part, _, text in _fields(value)}
            properties[entry.get(1, "")] = entry.get(2, "")
    return properties


def _fields(message):
    """Yields the fields of a protocol buffer: number, all bytes, the value's bytes.

    https://protobuf.dev/programming-guides/encoding/
    """
    message, place = memoryview(message), 0

    def varint():
        nonlocal place
        value, shift = 0, 0
        while shift < 64:
            byte = message[place]
            place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
        raise IndexError

    try:
        while (start := place) < len(message):
            number, kind = divmod(varint(), 8)
            if kind == 0:
                varint()
                size = 0
            else:
                size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            first, place = place, place + size
            if place > len(message):
                raise IndexError
            yield number, message[start:place], message[first:place]
    except (IndexError, KeyError) as error:
        raise ValueError("It is no ONNX file, or it is cut off or damaged.") from error


def _signature(session):
    """Returns the one signature of an ONNX file."""
    shapes = {output.name: output.shape for output in session.get_outputs()}
    *_, classes = shapes.get("probabilities") or [None]  # A name where it is not stated.
    return Signature(
        lambda batch: session.run(["probabilities"], {"images": batch})[0],
        takes_pixels=session.get_inputs()[0].type == "tensor(uint8)",
        classes=classes if isinstance(classes, int) else None,
    )
