"""Labels that the features doubt, by predictions that did not use the image.

The predictions are left-out scores of a ridge regression: about 1 for the class of an image and 0
for the others. A doubt is ranked by how far another class is ahead of the label. How many doubted
labels are wrong, the features alone do not tell: a heap of apples and an apple in a hand are as far
apart as two classes, and right. A person counts them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

# Among images of two classes that are named one of both, the mean share that is named the other:
# above it, the two are called confused. Chance is 0.5.
MOST_CONFUSED = 0.2
UNCLEAR = 0.25  # Share of the images that the features agree with, which are the least clear.


@dataclasses.dataclass(frozen=True)
class LabelDoubts:
    """How far the label of each image can be doubted.

    Args:
        named: The class with the highest score of each image, int `(N,)`.
        proposed: The class that each image most likely has, other than its label, int `(N,)`.
        score: How far the proposed class is ahead of the label, `(N,)`; negative where the label
            is ahead. Scores of a class of few images are low, so they are compared with the mean
            score that the class has for its own images.
        least: The score from which a label is listed.
        confused: Pairs of classes that the features confuse, the worst first. Wrong labels between
            them are not seen.
    """

    named: np.ndarray
    proposed: np.ndarray
    score: np.ndarray
    least: float
    confused: list[tuple[int, int]]

    def ranked(self) -> np.ndarray:
        """Returns the numbers of the images that are listed, the most doubtful first, `(M,)`."""
        order = np.argsort(-self.score, kind="stable")
        return order[self.score[order] >= self.least]


def doubts_of_classes(
    scores: Callable[[], Iterable[tuple[np.ndarray, np.ndarray]]], labels: np.ndarray
) -> LabelDoubts:
    """Returns the doubts of labels, in memory that does not grow with images times classes.

    A label is listed if another class is as far ahead of it as the label is where the features
    agree with it, except for the least clear quarter of these images.

    Args:
        scores: Function that yields places of some images, and their left-out scores `(n, K)`; all
            images once.
        labels: Class numbers `(N,)`.
    """
    count, own = len(labels), np.zeros(len(labels))
    named, proposed, score = np.zeros(count, int), np.zeros(count, int), np.zeros(count)
    for places, rows in scores():
        named[places] = rows.argmax(axis=1)
        own[places] = rows[np.arange(len(places)), labels[places]]
        classes = rows.shape[1]
    images = np.bincount(labels, minlength=classes)
    usual = np.bincount(labels, own, minlength=classes) / np.maximum(images, 1)
    for places, rows in scores():
        row = np.arange(len(places))
        ahead = rows - usual
        label = ahead[row, labels[places]]
        ahead[row, labels[places]] = -np.inf
        proposed[places] = ahead.argmax(axis=1)
        score[places] = ahead.max(axis=1) - label
    agreed = -score[score < 0]
    least = float(np.quantile(agreed, UNCLEAR)) if len(agreed) else np.inf
    return LabelDoubts(named, proposed, score, least, _confused(labels, named))


def _confused(labels, named):
    """Returns the pairs of classes of which many images are named the other, the worst first."""
    counts = Counter(zip(labels.tolist(), named.tolist(), strict=True))
    pairs = {(min(pair), max(pair)) for pair in counts if pair[0] != pair[1]}

    def share(first, second):
        sides = ((first, second), (second, first))
        named_other = [
            counts[side] / max(counts[side] + counts[side[0], side[0]], 1) for side in sides
        ]
        return sum(named_other) / 2

    shares = {pair: share(*pair) for pair in pairs}
    worst = sorted(shares, key=lambda pair: (-shares[pair], pair))
    return [pair for pair in worst if shares[pair] > MOST_CONFUSED]
