"""The Keras model of a classifier with "unknown" as a further output."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.description import Description, Labels
from keras_vit.description.decision import UNKNOWN, Decision
from keras_vit.layers import Leverage, UnknownClass
from keras_vit.utils.fields import required

CENTER, FACTOR = "center", "factor"  # Arrays of a decision.
LEVERAGE, ANSWERS = "leverage", "unknown_class"  # Names of the layers.


def answering_model(
    model: keras.Model,
    decision: Decision,
    arrays: Mapping[str, np.ndarray],
) -> keras.Model:
    """Returns a classifier's model with calibrated probabilities and "unknown".

    Args:
        model: From images to probabilities `(B, K)`.
        decision: When it answers.
        arrays: `center` `(D,)` and `factor` `(D, D)` of the leverage, if the decision has a limit.

    Returns:
        From images to `(B, K + 1)`; see `layers.UnknownClass`.

    Raises:
        ValueError: If the decision was made for another head, or the model has none.
    """
    if decision.sha256 != decision_hash(model, arrays):
        raise ValueError(
            "A decision must be of the head of its model: calibrate again (keras-vit calibrate). "
            "Received: a decision that was made for other weights"
        )
    features, logits = _features_and_logits(model)
    answer = UnknownClass(
        decision.temperature,
        decision.threshold,
        decision.largest_leverage,
        name=ANSWERS,
    )
    if decision.largest_leverage is None:
        return keras.Model(model.inputs, answer(logits), name=model.name)
    leverage = Leverage(name=LEVERAGE)
    rows = answer(logits, leverage(features))
    leverage.set_weights([arrays[CENTER], arrays[FACTOR]])
    return keras.Model(model.inputs, rows, name=model.name)


def head_weights(model: keras.Model) -> tuple[np.ndarray, np.ndarray]:
    """Returns the kernel `(D, K)` and the bias `(K,)` of a model's head, float32.

    Raises:
        ValueError: If its output is not one head's.
    """
    kernel, *bias = map(keras.ops.convert_to_numpy, _head(model).weights)
    return kernel, bias[0] if bias else np.zeros(kernel.shape[1], "float32")


def decision_hash(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> str:
    """Returns the SHA-256 of a model's head and the arrays of a decision."""
    digest = hashlib.sha256()
    for value in (*_head(model).weights, *(arrays[name] for name in sorted(arrays))):
        array = np.asarray(keras.ops.convert_to_numpy(value), "float32")
        digest.update(f"{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def with_unknown_class(description: Description) -> Description:
    """Returns the description of an answering model, whose last class is "unknown"."""
    decision, labels = required(description.decision, "decision"), description.labels
    return dataclasses.replace(
        description,
        labels=Labels((*(labels.names or ()), UNKNOWN), labels.task),
        decision=dataclasses.replace(decision, in_outputs=True),
    )


def _features_and_logits(model):
    head = _head(model)
    linear = {**head.get_config(), "activation": None}
    copy = type(head).from_config(linear)
    logits = copy(head.input)
    copy.set_weights(head.get_weights())
    return head.input, logits


def _head(model: Any):
    head = configs.classifier_layer({layer.name: layer for layer in model.layers})
    if head is None or len(model.outputs) != 1 or head.output is not model.outputs[0]:
        raise ValueError(
            "A decision needs a model whose probabilities are the output of one head "
            f'("predictions"). Received: {model.name}'
        )
    return head
