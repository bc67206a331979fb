"""Marks of images whose pixels or scores are not finite numbers."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

_LARGEST = float(np.finfo("float32").max)


def with_validity(model: keras.Model, image_size: tuple[int, int]) -> keras.Model:
    """Returns a model that also marks the images for which its probabilities mean something.

    A layer such as a ReLU or a product in integers may turn NaN into a number, so the pixels
    are looked at too. Each export gives zeros for what is not valid.

    Args:
        model: From images `(B, H, W, C)` to probabilities `(B, K)`.
        image_size: Pixels (height, width).

    Returns:
        A model from float32 images to `probabilities` `(B, K)` float32 and `valid` `(B,)` bool:
        whether all pixels and all probabilities of an image are finite.
    """
    images = keras.Input((*image_size, model.input_shape[-1]), dtype="float32", name="images")
    probabilities = ops.cast(model(images), "float32")
    valid = ops.logical_and(
        ops.all(_finite(images), axis=(1, 2, 3)), ops.all(_finite(probabilities), axis=1)
    )
    return keras.Model(images, {"probabilities": probabilities, "valid": valid})


def _finite(values):
    # TFLite has no `isfinite`. A comparison with NaN is false.
    return ops.less_equal(ops.abs(values), _LARGEST)
