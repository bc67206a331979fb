"""Shortcuts: whether the class can be read from what a photo should not be known by.

Size, bytes, brightness, file format, camera, the border, or all but the centre: each is read by a
small ridge regression, whose leave-one-out predictions must be better than with permuted labels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from keras_vit.training.evaluation.intervals import holm
from keras_vit.training.evaluation.ridge import Decomposition

from .photo_facts import PhotoFacts

MAX_P_VALUE = 0.01  # After Holm's correction.
MIN_AUROC = 0.95  # One class against the others: a p-value alone finds every bright sky.

_MAX_IMAGES = 5000  # More make no p-value smaller than the permutations allow.
_PERMUTATIONS = 999
_AT_ONCE = 2**25  # Numbers of predictions in memory.
_BINS = 16  # Parts of a number, by quantiles.
_CAMERAS = 20  # The most frequent; the others are one.
_L2 = (1e-3, 1e-1, 1e1)  # In units of the mean eigenvalue.


class Shortcut(NamedTuple):
    """How well the classes can be recognised by something.

    Args:
        name: What.
        p_value: Share of permuted labels that are predicted as well, at least 1/1000.
        adjusted: The p-value after Holm's correction for all shortcuts.
        auroc: Area under the ROC curve of the class that is recognised best, in [0, 1].
        class_number: This class.
        images: The images of the class, the most typical first, int `(M,)`.
    """

    name: str
    p_value: float
    adjusted: float
    auroc: float
    class_number: int
    images: np.ndarray

    @property
    def found(self) -> bool:
        """Whether it is significant and so strong that a model may use it alone."""
        return self.adjusted <= MAX_P_VALUE and self.auroc >= MIN_AUROC


def find_shortcuts(
    facts: Sequence[PhotoFacts], targets: np.ndarray, groups: np.ndarray, *, seed: int = 0
) -> list[Shortcut]:
    """Returns all shortcuts that were looked for, whether found or not.

    Args:
        facts: Facts about the N images.
        targets: Whether each image has each class, `(N, K)`.
        groups: Group of each image, int `(N,)`; one image of each is used, so that the images are
            independent.
        seed: Seed of the choice of images and of the permutations.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(facts))
    _, one_of_each = np.unique(groups[order], return_index=True)
    chosen = np.sort(order[rng.permutation(one_of_each)[:_MAX_IMAGES]])
    values = targets[chosen].astype("float64")
    kept = np.flatnonzero((values.sum(axis=0) >= 2) & (values.sum(axis=0) <= len(values) - 2))
    if len(kept) == 0 or len(chosen) < 10:
        return []
    readings = _readings([facts[number] for number in chosen])
    found = [
        _tested(name, features, values[:, kept], kept, chosen, rng)
        for name, features in readings.items()
        if (features != features[0]).any()
    ]
    adjusted = holm([shortcut.p_value for shortcut in found])
    return [
        shortcut._replace(adjusted=value) for shortcut, value in zip(found, adjusted, strict=True)
    ]


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Returns the area under the ROC curve of scores `(N,)`; ties count half."""
    first, second = scores[positive], scores[~positive]
    return float(stats.mannwhitneyu(first, second).statistic) / (len(first) * len(second))


def _tested(name, features, targets, classes, images, rng):
    """Returns the shortcut of features `(N, D)`, without Holm's correction."""
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(_L2))
    predictions = ridge.left_out_predictions
    areas = [auroc(predictions[:, k], targets[:, k] > 0) for k in range(len(classes))]
    best = int(np.argmax(areas))

    # The statistic: the largest share of a class's variance that is predicted.
    variances = np.square(targets - targets.mean(axis=0)).sum(axis=0)
    errors = np.square(ridge.left_out_residuals).sum(axis=0)
    statistic = (1 - errors / variances).max()
    as_good, done, rows, count = 0, 0, len(targets), len(classes)
    while done < _PERMUTATIONS:
        some = min(max(1, _AT_ONCE // (rows * count)), _PERMUTATIONS - done)
        permuted = np.concatenate([targets[rng.permutation(rows)] for _ in range(some)], axis=1)
        residuals = decomposition.ridge(permuted, ridge.l2).left_out_residuals
        errors = np.square(residuals).sum(axis=0).reshape(some, count)
        as_good += int(((1 - errors / variances).max(axis=1) >= statistic).sum())
        done += some
    p_value = (1 + as_good) / (1 + _PERMUTATIONS)
    typical = np.argsort(-predictions[:, best], kind="stable")
    typical = typical[targets[typical, best] > 0]
    return Shortcut(name, p_value, p_value, areas[best], int(classes[best]), images[typical])


def _readings(facts):
    """Returns what the class may be read from: the name, and its features `(N, D)`."""
    numbers = {
        "width": [photo.width for photo in facts],
        "height": [photo.height for photo in facts],
        "bytes of the file": [photo.size for photo in facts],
        "brightness": [photo.brightness for photo in facts],
    }
    formats = [
        f"{photo.file_format} {'' if math.isnan(photo.quality) else round(photo.quality)}"
        for photo in facts
    ]
    return {
        **{name: _binned(np.array(values)) for name, values in numbers.items()},
        "file format and JPEG quality": _one_hot(formats),
        "camera": _one_hot([photo.camera for photo in facts]),
        "border": np.stack([photo.ring for photo in facts]),
        "surroundings": np.stack([photo.surroundings for photo in facts]),
    }


def _binned(values):
    """Returns which bin each number is in, and the number itself, scaled: `(N, bins + 1)`."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="lower"))
    # An edge has a separate bin: many images may have one width.
    places = np.searchsorted(edges, values, "left") + np.searchsorted(edges, values, "right")
    return (places[:, np.newaxis] == np.unique(places)).astype("float64")


def _one_hot(names):
    frequent = [name for name, _ in Counter(names).most_common(_CAMERAS)]
    return np.array([[name == other for other in frequent] for name in names], "float64")
