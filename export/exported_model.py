"""The model that an export holds: preprocessing, classifier, and marks of invalid images."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_vit.inspection.rollouts import RolloutModel, has_rollout
from keras_vit.models.rebuild import computes_in_float32
from keras_vit.preprocessing import Preprocessing

from .pixels import PixelPreprocessing

PIXELS = "pixel_preprocessing"  # Name of the layer.

_LARGEST = float(np.finfo("float32").max)


def exported_model(
    model: keras.Model,
    preprocessing: Preprocessing,
    *,
    input: str = "float",
    input_size: tuple[int, int] | None = None,
    rollout: bool = False,
) -> keras.Model:
    """Returns a model that also marks the images for which its probabilities mean something.

    A layer such as a ReLU or a product in integers may turn NaN into a number, so the pixels
    are looked at too. Each export gives zeros for what is not valid.

    Args:
        model: From preprocessed images `(B, h, w, C)` to probabilities `(B, K)`.
        preprocessing: The classifier's preprocessing.
        input: "float" for preprocessed images, float32 `(B, h, w, C)`; "uint8" for pixels
            `(B, H, W, C)` of any size, which the returned model preprocesses.
        input_size: The only size (H, W) of pixels, instead of any.
        rollout: Whether a model with attention also gives its Attention Rollout.

    Returns:
        A model from `images` to `probabilities` `(B, K)` float32 and `valid` `(B,)` bool:
        whether all values and all probabilities of an image are finite. With `rollout` also to
        `attention` `(B, down, across)` float32, the share of each patch.
    """
    channels = model.input_shape[-1]
    if input == "uint8":
        size = input_size or (None, None)
        images = keras.Input((*size, channels), dtype="uint8", name="images")
        values = PixelPreprocessing(preprocessing, name=PIXELS)(images)
    else:
        shape = (*preprocessing.image_size, channels)
        values = images = keras.Input(shape, dtype="float32", name="images")
    outputs = {}
    if rollout and has_rollout(model):
        scores, outputs["attention"] = RolloutModel(model)(values)
    else:
        scores = model(values)
    probabilities = ops.cast(scores, "float32")
    valid = ops.all(_finite(probabilities), axis=1)
    if input == "float":
        valid = ops.logical_and(ops.all(_finite(images), axis=(1, 2, 3)), valid)
    return keras.Model(images, {"probabilities": probabilities, "valid": valid, **outputs})


def precision_notes(model: keras.Model) -> tuple[str, ...]:
    """Returns a remark if a model is converted to float32 for its export."""
    if computes_in_float32(model):
        return ()
    return ("The model computes in reduced precision; this is its float32 copy.",)


def _finite(values):
    # TFLite has no `isfinite`. A comparison with NaN is false.
    return ops.less_equal(ops.abs(values), _LARGEST)
