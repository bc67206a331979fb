"""`keras-vit export`: a classifier as SavedModel, TFLite, ONNX, OpenVINO or for browsers."""

import argparse
import itertools

from keras_vit.commands.shared_arguments import image_size
from keras_vit.export.options import FORMATS, INPUTS, ONNX_OPSET, PRECISIONS, TOP

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


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument("folder", metavar="FOLDER", help="the classifier's folder")
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format to write")
    parser.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        help="folder, or file ending in .tflite, .onnx or .html",
    )
    parser.add_argument(
        "--check-images",
        nargs="+",
        metavar="PATH",
        help="real images, files or folders, on which the export must agree with the Keras "
        "model; by default the classifier's samples",
    )
    parser.add_argument(
        "--minimum-agreement",
        type=float,
        metavar="SHARE",
        help="least share of check images with the same first class (or of their labels, where an "
        "image may have several), else nothing is written; "
        "by default 0.99, with integers 0.98",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an export of this kind")
    saved_model = parser.add_argument_group(
        "with --to saved_model", argument_default=argparse.SUPPRESS
    )
    saved_model.add_argument(
        "--image-sizes",
        nargs="+",
        type=image_size,
        metavar="HxW",
        help="further image sizes, such as 384 or 384x512, with resized position embeddings",
    )
    saved_model.add_argument(
        "--top", type=int, metavar="K", help=f"classes that are named; {TOP} by default"
    )
    saved_model.add_argument(
        "--max-pixels", type=int, metavar="N", help="largest encoded image, height times width"
    )
    saved_model.add_argument(
        "--jit-compile", action="store_true", help="compile the model with XLA"
    )
    saved_model.add_argument(
        "--warm-up",
        action="store_true",
        help="add requests that TensorFlow Serving runs before it is ready",
    )
    several = parser.add_argument_group(
        f"with --to {_any_of(PRECISIONS)}", argument_default=argparse.SUPPRESS
    )
    several.add_argument(
        "--precision",
        choices=tuple(dict.fromkeys(itertools.chain(*PRECISIONS.values()))),
        help="float32 by default; dynamic_int8 has integer weights, int8 integer activations "
        "too; float16 is for tflite and onnx, dynamic_int8 for tflite",
    )
    several.add_argument(
        "--input",
        choices=INPUTS,
        help="uint8 by default: pixels of any size, preprocessed in the export; or float: "
        "images that the caller has preprocessed",
    )
    several.add_argument(
        "--calibration-images",
        nargs="+",
        metavar="PATH",
        help="with int8: real images for the ranges of the activations; by default every "
        "second check image",
    )
    tflite = parser.add_argument_group("with --to tflite", argument_default=argparse.SUPPRESS)
    tflite.add_argument(
        "--input-size",
        type=image_size,
        metavar="HxW",
        help="the only size of the pixels, such as 480x640; by default the interpreter may "
        "resize its input",
    )
    tflite.add_argument(
        "--batch-size",
        type=_batch_size,
        metavar="N",
        help='images a call; 1 by default, "free" for any number',
    )
    onnx = parser.add_argument_group("with --to onnx", argument_default=argparse.SUPPRESS)
    onnx.add_argument(
        "--opset", type=int, metavar="N", help=f"operator set; {ONNX_OPSET} by default"
    )
    browser = parser.add_argument_group(
        f"with --to {_any_of(WEB_FORMATS)}", argument_default=argparse.SUPPRESS
    )
    browser.add_argument("--title", metavar="TEXT", help="title of the page")
    browser.add_argument(
        "--runtime",
        metavar="FOLDER",
        help="files of the npm package onnxruntime-web (its folder dist), instead of a download",
    )


def run(arguments):
    """Exports and prints the report of the check."""
    given = {name: getattr(arguments, name) for name in OPTIONS if hasattr(arguments, name)}
    for name in given:
        if arguments.to not in OPTIONS[name]:
            raise ValueError(
                f"--{name.replace('_', '-')} is for --to {_any_of(OPTIONS[name])}. "
                f"Received: --to {arguments.to}"
            )
    if arguments.minimum_agreement is not None:
        given["minimum_agreement"] = arguments.minimum_agreement

    import keras_vit.export

    report = getattr(keras_vit.export, arguments.to)(
        arguments.folder,
        arguments.output,
        check_images=arguments.check_images,
        overwrite=arguments.overwrite,
        **given,
    )
    print(report)


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
