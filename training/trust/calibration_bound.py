"""The decision of a classifier, found on images that neither trained it nor chose its weights."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.description.class_labels import Labels
from keras_vit.models.rebuild import with_unknown
from keras_vit.training.data import Examples
from keras_vit.training.evaluation.calibration import (
    calibration_of,
    fit_temperature,
    scaled_probabilities,
)
from keras_vit.training.evaluation.intervals import exact_interval
from keras_vit.training.evaluation.risk import (
    count_within,
    find_threshold,
    images_needed,
    is_bounded,
    least_answered,
)
from keras_vit.training.settings.decisions import DecisionSettings

from .calibration_scores import Scores, leverage_arrays, leverages_of

HEADING = "## Unknown images"  # In the model card.

# The calibration images that choose the temperature and the candidates for thresholds.
CHOOSING_SHARE, MAX_CHOOSING = 0.2, 500


@dataclasses.dataclass(frozen=True)
class Decision:
    """When a classifier answers, and what it was found by on calibration images.

    An image is answered if its calibrated probability is at least `threshold` and its leverage at
    most `largest_leverage`.

    Args:
        temperature: T; probabilities are softmax(z / T).
        largest_leverage: The leverage above which an image is strange; None where none is.
        arrays: `center` `(D,)` and `factor` `(D, D)`; {} without a limit of the leverage.
        images: Calibration images that the bound was tested on.
        strange: Images that are not answered as their leverage is too large.
        threshold: The least probability of an answer; 0 where only strange images are refused.
        max_error: The bound on the share of wrong answers, or None.
        confidence: The probability with which the bound holds; None without a bound.
        answered: Images that are answered.
        wrong: Wrong answers among these.
        calibration_errors: Expected calibration error before and after the temperature.
        lines: The result, human-readable.
    """

    temperature: float
    largest_leverage: float | None
    arrays: Mapping[str, np.ndarray]
    images: int
    strange: int
    threshold: float = 0.0
    max_error: float | None = None
    confidence: float | None = None
    answered: int = 0
    wrong: int = 0
    calibration_errors: tuple[float, float] = (math.nan, math.nan)
    lines: tuple[str, ...] = ()

    def calibrated(self, model: keras.Model) -> keras.Model:
        """Returns a model with this decision in it, and "unknown" as its last output."""
        return with_unknown(
            model, self.temperature, self.threshold, self.largest_leverage, self.arrays
        )

    def to_json(self) -> dict[str, Any]:
        """Returns what it was found by, for `recipe.json`; the model holds the rest."""
        return {
            "images": self.images,
            "answered": self.answered,
            "wrong": self.wrong,
            "strange": self.strange,
            "max_error": self.max_error,
            "confidence": self.confidence,
            "calibration_errors": list(self.calibration_errors),
        }


def find_decision(
    labels: Labels,
    known: Scores,
    trained: np.ndarray | None,
    settings: DecisionSettings,
) -> Decision:
    """Returns when a classifier answers.

    A fifth of the images, at most 500, chooses the temperature and the candidates for the
    threshold; the bound, the limit of the leverage and all that is reported are of the others.

    Args:
        labels: The classes.
        known: Scores of images that the model was neither trained on nor chosen by.
        trained: Features `(N, D)` of training images; None without any, and then no image is
            recognised as strange.
        settings: The bounds.

    Raises:
        ValueError: If there are too few images, a class without one, or no threshold within the
            bound.
    """
    check_counts(known.labels, labels, settings)
    order = np.random.default_rng(0).permutation(len(known))
    split = np.split(order, [_num_choosing(len(known))])
    choosing, testing = parts = [known.at(np.sort(places)) for places in split]
    temperature = fit_temperature(choosing.logits, choosing.labels)
    limit: float | None = None
    arrays: dict[str, np.ndarray] = {}
    is_familiar = [np.ones(len(part), bool) for part in parts]
    if trained is not None:
        arrays = leverage_arrays(trained)
        leverages = [leverages_of(part.features, arrays) for part in parts]
        limit = largest_leverage(np.sort(leverages[1]), settings.strange)
        if limit is None:  # Too few images.
            arrays = {}
        else:
            is_familiar = [values <= limit for values in leverages]
    answers = [_class_answers(part, temperature) for part in parts]
    before, after = calibration_of(*_class_answers(testing)), calibration_of(*answers[1])
    familiar = [
        (confidence[some], is_right[some])
        for (confidence, is_right), some in zip(answers, is_familiar, strict=True)
    ]
    threshold, answered, wrong = 0.0, len(familiar[1][1]), int((~familiar[1][1]).sum())
    if settings.max_error is not None:
        bound = find_threshold(
            *familiar, max_error=settings.max_error, confidence=settings.confidence
        )
        if not bound.holds:
            raise ValueError(_not_held(bound, familiar, settings))
        threshold, answered, wrong = bound.threshold, bound.answered, bound.wrong
    found = Decision(
        temperature=temperature,
        largest_leverage=limit,
        arrays=arrays,
        images=len(testing),
        strange=int((~is_familiar[1]).sum()),
        threshold=threshold,
        max_error=settings.max_error,
        confidence=None if settings.max_error is None else settings.confidence,
        answered=answered,
        wrong=wrong,
        calibration_errors=(before.expected_error, after.expected_error),
    )
    return dataclasses.replace(found, lines=tuple(summary(found, settings)))


def _num_choosing(count):
    """How many of the calibration images choose the temperature and the candidates."""
    return min(int(count * CHOOSING_SHARE), MAX_CHOOSING)


def _with_choosing(count):
    """How many calibration images are needed, so that so many are tested."""
    return next(n for n in itertools.count(count) if n - _num_choosing(n) >= count)


def distinct(*keys: Sequence) -> np.ndarray:
    """Returns the places of images that have no key in common, one of each at random.

    Copies and images of a group are no independent draws, which the bound is for.

    Args:
        *keys: The content of each image, its group and so on, each `(N,)`.
    """
    seen: list[set] = [set() for _ in keys]
    found = []
    for place in np.random.default_rng(0).permutation(len(keys[0])):
        of_image = [key[place] for key in keys]
        if not any(key in known for key, known in zip(of_image, seen, strict=True)):
            found.append(place)
        for key, known in zip(of_image, seen, strict=True):
            known.add(key)
    return np.sort(np.array(found, "int64"))


def counted(
    examples: Examples, groups: Mapping[str, int] | None, log: Callable[[str], object]
) -> Examples:
    """Returns the calibration images that count: one of each content and of each group.

    Args:
        examples: The calibration images.
        groups: The group of each image by its name; None where images are not grouped.
        log: Receives a line about the others.
    """
    numbers = examples.fingerprints()
    if numbers is None:  # Record files, all of which are read now.
        numbers = Examples.fingerprints(examples)
    contents = [number or name for number, name in zip(numbers, examples.names, strict=True)]
    of_images = [(groups or {}).get(name, name) for name in examples.names]
    places = distinct(contents, of_images)
    if left := len(examples) - len(places):
        log(
            f"split   {left} of the {len(examples)} calibration images do not count: copies, or of "
            "one group with another"
        )
    return examples.take(places)


def check_counts(given: np.ndarray, labels: Labels, settings: DecisionSettings) -> None:
    """Raises ValueError unless there are enough images for a decision, before anything is computed.

    Args:
        given: The labels of the calibration images, `(N,)`.
        labels: The classes.
        settings: The bounds.
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
    if not _num_choosing(len(given)):
        raise ValueError(
            f"A decision must have at least {math.ceil(1 / CHOOSING_SHARE)} calibration photos. "
            f"Received: {len(given)}"
        )
    if settings.max_error is not None:
        needed = least_answered(settings.max_error, settings.confidence)
        if len(given) - _num_choosing(len(given)) < needed:
            raise ValueError(
                f"At most {settings.max_error:.1%} of errors with {_percent(settings.confidence)} "
                f"confidence needs at least {needed} answered photos without an error, so "
                f"{_with_choosing(needed)} calibration photos. Received: {len(given)}"
            )


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


def _not_held(bound, familiar, settings):
    """What failed, and how many photos would do, for an error."""
    limits = settings.max_error, settings.confidence
    counts = range(bound.wrong, -1, -1)
    allowed = next((n for n in counts if is_bounded(n, bound.answered, *limits)), None)
    few = "too few answers" if allowed is None else f"where at most {allowed} may be"
    needed = images_needed(*map(np.concatenate, zip(*familiar, strict=True)), *limits)
    return (
        f"The threshold {bound.threshold:.3f}, chosen by {len(familiar[0][0])} of the photos, must "
        f"keep the errors of the others below {settings.max_error:.1%} with "
        f"{_percent(settings.confidence)} confidence. Received: {bound.wrong} wrong of "
        f"{bound.answered} answers, {few}. "
        + ("No number of" if needed is None else f"About {_with_choosing(needed):,}")
        + " calibration photos like these would pass four times of five. Raising --max-error until "
        "it passes is what the bound forbids"
    )


def summary(found: Decision, settings: DecisionSettings) -> list[str]:
    """Returns what a decision promises and does, a line each."""
    photos = f"photos like the {found.images} held-out ones"
    lines = []
    if found.max_error is not None:
        lines.append(
            f"with {_percent(found.confidence)} confidence at most {found.max_error:.1%} of the "
            f"answers are wrong, for {photos}"
        )
    low, high = exact_interval(found.answered, found.images)
    answered = f"answered {found.answered / found.images:.0%} ({low:.0%} to {high:.0%})"
    if found.largest_leverage is None:
        few = count_within(settings.strange, found.images + 1) < 1
        needed = f"{math.ceil(1 / settings.strange) - 1} tested photos"
        strange = "strange photos are not recognised, which needs "
        strange += needed if few else "the run's training images"
    else:
        strange = f"refused as strange at most {settings.strange:.1%} of known photos"
    lines.append(f"{answered} · {strange}")
    before, after = found.calibration_errors
    line = f"temperature {found.temperature:.2f}: calibration error {before:.3f} -> {after:.3f}"
    if after > before:
        line += ", worse: more calibration photos choose it better"
    lines.append(line)
    return lines


def with_section(card: str, decision: Decision) -> str:
    """Returns the text of a model card with a section about a decision, the only one."""
    text, _, old = card.partition(f"\n{HEADING}\n")
    _, heading, rest = old.partition("\n## ")  # Sections that were added behind it.
    listed = "\n".join(f"- {line}" for line in decision.lines)
    return (
        f"{text}\n{HEADING}\n\n{listed}\n\nThe bound holds for photos like the held-out ones. No "
        f"bound is possible for photos of anything else.\n{heading}{rest}"
    )


def _percent(confidence):
    """A confidence in percent, never rounded to 100."""
    return f"{100 * confidence:.10g}%"
