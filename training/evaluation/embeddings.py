"""Features of image files with their names, and the nearest of them: `keras-vit embed`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_vit.prediction import highest
from keras_vit.training.data.image_files import FileExamples, undecodable
from keras_vit.utils.files import atomic_write

from .predictions import EvaluatedModel, weights_hash

SUFFIX = ".npz"

# Queries at once, and their similarities: 256 MiB.
_ROWS, _SIMILARITIES = 1024, 2**26


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """Features of images.

    Args:
        names: The N image files.
        values: float32 `(N, D)`.
        facts: The model's name, the hash of its weights and the feature.
    """

    names: list[str]
    values: np.ndarray
    facts: dict[str, str]

    def write(self, path: str | os.PathLike) -> None:
        """Writes the features.

        They are the arrays `names`, `features` and one for each fact.

        Raises:
            ValueError: If the path does not end in .npz.
        """
        check_suffix(path)
        arrays: dict[str, Any] = {"names": self.names, "features": self.values}
        with atomic_write(path) as partial, open(partial, "wb") as file:
            np.savez(file, **arrays, **self.facts)  # type: ignore[arg-type]


def embed(
    model: EvaluatedModel,
    files: Sequence[str],
    *,
    feature: str = "pre_logits",
    batch_size: int = 32,
    progress: bool = False,
) -> tuple[Embeddings, list[tuple[str, str]]]:
    """Returns the features of image files, and `(file, reason)` of those that cannot be read.

    Args:
        model: The model, from `predictions.build_evaluated`.
        files: Image files.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If no file can be read, or the model does not have the feature.
    """
    reasons = dict(undecodable(files))
    skipped = [(files[place], reason) for place, reason in reasons.items()]
    names = [file for place, file in enumerate(files) if place not in reasons]
    if not names:
        raise ValueError(f"There must be an image that can be read. Received: {skipped[0][1]}")
    examples = FileExamples(names, np.zeros(len(names)))
    features = model.features(examples, feature=feature, batch_size=batch_size, progress=progress)
    digest = weights_hash(model.model)
    facts = {"model": model.name, "weights_sha256": digest, "feature": feature}
    return Embeddings(names, features.values, facts), skipped


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
