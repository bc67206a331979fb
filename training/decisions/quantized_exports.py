"""A classifier's decision found again on its export in 8 bits, whose scores are other ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from keras_vit.answering import decision_hash, split_scores
from keras_vit.classifier import Classifier
from keras_vit.description.decision import MISSED, Decision
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.predictions import predictions_of
from keras_vit.training.settings.decisions import DecisionSettings

from .classifier_decision import calibration_images, with_decision
from .finding import FoundDecision, check_counts, decide, summary
from .scores import Scores

_BATCH_SIZE = 32


def decide_on(
    data: Data,
    *,
    split: str | None = None,
    log: Callable[[str], object] = print,
    progress: bool = False,
    **data_options,
) -> Callable[[Classifier, Classifier], tuple[Classifier, tuple[str, ...]]]:
    """Returns the argument `decide` of an export in 8 bits.

    The export is computed for the calibration images in its own runtime, and the temperature, the
    threshold and the limit of the leverage are found on its scores, with the bounds of the
    classifier's decision.

    Args:
        data: The data that `calibrate` was called with.
        split: See `calibrate`.
        log: Receives what of the data is taken.
        progress: Whether to show a line with the rate and the time left.
        **data_options: See `calibrate`.

    Returns:
        A function from a classifier and the export of its scores, as
        `keras_vit.answering.scores_model` gives them, to the classifier with its new decision and
        lines for the user. It raises the errors of `calibrate`.

    Example:
    >>> decide = decide_on("pets")
    >>> keras_vit.export.tflite("runs/pets", "pets.tflite", precision="int8", decide=decide)
    """
    spec = data_spec(data, **data_options)

    def found_again(classifier, export):
        before, labels = classifier.description.decision, classifier.description.labels
        settings = settings_of(before)
        images = calibration_images(classifier, spec, split, log)
        check_counts(images.known.labels, labels, settings)
        batches = predictions_of(
            export.model,
            images.known,
            preprocessing=export.input_preprocessing,
            batch_size=_BATCH_SIZE,
            progress="calibrate" if progress else None,
            unreadable=[] if images.skip_unreadable else None,
        )
        rows, given = map(np.concatenate, zip(*batches, strict=True))
        logits, leverages = split_scores(rows, labels.is_multilabel)
        arrays = classifier.decision_arrays
        scores = Scores(None, logits, given)
        decision, labels = decide(labels, scores, leverages if arrays else None, settings)
        kept = arrays if decision.largest_leverage is not None else {}
        decision = dataclasses.replace(decision, sha256=decision_hash(classifier.model, kept))
        lines = tuple(summary(decision, settings))
        return with_decision(classifier, FoundDecision(decision, labels, kept, lines)), lines

    return found_again


def settings_of(decision: Decision) -> DecisionSettings:
    """Returns the bounds by which a decision was found.

    Its share of strange images is the one of as many calibration images.
    """
    bounds = {"max_error": decision.max_error}
    if decision.error is not None:
        name = "max_missed" if decision.error == MISSED else "max_false"
        bounds = {name: decision.max_error}
    if decision.confidence is not None:
        bounds["confidence"] = decision.confidence
    if decision.largest_leverage is not None:
        bounds["strange"] = (decision.strange + 1) / (decision.images + 1)
    return DecisionSettings(**bounds, parents=dict(decision.parents) or None)
