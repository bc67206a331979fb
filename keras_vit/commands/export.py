"""`keras-vit export`: a classifier as SavedModel, TFLite, ONNX, OpenVINO or for browsers."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from typing import Any

from keras_vit.commands import Command
from keras_vit.export.options import FORMATS, INPUTS, ONNX_OPSET, PRECISIONS, TOP
from keras_vit.fields import REQUIRED, part, setting

WEB_FORMATS = ("html", "web")

# Options that not every format has, with the formats that have it.
OPTIONS = {
    "image_sizes": ("saved_model",),
    "top": ("saved_model",),
    "max_pixels": ("saved_model",),
    "jit_compile": ("saved_model",),
    "warm_up": ("saved_model",),
    "precision": tuple(PRECISIONS),
    "input": tuple(PRECISIONS),
    "input_size": ("tflite",),
    "batch_size": ("tflite",),
    "calibration_images": tuple(PRECISIONS),
    "opset": ("onnx",),
    "title": WEB_FORMATS,
    "runtime": WEB_FORMATS,
}


def _any_of(names):
    """Returns names as "a, b or c"."""
    *first, last = names
    return " or ".join(filter(None, (", ".join(first), last)))


def _batch_size(text):
    """Returns a number, or None for "free"."""
    if text == "free":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'must be a number or "free". Received: {text}')
    return int(text)


def _with(name):
    return f"with --to {_any_of(OPTIONS[name])}"


@dataclasses.dataclass(frozen=True)
class FormatOptions:
    """Options that not every format has."""

    image_sizes: tuple[tuple[int, int], ...] | None = setting(
        None,
        "further image sizes, such as 384 or 384x512, with resized position embeddings",
        unit="HxW",
        group=_with("image_sizes"),
    )
    top: int = setting(TOP, "classes that are named", unit="K", group=_with("top"))
    max_pixels: int | None = setting(
        None,
        "largest encoded image, height times width",
        unit="N",
        group=_with("max_pixels"),
    )
    jit_compile: bool = setting(False, "compile the model with XLA", group=_with("jit_compile"))
    warm_up: bool = setting(
        False,
        "add requests that TensorFlow Serving runs before it is ready",
        group=_with("warm_up"),
    )
    precision: str = setting(
        "float32",
        "dynamic_int8 has integer weights, int8 integer activations too; float16 is for tflite and "
        "onnx, dynamic_int8 for tflite",
        choices=tuple(dict.fromkeys(itertools.chain(*PRECISIONS.values()))),
        group=_with("precision"),
    )
    input: str = setting(
        "uint8",
        "uint8: pixels of any size, preprocessed in the export; or float: images that the caller "
        "has preprocessed",
        choices=INPUTS,
        group=_with("input"),
    )
    calibration_images: tuple[str, ...] | None = setting(
        None,
        "with int8: real images for the ranges of the activations; by default every second check "
        "image",
        unit="PATH",
        group=_with("calibration_images"),
    )
    input_size: tuple[int, int] | None = setting(
        None,
        "the only size of the pixels, such as 480x640; by default the interpreter may resize its "
        "input",
        unit="HxW",
        group=_with("input_size"),
    )
    batch_size: int | None = setting(
        1,
        'images a call, "free" for any number',
        unit="N",
        parse=_batch_size,
        group=_with("batch_size"),
    )
    opset: int | None = setting(
        None, f"operator set; {ONNX_OPSET} by default", unit="N", group=_with("opset")
    )
    title: str | None = setting(None, "title of the page", unit="TEXT", group=_with("title"))
    runtime: str | None = setting(
        None,
        "files of the npm package onnxruntime-web (its folder dist), instead of a download",
        unit="FOLDER",
        group=_with("runtime"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Export a classifier to SavedModel, TFLite, ONNX, OpenVINO or a web page."""

    folder: str = setting(
        REQUIRED,
        "the classifier's folder",
        unit="FOLDER",
        positional=True,
        completion=("classifiers",),
    )
    to: str = setting(REQUIRED, "the format to write", choices=FORMATS)
    output: str = setting(
        REQUIRED, "folder, or file ending in .tflite, .onnx or .html", unit="PATH"
    )
    check_images: tuple[str, ...] | None = setting(
        None,
        "real images, files or folders, on which the export must agree with the Keras model; by "
        "default the classifier's samples",
        unit="PATH",
    )
    minimum_agreement: float | None = setting(
        None,
        "least share of check images with the same first class (or of their labels, where an image "
        "may have several), else nothing is written; by default 0.99, with integers 0.98",
        unit="SHARE",
    )
    overwrite: bool = setting(False, "replace an export of this kind")
    options: dict[str, Any] = part(FormatOptions, make=dict)

    on_tensorflow_alone = True

    def run(self) -> None:
        """Exports and prints the report of the check."""
        given = dict(self.options)
        for name in given:
            if self.to not in OPTIONS[name]:
                raise ValueError(
                    f"--{name.replace('_', '-')} is for --to {_any_of(OPTIONS[name])}. "
                    f"Received: --to {self.to}"
                )
        if self.minimum_agreement is not None:
            given["minimum_agreement"] = self.minimum_agreement

        import keras_vit.export

        report = getattr(keras_vit.export, self.to)(
            self.folder,
            self.output,
            check_images=self.check_images,
            overwrite=self.overwrite,
            **given,
        )
        print(report)
