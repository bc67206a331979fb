"""The decision of a classifier, found on images that neither trained it nor chose its weights."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.description.class_labels import Labels
from keras_vit.models.rebuild import with_unknown
from keras_vit.training.evaluation.measures import (
    calibration_of,
    fit_temperature,
    scaled_probabilities,
)
from keras_vit.training.evaluation.risk import (
    ENOUGH,
    Bound,
    count_within,
    enough_answers,
    find_threshold,
    least_answered,
    what_would_pass,
)
from keras_vit.training.evaluation.scores import Scores
from keras_vit.training.settings import DecisionSettings
from keras_vit.utils.fields import required
from keras_vit.utils.intervals import exact_interval

HEADING = "## Unknown images"  # In the model card.

# The calibration images that choose the temperature and the candidates for thresholds.
CHOOSING_SHARE, MAX_CHOOSING = 0.2, 500

_RIDGE = 1e-3  # Added to the eigenvalues of X'X, in units of their mean.


def leverage_arrays(features: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the arrays by which the leverage of an image is computed.

    With the centered features X of training images, the leverage of x is
    `x' (X'X + l2 I)^-1 x`, the square of the length of `(x - center) factor`.

    Args:
        features: `(N, D)` of training images.
    """
    center = features.mean(axis=0)
    centered = features - center
    values, vectors = np.linalg.eigh(centered.T @ centered)
    values = np.maximum(values, 0) + _RIDGE * values.mean()
    factor = vectors / np.sqrt(values)
    return {"center": center.astype("float32"), "factor": factor.astype("float32")}


def leverages_of(features: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the leverage of each image, `(N,)`, as the model computes it."""
    projected = (features.astype("float32") - arrays["center"]) @ arrays["factor"]
    return (projected * projected).sum(axis=1, dtype="float64")


@dataclasses.dataclass(frozen=True)
class Decision:
    """When a classifier answers, and what it was found by on calibration images.

    An image is answered if its calibrated probability is at least the bound's threshold and its
    leverage at most `largest_leverage`.

    Args:
        settings: The bounds.
        temperature: T; probabilities are softmax(z / T).
        largest_leverage: The leverage above which an image is strange; None where none is.
        arrays: `center` `(D,)` and `factor` `(D, D)`; {} without a limit of the leverage.
        bound: The threshold, 0 where only strange images are refused, and the answers.
        images: Calibration images that were tested, strange ones too.
        strange: Images that are not answered as their leverage is too large.
        calibration_errors: Expected calibration error before and after the temperature.
        grouped: Whether one image of each group and of each content counted.
        recorded: Whether a run recorded what the model was trained on.
    """

    settings: DecisionSettings
    temperature: float
    largest_leverage: float | None
    arrays: Mapping[str, np.ndarray]
    bound: Bound
    images: int
    strange: int
    calibration_errors: tuple[float, float] = (math.nan, math.nan)
    grouped: bool = False
    recorded: bool = True

    def calibrated(self, model: keras.Model) -> keras.Model:
        """Returns a model with this decision in it, and "unknown" as its last output."""
        threshold = self.bound.threshold
        return with_unknown(model, self.temperature, threshold, self.largest_leverage, self.arrays)

    def to_json(self) -> dict[str, Any]:
        """Returns what it was found by, for `recipe.json`; the model holds the rest."""
        bound, settings = self.bound, self.settings
        return {
            "images": self.images,
            "answered": bound.answered,
            "wrong": bound.wrong,
            "strange": self.strange,
            "max_error": settings.max_error,
            "confidence": None if settings.max_error is None else settings.confidence,
            "holds_for": self.holds_for,
            "calibration_errors": list(self.calibration_errors),
        }

    @property
    def holds_for(self) -> str:
        """The photos that the bound is for: with groups, larger ones count no more than others."""
        which = "one photo of each group (copies are a group)," if self.grouped else "photos"
        if self.recorded:
            return f"{which} like the {self.images} held-out ones"
        return f"{which} like these {self.images}, if the model was not trained on any of them"

    @property
    def lines(self) -> list[str]:
        """What the decision promises and does, human-readable."""
        settings, lines = self.settings, []
        if settings.max_error is not None:
            lines.append(
                f"with {_percent(settings.confidence)} confidence at most {settings.max_error:.1%} "
                f"of the answers are wrong, for {self.holds_for}"
            )
        images, answered = self.images, self.bound.answered
        low, high = exact_interval(answered, images)
        share = f"answered {answered / images:.0%} ({low:.0%} to {high:.0%})"
        if self.bound.threshold == 0 and self.largest_leverage is None:
            share += "; it answers every photo, as the bound holds without a refusal"
        if self.largest_leverage is None:
            few = count_within(settings.strange, images + 1) < 1
            needed = f"{math.ceil(1 / settings.strange) - 1} tested photos"
            strange = "strange photos are not recognised, which needs "
            strange += needed if few else "the run's training images"
        else:
            strange = f"refused as strange at most {settings.strange:.1%} of known photos"
        before, after = self.calibration_errors
        worse = ", worse: more calibration photos choose it better" if after > before else ""
        change = f"calibration error {before:.3f} -> {after:.3f}{worse}"
        return [*lines, f"{share} · {strange}", f"temperature {self.temperature:.2f}: {change}"]


def find_decision(
    labels: Labels,
    scores: Scores,
    training_features: np.ndarray | None,
    settings: DecisionSettings,
    *,
    grouped: bool = False,
) -> Decision:
    """Returns when a classifier answers.

    A fifth of the images, at most 500, chooses the temperature and the candidates for the
    threshold; the bound, the limit of the leverage and all that is reported are of the others.

    Args:
        labels: The classes.
        scores: Scores of images that the model was neither trained on nor chosen by.
        training_features: Features `(N, D)` of training images; None without any, and then no
            image is recognised as strange.
        settings: The bounds.
        grouped: See `Decision`.

    Raises:
        ValueError: If there are too few images, a class without one, or no threshold within the
            bound.
    """
    check_counts(scores.labels, labels, settings, grouped=grouped)
    order = np.random.default_rng(0).permutation(len(scores))
    choosing, testing = map(np.sort, np.split(order, [_num_choosing(len(scores))]))
    temperature = fit_temperature(scores.logits[choosing], scores.labels[choosing])

    # Strange images, which are not answered.
    limit: float | None = None
    arrays: dict[str, np.ndarray] = {}
    is_familiar = np.ones(len(scores), bool)
    if training_features is not None:
        training_arrays = leverage_arrays(training_features)
        leverages = leverages_of(scores.features, training_arrays)
        limit = largest_leverage(np.sort(leverages[testing]), settings.strange)
        if limit is not None:  # There are enough images.
            arrays, is_familiar = training_arrays, leverages <= limit

    # The threshold of the others.
    confidence, is_right = _class_answers(scores, temperature)
    chosen, tested = (
        (confidence[part[is_familiar[part]]], is_right[part[is_familiar[part]]])
        for part in (choosing, testing)
    )
    count, wrong = len(tested[1]), int((~tested[1]).sum())
    bound = Bound(threshold=0.0, images=count, answered=count, wrong=wrong, holds=True)
    if settings.max_error is not None:
        limits = settings.max_error, settings.confidence
        bound = find_threshold(chosen, tested, max_error=limits[0], confidence=limits[1])
        if not bound.holds:
            raise ValueError(
                f"At most {settings.max_error:.1%} of the answers must be wrong, with "
                f"{_percent(settings.confidence)} confidence, and these photos do not show it. "
                f"Received: {bound.wrong} of {bound.answered} answers wrong, at the threshold "
                f"{bound.threshold:.3f} that {len(chosen[0])} other photos chose. "
                + what_would_pass(bound.wrong, bound.answered, *limits)
                + " Give more calibration photos, or a classifier with fewer errors. To raise "
                "--max-error until it passes would prove nothing; without a bound the classifier "
                "is used and exported as before."
            )
    before = calibration_of(*(values[testing] for values in _class_answers(scores)))
    after = calibration_of(confidence[testing], is_right[testing])
    return Decision(
        settings=settings,
        temperature=temperature,
        largest_leverage=limit,
        arrays=arrays,
        bound=bound,
        images=len(testing),
        strange=int((~is_familiar[testing]).sum()),
        calibration_errors=(before.expected_error, after.expected_error),
        grouped=grouped,
    )


def _num_choosing(count):
    """How many of the calibration images choose the temperature and the candidates."""
    return min(int(count * CHOOSING_SHARE), MAX_CHOOSING)


def _with_choosing(count):
    """How many calibration images are needed, so that so many are tested."""
    return next(n for n in itertools.count(count) if n - _num_choosing(n) >= count)


def enough_images(accuracy: float, settings: DecisionSettings) -> int | None:
    """Returns how many calibration images would do where all of them are answered.

    With as many, `find_decision` finds a threshold in `risk.ENOUGH` of all draws or more.

    Args:
        accuracy: The probability of a right answer.
        settings: The bounds.

    Returns:
        The images, those that choose the candidates too; None where no number would do.
    """
    max_error = required(settings.max_error, "max_error")
    answered = enough_answers(1 - accuracy, max_error, settings.confidence)
    if answered is None:
        return None
    return _with_choosing(math.ceil(answered / (1 - settings.strange)))


def about_size(
    accuracy: float, of: str, held_out: int, settings: DecisionSettings, *, grouped: bool
) -> str:
    """Returns how many photos or groups are held out, and how many would do, human-readable.

    Args:
        accuracy: The share of right answers, and
        of: what it is of, human-readable.
        held_out: The calibration images, one of each group.
        settings: The bounds.
        grouped: See `Decision`.
    """
    unit = "groups" if grouped else "photos"
    max_error = required(settings.max_error, "max_error")
    given = f"{held_out:,} {unit} to calibrate; {accuracy:.1%} right {of}"
    errors = f"at most {max_error:.1%} of errors"
    enough = enough_images(accuracy, settings)
    if enough is not None:
        aim = f"to answer all with {errors}, in {ENOUGH:.0%} of draws"
        return f"{given}: {enough:,} {unit} would do {aim}"
    # At best all wrong answers are refused, and no right one.
    least = least_answered(max_error, settings.confidence)
    least = _with_choosing(math.ceil(least / max(accuracy, 1e-9)))
    return (
        f"{given}: it must refuse some to keep to {errors}, however many there are; to choose "
        f"which, it needs at least {least:,} {unit}, and more unless the wrong answers are the "
        "least sure"
    )


def check_counts(
    given: np.ndarray, labels: Labels, settings: DecisionSettings, *, grouped: bool = False
) -> None:
    """Raises ValueError unless there are enough images for a decision, before anything is computed.

    Args:
        given: The labels of the calibration images, `(N,)`.
        labels: The classes.
        settings: The bounds.
        grouped: See `Decision`.
    """
    settings.check(labels)
    names = labels.names or ()
    counts = np.bincount(given, minlength=len(names))
    absent = [name for name, count in zip(names, counts, strict=True) if not count]
    if absent:
        raise ValueError(
            "Every class must have calibration images. Received: none of "
            f"{', '.join(absent[:5])}{', ...' if len(absent) > 5 else ''}"
        )
    needed, what = 1, "A decision needs at least"
    if settings.max_error is not None:
        needed = least_answered(settings.max_error, settings.confidence)
        what = (
            f"At most {settings.max_error:.1%} of errors with {_percent(settings.confidence)} "
            f"confidence needs at least {needed} answered photos without an error, so"
        )
    least = max(_with_choosing(needed), math.ceil(1 / CHOOSING_SHARE))
    if len(given) < least:
        unit = "groups of calibration photos" if grouped else "calibration photos"
        raise ValueError(f"{what} {least} {unit}. Received: {len(given)}")


def largest_leverage(leverages: np.ndarray, share: float) -> float | None:
    """Returns the leverage above which an image is strange.

    A new image like the others is above it with a probability of at most `share`, as it is above
    the k-th largest of n leverages with a probability of k / (n + 1). The limit lies in the middle
    between two leverages, so that rounding does not move an image across it.

    Args:
        leverages: The leverages of n images, in ascending order.
        share: Largest share of known images that are strange.

    Returns:
        The limit; None if there are too few images.
    """
    place = count_within(share, len(leverages) + 1)
    if place < 1:
        return None
    above = leverages[1 - place] if place > 1 else 2 * leverages[-1]
    return float((leverages[-place] + above) / 2)


def _class_answers(scores, temperature=1.0):
    """The confidence of each image, and whether its most probable class is right."""
    probabilities = scaled_probabilities(scores.logits, temperature)
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == scores.labels


def with_section(card: str, decision: Decision) -> str:
    """Returns the text of a model card with a section about a decision, the only one."""
    text, _, old = card.partition(f"\n{HEADING}\n")
    _, heading, rest = old.partition("\n## ")  # Sections that were added behind it.
    listed = "\n".join(f"- {line}" for line in decision.lines)
    return (
        f"{text}\n{HEADING}\n\n{listed}\n\nThe bound holds for {decision.holds_for}. No "
        f"bound is possible for photos of anything else.\n{heading}{rest}"
    )


def _percent(confidence):
    """A confidence in percent, never rounded to 100."""
    return f"{100 * confidence:.10g}%"
