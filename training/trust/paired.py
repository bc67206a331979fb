"""Two classifiers on the same images: each number of their comparison with its 95% interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.optimize
import scipy.stats

from keras_vit.training.evaluation.intervals import CONFIDENCE, exact_interval, holm

POINTS, PERCENT = "points", "percent"  # Units.

# The unit of each metric; docs/compare.md says what it is.
METRICS = {
    "top_1": POINTS,
    "negative_flips": PERCENT,
    "positive_flips": PERCENT,
    "agreement": PERCENT,
    "class_recall": POINTS,
    "coverage": POINTS,
}


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


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """What a classifier answers, image by image.

    Args:
        given: The name of the most probable class, `(N,)`.
        right: Whether it is the true class, bool `(N,)`.
        answered: Whether the image is not answered with "unknown", bool `(N,)`; None without it.
    """

    given: np.ndarray
    right: np.ndarray
    answered: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number of the comparison with its 95% interval, in the unit of its metric.

    Args:
        metric: A key of `METRICS`.
        value: The number.
        count: Images.
        interval_with: Function from a factor to the interval that so many times the images would
            have, if the shares stayed.
        class_name: The class, of a number by class.
        pairs: The images, of a difference of two shares.
        p_value: The p-value of the exact test that both are equal, of a difference of two shares;
            by class corrected by Holm.
    """

    metric: str
    value: float
    count: int
    interval_with: Callable[[float], tuple[float, float]]
    class_name: str | None = None
    pairs: Pairs | None = None
    p_value: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        return self.interval_with(1.0)

    @property
    def name(self) -> str:
        """The metric, with its class."""
        return self.metric if self.class_name is None else f"{self.metric} {self.class_name}"

    def __str__(self) -> str:
        form = {POINTS: "{:+.2f}", PERCENT: "{:.2f}%"}[METRICS[self.metric]]
        value, low, high = map(form.format, (self.value, *self.interval))
        return f"{value} ({low} to {high})"


def measures_of(
    old: Outcomes, new: Outcomes, true: np.ndarray, class_names: Sequence[str]
) -> list[Measure]:
    """Returns all numbers that can be compared, in the order of `METRICS`.

    Args:
        old: The answers of OLD to N images, at least 1.
        new: The answers of NEW to the same images.
        true: The class numbers of the images, int `(N,)`.
        class_names: The names of the classes; those without images have no number.
    """
    by_class = [
        difference("class_recall", Pairs.of(old.right[of_class], new.right[of_class]), name)
        for number, name in enumerate(class_names)
        if (of_class := true == number).any()
    ]
    p_values = holm([mcnemar(measure.pairs) for measure in by_class if measure.pairs])
    measures = [
        difference("top_1", Pairs.of(old.right, new.right)),
        share("negative_flips", old.right & ~new.right),
        share("positive_flips", ~old.right & new.right),
        share("agreement", old.given == new.given),
        *(
            dataclasses.replace(measure, p_value=p_value)
            for measure, p_value in zip(by_class, p_values, strict=True)
        ),
    ]
    if old.answered is not None or new.answered is not None:
        everything = np.ones(len(true), bool)
        answered = (everything if of.answered is None else of.answered for of in (old, new))
        measures.append(difference("coverage", Pairs.of(*answered)))
    return measures


def difference(metric: str, pairs: Pairs, class_name: str | None = None) -> Measure:
    """Returns the difference of two shares with Tango's interval, in points of percent."""

    def interval_with(factor):
        low, high = tango_interval(pairs.times(factor))
        return 100 * low, 100 * high

    count, value = int(pairs.count), 100 * pairs.difference
    return Measure(metric, value, count, interval_with, class_name, pairs, mcnemar(pairs))


def share(metric: str, has_it: np.ndarray) -> Measure:
    """Returns the share of images with a property, in percent, with the exact interval (Clopper
    and Pearson, 1934).
    """
    found, count = int(has_it.sum()), len(has_it)

    def interval_with(factor):
        low, high = exact_interval(factor * found, factor * count)
        return 100 * low, 100 * high

    return Measure(metric, 100 * found / count, count, interval_with)
