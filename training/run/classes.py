"""Training of classes, from random weights or from the weights of another model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import keras

from keras_vit.classifier_folder import read_classifier, write_files
from keras_vit.configs.recognition import config_of
from keras_vit.description.class_labels import ACTIVATIONS
from keras_vit.description.run_record import RunRecord
from keras_vit.images.samples import write_samples
from keras_vit.models.rebuild import inference_model
from keras_vit.predictor import Predictor, check_classifier
from keras_vit.training.data.examples import class_counts
from keras_vit.training.data.split_record import SplitRecord, notes_of_seen
from keras_vit.training.data.things import shown_before
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import FineTuning
from keras_vit.training.trainer.devices import backend_devices
from keras_vit.training.trainer.trainer import Trainer

from .card import class_facts, describe_end, model_card
from .decision import Answering, Thresholds
from .distillation import Teacher
from .head_start import HeadStart, SimpleReference
from .images import extend, notes_on_classes
from .loop import choose_trained, make_loss, make_metric, make_trainer
from .objective import Finished, Objective
from .plan import Outcome, Plan, Stage
from .run_page import write_run_page
from .start import ImageContents, Run
from .start_weights import (
    config_to_train,
    find_start,
    loaded_classifier,
    with_fixed_repositories,
)


class Classes(Objective):
    """Classes of images, from random weights."""

    stages: ClassVar[tuple[type[Stage], ...]] = (Thresholds, Answering)

    @property
    def reading(self) -> dict[str, bool | int]:
        return {"trained": True}

    def completed(self, source, data, weights, *, download):
        notes = notes_on_classes(source, self.settings)
        return dataclasses.replace(source, notes=(*source.notes, *notes))

    def build(self, plan: Plan) -> tuple[keras.Model, str]:
        model, origin = build_classifier(plan)
        check_classifier(plan.labels, model, plan.preprocessing)
        return model, origin

    def trainer(self, model: keras.Model, plan: Plan) -> Trainer:
        return make_trainer(
            model,
            plan.settings,
            next(filter(None, (stage.trainer(plan) for stage in plan.stages)), Trainer),
            loss=make_loss(plan.settings, plan.class_weight or None),
            metric=make_metric(plan.source.task),
        )

    def validation(self, trainer: Trainer, plan: Plan) -> Callable[[], EvaluationReport] | None:
        examples = plan.source.splits.get("validation")
        if examples is None:
            return None
        predictor = backend_devices().predictor_of(trainer)
        return lambda: plan.evaluate(predictor, examples, from_logits=True)

    def begin(self, run: Run, plan: Plan, contents: ImageContents, start_step: int) -> None:
        super().begin(run, plan, contents, start_step)
        if run.folder.writes and not run.folder.resume:
            write_run_page(run.folder, plan, run.data, run.record)

    def facts(self, plan: Plan) -> dict[str, str]:
        return class_facts(plan)

    def finish(self, run, plan, model, history, contents):
        folder, log = run.folder, run.options.log
        trained = inference_model(model, activation=ACTIVATIONS[plan.source.task])
        outcome = Outcome(trained, plan.labels, contents.fingerprints, log)
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
            log(describe_end(report, folder.output))
            classifier = read_classifier(folder.output)
        return Finished(folder.output, history, classifier.model, classifier, report)


def trained_images(plan: Plan) -> tuple[int, ...]:
    """Returns how many images of each class a plan trains on."""
    labels = plan.source.splits["train"].labels
    return tuple(class_counts(labels, len(plan.source.class_names)).tolist())


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


class FineTunedClasses(Classes):
    """Classes of images, from the weights of another model."""

    settings: FineTuning
    stages = (SimpleReference, HeadStart, Teacher, Thresholds, Answering)

    def with_repositories(self, *, download: bool) -> FineTuning:
        return with_fixed_repositories(self.settings, download=download)

    @property
    def reading(self) -> dict[str, bool | int]:
        # With an extended head the weights have other classes.
        return {"min_classes": 1} if self.settings.extends_head else {"trained": True}

    def weights(self, given):
        return find_start(given)

    def completed(self, source, data, weights, *, download):
        links = {"follow_symlinks": data.follow_symlinks}
        share = self.settings.validation_share
        source = extend(source, weights, self.settings, share, download=download, **links)
        seen = SplitRecord.read(weights.folder)
        notes = notes_of_seen(source.splits, seen, "in the run of the weights")
        source = dataclasses.replace(source, notes=(*source.notes, *notes))
        return super().completed(source, data, weights, download=download)

    def build(self, plan: Plan) -> tuple[keras.Model, str]:
        model, origin = super().build(plan)
        choose_trained(model, self.settings.train, self.settings.lora_rank)
        return model, origin


def build_classifier(plan: Plan) -> tuple[keras.Model, str]:
    """Returns a classifier, which gives logits, and a text on the origin of its weights.

    Args:
        plan: Its plan.
    """
    config = config_to_train(plan.config, plan.settings)
    model, report = loaded_classifier(plan.weights, plan.description, plan.head, config)
    if report is None:
        return model, "random"
    origin = str(plan.settings.weights) + (", a new head" if plan.head == "new" else "")
    if report.resized:
        grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
        origin += f", positions interpolated from {', '.join(sorted(grids))} patches"
    return model, origin
