"""Arguments that several commands share."""

import argparse
import re
from typing import get_args

from keras_vit.configs import Gelu
from keras_vit.preprocessing import NORMALIZATIONS


def add_classifier(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Declares MODEL, which `keras_vit.export.artefacts.open_classifier` opens.

    Args:
        parser: The command's parser.
        more: What else it may be, for the help text.
    """
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a classifier's folder, or an export of one: a folder of SavedModel or OpenVINO, a "
        f".tflite or an .onnx file{more}",
    )


def add_model(parser: argparse.ArgumentParser, default_image_size: int = 224) -> None:
    """Declares MODEL, and --weights and --image-size for a model's name."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a classifier's folder, other weights, or a name of keras-vit models",
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="for a model's name: imagenet21k, imagenet, a key of the catalogue, a file, or random",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help=f"for a model's name (default: {default_image_size})",
    )


def add_unknown_facts(parser: argparse.ArgumentParser) -> None:
    """Declares the flags for what a file of weights may not hold; see `open_weights`."""
    parser.add_argument(
        "--num-heads",
        type=int,
        metavar="N",
        help="attention heads, where the weights do not show them",
    )
    parser.add_argument(
        "--gelu", choices=get_args(Gelu), help="form of GELU, where the weights do not say"
    )
    parser.add_argument(
        "--normalization",
        choices=NORMALIZATIONS,
        help="range of the pixels, where the weights do not say: half is values from -1 to 1, "
        "imagenet the mean and standard deviation of ImageNet",
    )


def unknown_facts(arguments: argparse.Namespace) -> dict:
    """Returns the values of the flags of `add_unknown_facts` as keyword arguments."""
    return {name: getattr(arguments, name) for name in ("num_heads", "gelu", "normalization")}


def add_batch_size(parser: argparse.ArgumentParser) -> None:
    """Declares --batch-size; see `check_batch_size`."""
    parser.add_argument(
        "--batch-size", type=int, default=32, metavar="N", help="(default: %(default)s)"
    )


def add_tasks(parser: argparse.ArgumentParser) -> None:
    """Declares --task, the names of data sets in the paper's tables."""
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="DATA=TASK",
        help="the paper's name of a data set whose own name is not known, such as "
        "photos=CIFAR-10; may be repeated",
    )


def add_no_pictures(parser: argparse.ArgumentParser) -> None:
    """Declares --no-pictures."""
    parser.add_argument(
        "--no-pictures", action="store_true", help="draw no pictures, which need matplotlib"
    )


def check_batch_size(arguments: argparse.Namespace) -> None:
    """Raises ValueError if --batch-size is not positive."""
    if arguments.batch_size < 1:
        raise ValueError(
            f"--batch-size must be at least 1. Received: --batch-size {arguments.batch_size}"
        )


def image_size(text: str) -> tuple[int, int]:
    """Returns (height, width) of "384" or "384x512"; an argparse type."""
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"must be pixels, such as 384, or 384x512 for height x width. Received: {text}"
        )
    return int(match[1]), int(match[2] or match[1])
