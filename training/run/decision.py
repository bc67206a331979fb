"""The decision that a run finds at its end: when its classifier answers."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from keras_vit.description import Labels
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.trust.calibration_bound import (
    Decision,
    check_counts,
    compute_scores,
    counted,
    find_decision,
    spaced,
)

from .plan import TrainingPlan

CALIBRATION = 0.1  # The share of the training images for calibration that --max-error takes.


def check_calibration(plan: TrainingPlan) -> None:
    """Raises ValueError if the calibration images of a run are too few for its bound."""
    bounds, source = plan.settings.decision, plan.source
    if bounds is not None:
        known = counted(source.splits["calibration"], source.groups, lambda line: None)
        check_counts(known.labels, plan.labels, bounds)


def decision_of_run(
    plan: TrainingPlan, model: keras.Model, labels: Labels, log: Callable[[str], object]
) -> Decision | None:
    """Returns when the classifier of a run answers, if its settings ask for it.

    Args:
        plan: The run.
        model: The model with its best weights, giving probabilities.
        labels: Its classes.
        log: Receives the lines of the result. Without a threshold within the bound, the reason:
            the run is finished all the same.
    """
    bounds, source = plan.settings.decision, plan.source
    if bounds is None:
        return None
    examples, record = source.splits["calibration"], SplitRecord.of(plan.fingerprints)
    numbers = plan.fingerprints.get("calibration")
    if record is not None and numbers is not None and (seen := record.has_seen(numbers)).any():
        log(f"split   {seen.sum()} calibration images with a copy that was trained on are left out")
        examples = examples.take(np.flatnonzero(~seen))
    examples, batch_size = counted(examples, source.groups, log), plan.settings.micro_batch_size
    try:
        check_counts(examples.labels, labels, bounds)
        known, trained = (
            compute_scores(model, part, plan.preprocessing, batch_size=batch_size)
            for part in (examples, spaced(source.splits["train"]))
        )
        found = find_decision(labels, known, trained.features, bounds)
    except ValueError as error:
        log(f"no decision: {error}")
        return None
    for line in found.lines:
        log(line)
    return found
