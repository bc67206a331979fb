"""Features of image files with their names, and the nearest of them: `keras-vit embed`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_vit.configs import FEATURES
from keras_vit.prediction import highest
from keras_vit.predictor import Predictor
from keras_vit.training.data import Examples
from keras_vit.training.data.image_files import FileExamples
from keras_vit.utils.files import atomic_write

from .predictions import features_of, name_of_model, weights_hash, without

SUFFIX = ".npz"

# Queries at once, and their similarities: 256 MiB.
_ROWS, _SIMILARITIES = 1024, 2**26


def embed(
    model: Predictor,
    files: Sequence[str],
    *,
    feature: str = FEATURES[0],
    batch_size: int = 32,
    progress: bool = False,
) -> tuple[dict[str, npt.ArrayLike], list[tuple[str, str]]]:
    """Returns the features of image files, and `(file, reason)` of those that cannot be read.

    Args:
        model: The model, from `predictions.build_evaluated`.
        files: Image files.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        The arrays `names` of the N files, `features` `(N, D)`, `model`, `weights_sha256` and
        `feature`.

    Raises:
        ValueError: If no file can be read, or the model does not have the feature.
    """
    unreadable: list[tuple[int, str]] = []
    examples: Examples = FileExamples(files, np.zeros(len(files)))
    features = features_of(
        model,
        examples,
        feature=feature,
        batch_size=batch_size,
        progress=progress,
        unreadable=unreadable,
    )
    examples, skipped = without(examples, unreadable)
    arrays = {
        "names": examples.names,
        "features": features.values,
        "model": name_of_model(model),
        "weights_sha256": weights_hash(model.model),
        "feature": feature,
    }
    return arrays, skipped


def write_features(path: str | os.PathLike, arrays: Mapping[str, Any]) -> None:
    """Writes the arrays of `embed` as an .npz file."""
    with atomic_write(path) as partial, open(partial, "wb") as file:
        np.savez(file, **arrays)


def check_suffix(path: str | os.PathLike) -> None:
    """Raises ValueError unless a file of features ends in .npz."""
    if not os.fspath(path).lower().endswith(SUFFIX):
        raise ValueError(f"A file of features must end in {SUFFIX}. Received: {path}")


def nearest(
    features: npt.ArrayLike, queries: npt.ArrayLike, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nearest features of each query, and the cosines of the angles to them.

    Args:
        features: `(N, D)`.
        queries: `(M, D)`.
        count: Neighbours k of each query, at most N.

    Returns:
        Numbers of features, int `(M, k)`, the nearest first, and cosines, `(M, k)`. Ties go to
        the lower number.
    """
    rows, asked = _unit_rows(features), _unit_rows(queries)
    numbers = np.empty((len(asked), count), "int64")
    cosines = np.empty((len(asked), count), "float32")
    at_once = min(max(_SIMILARITIES // len(rows), 1), _ROWS)
    for start in range(0, len(asked), at_once):
        for row, similarities in enumerate(asked[start : start + at_once] @ rows.T, start):
            numbers[row] = highest(similarities, count)
            cosines[row] = similarities[numbers[row]]
    return numbers, cosines


def _unit_rows(values):
    rows = np.asarray(values, "float32")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
