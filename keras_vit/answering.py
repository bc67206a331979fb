"""The Keras model of a classifier with "unknown" and parents as further outputs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.description import Description, Labels
from keras_vit.description.decision import Decision
from keras_vit.description.tasks import DEFAULT_THRESHOLD
from keras_vit.layers import Leverage, UnknownClass
from keras_vit.utils.fields import required

_BELOW_1 = 1 - 2**-24  # The largest float32 below 1.
CENTER, FACTOR = "center", "factor"  # Arrays of a decision.
LEVERAGE, ANSWERS = "leverage", "unknown_class"  # Names of the layers.


def answering_model(
    model: keras.Model,
    class_names: tuple[str, ...],
    decision: Decision,
    arrays: Mapping[str, np.ndarray],
) -> keras.Model:
    """Returns a classifier's model with calibrated probabilities and the further outputs.

    Args:
        model: From images to probabilities `(B, K)`.
        class_names: The K names.
        decision: When it answers.
        arrays: `center` `(D,)` and `factor` `(D, D)` of the leverage, if the decision has a limit.

    Returns:
        From images to `(B, K + E)`; see `layers.UnknownClass`.

    Raises:
        ValueError: If the decision was made for another head, or the model has none.
    """
    if decision.sha256 != decision_hash(model, arrays):
        raise ValueError(
            "A decision must be of the head of its model: calibrate again (keras-vit calibrate). "
            "Received: a decision that was made for other weights"
        )
    features, logits = _features_and_logits(model)
    number_of = {name: number for number, name in enumerate(decision.classes[:-1])}
    parents = [number_of.get(decision.parents.get(name, ""), -1) for name in class_names]
    answer = UnknownClass(
        decision.temperature,
        decision.threshold,
        decision.largest_leverage,
        parents if number_of else (),
        decision.parent_threshold,
        _is_multilabel(model),
        name=ANSWERS,
    )
    if decision.largest_leverage is None:
        return keras.Model(model.inputs, answer(logits), name=model.name)
    leverage = Leverage(name=LEVERAGE)
    rows = answer(logits, leverage(features))
    leverage.set_weights([arrays[CENTER], arrays[FACTOR]])
    return keras.Model(model.inputs, rows, name=model.name)


def scores_model(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> keras.Model:
    """Returns a classifier's model with what a decision is made of, as numbers from 0 to 1.

    It is exported to find a decision on the scores of the export; see `split_scores`.

    Args:
        model: From images to probabilities `(B, K)`.
        arrays: `center` `(D,)` and `factor` `(D, D)` of the leverage; {} without it.

    Returns:
        From images to `(B, K + 1)`: the probabilities, and h / (1 + h) with the leverage h, or 0.
    """
    features, logits = _features_and_logits(model)
    activation = keras.ops.sigmoid if _is_multilabel(model) else keras.ops.softmax
    probabilities = activation(keras.ops.cast(logits, "float32"))
    if not arrays:
        return keras.Model(
            model.inputs, keras.ops.concatenate([probabilities, 0.0 * probabilities[:, :1]], axis=1)
        )
    leverage = Leverage(name=LEVERAGE)
    strangeness = leverage(features)
    strangeness = strangeness / (1.0 + strangeness)
    leverage.set_weights([arrays[CENTER], arrays[FACTOR]])
    return keras.Model(model.inputs, keras.ops.concatenate([probabilities, strangeness], axis=1))


def split_scores(rows: np.ndarray, is_multilabel: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits `(N, K)`, up to a constant for each image, and the leverages `(N,)`.

    Args:
        rows: Outputs of a `scores_model`, `(N, K + 1)`.
        is_multilabel: Whether an image may have several classes.
    """
    values = np.asarray(rows, "float64")
    probabilities, strangeness = values[:, :-1], np.minimum(values[:, -1], _BELOW_1)
    smallest = float(np.finfo("float32").tiny)
    logits = np.log(np.maximum(probabilities, smallest))
    if is_multilabel:
        logits -= np.log(1 - np.minimum(probabilities, _BELOW_1))
    return logits, strangeness / (1 - strangeness)


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


def with_further_classes(description: Description) -> Description:
    """Returns the description of an answering model, with the names of its further outputs."""
    decision, labels = required(description.decision, "decision"), description.labels
    names = (*(labels.names or ()), *decision.classes)
    limits = labels.limits and (*labels.limits, DEFAULT_THRESHOLD)
    return dataclasses.replace(
        description,
        labels=Labels(names, labels.task, limits),
        decision=dataclasses.replace(decision, in_outputs=True),
    )


def _features_and_logits(model):
    head = _head(model)
    linear = {**head.get_config(), "activation": None}
    copy = type(head).from_config(linear)
    logits = copy(head.input)
    copy.set_weights(head.get_weights())
    return head.input, logits


def _is_multilabel(model):
    return getattr(_head(model).activation, "__name__", "") == "sigmoid"


def _head(model: Any):
    head = configs.classifier_layer({layer.name: layer for layer in model.layers})
    if head is None or len(model.outputs) != 1 or head.output is not model.outputs[0]:
        raise ValueError(
            "A decision needs a model whose probabilities are the output of one head "
            f'("predictions"). Received: {model.name}'
        )
    return head
