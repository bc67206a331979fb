"""Probabilities with a further class for images that are not answered."""

from __future__ import annotations

import keras
from keras import ops

# What the probabilities of the classes lose to "unknown" where it is the answer, so that it is the
# highest whatever they are.
REFUSED_SHARE = 2 / 3


@keras.saving.register_keras_serializable(package="keras_vit")
class Leverage(keras.layers.Layer):
    """How far an image is from the training images, in the features x of the model.

        h = |(x - center) factor|^2 = (x - center)' (X'X + l2 I)^-1 (x - center)

    with the centered features X of the training images. `center` and `factor` are weights that
    `keras-vit calibrate` computes.

    Args:
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, D)`.

    Output shape:
        `(B, 1)`, float32.
    """

    is_of_unknown = True  # Not a part of the architecture; see `keras_vit.description.abstains`.

    def __init__(self, **kwargs):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})

    def build(self, features_shape):
        dim = features_shape[-1]
        for name, shape in (("center", (dim,)), ("factor", (dim, dim))):
            weight = self.add_weight(
                name=name, shape=shape, dtype="float32", initializer="zeros", trainable=False
            )
            setattr(self, name, weight)

    def call(self, features):
        projected = ops.matmul(ops.cast(features, "float32") - self.center, self.factor)
        return ops.sum(projected * projected, axis=-1, keepdims=True)

    def compute_output_spec(self, features):
        return keras.KerasTensor((features.shape[0], 1), "float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class UnknownClass(keras.layers.Layer):
    """Calibrated probabilities of K classes, and one of "unknown" for images without an answer.

    With the logits z and the leverage h of an image, p = softmax(z / T). The class with the highest
    p is the answer if the image is not strange (its leverage is at most `largest_leverage`) and p
    is at least `threshold`; then "unknown" is 0. Else "unknown" is two thirds, and the
    probabilities of the classes share the rest, so that it is the highest.

    Args:
        temperature: T.
        threshold: The least probability of an answer.
        largest_leverage: The largest leverage of an image that is not strange; None without a
            limit, and without the second input.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        Logits `(B, K)`, and leverages `(B, 1)`.

    Output shape:
        `(B, K + 1)`, float32.
    """

    is_of_unknown = True

    def __init__(self, temperature=1.0, threshold=0.0, largest_leverage=None, **kwargs):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})
        self.temperature, self.threshold = temperature, threshold
        self.largest_leverage = largest_leverage
        self.built = True

    def call(self, logits, leverage=None):
        scaled = ops.cast(logits, "float32") / self.temperature
        if leverage is None:
            strange = 0.0 * scaled[:, :1]
        else:
            strange = _is(leverage > self.largest_leverage)  # (B, 1)
        probabilities = ops.softmax(scaled, axis=-1)
        highest = ops.max(probabilities, axis=-1, keepdims=True)
        refused = 1.0 - _is(highest >= self.threshold) * (1.0 - strange)
        kept = (1.0 - REFUSED_SHARE * refused) * probabilities
        return ops.concatenate([kept, REFUSED_SHARE * refused], axis=-1)

    def compute_output_spec(self, logits, leverage=None):
        batch, classes = logits.shape
        return keras.KerasTensor((batch, classes + 1), "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "temperature": self.temperature,
            "threshold": self.threshold,
            "largest_leverage": self.largest_leverage,
        }


def _is(condition):
    return ops.cast(condition, "float32")
