"""Thresholds with a bound on the errors that holds for a finite number of images.

A classifier answers where its confidence is at least a threshold. The thresholds of some images are
the candidates, and are tested on others in a fixed sequence, from the most to the least confident:
"Learn then Test" (Angelopoulos et al., 2021, arXiv:2110.01052), with the exact tail of the
binomial distribution in place of a bound on it. The first images also choose where the sequence
begins, so that it does not end at once where few images are above a threshold.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.stats


@dataclasses.dataclass(frozen=True)
class Bound:
    """A threshold, and what it does on the images that it was tested on.

    Args:
        threshold: The least confidence of an answer.
        images: Images that it was tested on.
        answered: Those with at least this confidence.
        wrong: Wrong answers among these.
    """

    threshold: float
    images: int
    answered: int
    wrong: int


def least_answered(max_error: float, confidence: float) -> int:
    """Returns how many answered images without an error a bound needs; 149 for 2% at 95%.

    Args:
        max_error: The bound on the share of wrong answers.
        confidence: The probability with which it holds.
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-max_error))


def is_bounded(wrong: int, answered: int, max_error: float, confidence: float) -> bool:
    """Returns whether the share of wrong answers is at most `max_error` with this confidence.

    It is, if a share of `max_error` would give so few wrong answers with a probability of at most
    `1 - confidence`.
    """
    return bool(scipy.stats.binom.cdf(wrong, answered, max_error) <= 1 - confidence)


def interval(count: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the exact interval of a share (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    beta = scipy.stats.beta.ppf
    low = beta(tail, count, total - count + 1) if count else 0.0
    high = beta(1 - tail, count + 1, total - count) if count < total else 1.0
    return float(low), float(high)


def find_threshold(
    chosen: tuple[np.ndarray, np.ndarray],
    tested: tuple[np.ndarray, np.ndarray],
    *,
    max_error: float,
    confidence: float,
) -> Bound | None:
    """Returns the lowest threshold that keeps the share of wrong answers below a bound.

    Args:
        chosen: Confidence `(M,)` and whether the answer is right `(M,)`, of the images that choose
            the candidates and the first of them.
        tested: The same of other images, `(N,)`, on which the bound holds. Both are drawn from the
            same photos, independently.
        max_error: The bound on the share of wrong answers among the answered images.
        confidence: The probability with which it holds.

    Returns:
        The `Bound`; None if not even the first candidate is within the bound.
    """
    values = np.unique(chosen[0])
    # Between two confidences, so that rounding does not move an image across the threshold.
    candidates = np.append(0.0, (values[1:] + values[:-1]) / 2)[::-1]
    answered, wrong = _counts(*chosen, candidates)
    tested_answered, tested_wrong = _counts(*tested, candidates)
    share = len(tested[0]) / max(len(chosen[0]), 1)
    expected = np.maximum((answered * share).astype(int), 1)
    allowed = scipy.stats.binom.ppf(1 - confidence, expected, max_error)
    allowed -= scipy.stats.binom.cdf(allowed, expected, max_error) > 1 - confidence
    chances = scipy.stats.binom.cdf(allowed, expected, (wrong + 0.5) / (answered + 1))
    first = len(chances) - 1 - int(np.argmax(chances[::-1]))  # Ties go to more answers.
    found = None
    for place in range(first, len(candidates)):
        count, errors = int(tested_answered[place]), int(tested_wrong[place])
        if not is_bounded(errors, count, max_error, confidence):
            break
        found = Bound(float(candidates[place]), len(tested[0]), count, errors)
    return found


def _counts(confidences, right, thresholds):
    """How many are answered at each threshold, and how many of these are wrong."""
    order = np.argsort(-confidences, kind="stable")
    answered = np.searchsorted(-confidences[order], -thresholds, side="right")
    errors = np.append(0, np.cumsum(~np.asarray(right, bool)[order]))
    return answered, errors[answered]
