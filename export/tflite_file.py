"""TFLite (LiteRT) file of a classifier, in float32, float16 or integers, with metadata."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import threading
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vit.preprocessing import MAX_SIDE
from keras_vit.utils.fields import documented, image_size, setting
from keras_vit.utils.files import CLASSES

from .formats import (
    INPUTS,
    INTEGER_PRECISIONS,
    OpenedExport,
    QuantizedFormat,
    Signature,
    Written,
    import_export_package,
)
from .texts import NAMES, TFLITE_LABELS

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

_MAX_TEXT = 2**26  # Bytes of a text.


def _parse_batch_size(text):
    """Returns a number, or None for "free"; an argparse type."""
    if text == "free":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'must be a number or "free". Received: {text}')
    return int(text)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class TFLite(QuantizedFormat):
    """Exports a classifier as a TFLite file and checks it in LiteRT's interpreter.

    The signature `serve` takes `images` `(batch_size, H, W, C)` uint8, RGB pixels that the file
    resizes and scales as evaluation does; or float32, preprocessed before. Pixels have the
    classifier's size, until the interpreter resizes its input to another. It gives
    `probabilities` `(batch_size, K)` float32, zeros for an image with NaN or infinity in its
    values or scores. The file has builtin operations only and tensors of rank 4 at most. Its
    TFLite metadata refers to `labels.txt` and, for float32, holds the normalisation. The file is
    also a ZIP archive of `description.json`, `labels.txt`, `preprocessing.json`, `origin.json`,
    `golden.json`, `check.json` and `checksums.json`, and of a multi-label classifier `task.json`. A
    model in mixed precision is exported as its float32 copy.

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
    )
    batch_size: int | None = setting(
        1,
        'images a call: a fixed number is fastest on phones, "free" (None in Python) is any number',
        unit="N",
        limits=("positive or None", lambda value: value > 0),
        parse=_parse_batch_size,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.input_size is None:
            return
        if self.input != INPUTS[0]:
            raise ValueError(
                "input_size is for input='uint8'; preprocessed images have the classifier's size. "
                f"Received: input={self.input!r}, input_size={self.input_size!r}"
            )
        if len(self.input_size) != 2 or not all(1 <= n <= MAX_SIDE for n in self.input_size):
            raise ValueError(
                f"input_size must be two numbers (height, width) from 1 to {MAX_SIDE}. "
                f"Received: {self.input_size!r}"
            )

    @property
    def packages(self) -> tuple[str, ...]:
        """LiteRT, and the quantizer for integers."""
        quantizer = ("ai_edge_quantizer",) if self.precision in INTEGER_PRECISIONS else ()
        return ("ai_edge_litert.interpreter", *quantizer)

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the file; see `ExportFormat.write`."""
        from .tflite import tflite_content

        content, written = tflite_content(classifier, files, self, self.batch_size, self.input_size)
        path.write_bytes(content)
        return written

    @staticmethod
    def add_texts(path, texts):
        """Appends the texts to the file, which is then also a ZIP archive."""
        with zipfile.ZipFile(path, "a") as archive:
            for name, text in texts.items():
                archive.writestr(TFLITE_LABELS if name == CLASSES else name, text)

    @staticmethod
    def open(path):
        """Returns the content of a TFLite file; see `ExportFormat.open`."""
        import_export_package("ai_edge_litert.interpreter", "tflite")
        texts = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for entry in archive.infolist():
                    name = CLASSES if entry.filename == TFLITE_LABELS else entry.filename
                    if name in NAMES and entry.file_size <= _MAX_TEXT:
                        texts[name] = archive.read(entry).decode("utf-8")
        return OpenedExport(texts, [path], lambda: {"serve": _signature(path)})

    @staticmethod
    def content(path):
        """Returns the bytes in front of the archive of texts; see `ExportFormat.content`."""
        with zipfile.ZipFile(path) as archive:
            size = min(entry.header_offset for entry in archive.infolist())
        return [memoryview(path.read_bytes())[:size]]


def _signature(path):
    """Returns the one signature of a TFLite file."""
    import numpy as np

    interpreter = import_export_package("ai_edge_litert.interpreter", "tflite").Interpreter(
        os.fspath(path), num_threads=os.cpu_count()
    )
    run = interpreter.get_signature_runner("serve")
    lock = threading.Lock()  # The interpreter holds the images and the answers of one call.
    details = run.get_input_details()["images"]
    fixed, height, width, _ = map(int, details["shape_signature"])  # -1 for any.

    def call(batch):
        size = fixed if fixed > 0 else len(batch)
        answers = []
        for start in range(0, len(batch), size):
            part = batch[start : start + size]
            # Filled with copies of the last image.
            filled = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
            with lock:
                answers.append(run(images=filled)["probabilities"][: len(part)])
        return np.concatenate(answers)

    takes_pixels = details["dtype"] == np.uint8
    size = (height, width) if takes_pixels and height > 0 else None
    return Signature(call, False, max(fixed, 1), takes_pixels, size)
