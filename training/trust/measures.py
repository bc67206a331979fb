"""The numbers of a comparison of two classifiers, each with its 95% interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from keras_vit.training.evaluation.intervals import exact_interval, holm

from .paired import Pairs, mcnemar, tango_interval

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
class Outcomes:
    """What a classifier answers, image by image.

    Args:
        given: The name of the most probable class, `(N,)`.
        right: Whether it is the true class, bool `(N,)`.
        answered: Whether the decision answers the image, bool `(N,)`; None without a decision.
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
    """Returns the share of images with a property, with the exact interval, in percent."""
    found, count = int(has_it.sum()), len(has_it)

    def interval_with(factor):
        low, high = exact_interval(round(found * factor), round(count * factor))
        return 100 * low, 100 * high

    return Measure(metric, 100 * found / count, count, interval_with)
