"""Accuracy by the number of photos, and what twice as many would give."""

from __future__ import annotations

import dataclasses

import numpy as np

from keras_vit.training.data.groups import class_groups
from keras_vit.training.evaluation.ridge import Decomposition

_PARTS = (8, 4, 2)  # Disjoint parts of the images, each of which is fitted alone.
_DRAWS = 2000
_MIN_OF_CLASS = 2  # Groups of a class in the smallest part; with less a class is often missing.


@dataclasses.dataclass(frozen=True)
class LearningCurve:
    """Left-out accuracy by the number of images, and the power law through it.

    Args:
        sizes: Numbers of images, ascending, the last one of all.
        accuracies: In [0, 1].
        doubled: The accuracy of twice as many images by the power law, error = a n^-b, or of all
            images if that is higher.
        interval: 95% of this number for accuracies drawn within their errors.
    """

    sizes: tuple[int, ...]
    accuracies: tuple[float, ...]
    doubled: float
    interval: tuple[float, float]


def learning_curve(
    features: np.ndarray,
    targets: np.ndarray,
    right: np.ndarray,
    groups: np.ndarray,
    l2_shares: tuple[float, ...],
    *,
    multilabel: bool = False,
    seed: int = 0,
) -> LearningCurve | None:
    """Returns the learning curve of ridge regression on features; None for too few images.

    The images are cut into 8, 4 and 2 parts at random, in proportion to the classes and with
    groups kept together, and each part is fitted alone.

    Args:
        features: `(N, D)`.
        targets: Whether each image has each class, `(N, K)`.
        right: Share of right answers for each image with all images, `(N,)`.
        groups: Group of each image, int `(N,)`.
        l2_shares: Regularisations, in units of the mean eigenvalue.
        multilabel: Whether an image may have any number of classes.
        seed: Seed of the parts.
    """
    if class_groups(targets, groups, targets.shape[1]).min() < _MIN_OF_CLASS * _PARTS[0]:
        return None
    rng = np.random.default_rng(seed)
    _, first, members = np.unique(groups, return_index=True, return_inverse=True)
    # Groups in the order of their class, at random within it: every 8th is in one part.
    order = np.lexsort((rng.random(len(first)), targets[first].argmax(axis=1)))
    place = np.empty(len(first), "int64")
    place[order] = np.arange(len(first))
    sizes, errors, deviations = [], [], []
    for parts in _PARTS:
        found = []
        for part in range(parts):
            rows = np.flatnonzero(place[members] % parts == part)
            decomposition = Decomposition(features[rows])
            ridge = decomposition.ridge(
                targets[rows], decomposition.l2_of(l2_shares), groups=groups[rows]
            )
            answers = right_answers(ridge.left_out_predictions, targets[rows], multilabel)
            found.append(1 - answers.mean())
        sizes.append(len(features) // parts)
        errors.append(float(np.mean(found)))
        deviations.append(float(np.std(found, ddof=1) / np.sqrt(parts)))
    sizes.append(len(features))
    errors.append(float(1 - right.mean()))
    deviations.append(0.0)

    # An error of 0 has no logarithm: half an image is wrong.
    values = np.maximum(errors, 0.5 / len(features))
    binomial = np.sqrt(values * (1 - values) / len(features))
    spread = np.maximum(binomial, deviations)
    drawn = values + rng.normal(size=(_DRAWS, len(values))) * spread
    law = _doubled(sizes, values[np.newaxis], spread / values)
    laws = _doubled(sizes, np.maximum(drawn, 0.5 / len(features)), spread / values)
    # A law may lie above the last error, which is low by chance or 0.
    doubled = min(law[0], errors[-1])
    low, high = np.quantile(1 - np.minimum(laws, np.maximum(drawn[:, -1], 0)), [0.025, 0.975])
    return LearningCurve(
        tuple(sizes),
        tuple(1 - error for error in errors),
        float(1 - doubled),
        (float(low), float(high)),
    )


def right_answers(predictions: np.ndarray, targets: np.ndarray, multilabel: bool) -> np.ndarray:
    """Returns the share of right answers for each image, `(N,)`.

    Args:
        predictions: Scores `(N, K)`, about 1 for the right class and 0 for others.
        targets: Whether each image has each class, `(N, K)`.
        multilabel: Whether each score is an answer, at 0.5; otherwise the highest one is.
    """
    if multilabel:
        return ((predictions > 0.5) == (targets > 0)).mean(axis=1)
    return (targets[np.arange(len(targets)), predictions.argmax(axis=1)] > 0).astype("float64")


def _doubled(sizes, errors, relative):
    """Returns the error of twice the last size, by power laws through errors `(draws, sizes)`."""
    weights = 1 / np.square(relative)
    x, y = np.log(np.array(sizes) / (2 * sizes[-1])), np.log(errors)
    mean = (weights * x).sum() / weights.sum()
    middle = (y @ weights) / weights.sum()
    slope = (y - middle[:, np.newaxis]) @ (weights * (x - mean)) / (weights * (x - mean) ** 2).sum()
    slope = np.minimum(slope, 0)  # More photos make nothing worse.
    return np.exp(middle - slope * mean)
