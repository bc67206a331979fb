"""Training of classes, from random weights or from the weights of another model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import keras

from keras_vit.predictor import check_classifier
from keras_vit.training.data.split_record import SplitRecord, notes_of_seen
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import FineTuning
from keras_vit.training.trainer.devices import backend_devices
from keras_vit.training.trainer.trainer import Trainer

from .card import class_facts
from .decision import Answering, Thresholds
from .distillation import Teacher
from .finished_classifier import finish_classifier
from .head_start import HeadStart, SimpleReference
from .images import ImageContents, extend, notes_on_classes
from .loop import choose_trained, classifier_trainer
from .objective import Objective
from .plan import Plan, Stage
from .run_page import write_run_page
from .start import Run
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
        make = next(filter(None, (stage.trainer(plan) for stage in plan.stages)), Trainer)
        weight = plan.class_weight or None
        return classifier_trainer(model, plan.settings, plan.source.task, weight, make)

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
        return finish_classifier(run, plan, model, history, contents.fingerprints)


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
