"""How often a decision's bound holds, its coverage beside MAPIE's, and what strangers are refused.

    python benchmarks/decisions.py --data cifar10-images r14_vit_micro16_cifar10 vit_mini4_cifar10
    python benchmarks/decisions.py --simulate 300

The second draws scores from distributions, whose true errors are known, and needs no model: how
often they exceed the bound, of all draws and of those that find a threshold, with and without
copies in the calibration set, and how often the number of photos that an error names is enough.

Each of many random halves of the test images finds a decision, and the other half measures its
errors: a bound with 95% confidence may be exceeded in at most 5% of the halves.
"""

from __future__ import annotations

import argparse
import math
import re
import sys

import numpy as np
import scipy.stats

from keras_vit.description import Labels
from keras_vit.opening import open_predictor
from keras_vit.reports.report import markdown_table
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.evaluation.measures import calibration_of, scaled_probabilities
from keras_vit.training.evaluation.scores import MAX_TRAINING, Scores, compute_scores, distinct
from keras_vit.training.settings import DecisionSettings
from keras_vit.training.trust.calibration_bound import find_decision, leverages_of

TARGETS = (0.01, 0.02, 0.05, 0.10)
CONFIDENCE = 0.95
# Classes and their distance, the bound and the calibration images.
SIMULATED = (((10, 2.2), 0.1, 250), ((2, 1.2), 0.1, 250), ((10, 2.2), 0.2, 80))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifiers", nargs="*", help="folders, or names of packaged classifiers")
    parser.add_argument("--simulate", type=int, metavar="DRAWS", help="draw scores instead")
    parser.add_argument("--data", help="images with a test and a train part")
    parser.add_argument("--halves", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.simulate:
        print(table_of_draws(arguments.simulate))
    for name in arguments.classifiers:
        classifier = open_predictor(name)
        splits = open_source(DataSpec(arguments.data), verify=False).splits
        train = splits["train"]
        places = np.linspace(0, len(train) - 1, min(len(train), MAX_TRAINING)).round().astype(int)
        known, trained = (
            compute_scores(
                classifier.model,
                examples,
                classifier.preprocessing,
                batch_size=128,
                progress=True,
            )
            for examples in (splits["test"], train.take(np.unique(places)))
        )
        print(f"\n{name}, {len(known)} test images, {arguments.halves} random halves\n")
        print(table_of_halves(classifier, known, trained.features, arguments.halves))
        sys.stdout.flush()


def table_of_draws(draws: int) -> str:
    """Returns a row for each population and number of copies: how often a bound is exceeded."""
    rows = []
    for (classes, distance), target, count in SIMULATED:
        everything = _drawn(np.random.default_rng(10**6), classes, distance, 50_000)
        for copies, is_counted in ((1, True), (3, False), (3, True), (10, False), (10, True)):
            needed, risks = [], []
            for seed in range(draws):
                known = _drawn(np.random.default_rng(seed), classes, distance, count)
                contents = np.repeat(np.arange(count), copies)
                places = contents[distinct(contents)] if is_counted else contents
                risk = _true_risk(known.at(places), everything, target, needed)
                risks += [] if risk is None else [risk]
            found, above = len(risks), sum(risk > target for risk in risks)
            enough = "-"
            if copies == 1 and np.isfinite(np.median(needed or [math.inf])):
                enough = _share_found(
                    classes, distance, target, math.ceil(np.median(needed)), draws
                )
            rows.append(
                (
                    f"{classes} classes, {count} images, {target:.0%}",
                    f"{copies}" + ("" if is_counted else ", each counted"),
                    f"{found / draws:.0%}",
                    f"{above / draws:.1%}",
                    f"{above / found:.1%}" if found else "-",
                    enough,
                )
            )
    headings = (
        "population",
        "copies",
        "found",
        "above",
        "above, of found",
        "photos that an error names",
    )
    return markdown_table([headings, *rows])


def _share_found(classes, distance, target, count, draws):
    """How often as many photos as an error names find a threshold."""
    known = (_drawn(np.random.default_rng(seed), classes, distance, count) for seed in range(draws))
    found = [_true_risk(each, each, target, []) is not None for each in known]
    return f"{count:,}: {np.mean(found):.0%}"


def _drawn(random, classes, distance, count):
    """Scores of an overconfident classifier, whose classes overlap."""
    labels = random.integers(classes, size=count)
    logits = random.normal(size=(count, classes))
    logits[np.arange(count), labels] += distance
    return Scores(np.zeros((count, 1), "float32"), 2.5 * logits, labels)


def _true_risk(known, everything, target, needed):
    """The share of wrong answers of all; None without a decision, whose photos are then noted."""
    labels = Labels(tuple(map(str, range(known.logits.shape[1]))))
    settings = DecisionSettings(max_error=target, confidence=CONFIDENCE)
    try:
        decision = find_decision(labels, known, None, settings)
    except ValueError as error:
        named = re.search(r"About ([\d,]+) calibration", str(error))
        needed += [int(named[1].replace(",", "")) if named else math.inf]
        return None
    answered = scaled_probabilities(everything.logits, decision.temperature).max(axis=1)
    is_wrong = everything.logits.argmax(axis=1) != everything.labels
    return is_wrong[answered >= decision.bound.threshold].mean()


def table_of_halves(classifier, known: Scores, trained: np.ndarray, halves: int) -> str:
    """Returns a row for each target: how often it is exceeded, coverage, and MAPIE's beside it."""
    rows = []
    for target in TARGETS:
        measured = [
            _half(classifier, known, trained, target, np.random.default_rng(seed))
            for seed in range(halves)
        ]
        found = [row for row in measured if row is not None]
        if not found:
            rows.append((f"{target:.0%}", *("-" for _ in range(5)), f"{halves}", "-"))
            continue
        risks, coverages, errors, mapie = map(np.array, zip(*found, strict=True))
        exceeded = int((risks > target).sum())
        limit = scipy.stats.binom.ppf(0.95, halves, 1 - CONFIDENCE) / halves
        rows.append(
            (
                f"{target:.0%}",
                f"{exceeded / halves:.1%} (at most {limit:.1%})",
                f"{risks.mean():.2%}",
                f"{coverages.mean():.1%}",
                f"{np.nanmean(mapie[:, 1]):.1%}" if np.isfinite(mapie).any() else "-",
                f"{np.nanmean(mapie[:, 0] > target):.1%}" if np.isfinite(mapie).any() else "-",
                f"{halves - len(found)}",
                f"{errors[:, 0].mean():.3f} -> {errors[:, 1].mean():.3f}",
            )
        )
    headings = (
        "target",
        "halves above it",
        "errors",
        "answered",
        "answered, MAPIE",
        "above it, MAPIE",
        "no decision",
        "calibration error",
    )
    return markdown_table([headings, *rows])


def _half(classifier, known, trained, target, random):
    """Errors and coverage on one half of the decision that the other half finds."""
    order = random.permutation(len(known))
    found_on, measured_on = known.at(order[: len(known) // 2]), known.at(order[len(known) // 2 :])
    labels = classifier.description.labels
    settings = DecisionSettings(max_error=target, confidence=CONFIDENCE)
    try:
        decision = find_decision(labels, found_on, trained, settings)
    except ValueError:
        return None
    parts = []
    for part in (found_on, measured_on):
        probabilities = scaled_probabilities(part.logits, decision.temperature)
        familiar = leverages_of(part.features, decision.arrays) <= decision.largest_leverage
        is_right = probabilities.argmax(axis=1) == part.labels
        parts.append((probabilities.max(axis=1), is_right, familiar, probabilities))
    confidence, is_right, familiar, probabilities = parts[1]
    answered = familiar & (confidence >= decision.bound.threshold)
    labels, plain = measured_on.labels, scaled_probabilities(measured_on.logits, 1.0)
    before = calibration_of(plain.max(axis=1), plain.argmax(axis=1) == labels)
    after = calibration_of(confidence, is_right)
    return (
        (~is_right[answered]).mean(),
        answered.mean(),
        (before.expected_error, after.expected_error),
        _mapie(parts, target),
    )


def _mapie(parts, target) -> tuple[float, float]:
    """Errors and coverage of MAPIE's threshold on the same scores; NaN where it finds none."""
    try:
        from mapie.risk_control import BinaryClassificationController
    except ImportError:
        return math.nan, math.nan

    def scores_of(confidence):
        column = np.asarray(confidence).reshape(-1)
        return np.stack([1 - column, column], axis=1)

    (confidence, is_right, familiar, _), (measured, right, known, _) = parts
    controller = BinaryClassificationController(
        scores_of,
        risk="precision",
        target_level=1 - target,
        confidence_level=CONFIDENCE,
        list_predict_params=np.unique(np.quantile(confidence, np.linspace(0, 0.98, 100))),
        best_predict_param_choice="recall",
    )
    try:
        controller.calibrate(confidence[familiar].reshape(-1, 1), is_right[familiar].astype(int))
        answered = known & controller.predict(measured.reshape(-1, 1)).astype(bool)
    except ValueError:
        return math.nan, math.nan
    return float((~right[answered]).mean()), float(answered.mean())


if __name__ == "__main__":
    main()
