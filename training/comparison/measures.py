"""The numbers of a comparison of two classifiers, each with its 95% interval."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from keras_vit.training.evaluation.calibration import NUM_BINS
from keras_vit.training.evaluation.intervals import CONFIDENCE, exact_interval, holm

from .paired import Pairs, mcnemar, tango_interval

POINTS, PERCENT, RATIO = "points", "percent", "ratio"  # Units.

# The unit and the meaning of each metric.
METRICS = {
    "top_1": (POINTS, "accuracy of NEW minus OLD's"),
    "negative_flips": (PERCENT, "images that OLD has right and NEW wrong"),
    "positive_flips": (PERCENT, "images that OLD has wrong and NEW right"),
    "agreement": (PERCENT, "images with the same answer of both, right or wrong"),
    "class_recall": (POINTS, "recall of NEW minus OLD's, of every class"),
    "calibration_error": (POINTS, "expected calibration error of NEW minus OLD's"),
    "coverage": (POINTS, "share of images that NEW answers minus OLD's"),
    "speed": (RATIO, "images per second of NEW's model by OLD's"),
}

_RESAMPLES = 1000
_WEIGHTS = 4_000_000  # Numbers of resampled images in memory at once.


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """What a classifier answers, image by image.

    Args:
        given: The name of the most probable class, `(N,)`.
        probability: Its probability, `(N,)`.
        right: Whether it is the true class, bool `(N,)`.
        answered: Whether the image is not answered with "unknown", bool `(N,)`; None without it.
    """

    given: np.ndarray
    probability: np.ndarray
    right: np.ndarray
    answered: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number of the comparison with its 95% interval, in the unit of its metric.

    Args:
        metric: A key of `METRICS`.
        value: The number.
        count: Images, or turns of a measurement of speed.
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
    def unit(self) -> str:
        """`POINTS` of percent, `PERCENT` or `RATIO`."""
        return METRICS[self.metric][0]

    @property
    def name(self) -> str:
        """The metric, with its class."""
        return self.metric if self.class_name is None else f"{self.metric} {self.class_name}"

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.text(self.value)} ({self.text(low)} to {self.text(high)})"

    def text(self, value: float) -> str:
        """Returns a number in the unit of the metric."""
        form = {POINTS: "{:+.2f}", PERCENT: "{:.2f}%", RATIO: "{:.3f}"}[self.unit]
        return form.format(value)

    def to_json(self) -> dict[str, Any]:
        """Returns the number as types of JSON."""
        low, high = self.interval
        found = {"metric": self.metric, "unit": self.unit, "value": self.value}
        found |= {"low": low, "high": high, "images": self.count}
        if self.unit == RATIO:
            found["turns"] = found.pop("images")
        if self.class_name is not None:
            found["class"] = self.class_name
        if self.pairs is not None:
            found |= dataclasses.asdict(self.pairs)
        return found if self.p_value is None else {**found, "p_value": self.p_value}


def measures_of(
    old: Outcomes,
    new: Outcomes,
    true: np.ndarray,
    class_names: Sequence[str],
    speed_ratios: Sequence[float] = (),
) -> list[Measure]:
    """Returns all numbers that can be compared, in the order of `METRICS`.

    Args:
        old: The answers of OLD to N images, at least 1.
        new: The answers of NEW to the same images.
        true: The class numbers of the images, int `(N,)`.
        class_names: The names of the classes; those without images have no number.
        speed_ratios: The speed of NEW's model by OLD's in each turn.
    """
    measures = [
        difference("top_1", Pairs.of(old.right, new.right)),
        share("negative_flips", old.right & ~new.right),
        share("positive_flips", ~old.right & new.right),
        share("agreement", old.given == new.given),
    ]
    by_class = [
        difference("class_recall", Pairs.of(old.right[of_class], new.right[of_class]), name)
        for number, name in enumerate(class_names)
        if (of_class := true == number).any()
    ]
    p_values = holm([mcnemar(measure.pairs) for measure in by_class if measure.pairs])
    measures += [
        dataclasses.replace(measure, p_value=float(p_value))
        for measure, p_value in zip(by_class, p_values, strict=True)
    ]
    measures.append(calibration_difference(old, new))
    if old.answered is not None or new.answered is not None:
        everything = np.ones(len(true), bool)
        answered = (everything if of.answered is None else of.answered for of in (old, new))
        measures.append(difference("coverage", Pairs.of(*answered)))
    if len(speed_ratios):
        measures.append(speed(speed_ratios))
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


def calibration_difference(old: Outcomes, new: Outcomes) -> Measure:
    """Returns the difference of the calibration errors with a bootstrap interval, in points.

    Images are drawn again, the same for both classifiers, `_RESAMPLES` times; the interval is from
    the percentiles.
    """
    count = len(old.right)
    rows = []  # By image and bin, how far the confidence is from the outcome: `(N, M)`.
    for outcomes in (old, new):
        bins = np.clip(np.ceil(outcomes.probability * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
        distances = np.zeros((count, NUM_BINS))
        distances[np.arange(count), bins] = outcomes.right - outcomes.probability
        rows.append(distances)

    def errors(weights):
        before, after = (np.abs(weights @ distances).sum(axis=1) for distances in rows)
        return 100 * (after - before) / count

    value = float(errors(np.ones((1, count)))[0])
    rng, drawn = np.random.default_rng(0), []
    at_once = max(_WEIGHTS // count, 1)
    for begin in range(0, _RESAMPLES, at_once):
        number = min(at_once, _RESAMPLES - begin)
        places = rng.integers(count, size=(number, count))
        places += count * np.arange(number)[:, np.newaxis]
        weights = np.bincount(places.ravel(), minlength=number * count).reshape(number, count)
        drawn.append(errors(weights.astype(float)))
    tails = [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]
    low, high = np.percentile(np.concatenate(drawn), tails).tolist()
    return Measure("calibration_error", value, count, _narrower(value, low, high))


def speed(ratios: Sequence[float]) -> Measure:
    """Returns the median ratio of the speeds, with the interval from the order of the turns.

    Args:
        ratios: The speed of NEW by OLD's number in each turn.
    """
    ordered, count = np.sort(np.asarray(ratios, float)), len(ratios)
    outside = int(scipy.stats.binom.ppf((1 - CONFIDENCE) / 2, count, 0.5))
    place = max(outside - 1, 0)
    low, high = float(ordered[place]), float(ordered[count - 1 - place])
    value = float(np.median(ordered))
    return Measure("speed", value, count, _narrower(value, low, high))


def _narrower(value, low, high):
    """The interval that so many times the images have: narrower by the root."""
    return lambda factor: (
        value + (low - value) / math.sqrt(factor),
        value + (high - value) / math.sqrt(factor),
    )
