"""Features and logits of images, and the leverage of an image among the training images."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.models.rebuild import head_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples
from keras_vit.training.evaluation.features import extract

MAX_TRAINING = 10_000  # Images whose features the leverage is computed from.
_RIDGE = 1e-3  # Added to the eigenvalues of X'X, in units of their mean.


@dataclasses.dataclass(frozen=True)
class Scores:
    """Features and logits of images with their labels.

    Args:
        features: The input of the head, float32 `(N, D)`.
        logits: float64 `(N, K)`.
        labels: Class numbers `(N,)`.
    """

    features: np.ndarray
    logits: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: np.ndarray) -> Scores:
        """Returns the scores of some images."""
        return Scores(self.features[places], self.logits[places], self.labels[places])


def compute_scores(
    model: keras.Model,
    examples: Examples,
    preprocessing: Preprocessing,
    *,
    batch_size: int = 32,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
    unreadable: list[tuple[int, str]] | None = None,
) -> Scores:
    """Returns the features and logits of images.

    Args:
        model: From images to probabilities `(B, K)`.
        examples: The images, labelled with numbers of the model's classes.
        preprocessing: How an image becomes the model's input.
        batch_size: Images in a batch.
        cache: Folder for computed features, or None; see `extract`.
        progress: Whether to show a line with the rate and the time left.
        unreadable: See `predictions_of`.

    Raises:
        ValueError: If the model's output is not one head's.
    """
    kernel, *bias = map(keras.ops.convert_to_numpy, head_of(model).weights)
    found = extract(
        model,
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        cache=cache,
        progress=progress,
        unreadable=unreadable,
    )
    logits = (found.values @ kernel + (bias[0] if bias else 0)).astype("float64")
    return Scores(found.values, logits, found.labels)


def spaced(examples: Examples) -> Examples | None:
    """Returns as many images as the leverage needs, evenly spaced; None of none."""
    count = min(len(examples), MAX_TRAINING)
    if not count:
        return None
    places = np.linspace(0, len(examples) - 1, count).round().astype(int)
    return examples.take(np.unique(places))


def leverage_arrays(features: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the arrays by which the leverage of an image is computed.

    With the centered features X of training images, the leverage of x is
    `x' (X'X + l2 I)^-1 x`, the square of the length of `(x - center) factor`.

    Args:
        features: `(N, D)` of training images.
    """
    center = features.mean(axis=0)
    centered = features - center
    values, vectors = np.linalg.eigh(centered.T @ centered)
    values = np.maximum(values, 0) + _RIDGE * values.mean()
    factor = vectors / np.sqrt(values)
    return {"center": center.astype("float32"), "factor": factor.astype("float32")}


def leverages_of(features: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the leverage of each image, `(N,)`, as the model computes it."""
    projected = (features.astype("float32") - arrays["center"]) @ arrays["factor"]
    return (projected * projected).sum(axis=1, dtype="float64")
