"""Gates of a comparison: conditions that hold, fail, or are undecided."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
import re
from collections.abc import Sequence

import numpy as np
import scipy.stats

from keras_vit.training.evaluation.intervals import CONFIDENCE, holm
from keras_vit.utils.safe_text import for_line

from .paired import METRICS, PERCENT, Measure, score

HOLDS, FAILS, UNCLEAR = "holds", "fails", "cannot tell"

_GATE = re.compile(r"(\w+)\s*([<>])\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(%?)")
_EXAMPLE = '"top_1 > -0.5, negative_flips < 1%, class_recall > -3"'

# Images for a verdict 4 times out of 5, by those for every other time: the true value must be
# further from the limit, by the quantile of 80%.
_FOUR_OF_FIVE = (1 + scipy.stats.norm.ppf(0.8) / scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)) ** 2
_FACTORS = np.geomspace(1, 1e6, 2000).tolist()


@dataclasses.dataclass(frozen=True)
class Gate:
    """A condition on a metric.

    Args:
        metric: A key of `METRICS`.
        above: Whether the metric must be above the limit; else below.
        limit: In the unit of the metric.
    """

    metric: str
    above: bool
    limit: float

    def __str__(self) -> str:
        unit = "%" if METRICS[self.metric] == PERCENT else ""
        return f"{self.metric} {'>' if self.above else '<'} {self.limit:g}{unit}"

    def margin(self, interval: tuple[float, float]) -> float:
        """Returns how far inside the limit the nearer end of an interval is."""
        return interval[0] - self.limit if self.above else self.limit - interval[1]

    def admits(self, interval: tuple[float, float]) -> bool:
        """Returns whether a whole interval is inside the limit."""
        return self.margin(interval) > 0

    def excludes(self, interval: tuple[float, float]) -> bool:
        """Returns whether a whole interval is outside."""
        return interval[1] < self.limit if self.above else interval[0] > self.limit


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the images say about a gate.

    Args:
        gate: The gate.
        outcome: `HOLDS`, `FAILS` or `UNCLEAR`.
        measure: The number that decides; of classes the one that fails or is unclear, or that is
            nearest to the limit.
    """

    gate: Gate
    outcome: str
    measure: Measure

    @functools.cached_property
    def needed(self) -> int | None:
        """The images for a verdict 4 times out of 5, if the shares stay; of that class alone.

        None if it is clear, or if no number would do, as the value lies at the limit.
        """
        gate, measure = self.gate, self.measure
        if self.outcome != UNCLEAR or measure.value == gate.limit:
            return None
        is_inside = (measure.value > gate.limit) == gate.above
        is_told = gate.admits if is_inside else gate.excludes
        place = bisect.bisect_left(
            _FACTORS, True, key=lambda factor: is_told(measure.interval_with(factor))
        )
        if place == len(_FACTORS):
            return None
        return math.ceil(measure.count * _FACTORS[place] * _FOUR_OF_FIVE)

    def __str__(self) -> str:
        line = f"{self.gate}: {self.outcome}, {for_line(self.measure.name)} is {self.measure}"
        if self.outcome == UNCLEAR:
            images = "images" if self.measure.class_name is None else "images of this class"
            count = f"about {self.needed:,}" if self.needed else "no number of"
            line += f"; {count} {images} would be needed instead of {self.measure.count:,}"
        return line


def parse_gates(text: str | None) -> tuple[Gate, ...]:
    """Returns the gates of a text such as "top_1 > -0.5, negative_flips < 1%".

    Raises:
        ValueError: If it cannot be parsed, names no metric, or has a limit of another unit.
    """
    if text is None:
        return ()
    return tuple(_parse_gate(part.strip()) for part in text.split(","))


def _parse_gate(text):
    match = _GATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"A gate must be a metric, < or >, and a number, as in {_EXAMPLE}. Received: {text!r}"
        )
    metric, sign, number, percent = match.groups()
    if metric not in METRICS:
        raise ValueError(f"A gate must name a metric: {', '.join(METRICS)}. Received: {text!r}")
    if (METRICS[metric] == PERCENT) != bool(percent):
        right = "in percent, with %" if METRICS[metric] == PERCENT else "in points, without %"
        raise ValueError(f"The limit of {metric} must be {right}. Received: {text!r}")
    limit, low = float(number), 0 if METRICS[metric] == PERCENT else -100
    if not low <= limit <= 100 or abs(limit) == 100:
        raise ValueError(f"The limit of {metric} must be from {low} to 100. Received: {text!r}")
    return Gate(metric, sign == ">", limit)


def judge(gate: Gate, measures: Sequence[Measure]) -> Verdict:
    """Returns what the images say about a gate.

    All classes must be inside for a gate on classes to hold, which needs no correction for their
    number; one that is outside makes it fail, which is corrected by Holm.

    Args:
        gate: The gate.
        measures: The numbers of its metric, one or one for each class.
    """
    ordered = sorted(measures, key=lambda measure: gate.margin(measure.interval))
    unclear = [
        Verdict(gate, UNCLEAR, measure) for measure in ordered if not gate.admits(measure.interval)
    ]
    if not unclear:
        return Verdict(gate, HOLDS, ordered[0])
    if outside := _outside(gate, ordered):
        return Verdict(gate, FAILS, outside[0])
    return max(unclear, key=lambda verdict: verdict.needed or math.inf)


def _outside(gate, measures):
    """The numbers that are outside, of several classes after Holm's correction."""
    if any(measure.class_name is None for measure in measures):
        return [measure for measure in measures if gate.excludes(measure.interval)]
    sign = 1 if gate.above else -1
    scores = [sign * score(measure.pairs, gate.limit / 100) for measure in measures]
    p_values = holm(scipy.stats.norm.cdf(scores))
    found = zip(measures, p_values, strict=True)
    return [measure for measure, p_value in found if p_value <= (1 - CONFIDENCE) / 2]
