"""Answers of a classifier: computing them, and "unknown" as a further output of its model."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit import configs
from keras_vit.description import Description, Labels
from keras_vit.description.decision import Decision
from keras_vit.description.tasks import DEFAULT_THRESHOLD, MULTICLASS, MULTILABEL
from keras_vit.keras_private import xla_compiles
from keras_vit.layers import Leverage, UnknownClass
from keras_vit.utils.fields import required

CENTER, FACTOR = "center", "factor"  # Arrays of a decision.
LEVERAGE, ANSWERS = "leverage", "unknown_class"  # Names of the layers.


class Prediction(NamedTuple):
    """A classifier's prediction for one image file.

    Args:
        path: The image file.
        top: `(class name, probability)`, the most likely first; empty if there is an error.
        error: Why the image could not be read or classified, or None.
        labels: The predicted classes, the most likely first: the first of `top`, or with a
            multi-label classifier each class whose probability is above its threshold.
        answer: The answer of a classifier that may answer "unknown": the first of `top`, a parent
            or "unknown"; None of any other classifier.
    """

    path: str
    top: list[tuple[str, float]]
    error: str | None = None
    labels: tuple[str, ...] = ()
    answer: str | None = None

    @property
    def text(self) -> str | None:
        """The answer where it is not the most probable class: "unknown (0.61 beagle)"."""
        if self.answer is None or not self.top or self.answer == self.top[0][0]:
            return None
        name, probability = self.top[0]
        return f"{self.answer} ({probability:.2f} {name})"

    def to_json(self, task: str = MULTICLASS) -> dict[str, Any]:
        """Returns the prediction as types of JSON, with labels where an image may have several."""
        entry: dict[str, Any] = {
            "path": self.path,
            "top": [{"class": name, "probability": value} for name, value in self.top],
        }
        if task == MULTILABEL:
            entry["labels"] = list(self.labels)
        elif self.answer is not None:
            entry["answer"] = self.answer
        return entry if self.error is None else {**entry, "error": self.error}


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


def split_answers(rows: np.ndarray, decision: Decision) -> tuple[np.ndarray, np.ndarray]:
    """Returns the probabilities of the classes, and the further answer of each image.

    Args:
        rows: Outputs of an answering model, `(N, K + E)`.
        decision: Its decision.

    Returns:
        Calibrated probabilities `(N, K)`, and the number of the answer in `decision.classes`,
        int `(N,)`, -1 where it is one of the K classes.
    """
    own, further = np.split(rows, [-len(decision.classes)], axis=1)
    taken = further.sum(axis=1, keepdims=True)
    known = own / np.where(taken < 1, 1 - taken, 1)
    return known, np.where(further.any(axis=1), further.argmax(axis=1), -1)


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


def highest(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the places of the highest scores, the highest first.

    Ties go to the lower place. The time grows with the number of scores.

    Args:
        scores: `(K,)`.
        count: At most so many are returned.
    """
    places = np.arange(len(scores))
    if 0 < count < len(scores):
        places = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    return places[np.argsort(-scores[places], kind="stable")[:count]]


def predict_batch(model: Any, images: Any) -> np.ndarray:
    """Returns a model's outputs for a batch, compiled by XLA only where XLA works.

    Keras chooses XLA as soon as TensorFlow lists a device that is not a CPU. It then fails
    where TensorFlow has no XLA for the device that computes, as on the host of the TPU build.

    Args:
        model: A Keras model, or another object with `predict_on_batch`.
        images: `(B, H, W, C)`, preprocessed.
    """
    if keras.backend.backend() != "tensorflow":
        images = np.asarray(images)  # Other backends take no tensors of tf.data.
    is_in_vain = getattr(model, "jit_compile", False) and not xla_compiles()
    if is_in_vain:
        model.jit_compile = False
    try:
        outputs = model.predict_on_batch(images)
    finally:
        if is_in_vain:
            model.jit_compile = True
    return np.asarray(keras.ops.convert_to_numpy(outputs))
