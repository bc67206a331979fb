"""After training: thresholds of multi-label classes, and when a classifier answers "unknown"."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from keras_vit.description import Labels
from keras_vit.description.class_labels import DEFAULT_THRESHOLD, MULTILABEL
from keras_vit.description.run_record import Fact
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.data.things import shown_in_training, units_of
from keras_vit.training.evaluation.scores import compute_scores, counted, spaced
from keras_vit.training.settings import DecisionSettings
from keras_vit.training.trust.calibration_bound import (
    HEADING,
    about_size,
    check_counts,
    find_decision,
    with_section,
)
from keras_vit.utils.progress import Log

from .plan import Plan, Stage

FEW_IMAGES = 10  # Fewer with a label, or without it, leave its threshold to chance.


class Thresholds(Stage):
    """After training: the threshold of each class of multi-label data."""

    @classmethod
    def prepare(cls, weights, images, settings, begun):
        return cls() if images.source.task == MULTILABEL else None

    def after(self, plan, outcome):
        thresholds = choose_thresholds(plan, outcome.model, outcome.log)
        outcome.labels = dataclasses.replace(outcome.labels, thresholds=thresholds)


def choose_thresholds(plan: Plan, model: keras.Model, log: Log) -> tuple[float, ...]:
    """Returns the threshold of each class of multi-label data, and prints them.

    They are chosen on the validation images; without any, each is 0.5.

    Args:
        plan: The run.
        model: The model with its best weights, giving probabilities.
        log: Receives the lines.
    """
    names, validation = plan.source.class_names, plan.source.splits.get("validation")
    if validation is None:
        log(f"labels  probability above {DEFAULT_THRESHOLD}, no validation images")
        return (DEFAULT_THRESHOLD,) * len(names)
    report = plan.evaluate(model, validation)
    thresholds = report.best_thresholds
    shown = [f"{name} {value:.3g}" for name, value in zip(names, thresholds, strict=True)]
    log(f"labels  probability above (best F1 in validation): {', '.join(shown[:20])}")
    few = [
        f"{name} {count} with, {report.count - count} without"
        for name, count in zip(names, report.counts.images.tolist(), strict=True)
        if min(count, report.count - count) < FEW_IMAGES
    ]
    if few:
        log(
            f"labels  warning: chosen from fewer than {FEW_IMAGES} validation images with or "
            f"without the label, so it may be far off: {', '.join(few[:20])}"
        )
    return thresholds


class Answering(Stage):
    """After training: when the classifier answers, if the settings ask for a bound.

    Too few images for the bound are an error before the first step.

    Args:
        bounds: The bounds.
        held_out: Calibration images that count.
        grouped: Whether one of each group or thing counts.
    """

    def __init__(self, bounds: DecisionSettings, held_out: int, grouped: bool):
        self.bounds, self.held_out, self.grouped = bounds, held_out, grouped

    @classmethod
    def prepare(cls, weights, images, settings, begun):
        if settings.decision is None:
            return None
        source = images.source
        held_out, grouped = _that_count(source, lambda line: None)
        labels = Labels(source.class_names or None, source.task)
        check_counts(held_out.labels, labels, settings.decision, grouped=grouped)
        return cls(settings.decision, len(held_out), grouped)

    def before(self, plan, model, facts, *, progress):
        """Says how many images would do, if the probe of the head start is right as often."""
        probed = facts["head_start"].reference if "head_start" in facts else None
        if probed is None or self.bounds.max_error is None:
            return {}
        return {"bound": self._about_size(probed.accuracy, probed.name)}

    def tested(self, plan, report, log):
        if self.bounds.max_error is not None:
            fact = self._about_size(float(report.right.mean()), "on the test images")
            log(f"bound   {fact.value}")

    def _about_size(self, accuracy, of):
        line = about_size(accuracy, of, self.held_out, self.bounds, grouped=self.grouped)
        return Fact(line, "by the test of the bound")

    def after(self, plan, outcome):
        decision = self._decision(plan, outcome)
        if decision is None:
            bound = f"the errors below {self.bounds.max_error:.1%}"
            text = f"No threshold keeps {bound}: every photo is answered."
            outcome.sections.append(f"\n{HEADING}\n\n{text}\n")
            return
        outcome.model = decision.calibrated(outcome.model)
        outcome.labels = dataclasses.replace(outcome.labels, abstains=True)
        outcome.sections.append(with_section("", decision))
        outcome.decision = decision.to_json()

    def _decision(self, plan, outcome):
        """When the classifier answers; None without a threshold, as the run is finished anyway."""
        source, log = plan.source, outcome.log
        record = SplitRecord.of(outcome.fingerprints)
        contents, seen = outcome.fingerprints.get("calibration"), None
        if record is not None and contents is not None:
            seen = record.has_seen(contents)
        examples, grouped = _that_count(source, log, seen)
        batch_size = plan.settings.micro_batch_size
        try:
            check_counts(examples.labels, outcome.labels, self.bounds, grouped=grouped)
            scores, trained = (
                compute_scores(outcome.model, part, plan.preprocessing, batch_size=batch_size)
                for part in (examples, spaced(source.splits["train"]))
            )
            decision = find_decision(
                outcome.labels, scores, trained.features, self.bounds, grouped=grouped
            )
        except ValueError as error:
            log(f"no decision: {error}")
            return None
        for line in decision.lines:
            log(line)
        return decision


def _that_count(source, log, seen=None):
    """The calibration images that count, one of each group or thing; and whether there are such.

    Args:
        source: The images.
        log: Receives what is left out.
        seen: Whether each calibration image is a copy of one that is trained on; None: not known.
    """
    examples = source.splits["calibration"]
    if seen is None:
        seen = np.zeros(len(examples), bool)
    if source.things is not None:
        seen = seen | shown_in_training(source.splits, source.things, "calibration")
    if seen.any():
        log(f"split   {seen.sum()} calibration images of things that were trained on are left out")
        examples = examples.take(np.flatnonzero(~seen))
    return counted(examples, units_of(source.groups, source.things), log)
