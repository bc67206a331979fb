"""Intervals of shares and means, and p-values of several tests."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.stats

CONFIDENCE = 0.95

_QUANTILE = (1 + CONFIDENCE) / 2  # The level of two-sided intervals.


def exact_interval(count: float, total: float) -> tuple[float, float]:
    """Returns the exact 95% interval of a share (Clopper and Pearson, 1934).

    Args:
        count: The successes.
        total: The trials, at least 1.
    """
    low = scipy.stats.beta.ppf(1 - _QUANTILE, count, total - count + 1) if count else 0.0
    high = scipy.stats.beta.ppf(_QUANTILE, count + 1, total - count) if count < total else 1.0
    return float(low), float(high)


def wilson_interval(count: int, total: int) -> tuple[float, float]:
    """Returns the 95% interval of a share by Wilson (1927).

    Args:
        count: The successes.
        total: The trials, at least 1.
    """
    z, share = statistics.NormalDist().inv_cdf(_QUANTILE), count / total
    middle = share + z**2 / (2 * total)
    reach = z * (share * (1 - share) / total + (z / (2 * total)) ** 2) ** 0.5
    low, high = ((middle + side * reach) / (1 + z**2 / total) for side in (-1, 1))
    # Rounding must not lead beyond a share of none or all.
    return (low if count else 0.0), (high if count < total else 1.0)


def accuracy_text(accuracy: float, images: int) -> str:
    """Returns an accuracy with its 95% interval by Wilson, such as "86.4% (84.1 to 88.4)".

    The interval is of images that are drawn independently. Intervals narrower than a percent are
    printed with a further digit.

    Args:
        accuracy: The share of images with the right answer.
        images: The images, at least 1.
    """
    low, high = wilson_interval(round(accuracy * images), images)
    digits = 1 if high - low >= 0.01 else 2
    share, least, most = (f"{100 * value:.{digits}f}" for value in (accuracy, low, high))
    return f"{share}% ({least} to {most})"


class Share(float):
    """A share of images, printed by `accuracy_text`.

    Args:
        value: The share.
        images: The images.
    """

    _images: int

    def __new__(cls, value: float, images: int) -> Self:
        share = super().__new__(cls, value)
        share._images = images
        return share

    def __str__(self) -> str:
        return accuracy_text(float(self), self._images)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95% interval of the mean of values by Student's t, within 0 and 1.

    Args:
        values: Two values or more.
    """
    mean, count = statistics.fmean(values), len(values)
    reach = scipy.stats.t.ppf(_QUANTILE, count - 1) * statistics.stdev(values) / count**0.5
    return max(mean - float(reach), 0.0), min(mean + float(reach), 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values that are corrected for their number (Holm, 1979), in their order."""
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    corrected = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    result = np.empty(len(values))
    result[order] = np.minimum(corrected, 1)
    return result.tolist()
