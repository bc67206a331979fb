"""The decision of a classifier, found on images that neither trained it nor chose its weights."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

import keras
import numpy as np

from keras_vit.answering import decision_hash
from keras_vit.description.class_labels import Labels
from keras_vit.description.decision import MISSED, Decision
from keras_vit.training.evaluation.calibration import calibration_of
from keras_vit.training.evaluation.intervals import exact_interval
from keras_vit.training.evaluation.risk import (
    Bound,
    count_within,
    find_threshold,
    least_answered,
)
from keras_vit.training.evaluation.temperature import fit_temperature, scaled_probabilities
from keras_vit.training.settings.decisions import DecisionSettings
from keras_vit.utils.fields import required

from .scores import Scores, leverage_arrays, leverages_of

# The calibration images that choose the temperature and the candidates for thresholds.
CHOOSING_SHARE, MAX_CHOOSING = 0.2, 500
MAX_LEVERAGES = 100  # Kept of the calibration images, for the familiarity.


@dataclasses.dataclass(frozen=True)
class FoundDecision:
    """A decision, with its arrays and what it was found by.

    Args:
        decision: When the classifier answers.
        labels: The classes; multi-label ones with their new thresholds.
        arrays: `center` `(D,)` and `factor` `(D, D)`; {} without a limit of the leverage.
        lines: The result, human-readable.
    """

    decision: Decision
    labels: Labels
    arrays: Mapping[str, np.ndarray]
    lines: tuple[str, ...]


def find_decision(
    model: keras.Model,
    labels: Labels,
    known: Scores,
    trained: np.ndarray | None,
    settings: DecisionSettings,
) -> FoundDecision:
    """Returns when a classifier answers.

    A fifth of the images, at most 500, chooses the temperature and the candidates for the
    threshold; the bound, the limit of the leverage and all that is reported are of the others.

    Args:
        model: From images to probabilities `(B, K)`.
        labels: Its classes.
        known: Scores of images that it was neither trained on nor chosen by.
        trained: Features `(N, D)` of training images; None without any, and then no image is
            recognised as strange.
        settings: The bounds.

    Raises:
        ValueError: If there are too few images, a class without one, or no threshold within the
            bound.
    """
    arrays = {} if trained is None else leverage_arrays(trained)
    leverages = leverages_of(required(known.features, "features"), arrays) if arrays else None
    found, labels = decide(labels, known, leverages, settings)
    arrays = {} if found.largest_leverage is None else arrays
    found = dataclasses.replace(found, sha256=decision_hash(model, arrays))
    return FoundDecision(found, labels, arrays, tuple(summary(found, settings)))


def decide(
    labels: Labels, known: Scores, leverages: np.ndarray | None, settings: DecisionSettings
) -> tuple[Decision, Labels]:
    """Returns when a classifier answers by its scores alone; see `find_decision`.

    Args:
        labels: Its classes.
        known: Logits and labels of images that it was neither trained on nor chosen by.
        leverages: The leverage of each, `(N,)`; None where no image is recognised as strange.
        settings: The bounds.

    Returns:
        The decision without the checksum, and the classes; multi-label ones with their new
        thresholds.
    """
    check_counts(known.labels, labels, settings)
    order = np.random.default_rng(0).permutation(len(known))
    chosen, tested = np.split(order, [_num_choosing(len(known))])
    chosen, tested = np.sort(chosen), np.sort(tested)
    choosing, testing = known.at(chosen), known.at(tested)
    temperature = fit_temperature(choosing.logits, choosing.labels)
    limit, kept = None, ()
    is_familiar = [np.ones(len(part), bool) for part in (choosing, testing)]
    if leverages is not None:
        limit, kept = _leverage_limit(np.sort(leverages[tested]), settings.strange)
        if limit is not None:
            is_familiar = [leverages[part] <= limit for part in (chosen, tested)]
    found = Decision(
        temperature=temperature,
        largest_leverage=limit,
        leverages=kept,
        images=len(testing),
        strange=int((~is_familiar[1]).sum()),
    )
    if labels.is_multilabel:
        return _with_label_thresholds(found, labels, testing, is_familiar[1], settings)
    return _with_threshold(found, labels, choosing, testing, is_familiar, settings), labels


def _num_choosing(count):
    """How many of the calibration images choose the temperature and the candidates."""
    return min(int(count * CHOOSING_SHARE), MAX_CHOOSING)


def check_counts(given: np.ndarray, labels: Labels, settings: DecisionSettings) -> None:
    """Raises ValueError unless there are enough images for a decision, before anything is computed.

    Args:
        given: The labels of the calibration images: `(N,)`, or multi-label `(N, K)`.
        labels: The classes.
        settings: The bounds.
    """
    settings.check(labels)
    names = labels.names or ()
    if labels.is_multilabel:
        counts = (given > 0).sum(axis=0)
    else:
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
        needed = least_answered(settings.max_error, settings.confidence_of_each)
        if len(given) - _num_choosing(len(given)) < needed:
            total = next(n for n in itertools.count(needed) if n - _num_choosing(n) >= needed)
            raise ValueError(
                f"At most {settings.max_error:.1%} of errors with {_percent(settings.confidence)} "
                f"confidence needs at least {needed} answered photos without an error, so {total} "
                f"calibration photos. Received: {len(given)}"
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


def _leverage_limit(leverages, share):
    """The limit of leverages, and some of them; (None, ()) for too few."""
    limit = largest_leverage(leverages, share)
    if limit is None:
        return None, ()
    count = min(len(leverages), MAX_LEVERAGES)
    kept = leverages[np.linspace(0, len(leverages) - 1, count).round().astype(int)]
    return limit, tuple(float(f"{value:.6g}") for value in kept)


def _with_threshold(found, labels, choosing, testing, is_familiar, settings):
    """The decision of a classifier with one class an image."""
    names = labels.names or ()
    parts = []
    for scores, familiar in zip((choosing, testing), is_familiar, strict=True):
        probabilities = scaled_probabilities(scores.logits, found.temperature)
        parts.append((probabilities, scores.labels, familiar))
    before = calibration_of(scaled_probabilities(testing.logits, 1.0), testing.labels)
    after = calibration_of(*parts[1][:2])
    found = dataclasses.replace(
        found, calibration_errors=(before.expected_error, after.expected_error)
    )
    if settings.max_error is None:
        return dataclasses.replace(found, answered=int(is_familiar[1].sum()))
    table, confidence = settings.parent_of, settings.confidence_of_each
    bound = _bound(parts, _class_answers, settings.max_error, confidence)
    if bound is None:
        raise ValueError(
            f"No threshold keeps the errors below {settings.max_error:.1%} with "
            f"{_percent(settings.confidence)} confidence: take more calibration photos or a larger "
            f"--max-error. Received: {_most_confident(parts[1])}"
        )
    found = dataclasses.replace(
        found,
        threshold=bound.threshold,
        max_error=settings.max_error,
        confidence=settings.confidence,
        answered=bound.answered,
        wrong=bound.wrong,
    )
    if not table:
        return found
    left = [
        (p[is_left], y[is_left], familiar[is_left])
        for p, y, familiar in parts
        for is_left in [p.max(axis=1) < bound.threshold]
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(table.values()))}
    of_class = np.array([numbers.get(table.get(name, ""), -1) for name in names])
    members = of_class[:, np.newaxis] == np.arange(len(numbers))

    def parent_answers(probabilities, labels):
        sums = probabilities @ members
        return sums.max(axis=1), sums.argmax(axis=1) == of_class[labels]

    by_parent = _bound(left, parent_answers, settings.max_error, confidence)
    if by_parent is None:
        return found
    return dataclasses.replace(
        found,
        parents=table,
        parent_threshold=by_parent.threshold,
        answered=bound.answered + by_parent.answered,
        wrong=bound.wrong + by_parent.wrong,
    )


def _class_answers(probabilities, labels):
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == labels


def _bound(parts, answers, max_error, confidence) -> Bound | None:
    """The lowest threshold within the bound for the familiar images of two parts."""
    chosen, tested = (
        answers(probabilities[familiar], labels[familiar])
        for probabilities, labels, familiar in parts
    )
    return find_threshold(chosen, tested, max_error=max_error, confidence=confidence)


def _most_confident(part):
    """What the most confident answers of the tested images are like, for an error."""
    probabilities, labels, familiar = part
    confidence, is_right = _class_answers(probabilities[familiar], labels[familiar])
    order = np.argsort(-confidence, kind="stable")[: max(len(confidence) // 2, 1)]
    wrong = int((~is_right[order]).sum())
    return f"{wrong} errors among the {len(order)} most confident of {len(labels)} photos"


def _with_label_thresholds(found, labels, testing, is_familiar, settings):
    """The decision and the thresholds of a multi-label classifier.

    By conformal risk control (Angelopoulos et al., 2022, arXiv:2208.02814): of n images with a
    label, the k lowest are missed by a threshold just above the k-th, and a new image is with a
    probability of at most (k + 1) / (n + 1). A strange image gets no label, whatever its
    probabilities are, and is the lowest.
    """
    probabilities = scaled_probabilities(testing.logits, found.temperature, is_multilabel=True)
    has = testing.labels > 0
    before = scaled_probabilities(testing.logits, 1.0, is_multilabel=True)
    found = dataclasses.replace(
        found,
        answered=found.images - found.strange,
        calibration_errors=tuple(_label_error(p, has) for p in (before, probabilities)),
    )
    share, error = settings.label_error
    if share is None:
        return found, labels
    probabilities = np.where(is_familiar[:, np.newaxis], probabilities, 0.0)
    thresholds = []
    for number, name in enumerate(labels.names):
        counted = has[:, number] if error == MISSED else ~has[:, number]
        values = np.sort(probabilities[counted, number])
        allowed = count_within(share, len(values) + 1) - 1
        if allowed < 0:
            kind = "with" if error == MISSED else "without"
            raise ValueError(
                f"At most {share:.1%} of {error} labels needs at least {math.ceil(1 / share) - 1} "
                f"photos {kind} the label. Received: {len(values)} for {name}"
            )
        strange = int((counted & ~is_familiar).sum())
        if error == MISSED and strange > allowed:
            raise ValueError(
                f"At most {share:.1%} of missed labels must include the photos that are refused "
                "as strange: take a smaller --strange or a larger --max-missed. "
                f"Received: {strange} strange photos of {len(values)} with {name}"
            )
        thresholds.append(_between(values, allowed, error))
    decided = probabilities > np.array(thresholds)
    wrong = (has & ~decided).sum() if error == MISSED else (~has & decided).sum()
    found = dataclasses.replace(found, max_error=share, error=error, wrong=int(wrong))
    return found, dataclasses.replace(labels, thresholds=tuple(thresholds))


def _between(values, allowed, error):
    """The threshold that puts `allowed` of the sorted values, or fewer, on the wrong side."""
    if error == MISSED:  # These are below it, and the next one and its ties are above.
        high = values[allowed]
        low = values[values < high].max(initial=0.0)
    else:
        place = len(values) - allowed
        low, high = values[place - 1], (values[place] if allowed else 1.0)
    return min(float((low + high) / 2), 1 - 1e-6)


def _label_error(probabilities, has):
    """The expected calibration error of all labels together."""
    pairs = np.stack([1 - probabilities.ravel(), probabilities.ravel()], axis=1)
    return calibration_of(pairs, has.ravel().astype(int)).expected_error


def summary(found: Decision, settings: DecisionSettings) -> list[str]:
    """Returns what a decision promises and does, a line each."""
    photos = f"photos like the {found.images} held-out ones"
    lines = []
    if found.error is not None:
        of = (
            "of the photos with a label lack it"
            if found.error == MISSED
            else ("of the photos without a label get it")
        )
        lines.append(f"on average at most {found.max_error:.1%} {of}, for {photos}")
    elif found.max_error is not None:
        lines.append(
            f"with {_percent(found.confidence)} confidence at most {found.max_error:.1%} of the "
            f"answers are wrong, for {photos}"
        )
    low, high = exact_interval(found.answered, found.images)
    answered = f"answered {found.answered / found.images:.0%} ({low:.0%} to {high:.0%})"
    if found.largest_leverage is None:
        strange = "strange photos are not recognised"
    else:
        strange = f"refused as strange at most {settings.strange:.1%} of known photos"
    lines.append(f"{answered} · {strange}")
    if settings.parents and not found.parents:
        lines.append("parents are not answered: no threshold on their sums is within the bound")
    before, after = found.calibration_errors or (math.nan, math.nan)
    lines.append(
        f"temperature {found.temperature:.2f}: calibration error {before:.3f} -> {after:.3f}"
    )
    return lines


def _percent(confidence):
    """A confidence in percent, never rounded to 100."""
    return f"{100 * confidence:.10g}%"
