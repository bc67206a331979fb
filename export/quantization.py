"""Calibration images of exports in 8 bits, and the layers that stay in float.

Under "int8" LayerNorm, softmax, GELU, attention's products and residual additions stay in float
in every format. They are little of the work, and the residual stream of a Vision Transformer has a
few values far above all others, which 8 bits cannot hold together with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.configs.model_table import ANSWERS, LEVERAGE
from keras_vit.images.listing import image_files
from keras_vit.images.samples import read_images

from .artefacts import with_size
from .check_images import load_images
from .exported_model import PIXELS

# Calibration only needs the ranges of the activations.
MAX_CALIBRATION_IMAGES = 128

# In names of operations. Preprocessing and "unknown" stay in float, as do the first and the last
# layer, as is usual: for ViT-B/16 they add 5% to the bytes and 1% to the work, and remove a quarter
# of the error or more.
FLOAT_LAYERS = f"(root_conv|patch_embedding|predictions|token_head|{LEVERAGE}|{ANSWERS}|{PIXELS})"

# In names of operations: products that are added to the residual stream. Their results have the
# outliers of the stream, so one range for all of them cuts these off or leaves few steps for the
# other values.
RESIDUAL_PRODUCTS = r"(attention\w*/out\w*/|mlp\w*/dense_2\w*/|/conv_(3|projection)\w*/)"


class ImageSplit(NamedTuple):
    """Image files of an export.

    Args:
        check: Files that it is checked on.
        calibration: Files for the ranges of activations; none of them unless it needs some.
        notes: Remarks for the user.
    """

    check: Sequence[str]
    calibration: Sequence[str] = ()
    notes: tuple[str, ...] = ()


def split(
    files: Sequence[str],
    precision: str,
    calibration_images: str | os.PathLike | Iterable | None = None,
) -> ImageSplit:
    """Returns the check images and, for "int8", the calibration images, which must differ.

    Args:
        files: Images to check on.
        precision: The precision of the export.
        calibration_images: Files or folders; by default every second check image, which the
            check then leaves out.

    Raises:
        ValueError: If there are too few images.
    """
    if precision != "int8":
        return ImageSplit(files)
    ranges: Sequence[str]
    if calibration_images is not None:
        ranges = image_files(calibration_images)
    elif len(files) < 2:
        raise ValueError(
            "precision=int8 needs at least two images, for calibration and for the check. "
            f"Received: {len(files)}"
        )
    else:
        files, ranges = files[1::2], files[::2]
    ranges = ranges[:MAX_CALIBRATION_IMAGES]
    return ImageSplit(files, ranges, (f"Ranges of activations from {len(ranges)} images.",))


def inputs(
    classifier: Classifier,
    files: Sequence[str],
    input: str,
    input_size: tuple[int, int] | None = None,
) -> list[np.ndarray]:
    """Returns image files as an export takes them, without the batch's dimension.

    Args:
        classifier: The exported classifier.
        files: Image files.
        input: "uint8" or "float".
        input_size: The only size of pixels that the export takes, or None.
    """
    if input == "uint8":
        return [with_size(pixels, input_size) for pixels in read_images(files)]
    return list(load_images(classifier, files)) if files else []
