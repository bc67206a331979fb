"""Fine-tuning and pre-training: runs that write a classifier's folder."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.classifier import Classifier, check_classifier
from keras_vit.classifier_folder import load_classifier, write_files
from keras_vit.configs.recognition import config_of
from keras_vit.description import Labels
from keras_vit.description.tasks import ACTIVATIONS, DEFAULT_THRESHOLD, MULTILABEL
from keras_vit.images.samples import read_images, write_samples
from keras_vit.models.rebuild import inference_model
from keras_vit.training.data import Examples, Source
from keras_vit.training.data.spec import Data, DataSpec
from keras_vit.training.data.split_record import SplitRecord, notes_of_seen
from keras_vit.training.evaluation import classification
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import HIGHER_RESOLUTION, FineTuning, PreTraining
from keras_vit.training.trainer.devices import predictor_of
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.training.trust.calibrated_classifier import spaced, with_section
from keras_vit.training.trust.calibration_bound import Decision, check_counts, find_decision
from keras_vit.training.trust.calibration_scores import compute_scores
from keras_vit.utils.fields import required
from keras_vit.utils.files import RECIPE
from keras_vit.utils.json_files import read_json

from .card import model_card
from .chosen_samples import choose_samples
from .distillation import DistillationTrainer
from .folder import PARTIAL
from .job import Job
from .loop import Score
from .plan import TrainingPlan
from .replay import extend, extends_head
from .run_options import run_arguments
from .run_page import write_run_page
from .trainer_setup import make_loss, make_metric, make_trainer
from .transfer import Start, build_model, choose_trained, find_start

_MAX_LISTED = 20  # Thresholds that are printed.
FEW_IMAGES = 10  # Fewer with a label, or without it, leave its threshold to chance.


def finetune(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    **options: Any,
) -> Finished:
    """Fine-tunes a model on a data set and writes a classifier's folder; paper, section 3.2.

    The pre-training head is removed and a linear layer of zeros put in its place, except for
    the rows of classes that the weights name too; position embeddings are interpolated to
    the new resolution, and everything is trained: by default with SGD with momentum, cosine
    decay after a linear warm-up, gradients clipped at global norm 1. The weights, or their
    averages, with the best validation accuracy are kept, and evaluated on the test images,
    which are used for nothing else.

    Args:
        data: A folder `{train,test}/<class>/*` or `<class>/*`, a CSV file of paths and
            labels, or "tfds:NAME". None with `resume`. Arrays, a `tf.data.Dataset` or a
            `pandas.DataFrame`, see `open_source`; with `resume` the same again. Or a
            `DataSpec`, which has the options of the data too.
        output: The folder to write. Until the end everything is in `OUTPUT.partial`.
        settings: The recipe; the paper's by default.
        **options: Fields of `RunOptions`: `overwrite`, `resume` (with the data and settings of
            the stopped run; others are refused), `command`, `log` and `callbacks`; and of
            `DataSpec`, such as `holdout`, `exclude` and `class_names`.

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        TypeError: If an option is unknown.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> done = finetune("photos", "runs/photos", FineTuning(model="ViT-S/16", steps=500))
    >>> done.report.top_1
    0.9731
    """
    return FineTune(*run_arguments(data, output, options, FineTuning), settings).run()


def finetune_once(
    data: DataSpec,
    folder: pathlib.Path,
    settings: FineTuning,
    *,
    command: str,
    log: Callable[[str], object],
) -> dict[str, Any]:
    """Starts, resumes or skips a run; returns its recipe.

    Args:
        data: The data.
        folder: The output of the run. If it has a recipe, the run has finished.
        settings: Settings of the run.
        command: The command to record.
        log: Receives messages.
    """
    if not (folder / RECIPE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        is_unfinished = (folder.with_name(folder.name + PARTIAL) / RECIPE).exists()
        finetune(data, folder, settings, resume=is_unfinished, command=command, log=log)
    return read_json(folder / RECIPE)


def pretrain(
    data: Data,
    output: str | os.PathLike,
    settings: PreTraining | None = None,
    **options: Any,
) -> Finished:
    """Trains a model from random weights and writes a classifier's folder; paper, Table 3.

    By default with Adam and decoupled weight decay, clipping at global norm 1. `finetune`
    takes the folder as its `weights`.

    Args:
        data: As for `finetune`.
        output: The folder to write.
        settings: The recipe; Table 3's for ImageNet by default.
        **options: As for `finetune`.

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    return Pretrain(*run_arguments(data, output, options, PreTraining), settings).run()


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished run.

    Args:
        classifier: The best weights, as read back from the folder.
        report: The evaluation on the test images, a `ClassificationReport`, or of
            multi-label data a `MultilabelReport`; None if the data have none.
        history: The rows of `history.csv`.
    """

    classifier: Classifier
    report: Any
    history: list[dict[str, str]]


class ClassifierJob(Job):
    """A run that trains a classifier on labelled images; see `Job`."""

    def check(self, plan: TrainingPlan, model: keras.Model | None = None) -> None:
        labels = Labels(plan.source.class_names, plan.source.task)
        check_classifier(labels, model, plan.start.preprocessing)
        samples = choose_samples(plan.settings.samples, plan.source, plan.settings.image_size)
        read_images(samples.files)  # A file that cannot be read is an error before the first step.
        if plan.settings.decision is not None:
            calibration = _calibration_images(plan)
            check_counts(calibration.labels, labels, plan.settings.decision)

    def make_trainer(self, model: keras.Model, plan: TrainingPlan) -> Trainer:
        """Returns a compiled trainer."""
        loss = make_loss(plan.settings, plan.class_weights)
        metric = make_metric(plan.source.task)
        if plan.teacher is None:
            return make_trainer(model, plan.settings, loss=loss, metric=metric)
        names = ("distillation", "distillation_weight", "distillation_focus", "temperature")
        return make_trainer(
            model,
            plan.settings,
            DistillationTrainer,
            loss=loss,
            metric=metric,
            teacher=plan.teacher.build(),
            **{name: getattr(plan.settings, name) for name in names},
        )

    def validation(self, trainer: Trainer, plan: TrainingPlan) -> Callable[[], Score]:
        """Returns a function that evaluates the weights on the validation images.

        Its result has a `loss` and a `score`, by which the best weights are chosen.
        """
        predictor = predictor_of(trainer)
        return lambda: evaluate(plan, predictor, plan.validation, from_logits=True)

    def started(self, plan: TrainingPlan) -> None:
        write_run_page(self.folder.path, plan, self.data)

    def finish(self, plan: TrainingPlan, model: keras.Model, history: list) -> Any:
        """Evaluates the model on the test images and writes the classifier's folder.

        Args:
            plan: The plan, with the number of skipped steps in its recipe.
            model: The model with its best weights.
            history: The rows of `history.csv`.
        """
        folder, source = self.folder, plan.source
        kept = inference_model(model, activation=ACTIVATIONS[source.task])
        thresholds, chosen = choose_thresholds(plan, kept)
        for line in chosen:
            self.options.log(line)
        labels = Labels(source.class_names, source.task, thresholds)
        decision = find_decision_of_run(plan, kept, labels, self.options.log)
        if decision is not None:
            kept = decision.calibrated(kept)
            labels = dataclasses.replace(labels, abstains=True)
        test = source.splits.get("test")
        report = None
        if test is not None and len(test):
            report = evaluate(
                plan,
                kept,
                test,
                skipped=source.skipped,
                progress=folder.writes,
                thresholds=labels.thresholds,
                abstains=labels.abstains,
            )
            self.options.log(f"test    {report.summary}")
        test_json = report and {**report.to_json(), "seen": _seen_before(plan, test, folder.path)}
        described = dataclasses.replace(
            plan.start.description, config=config_of(kept), labels=labels
        )
        recipe = self.finished_recipe(
            plan, best=self.best(source.task), test=test_json, description=described.to_json()
        )
        if decision is not None:
            recipe["decision"] = decision.to_json()
        classifier = Classifier.of(kept, described, recipe, folder.path)
        card = model_card(recipe, source.class_names)
        if decision is not None:
            card = with_section(card, decision)
        write_files(folder.path, classifier, history, card)
        samples = choose_samples(plan.settings.samples, source, plan.settings.image_size)
        write_samples(folder.path, samples.images(), plan.start.preprocessing)
        if folder.writes:
            write_run_page(folder.path, plan, self.data, history, report)
        self.publish(source)
        if folder.writes:
            self.options.log(f"written {folder.output}")
            classifier = load_classifier(folder.output)
        return Finished(classifier, report, history)


class FineTune(ClassifierJob):
    """The job of `keras-vit finetune`; see `Job`."""

    settings_type = FineTuning

    def find_start(self, settings: FineTuning) -> Start:
        size = settings.image_size
        if size is None and settings.recipe != HYPER_RULE_NAME:
            size = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
        return find_start(settings.model, settings.weights, size, **settings.unknown_facts)

    def open(self, start: Start, *, download: bool = True) -> Source:
        share = self.settings.validation_share
        if not extends_head(self.settings):
            source = self.data.open(share, trained=True, download=download)
        else:  # The weights have other classes.
            source = self.data.open(share, min_classes=1, download=download)
        source = extend(source, start.opened, self.settings, share, download=download)
        record = SplitRecord.read(start.opened.folder)
        notes = notes_of_seen(source.splits, record, "in the run of the weights")
        return dataclasses.replace(source, notes=(*source.notes, *notes))

    def build(self, start, settings, num_classes):
        model, report = _build_classifier(start, settings, num_classes)
        choose_trained(
            model, settings.train, lora_rank=settings.lora_rank, lora_alpha=settings.lora_alpha
        )
        if report is None:
            return model, "random"
        origin = str(settings.weights) + (
            ", a new head of zeros" if start.head_rows is None else ""
        )
        if report.resized:
            grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
            origin += f", positions interpolated from {', '.join(sorted(grids))} patches"
        return model, origin


class Pretrain(ClassifierJob):
    """The job of `keras-vit pretrain`; see `Job`."""

    settings_type = PreTraining

    def find_start(self, settings: PreTraining) -> Start:
        return find_start(settings.model, None)

    def build(self, start, settings, num_classes):
        model, _ = _build_classifier(start, settings, num_classes)
        return model, "random"


def evaluate(plan: TrainingPlan, model: Any, examples: Examples | None, **options: Any) -> Any:
    """Returns the report of a model on images of a run's data, by the task of the data.

    Args:
        plan: The run.
        model: The model, or its predictor.
        examples: The images.
        **options: More arguments of `classification.evaluate`.
    """
    return classification.evaluate(
        model,
        examples,
        plan.source.class_names,
        preprocessing=plan.start.preprocessing,
        batch_size=min(plan.settings.micro_batch_size, 64),
        **options,
    )


def choose_thresholds(
    plan: TrainingPlan, model: keras.Model
) -> tuple[tuple[float, ...] | None, list[str]]:
    """Returns the threshold of each class of multi-label data, and lines that print them.

    They are chosen on the validation images; without any, each is 0.5.

    Args:
        plan: The run.
        model: The model with its best weights, giving probabilities.
    """
    names = plan.source.class_names
    if plan.source.task != MULTILABEL:
        return None, []
    if plan.validation is None:
        thresholds: tuple[float, ...] = (DEFAULT_THRESHOLD,) * len(names)
        return thresholds, [f"labels  probability above {DEFAULT_THRESHOLD}, no validation images"]
    report = evaluate(plan, model, plan.validation)
    thresholds = report.best_thresholds
    shown = [f"{name} {value:.3g}" for name, value in zip(names, thresholds, strict=True)]
    lines = [f"labels  probability above (best F1 in validation): {_first(shown)}"]
    absent = [name for name, n in zip(names, report.counts.images, strict=True) if not n]
    if absent:
        chosen = f"labels  {DEFAULT_THRESHOLD} where no validation image has the label"
        lines.append(f"{chosen}: {_first(absent)}")
    counts = [(int(n), report.count - int(n)) for n in report.counts.images]
    few = [
        f"{name} {present} with, {without} without"
        for name, (present, without) in zip(names, counts, strict=True)
        if present and min(present, without) < FEW_IMAGES
    ]
    if few:
        chosen = f"labels  warning: chosen from fewer than {FEW_IMAGES} validation images with or"
        lines.append(f"{chosen} without the label, so it may be far off: {_first(few)}")
    return thresholds, lines


def find_decision_of_run(
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
    if plan.settings.decision is None:
        return None
    splits = plan.source.splits

    def scores_of(examples):
        return compute_scores(
            model,
            examples,
            required(plan.start.preprocessing, "preprocessing"),
            batch_size=min(plan.settings.micro_batch_size, 64),
        )

    trained = spaced(splits["train"])
    features = None if trained is None else scores_of(trained).features
    known = scores_of(splits["calibration"])
    try:
        found = find_decision(labels, known, features, plan.settings.decision)
    except ValueError as error:
        log(f"no decision: {error}")
        return None
    for line in found.lines:
        log(line)
    return found


def _calibration_images(plan):
    found = plan.source.splits.get("calibration")
    if found is None:
        raise ValueError(
            "A decision (--max-error) needs images for calibration: a "
            "share of the data (--calibration 0.1), or their part of this name. Received: neither"
        )
    return found


def _first(texts):
    return ", ".join(texts[:_MAX_LISTED]) + (", ..." if len(texts) > _MAX_LISTED else "")


def _seen_before(plan, test, folder):
    """How many test images this run, or the run of its weights, trained on or chose by.

    This run may have begun with other parts of the data. 0 where the content is not known.
    """
    numbers = test.fingerprints()
    found = map(SplitRecord.read, (folder, plan.start.opened.folder))
    records = [record for record in found if record is not None]
    if numbers is None or not records:
        return 0
    return int(np.any([record.has_seen(numbers) for record in records], axis=0).sum())


def _build_classifier(start, settings, num_classes):
    return build_model(
        start,
        classes=num_classes,
        image_size=settings.image_size,
        dropout_rate=settings.dropout_rate,
        stochastic_depth_rate=settings.stochastic_depth_rate,
        remat=settings.remat,
        head_bias=settings.head_bias,
    )
