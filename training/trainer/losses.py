"""Losses and metrics of logits, for class numbers, multi-label data and soft labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.utils.json_files import with_present_names


class LogitsLoss(keras.losses.Loss):
    """A loss of logits `(B, K)`, with class numbers `(B,)`, or several or soft labels
    `(B, K)`.

    Args:
        class_weight: K factors of the terms of the classes' labels, w, or None for 1 each.
        **kwargs: Passed to `keras.losses.Loss`.
    """

    def __init__(self, class_weight: Sequence[float] | None = None, **kwargs: object):
        super().__init__(**kwargs)
        self.class_weight = None if class_weight is None else list(class_weight)

    def get_config(self):
        weights = {} if self.class_weight is None else {"class_weight": self.class_weight}
        return {**super().get_config(), **weights}

    @classmethod
    def from_config(cls, config):
        """Returns the loss that `get_config` described."""
        return cls(**with_present_names(config))

    def _labels(self, y_true, logits):
        if len(y_true.shape) == len(logits.shape):
            return ops.cast(y_true, logits.dtype)
        return ops.one_hot(ops.cast(y_true, "int32"), logits.shape[-1], dtype=logits.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftmaxCrossentropy(LogitsLoss):
    """Softmax cross-entropy of logits, with label smoothing and class weights.

    With K classes, smoothing s, labels y and class weights w:

        loss = -sum_k w_k * ((1 - s) * y_k + s / K) * log softmax(z)_k

    averaged over the examples, and not over their weights. Keras's
    `SparseCategoricalCrossentropy` takes class numbers but smooths nothing, its
    `CategoricalCrossentropy` smooths but takes no class numbers.

    Args:
        label_smoothing: Fraction of the label spread over all classes, s, in [0, 1).
        **kwargs: `class_weight`, or passed to `keras.losses.Loss`.

    Raises:
        ValueError: If the smoothing is out of range.
    """

    def __init__(self, label_smoothing: float = 0.0, **kwargs: Any):
        kwargs.setdefault("name", "softmax_crossentropy")
        super().__init__(**kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"label_smoothing must be in [0, 1). Received: label_smoothing={label_smoothing}"
            )
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        labels = self._labels(y_true, y_pred)
        if self.label_smoothing:
            labels = labels * (1 - self.label_smoothing) + self.label_smoothing / labels.shape[-1]
        if self.class_weight is not None:
            labels = labels * ops.cast(self.class_weight, labels.dtype)
        return -ops.sum(labels * ops.log_softmax(y_pred), axis=-1)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable(package="keras_vit")
class SigmoidCrossentropy(LogitsLoss):
    """Sigmoid cross-entropy of logits, summed over classes and averaged over examples.

        loss = -sum_k (w_k * y_k * log sigmoid(z_k) + (1 - y_k) * log(1 - sigmoid(z_k)))

    As in big_vision's pre-training; Keras's `BinaryCrossentropy` takes the mean over
    classes. The head's bias should start at the log-odds of a class, about -10 with 21,843
    classes and -6.9 with 1000: `head_bias` of the model's config.

    Args:
        **kwargs: `class_weight` w, or passed to `keras.losses.Loss`.
    """

    def __init__(self, **kwargs: Any):
        kwargs.setdefault("name", "sigmoid_crossentropy")
        super().__init__(**kwargs)

    def call(self, y_true, y_pred):
        labels = self._labels(y_true, y_pred)
        # log(1 + exp(z)) - y z, without overflow.
        loss = ops.softplus(y_pred) - labels * y_pred
        if self.class_weight is not None:
            more = ops.cast(self.class_weight, y_pred.dtype) - 1
            loss = loss + more * labels * ops.softplus(-y_pred)
        return ops.sum(loss, axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
def label_accuracy(y_true, y_pred):
    """Returns the share of right labels of each example, at a probability of 0.5.

    Args:
        y_true: Zeros and ones `(B, K)`; shares of labels count as 1 above 0.5.
        y_pred: Logits `(B, K)`.
    """
    right = ops.equal(ops.cast(y_true, y_pred.dtype) > 0.5, y_pred > 0)
    return ops.mean(ops.cast(right, y_pred.dtype), axis=-1)
