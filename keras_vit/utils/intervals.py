"""Intervals of a share, such as an accuracy."""

from __future__ import annotations

import statistics

from scipy.special import betaincinv

CONFIDENCE = 0.95
_QUANTILE = (1 + CONFIDENCE) / 2  # The level of two-sided intervals.


def exact_interval(count: float, total: float) -> tuple[float, float]:
    """Returns the exact 95% interval of a share (Clopper and Pearson, 1934).

    Args:
        count: The successes.
        total: The trials, at least 1.
    """
    low = betaincinv(count, total - count + 1, 1 - _QUANTILE) if count else 0.0
    high = betaincinv(count + 1, total - count, _QUANTILE) if count < total else 1.0
    return float(low), float(high)


def wilson_interval(count: float, total: float) -> tuple[float, float]:
    """Returns the 95% interval of a share by Wilson (1927).

    Args:
        count: The successes; no whole number where `total` is what dependent trials are worth.
        total: The trials, at least 1.
    """
    z, share = statistics.NormalDist().inv_cdf(_QUANTILE), count / total
    middle = share + z**2 / (2 * total)
    reach = z * (share * (1 - share) / total + (z / (2 * total)) ** 2) ** 0.5
    low, high = ((middle + side * reach) / (1 + z**2 / total) for side in (-1, 1))
    # Rounding must not lead beyond a share of none or all.
    return (low if count else 0.0), (high if count < total else 1.0)
