"""The preprocessing of images as a layer."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_vit.preprocessing import EVALUATIONS, INTERPOLATIONS, Preprocessing

# What every backend's graph computes as `Preprocessing` does, to 1e-5 of a range of 2. The others
# round to whole pixels on the way, where float32 lands on either side: by one pixel, 8e-3. Without
# rounding TensorFlow's bicubic filter reads its weights from a table (7e-4) and lanczos differs by
# 1e-5.
EVALUATION, INTERPOLATION = EVALUATIONS[0], INTERPOLATIONS[0]


@keras.saving.register_keras_serializable(package="keras_vit")
class ImagePreprocessing(keras.layers.Layer):
    """Resizes images and scales their pixels, as `keras_vit.Preprocessing` does, in the graph.

    The resize is bilinear, to the image size, without antialiasing and without keeping the aspect
    ratio, as in the official ViT code. Other ways of resizing round to whole pixels, which a graph
    does not repeat to 1e-5 on every backend; they are refused, and `keras_vit.Preprocessing`
    computes them in front of the model. It computes in float32 under every dtype policy.

    Args:
        image_size: Pixels (height, width) of the output.
        evaluation: Way of resizing; "resize".
        value_range: Values for pixels 0 and 255; each a number, or one for each channel.
        interpolation: Filter of the resize; "bilinear".
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`: pixels in [0, 255] of any type; H and W may be unknown.

    Output shape:
        float32 `(B, height, width, C)`.

    Raises:
        ValueError: If a value is wrong, a graph cannot compute the way of resizing to 1e-5, or the
            range is for other channels than the images have.

    Example:
    >>> layer = ImagePreprocessing((32, 32))
    >>> tuple(layer(np.zeros((2, 48, 64, 3), "uint8")).shape)
    (2, 32, 32, 3)
    """

    def __init__(
        self,
        image_size,
        evaluation=EVALUATION,
        value_range=(-1.0, 1.0),
        interpolation=INTERPOLATION,
        **kwargs,
    ):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})
        self.preprocessing = Preprocessing(
            image_size, evaluation, value_range, interpolation=interpolation
        )
        refused = {"evaluation": (evaluation, EVALUATION)}
        refused["interpolation"] = (interpolation, INTERPOLATION)
        for name, (received, computed) in refused.items():
            if received != computed:
                raise ValueError(
                    f"A graph computes {name}={computed!r} to 1e-5 on every backend, and no other: "
                    "call keras_vit.Preprocessing on the images in front of the model. "
                    f"Received: {name}={received!r}"
                )

    def build(self, input_shape):
        wanted = self.preprocessing.num_channels
        if wanted not in (None, input_shape[-1]):
            raise ValueError(
                "The value range must have the channels of the images. Received: a range of "
                f"{wanted} channels, images of shape {tuple(input_shape)}"
            )
        self.built = True

    def call(self, inputs):
        values, size = ops.cast(inputs, "float32"), self.preprocessing.image_size
        if tuple(values.shape[1:3]) != size:
            values = ops.image.resize(
                values, size, interpolation=INTERPOLATION, data_format="channels_last"
            )
        low, high = np.array(self.preprocessing.value_range)
        factor = np.asarray((high - low) / 255, "float32")
        return values * factor + np.asarray(low, "float32")

    def compute_output_spec(self, inputs):
        shape = (inputs.shape[0], *self.preprocessing.image_size, inputs.shape[-1])
        return keras.KerasTensor(shape, "float32")

    def get_config(self):
        known = self.preprocessing.to_fields()
        names = ("image_size", "evaluation", "value_range", "interpolation")
        return {**super().get_config(), **{name: known[name] for name in names}}
