"""Probabilities with a further class for images that are not answered."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

# What the probabilities of the classes lose to a further output that is the answer, so that it is
# the highest whatever they are.
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
    """Calibrated probabilities of K classes, and E further outputs for images without an answer.

    With the logits z and the leverage h of an image, p = softmax(z / T). The class with the highest
    p is the answer if the image is not strange (its leverage is at most `largest_leverage`) and p
    is at least `threshold`. Else the parent with the highest sum of probabilities is, if the image
    is not strange and the sum is at least `parent_threshold`; else the last further output,
    "unknown". A further output that is the answer has two thirds, and the probabilities of the
    classes share the rest, so that it is the highest; all other further outputs are 0.

    Multi-label probabilities are sigmoid(z / T) and are unchanged: "unknown" is 1 for a strange
    image, and 0 for others.

    Args:
        temperature: T.
        threshold: The least probability of an answer.
        largest_leverage: The largest leverage of an image that is not strange; None without a
            limit, and without the second input.
        parents: The number of each class's parent, or -1; () without parents.
        parent_threshold: The least sum of probabilities of an answer with a parent, or None.
        multilabel: Whether an image may have several classes.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        Logits `(B, K)`, and leverages `(B, 1)`.

    Output shape:
        `(B, K + E)`, float32.
    """

    def __init__(
        self,
        temperature=1.0,
        threshold=0.0,
        largest_leverage=None,
        parents=(),
        parent_threshold=None,
        multilabel=False,
        **kwargs,
    ):
        super().__init__(**{"autocast": False, "trainable": False, **kwargs})
        self.temperature, self.threshold = temperature, threshold
        self.largest_leverage, self.multilabel = largest_leverage, multilabel
        self.parents, self.parent_threshold = tuple(parents), parent_threshold
        self.built = True

    def call(self, logits, leverage=None):
        scaled = ops.cast(logits, "float32") / self.temperature
        if leverage is None:
            strange = 0.0 * scaled[:, :1]
        else:
            strange = _is(leverage > self.largest_leverage)  # (B, 1)
        if self.multilabel:
            return ops.concatenate([ops.sigmoid(scaled), strange], axis=-1)
        probabilities = ops.softmax(scaled, axis=-1)
        highest = ops.max(probabilities, axis=-1, keepdims=True)
        refused = 1.0 - _is(highest >= self.threshold) * (1.0 - strange)
        further = [refused]
        if self.parent_threshold is not None:
            numbers = np.array(self.parents)
            members = numbers[:, np.newaxis] == np.arange(numbers.max() + 1)
            sums = ops.matmul(probabilities, members.astype("float32"))  # (B, E - 1)
            best = ops.max(sums, axis=-1, keepdims=True)
            by_parent = _is(best >= self.parent_threshold) * (1.0 - strange) * refused
            # Not argmax, in which Keras has an operation that ONNX lacks.
            _, place = ops.top_k(sums, 1)
            is_first = ops.one_hot(place[:, 0], members.shape[1], dtype="float32")
            further = [by_parent * is_first, refused - by_parent]
        kept = (1.0 - REFUSED_SHARE * refused) * probabilities
        return ops.concatenate([kept, *(REFUSED_SHARE * share for share in further)], axis=-1)

    def compute_output_spec(self, logits, leverage=None):
        further = 1 + (0 if self.parent_threshold is None else max(self.parents) + 1)
        batch, classes = logits.shape
        return keras.KerasTensor((batch, classes + further), "float32")

    def get_config(self):
        return {
            **super().get_config(),
            "temperature": self.temperature,
            "threshold": self.threshold,
            "largest_leverage": self.largest_leverage,
            "parents": self.parents,
            "parent_threshold": self.parent_threshold,
            "multilabel": self.multilabel,
        }


def familiarity(leverage, leverages):
    """Returns the share of known images whose leverage is at least an image's, `(B,)` in (0, 1].

    A conformal p-value (Bates et al., 2021, arXiv:2104.08279).

    Args:
        leverage: `(B, 1)`.
        leverages: The leverages of n known images.
    """
    known = np.asarray(leverages, "float32")
    return (1.0 + ops.sum(_is(ops.less_equal(leverage, known)), axis=-1)) / (1.0 + len(known))


def _is(condition):
    return ops.cast(condition, "float32")
