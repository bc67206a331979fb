"""Two classifiers on the same images: numbers with 95% intervals, and gates that hold or fail."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.stats

from keras_vit.training.evaluation.measures import holm, independent_images
from keras_vit.training.evaluation.reports_by_task import ClassificationReport
from keras_vit.utils.intervals import CONFIDENCE, exact_interval
from keras_vit.utils.safe_text import for_line

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


HOLDS, FAILS, UNCLEAR = "holds", "fails", "cannot tell"

_GATE = re.compile(r"(\w+)\s*([<>])\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(%?)")
_EXAMPLE = '"top_1 > -0.5, negative_flips < 1%, class_recall > -3"'


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

    def scaled(self, factor: float) -> Pairs:
        """Returns the counts times a factor."""
        return Pairs(*(factor * count for count in dataclasses.astuple(self)))

    @property
    def difference(self) -> float:
        """The share of the new classifier minus the share of the old one."""
        return (self.only_new - self.only_old) / self.count


def mcnemar(pairs: Pairs) -> float:
    """Returns the two-sided p-value of the exact test that both shares are equal (McNemar).

    Args:
        pairs: The images, which are rounded to whole ones.
    """
    only_old, only_new = round(pairs.only_old), round(pairs.only_new)
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
class Measure:
    """A number of the comparison with its 95% interval, in the unit of its metric.

    A difference of two shares has Tango's interval, a share the exact one (Clopper and Pearson,
    1934).

    Args:
        metric: A key of `METRICS`.
        counts: The images of a difference; those with a property and all of a share.
        class_name: The class, of a number by class.
        worth: Independent images that an image is worth: below 1 where several show one thing. The
            interval is of these.
        p_value: The p-value of the exact test that both shares are equal, of a difference; by class
            corrected by Holm.
    """

    metric: str
    counts: Pairs | tuple[float, float]
    class_name: str | None = None
    p_value: float | None = None
    worth: float = 1.0

    @property
    def independent(self) -> Pairs | tuple[float, float]:
        """The counts in independent images."""
        if isinstance(self.counts, Pairs):
            return self.counts.scaled(self.worth)
        some, total = self.counts
        return some * self.worth, total * self.worth

    @property
    def value(self) -> float:
        """The number."""
        if isinstance(self.counts, Pairs):
            return 100 * self.counts.difference
        return 100 * self.counts[0] / self.counts[1]

    @property
    def count(self) -> int:
        """Images."""
        return int(self.counts.count if isinstance(self.counts, Pairs) else self.counts[1])

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval."""
        counts = self.independent
        low, high = tango_interval(counts) if isinstance(counts, Pairs) else exact_interval(*counts)
        return 100 * low, 100 * high

    @property
    def name(self) -> str:
        """The metric, with its class."""
        return self.metric if self.class_name is None else f"{self.metric} {self.class_name}"

    @property
    def p_value_text(self) -> str:
        """The p-value with four digits, "<0.0001" where they would be zeros; "" for None."""
        if self.p_value is None:
            return ""
        return f"{self.p_value:.4f}" if self.p_value >= 0.00005 else "<0.0001"

    def __str__(self) -> str:
        form = {POINTS: "{:+.2f}", PERCENT: "{:.2f}%"}[METRICS[self.metric]]
        value, low, high = map(form.format, (self.value, *self.interval))
        return f"{value} ({low} to {high})"


def measures_of(
    old: ClassificationReport,
    new: ClassificationReport,
    true: np.ndarray,
    class_names: Sequence[str],
    units: np.ndarray | None = None,
) -> list[Measure]:
    """Returns all numbers that can be compared, in the order of `METRICS`.

    Args:
        old: The report on OLD's answers to N images, at least 1.
        new: The report on NEW's answers to the same images.
        true: The class numbers of the images, int `(N,)`.
        class_names: The names of the classes; those without images have no number.
        units: The thing or group of each image, int from 0 `(N,)`, whose images are counted
            together; None where each image is another.
    """
    everything = np.ones(len(true), bool)
    of_unit = np.arange(len(true)) if units is None else units

    def difference(metric, has_old, has_new, chosen=everything, class_name=None):
        pairs = Pairs.of(has_old[chosen], has_new[chosen])
        changes = has_new[chosen].astype(float) - has_old[chosen]
        worth = independent_images(changes, of_unit[chosen]) / len(changes)
        p_value = mcnemar(pairs.scaled(worth))
        return Measure(metric, pairs, class_name, p_value, worth)

    def share(metric, has):
        worth = independent_images(has.astype(float), of_unit) / len(has)
        return Measure(metric, (int(has.sum()), len(has)), worth=worth)

    by_class = [
        difference("class_recall", old.right, new.right, of_class, name)
        for number, name in enumerate(class_names)
        if (of_class := true == number).any()
    ]
    p_values = holm([measure.p_value for measure in by_class])
    measures = [
        difference("top_1", old.right, new.right),
        share("negative_flips", old.right & ~new.right),
        share("positive_flips", ~old.right & new.right),
        share("agreement", old.answers == new.answers),
        *(
            dataclasses.replace(measure, p_value=p_value)
            for measure, p_value in zip(by_class, p_values, strict=True)
        ),
    ]
    answered = [report.is_answered for report in (old, new)]
    if any(images is not None for images in answered):
        has = [everything if images is None else images for images in answered]
        measures.append(difference("coverage", *has))
    return measures


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

    def __str__(self) -> str:
        return f"{self.gate}: {self.outcome}, {for_line(self.measure.name)} is {self.measure}"


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
    if match is None or match[1] not in METRICS:
        raise ValueError(
            f"A gate must be one of {', '.join(METRICS)}, then < or >, and a number, as in "
            f"{_EXAMPLE}. Received: {text!r}"
        )
    metric, sign, number, percent = match.groups()
    limit, is_share = float(number), METRICS[metric] == PERCENT
    low = 0 if is_share else -100
    if bool(percent) != is_share or not low <= limit <= 100 or abs(limit) == 100:
        unit = "percent, with %, from 0" if is_share else "points, without %, from -100"
        raise ValueError(f"The limit of {metric} must be in {unit} to 100. Received: {text!r}")
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
    if gate.margin(ordered[0].interval) > 0:
        return Verdict(gate, HOLDS, ordered[0])
    if outside := _outside(gate, ordered):
        return Verdict(gate, FAILS, outside[0])
    return Verdict(gate, UNCLEAR, ordered[0])


def _outside(gate, measures):
    """The numbers that are outside, of several classes after Holm's correction."""
    if any(measure.class_name is None for measure in measures):
        return [measure for measure in measures if gate.excludes(measure.interval)]
    sign = 1 if gate.above else -1
    scores = [sign * score(measure.independent, gate.limit / 100) for measure in measures]
    p_values = holm(scipy.stats.norm.cdf(scores))
    tested = zip(measures, p_values, strict=True)
    return [measure for measure, p_value in tested if p_value <= (1 - CONFIDENCE) / 2]
