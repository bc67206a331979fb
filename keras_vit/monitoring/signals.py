"""Signals of an answered photo as whole numbers: familiarity, probability, class, light, sharpness.

Each number is a step of a scale that was fixed before any photo was seen, so that counts of the
numbers are all that a reference and a monitor keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import images as image_formats
from keras_vit.answering import LEVERAGE
from keras_vit.classifier import Classifier
from keras_vit.description.drift_reference import CLASS, LARGEST_STEP
from keras_vit.prediction import predict_batch, split_answers

FAMILIARITY, PROBABILITY = "familiarity", "probability"
BRIGHTNESS, SHARPNESS = "brightness", "sharpness"
SIGNALS = (FAMILIARITY, PROBABILITY, CLASS, BRIGHTNESS, SHARPNESS)

OUTPUT = "output"  # With a class: the odds of that class, which a test of a folder reads.
MAX_OUTPUTS = 1000  # Classes; a reference of more has no outputs.

_STEPS = 8  # To a factor of two.
_LIGHT_STEPS = 64  # To a unit of the model's input, which is often from -1 to 1.
_TINY = 1e-7


def answer_signals(
    probabilities: np.ndarray, leverages: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Returns the signals of answers, int `(B,)` each.

    Args:
        probabilities: Rows of the known classes, `(B, K)`.
        leverages: `(B,)`; None if the classifier has none, and then there is no familiarity.
    """
    found = {
        PROBABILITY: odds_number(probabilities.max(axis=1)),
        CLASS: probabilities.argmax(axis=1),
    }
    if leverages is not None:
        found[FAMILIARITY] = _step(-_STEPS * np.log2(np.maximum(leverages, _TINY)))
    return found


def output_signals(probabilities: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the odds of each class in powers of two, int `(B,)` each, by the name of the output.

    Args:
        probabilities: Rows of the known classes, `(B, K)`.

    Returns:
        K signals; none with more than 1,000 classes.
    """
    if probabilities.shape[1] > MAX_OUTPUTS:
        return {}
    numbers = odds_number(probabilities, steps=1)
    return {f"{OUTPUT} {k}": column for k, column in enumerate(numbers.T)}


def odds_number(probability, steps=_STEPS):
    """Returns the odds of a probability in parts of a power of two, int of the same shape."""
    p = np.clip(np.asarray(probability, "float64"), _TINY, 1 - _TINY)
    return _step(steps * np.log2(p / (1 - p)))


def image_signals(images: np.ndarray) -> dict[str, np.ndarray]:
    """Returns brightness and sharpness of the model's inputs, int `(B,)` each.

    Brightness is the mean in 1/64 of a unit, and sharpness the mean absolute difference between
    neighbours in eighths of a power of two. Both are of the mean of the channels.

    Args:
        images: float32 `(B, H, W, C)`, preprocessed.
    """
    light = np.array([_light(image) for image in images])
    means, differences = light.T
    return {
        BRIGHTNESS: _step(_LIGHT_STEPS * means),
        SHARPNESS: _step(_STEPS * np.log2(np.maximum(differences, _TINY))),
    }


def _light(image):
    """Mean and mean absolute difference of one image, whose arrays fit into the cache."""
    # A sum of channels by hand takes a tenth of the time of `mean(axis=-1)`.
    grey = sum(image[..., channel] for channel in range(image.shape[-1])) / image.shape[-1]
    across = np.abs(np.diff(grey, axis=1)).mean()
    down = np.abs(np.diff(grey, axis=0)).mean()
    return grey.mean(dtype="float64"), (across + down) / 2


def _step(values):
    return np.clip(np.rint(values), -LARGEST_STEP, LARGEST_STEP).astype("int64")


class MeasuredClassifier:
    """A classifier that gives its answers together with their signals.

    An export gives no leverage, so its photos have no familiarity.

    Args:
        classifier: A folder's or an export's; with its further answers if it has a decision.
    """

    def __init__(self, classifier: Classifier):
        self._classifier = answering = classifier.answering
        self._model: Any = answering.model
        layers = {layer.name: layer for layer in getattr(self._model, "layers", ())}
        self.has_familiarity = LEVERAGE in layers
        if self.has_familiarity:
            outputs = [self._model.outputs[0], layers[LEVERAGE].output]
            joined = keras.layers.Concatenate(dtype="float32", name="answer_and_leverage")(outputs)
            self._model = keras.Model(self._model.inputs, joined)

    def answers(self, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns rows `(B, K + E)` as `Classifier.probabilities`, and leverages `(B,)` or None."""
        if not self.has_familiarity:
            return self._classifier.probabilities(inputs), None
        rows = predict_batch(self._model, np.stack(inputs))
        return rows[:, :-1], rows[:, -1]

    def signals(
        self,
        inputs: Sequence[np.ndarray],
        rows: np.ndarray,
        leverages: np.ndarray | None,
        with_outputs: bool = False,
    ) -> dict[str, np.ndarray]:
        """Returns the signals of B answered inputs, int `(B,)` each.

        Args:
            inputs: Inputs from `Classifier.input_of`.
            rows: Rows from `answers`.
            leverages: Leverages from `answers`.
            with_outputs: Whether to add the outputs of all classes.
        """
        decision = self._classifier.description.decision
        if decision is not None and decision.in_outputs:
            rows, _ = split_answers(rows, decision)
        if self._classifier.input_preprocessing is None:
            known = self._classifier.preprocessing
            decoding = image_formats.decoding
            inputs = [np.asarray(decoding.apply_preprocessing(image, known)) for image in inputs]
        outputs = output_signals(rows) if with_outputs else {}
        return {**answer_signals(rows, leverages), **image_signals(np.stack(inputs)), **outputs}


def counts_of(signals: Mapping[str, np.ndarray]) -> dict[str, dict[int, int]]:
    """Returns for each signal how often each of its numbers occurs, in ascending order."""
    found = {}
    for name, values in signals.items():
        numbers, counts = np.unique(values, return_counts=True)
        found[name] = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    return found
