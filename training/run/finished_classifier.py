"""The end of a run of classes: the test, and the folder of its classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.classifier_folder import read_classifier, write_files
from keras_vit.configs.recognition import config_of
from keras_vit.description.class_labels import ACTIVATIONS
from keras_vit.description.run_record import RunRecord
from keras_vit.images.samples import write_samples
from keras_vit.models.rebuild import inference_model
from keras_vit.predictor import Predictor
from keras_vit.training.data.examples import class_counts
from keras_vit.training.data.things import shown_before
from keras_vit.training.evaluation.reports import EvaluationReport

from .card import describe_end, model_card
from .objective import Finished
from .plan import Outcome, Plan
from .run_page import write_run_page
from .start import Run


def finish_classifier(
    run: Run,
    plan: Plan,
    model: keras.Model,
    history: list[dict[str, str]],
    fingerprints: Mapping[str, np.ndarray | None],
) -> Finished:
    """Runs the stages after training, tests the classifier, and publishes the folder of its run.

    Args:
        run: The run.
        plan: Its plan.
        model: The model with its best weights, which gives logits.
        history: The rows of `history.csv`.
        fingerprints: The content of the images, by part; see `read_fingerprints`.
    """
    folder = run.folder
    trained = inference_model(model, activation=ACTIVATIONS[plan.source.task])
    outcome = Outcome(trained, plan.labels, fingerprints, run.options.log)
    for stage in plan.stages:
        stage.after(plan, outcome)
    kept, labels = outcome.model, outcome.labels
    report, tested = tested_report(run, plan, outcome)
    described = dataclasses.replace(plan.description, config=config_of(kept), labels=labels)
    added = RunRecord(test=tested, description=described.to_json(), decision=outcome.decision)
    record = run.finished_record(plan, added)
    card = model_card(record, plan.source.class_names, report) + "".join(outcome.sections)
    classifier = Predictor.of(kept, described, record.to_json(), folder.path)
    write_files(folder.path, classifier, history, card)
    write_samples(folder.path, plan.samples.images(), plan.preprocessing)
    if folder.writes:
        write_run_page(folder, plan, run.data, record, history, report)
    run.publish(plan.source)
    if folder.writes:
        outcome.log(describe_end(report, folder.output, record))
        classifier = read_classifier(folder.output)
    return Finished(folder.output, history, classifier.model, classifier, report)


def tested_report(
    run: Run, plan: Plan, outcome: Outcome
) -> tuple[EvaluationReport | None, dict[str, Any] | None]:
    """Returns the report on the test images, and what the record has of it; None without any.

    Args:
        run: The run.
        plan: Its plan.
        outcome: What it has trained.
    """
    test = plan.source.splits.get("test")
    if test is None or not len(test):
        return None, None
    report = plan.evaluate(outcome.model, test, outcome.labels, progress=run.folder.writes)
    start = plan.weights.folder
    is_shown_before, has_record = shown_before(plan.source, outcome.fingerprints, start)
    report = dataclasses.replace(
        report,
        skipped=tuple(plan.source.skipped),
        simple=run.record.simple,
        is_shown_before=is_shown_before,
        ignores_copies=plan.images.ignores_copies,
        trained=trained_images(plan),
    )
    for stage in plan.stages:
        stage.tested(plan, report, outcome.log)
    seen = 0 if is_shown_before is None else int(is_shown_before.sum())
    is_known = has_record or plan.settings.weights is None
    return report, {**report.to_json(), "seen": seen, "start_is_known": is_known}


def trained_images(plan: Plan) -> tuple[int, ...]:
    """Returns how many images of each class a plan trains on."""
    labels = plan.source.splits["train"].labels
    return tuple(class_counts(labels, len(plan.source.class_names)).tolist())
