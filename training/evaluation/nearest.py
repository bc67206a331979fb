"""Neighbours of images by the cosine of their features: the nearest, and their vote."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from keras_vit.prediction import highest

# Queries at once, and their similarities: 256 MiB.
_ROWS, _SIMILARITIES = 1024, 2**26


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

    Raises:
        ValueError: If the shapes do not fit, or `count` is not from 1 to N.
    """
    known, asked = _unit_rows(features), _unit_rows(queries)
    if known.shape[1] != asked.shape[1]:
        raise ValueError(
            "Features must have the same size. "
            f"Received: {known.shape[1]} and {asked.shape[1]}, of different models?"
        )
    if not 1 <= count <= len(known):
        raise ValueError(f"count must be from 1 to {len(known)}. Received: count={count}")
    numbers = np.empty((len(asked), count), "int64")
    cosines = np.empty((len(asked), count), "float32")
    rows = min(max(_SIMILARITIES // len(known), 1), _ROWS)
    for start in range(0, len(asked), rows):
        found = asked[start : start + rows] @ known.T
        for row, similarities in enumerate(found, start):
            numbers[row] = highest(similarities, count)
            cosines[row] = similarities[numbers[row]]
    return numbers, cosines


def neighbour_accuracy(
    train_features: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    test_features: npt.ArrayLike,
    test_labels: npt.ArrayLike,
    *,
    count: int = 20,
) -> float:
    """Returns the accuracy of the vote of the nearest training images.

    Each has one vote; ties go to the class with the lowest number, as in scikit-learn.

    Args:
        train_features: `(N, D)`.
        train_labels: Class numbers `(N,)`.
        test_features: `(M, D)`.
        test_labels: Class numbers `(M,)`.
        count: Neighbours, k; at most N are taken.

    Returns:
        A share in [0, 1].
    """
    labels = np.asarray(train_labels)
    numbers, _ = nearest(train_features, test_features, min(count, len(labels)))
    votes = np.sort(labels[numbers], axis=1)
    places = np.arange(votes.shape[1])
    # Equal votes before each one: the last vote of the class with the most has the most.
    starts = np.where(np.diff(votes, axis=1, prepend=votes[:, :1]) != 0, places, 0)
    repeats = places - np.maximum.accumulate(starts, axis=1)
    chosen = np.take_along_axis(votes, repeats.argmax(axis=1)[:, np.newaxis], axis=1)[:, 0]
    return float(np.mean(chosen == np.asarray(test_labels)))


def _unit_rows(values):
    rows = np.asarray(values, "float32")
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"Features must have the shape (N, D). Received: shape={rows.shape}")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
