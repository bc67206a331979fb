"""Odd images: tiny, nearly flat, turned twice, or far from all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from .photo_facts import PhotoFacts

UNREADABLE, TINY, FLAT, TURNED, FAR = "unreadable", "tiny", "flat", "turned twice", "far"

MIN_SIDE = 32  # Pixels of the shorter side.
TINY_SHARE = 0.25  # And of the median image's: CIFAR-10 is not tiny in itself.
MAX_FLAT = 4.0  # Standard deviation of grey values, of 255.
FALSE_DISCOVERIES = 0.01  # Expected share of wrong ones among the far images.

_NORMAL_84 = 0.994  # The quantile of a normal variable that 84% are below.


class OddImage(NamedTuple):
    """An odd image.

    Args:
        number: The number of the image.
        kind: "tiny", "flat", "turned twice" or "far".
        value: Pixels of the shorter side, the spread of grey values, or the adjusted p-value.
    """

    number: int
    kind: str
    value: float


def find_odd_images(facts: Sequence[PhotoFacts], leverages: np.ndarray) -> list[OddImage]:
    """Returns the odd images, by kind, the oddest first.

    Args:
        facts: Facts about the N images.
        leverages: Leverages of their features, `(N,)`; see `Ridge.leverages`.
    """
    sides = np.array([min(photo.width, photo.height) for photo in facts])
    contrasts = np.array([photo.contrast for photo in facts])
    turned = np.array([photo.turned_twice for photo in facts])
    tiny = (sides < MIN_SIDE) & (sides < TINY_SHARE * np.median(sides))
    far = far_p_values(leverages)
    return [
        *_sorted(TINY, sides, tiny),
        *_sorted(FLAT, contrasts, contrasts < MAX_FLAT),
        *_sorted(TURNED, np.zeros(len(facts)), turned),
        *_sorted(FAR, far, far <= FALSE_DISCOVERIES),
    ]


def far_p_values(leverages: np.ndarray) -> np.ndarray:
    """Returns how improbable leverages are, as p-values by Benjamini and Hochberg, `(N,)`.

    The logarithm of the leverage that an image would have as a new one, h / (1 - h), is compared
    with a normal distribution that has the median of the images and their spread above it. The
    images themselves are the only ones to compare with, so this finds a few among many and has no
    guarantee.
    """
    if len(leverages) < 20:
        return np.ones(len(leverages))
    new = np.log(leverages) - np.log1p(-leverages)
    middle, above = np.quantile(new, [0.5, 0.84])
    scores = (new - middle) / max((above - middle) / _NORMAL_84, 1e-9)
    return stats.false_discovery_control(stats.norm.sf(scores))


def _sorted(kind, values, chosen):
    numbers = np.flatnonzero(chosen)
    order = numbers[np.argsort(values[numbers], kind="stable")]
    return [OddImage(int(number), kind, float(values[number])) for number in order]
