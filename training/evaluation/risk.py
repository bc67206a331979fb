"""Thresholds with a bound on the errors that holds for a finite number of images.

A classifier answers where its confidence is at least a threshold. The thresholds of some images are
the candidates, and are tested on others in a fixed sequence, from the most to the least confident:
"Learn then Test" (Angelopoulos et al., 2021, arXiv:2110.01052). The first images also choose where
the sequence begins, so that it does not end at once where few images are above a threshold.

The test is exact, and for what a user can see: the share of wrong answers among as many new
answers. A bound on the expected share alone, by the tail of the binomial distribution, would be
exceeded there about twice as often as stated, as the new images vary as much as the tested ones.
"""

from __future__ import annotations

import bisect
import dataclasses
import math

import numpy as np
import scipy.stats

from keras_vit.utils.fields import required

ENOUGH = 0.8  # The share of draws in which as many answers as are enough are within their bound.
MOST_ANSWERS = 100_000

_EXACT = 1e-9  # 1 / 103 * 103 is 0.9999999999999999.


@dataclasses.dataclass(frozen=True)
class Bound:
    """A threshold, and what it does on the images that it was tested on.

    Args:
        threshold: The least confidence of an answer.
        images: Images that it was tested on.
        answered: Those with at least this confidence.
        wrong: Wrong answers among these.
        holds: Whether the bound holds there.
    """

    threshold: float
    images: int
    answered: int
    wrong: int
    holds: bool


def least_answered(max_error: float, confidence: float) -> int:
    """Returns how many answered images without an error a bound needs; 200 for 2% at 95%.

    For the expected share alone 149 are enough: `(1 - max_error)^n <= 1 - confidence`.

    Args:
        max_error: The bound on the share of wrong answers.
        confidence: The probability with which it holds.
    """
    count = math.ceil(math.log(1 - confidence) / math.log1p(-max_error))
    while not is_bounded(0, count, max_error, confidence):
        count += 1
    return count


def count_within(share: float, total: int) -> int:
    """Returns the largest count that is at most a share of a total, free of rounding."""
    return int(share * total + _EXACT)


def is_bounded(wrong: int, answered: int, max_error: float, confidence: float) -> bool:
    """Returns whether as many new answers have at most this share of wrong ones.

    If they had more, then of all wrong answers, in these and the new ones, at most `wrong` would be
    among these with a probability of at most `1 - confidence`: the exact test of Fisher (1935) for
    images in random order, whatever their distribution is.

    Args:
        wrong: Wrong answers.
        answered: Answers.
        max_error: The bound on the share of wrong answers.
        confidence: The probability with which it holds.
    """
    more = count_within(max_error, answered) + 1  # The least number above the bound.
    tail = scipy.stats.hypergeom.cdf(wrong, 2 * answered, wrong + more, answered)
    return bool(tail <= 1 - confidence)


def enough_answers(error: float, max_error: float, confidence: float) -> int | None:
    """Returns how many answers are within a bound in `ENOUGH` of all draws.

    It is the least number of a grid with steps of a fiftieth. A draw has a binomial number of wrong
    answers, and each number is tested by `is_bounded`, as the bound itself.

    Args:
        error: The probability that an answer is wrong, independently of the others.
        max_error: The bound on the share of wrong answers.
        confidence: The probability with which it holds.

    Returns:
        The number; None if not even `MOST_ANSWERS` would do.
    """
    count = least_answered(max_error, confidence)
    while error < max_error and count <= MOST_ANSWERS:
        passing = bisect.bisect_left(
            range(count), True, key=lambda n: not is_bounded(n, count, max_error, confidence)
        )
        if scipy.stats.binom.cdf(passing - 1, count, error) >= ENOUGH:
            return count
        count += max(count // 50, 1)
    return None


def what_would_pass(wrong: int, answered: int, max_error: float, confidence: float) -> str:
    """Returns what the test says of answers that are not within a bound, human-readable.

    Args:
        wrong: See `is_bounded`, as the others.
        answered: Answers, at least one.
        max_error: The bound.
        confidence: Its confidence.
    """
    shares = (count / answered for count in range(wrong, answered))
    share = next((s for s in shares if is_bounded(wrong, answered, s, confidence)), 1.0)
    passing = sum(is_bounded(n, answered, max_error, confidence) for n in range(wrong))
    text = (
        f"That is {wrong / answered:.1%}; of as many new answers up to {share:.1%} may be wrong. "
    )
    if passing:
        right = f"at most {passing - 1}" if passing > 1 else "none"
        text += f"It would hold with {right} of {answered} wrong"
    else:
        least = least_answered(max_error, confidence)
        text += (
            f"It would not hold with 0 of {answered} wrong either: it needs {least} answers "
            "without an error"
        )
    for count in map(round, answered * 1.05 ** np.arange(1, 100)):
        errors = round(count * wrong / answered)
        if is_bounded(errors, count, max_error, confidence):
            return f"{text}, or with {errors} of about {count}, the same share."
    return f"{text}."


def find_threshold(
    chosen: tuple[np.ndarray, np.ndarray],
    tested: tuple[np.ndarray, np.ndarray],
    *,
    max_error: float,
    confidence: float,
) -> Bound:
    """Returns the lowest threshold that keeps the share of wrong answers below a bound.

    Args:
        chosen: Confidence `(M,)` and whether the answer is right `(M,)`, of the images that choose
            the candidates and the first of them.
        tested: The same of other images, `(N,)`, on which the bound holds. Both are drawn from the
            same photos, independently.
        max_error: The bound on the share of wrong answers among the answered images.
        confidence: The probability with which it holds.

    Returns:
        The `Bound`; if not even the first candidate is within it, that candidate.
    """
    values = np.unique(chosen[0])
    # Between two confidences, so that rounding does not move an image across the threshold.
    candidates = np.append(0.0, (values[1:] + values[:-1]) / 2)[::-1]
    answered, wrong = _counts(*chosen, candidates)
    tested_answered, tested_wrong = _counts(*tested, candidates)
    share = len(tested[0]) / max(len(chosen[0]), 1)
    expected = np.maximum((answered * share).astype(int), 1)
    # About the errors that `is_bounded` allows; the difference of two shares varies more than one.
    tail = scipy.stats.norm.sf(math.sqrt(2) * scipy.stats.norm.isf(1 - confidence))
    allowed = scipy.stats.binom.ppf(tail, expected, max_error)
    allowed -= scipy.stats.binom.cdf(allowed, expected, max_error) > tail
    chances = scipy.stats.binom.cdf(allowed, expected, (wrong + 0.5) / (answered + 1))
    first = len(chances) - 1 - int(np.argmax(chances[::-1]))  # Ties go to more answers.
    bound = None
    for place in range(first, len(candidates)):
        count, errors = int(tested_answered[place]), int(tested_wrong[place])
        holds = is_bounded(errors, count, max_error, confidence)
        tried = Bound(float(candidates[place]), len(tested[0]), count, errors, holds)
        bound = bound or tried
        if not holds:
            break
        bound = tried
    return required(bound, "candidates")


def _counts(confidences, right, thresholds):
    """How many are answered at each threshold, and how many of these are wrong."""
    order = np.argsort(-confidences, kind="stable")
    answered = np.searchsorted(-confidences[order], -thresholds, side="right")
    errors = np.append(0, np.cumsum(~np.asarray(right, bool)[order]))
    return answered, errors[answered]
