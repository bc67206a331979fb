"""Two classifiers on the same images: exact McNemar, Tango's interval."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import scipy.optimize
import scipy.stats

from keras_vit.training.evaluation.intervals import CONFIDENCE


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Images by whether each of two classifiers has some property, such as a right answer.

    Args:
        both: Images for which both have it.
        only_old: Images for which only the old one has it.
        only_new: Images for which only the new one has it.
        neither: The other images.
    """

    both: float
    only_old: float
    only_new: float
    neither: float

    @classmethod
    def of(cls, old: np.ndarray, new: np.ndarray) -> Pairs:
        """Returns the counts of two properties, bool `(N,)`."""
        counts = (old & new, old & ~new, ~old & new, ~old & ~new)
        return cls(*(int(count.sum()) for count in counts))

    @property
    def count(self) -> float:
        """The images."""
        return self.both + self.only_old + self.only_new + self.neither

    @property
    def difference(self) -> float:
        """The share of the new classifier minus the share of the old one."""
        return (self.only_new - self.only_old) / self.count

    def times(self, factor: float) -> Pairs:
        """Returns the counts of so many times the images, with the same shares."""
        return Pairs(*(factor * count for count in dataclasses.astuple(self)))


def mcnemar(pairs: Pairs) -> float:
    """Returns the two-sided p-value of the exact test that both shares are equal (McNemar).

    Args:
        pairs: Whole numbers of images.
    """
    only_old, only_new = int(pairs.only_old), int(pairs.only_new)
    if only_old + only_new == 0:
        return 1.0
    return float(scipy.stats.binomtest(only_new, only_old + only_new).pvalue)


def score(pairs: Pairs, difference: float) -> float:
    """Returns the score statistic of a true difference of the shares (Tango, 1998).

    It is standard normal for many images: positive if more is seen than the difference.

    Args:
        pairs: The images.
        difference: The difference that is tested, above -1 and below 1.
    """
    count, gains, losses = pairs.count, pairs.only_new, pairs.only_old
    # The most likely share of losses, if this is the difference: the root of a x^2 + b x + c.
    a = 2 * count
    b = -gains - losses + (2 * count - gains + losses) * difference
    c = -losses * difference * (1 - difference)
    share = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = count * (2 * share + difference * (1 - difference))
    distance = gains - losses - count * difference
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def tango_interval(pairs: Pairs) -> tuple[float, float]:
    """Returns the 95% score interval of the difference of the shares (Tango, 1998).

    Tango, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17.

    Args:
        pairs: At least one image.
    """
    limit, edge = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)), 1 - 1e-12
    seen = min(max(pairs.difference, -edge), edge)

    def bound(sign):
        if sign * score(pairs, sign * edge) > -limit:
            return float(sign)
        ends = (seen, sign * edge)
        return float(scipy.optimize.brentq(lambda d: score(pairs, d) + sign * limit, *ends))

    return bound(-1), bound(1)
