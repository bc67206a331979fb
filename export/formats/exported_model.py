"""The model that an export holds: preprocessing, classifier, and marks of invalid images."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_vit.images.decoding import scale
from keras_vit.images.resizing import resize_batch
from keras_vit.inspection.rollouts import rollout_model
from keras_vit.preprocessing import Preprocessing

from .export_format import PIXELS

_LARGEST = float(np.finfo("float32").max)


class PixelPreprocessing(keras.layers.Layer):
    """uint8 images `(B, H, W, C)` to a model's input, as evaluation resizes and scales them."""

    def __init__(self, preprocessing: Preprocessing, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.preprocessing = preprocessing

    def call(self, images):
        values = resize_batch(ops.cast(images, "float32"), self.preprocessing)
        # Known sizes; TFLite has no operation that only states them.
        values = ops.reshape(values, (-1, *self.preprocessing.image_size, images.shape[3]))
        return scale(values, self.preprocessing.value_range)

    def compute_output_spec(self, images):
        shape = (images.shape[0], *self.preprocessing.image_size, images.shape[3])
        return keras.KerasTensor(shape, "float32")


def exported_model(
    model: keras.Model,
    preprocessing: Preprocessing,
    *,
    input: str = "float",
    input_size: tuple[int, int] | None = None,
    attention: bool = False,
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
        attention: Whether the Attention Rollout is a further output.

    Returns:
        A model from `images` to `probabilities` `(B, K)` float32 and `valid` `(B,)` bool:
        whether all values and all probabilities of an image are finite; and `attention`
        `(B, down, across)` float32, the Attention Rollout's share of each patch.
    """
    channels = model.input_shape[-1]
    if input == "uint8":
        size = input_size or (None, None)
        images = keras.Input((*size, channels), dtype="uint8", name="images")
        values = PixelPreprocessing(preprocessing, name=PIXELS)(images)
    else:
        shape = (*preprocessing.image_size, channels)
        values = images = keras.Input(shape, dtype="float32", name="images")
    further = {}
    if attention:
        scores, further["attention"] = rollout_model(model)(values)
    else:
        scores = model(values)
    probabilities = ops.cast(scores, "float32")
    valid = _all_finite(probabilities)
    if input == "float":
        valid = ops.logical_and(_all_finite(images), valid)
    return keras.Model(images, {"probabilities": probabilities, "valid": valid, **further})


def _all_finite(values):
    # TFLite has no `isfinite`, and a phone's GPU no `all`. A comparison with NaN is false.
    finite = ops.cast(ops.less_equal(ops.abs(values), _LARGEST), "float32")
    return ops.min(finite, axis=tuple(range(1, len(values.shape)))) > 0
