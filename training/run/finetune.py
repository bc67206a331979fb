"""Fine-tuning and pre-training: a run from data to a folder, read from top to bottom."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.classifier import Classifier, check_classifier
from keras_vit.classifier_folder import load_classifier, write_files, write_history
from keras_vit.configs.recognition import config_of
from keras_vit.description import Labels, description_text, set_description
from keras_vit.description.tasks import ACTIVATIONS, DEFAULT_THRESHOLD, MULTILABEL
from keras_vit.images.samples import write_samples
from keras_vit.models.rebuild import inference_model
from keras_vit.training.data import Examples
from keras_vit.training.data.spec import Data
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation import classification
from keras_vit.training.settings import OBJECTIVE, FineTuning, MaskedPatches, PreTraining
from keras_vit.training.trainer.devices import Place, predictor_of
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.training.trust.calibrated_classifier import spaced, with_section
from keras_vit.training.trust.calibration_bound import Decision, find_decision
from keras_vit.training.trust.calibration_scores import compute_scores
from keras_vit.utils.fields import required
from keras_vit.utils.files import CARD, DESCRIPTION, HISTORY, MODEL, RECIPE, write_text

from .card import masked_patch_card, model_card
from .chosen_samples import choose_samples
from .distillation import DistillationTrainer
from .job import Job
from .loop import Score, train
from .masked_patches import (
    make_masked_patch_trainer,
    masked_patch_model,
    masked_patch_validation,
)
from .plan import TrainingPlan, describe_plan
from .run_options import run_arguments
from .run_page import write_run_page
from .trainer_setup import make_loss, make_metric, make_trainer, not_decayed
from .transfer import build_model, choose_trained, dtype_policy

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
    settings = settings or FineTuning()
    return run(Job(*run_arguments(data, output, options, FineTuning), settings))


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
    settings = settings or PreTraining()
    return run(Job(*run_arguments(data, output, options, PreTraining), settings))


def pretrain_masked_patches(
    data: Data,
    output: str | os.PathLike,
    settings: MaskedPatches | None = None,
    **options: Any,
) -> Pretrained:
    """Trains a Vision Transformer without labels to predict what hidden patches show.

    Half of the patch embeddings are corrupted (`keras_vit.layers.PatchCorruption`). A linear
    layer predicts the target of each corrupted patch (`patch_targets.py`) from its output
    representation; other patches do not count. `finetune` takes the written folder as its
    `weights`. The folder has no classes, so it cannot predict before fine-tuning.

    Args:
        data: As for `finetune`, but labels are not read: a folder may have images only.
        output: The folder to write: `model.keras`, without a head, recipe, history and model
            card. Until the end everything is in `OUTPUT.partial`.
        settings: The settings; the paper's by default.
        **options: As for `finetune`.

    Returns:
        A `Pretrained`.

    Raises:
        ValueError: If data and settings do not fit, or the loss is not finite.
        OSError: If the output cannot be written.
        Interrupted: On Ctrl-C or SIGTERM, after saving; a KeyboardInterrupt.

    Example:
    >>> settings = MaskedPatches(model="ViT-S/16", steps=10_000, batch_size=512)
    >>> pretrain_masked_patches("photos", "runs/body", settings)
    >>> finetune("pets", "runs/pets", FineTuning(weights="runs/body"))
    """
    settings = settings or MaskedPatches()
    return run(Job(*run_arguments(data, output, options, MaskedPatches), settings))


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


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A finished pre-training without classes.

    Args:
        model: The model without a head, as saved.
        folder: The folder.
        history: The rows of `history.csv`: the loss of the objective, and as "accuracy" the
            share of correct colours.
    """

    model: keras.Model
    folder: pathlib.Path
    history: list[dict[str, str]]


def run(job: Job) -> Any:
    """Trains the model of a job and writes the folder.

    Args:
        job: The data, the folder and the settings.

    Returns:
        A `Finished`, or a `Pretrained` of masked patches.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    with job.folder.locked():
        # Open the data and find the weights.
        place = Place(job.settings.strategy)  # Before TensorFlow's first use: workers meet here.
        plan = job.plan(place.replicas)
        settings = plan.settings

        # Open the model.
        keras.utils.set_random_seed(settings.seed)
        with dtype_policy(settings.precision), place.scope():
            model, weights = build(plan)
            trainer = compiled_trainer(model, plan)
        if plan.recipe["classes"]:
            labels = Labels(plan.source.class_names, plan.source.task)
            check_classifier(labels, model, plan.start.preprocessing)
        job.check_unchanged(plan, model)
        start_step = job.folder.checkpoints.restore(trainer) if job.folder.resume else 0

        # Train. The folder's first write is after all errors of the input.
        images = batches(plan, place, start_step)
        job.begin(plan)
        lines = {"weights": weights}
        if settings.weight_decay:
            lines["not decayed"] = ", ".join(not_decayed(trainer))
        if start_step:
            lines["resumed"] = f"after step {start_step}"
        job.options.log(describe_plan(plan, lines))
        history = train(
            trainer,
            images,
            job.folder,
            settings,
            start_step=start_step,
            validate=validation(trainer, plan),
            task=plan.source.task,
            callbacks=job.options.callbacks,
        )
        skipped = keras.ops.convert_to_numpy(trainer.skipped_steps)
        plan.recipe["skipped_steps"] = int(skipped)

        # Evaluate and save.
        finish = finish_classifier if plan.recipe["classes"] else finish_masked_patches
        finished = finish(job, plan, model, history)
        place.leave()
        return finished


def build(plan: TrainingPlan) -> tuple[keras.Model, str]:
    """Returns the model to train, which gives logits, and a text on the origin of its weights."""
    start, settings = plan.start, plan.settings
    options = {
        "dropout_rate": settings.dropout_rate,
        "stochastic_depth_rate": settings.stochastic_depth_rate,
        "remat": settings.remat,
    }
    if isinstance(settings, MaskedPatches):
        config = configs.resolve(start.config, **options)
        given = {name: getattr(settings, name) for name in ("image_size", "target", "corruption")}
        return masked_patch_model(config, **given), "random"
    model, report = build_model(
        start,
        classes=len(plan.source.class_names),
        image_size=settings.image_size,
        head_bias=settings.head_bias,
        **options,
    )
    if isinstance(settings, FineTuning):
        choose_trained(
            model, settings.train, lora_rank=settings.lora_rank, lora_alpha=settings.lora_alpha
        )
    if report is None:
        return model, "random"
    origin = str(settings.weights) + (", a new head of zeros" if start.head_rows is None else "")
    if report.resized:
        grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
        origin += f", positions interpolated from {', '.join(sorted(grids))} patches"
    return model, origin


def compiled_trainer(model: keras.Model, plan: TrainingPlan) -> Trainer:
    """Returns the trainer of a plan's model, with the teacher's if there is one."""
    settings = plan.settings
    if isinstance(settings, MaskedPatches):
        return make_masked_patch_trainer(model, settings)
    loss = make_loss(settings, plan.class_weights)
    metric = make_metric(plan.source.task)
    if plan.teacher is None:
        return make_trainer(model, settings, loss=loss, metric=metric)
    names = ("distillation", "distillation_weight", "distillation_focus", "temperature")
    return make_trainer(
        model,
        settings,
        DistillationTrainer,
        loss=loss,
        metric=metric,
        teacher=plan.teacher.build(),
        **{name: getattr(settings, name) for name in names},
    )


def batches(plan: TrainingPlan, place: Place, start_step: int = 0) -> Any:
    """Returns the training batches of a plan from a step on."""
    settings, preprocessing = plan.settings, plan.start.preprocessing
    return place.batches(
        plan.source.splits["train"],
        image_size=settings.image_size,
        batch_size=settings.batch_size,
        micro_batches=settings.accumulate,
        seed=settings.seed,
        augmentation=settings.augmentation,
        flip=settings.flip,
        evaluation=preprocessing.evaluation,
        mixup=settings.mixup,
        resize=settings.resize,
        value_range=preprocessing.value_range,
        start_step=start_step,
        num_classes=len(plan.source.class_names),
    )


def validation(trainer: Trainer, plan: TrainingPlan) -> Callable[[], Score] | None:
    """Returns a function that evaluates the weights on the validation images; None without any.

    Its result has a `loss` and a `score`, by which the best weights are chosen.
    """
    if plan.validation is None:
        return None
    if isinstance(plan.settings, MaskedPatches):
        return masked_patch_validation(trainer, plan)
    predictor = predictor_of(trainer)
    return lambda: evaluate(plan, predictor, plan.validation, from_logits=True)


def finish_classifier(job: Job, plan: TrainingPlan, model: keras.Model, history: list) -> Finished:
    """Evaluates the model on the test images and writes the classifier's folder.

    Args:
        job: The job.
        plan: Its plan, with the number of skipped steps in its recipe.
        model: The model with its best weights.
        history: The rows of `history.csv`.
    """
    folder, source = job.folder, plan.source
    kept = inference_model(model, activation=ACTIVATIONS[source.task])
    thresholds, chosen = choose_thresholds(plan, kept)
    for line in chosen:
        job.options.log(line)
    labels = Labels(source.class_names, source.task, thresholds)
    decision = find_decision_of_run(plan, kept, labels, job.options.log)
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
        job.options.log(f"test    {report.summary}")
    test_json = report and {**report.to_json(), **_seen_before(plan, test, folder.path)}
    described = dataclasses.replace(plan.start.description, config=config_of(kept), labels=labels)
    recipe = job.finished_recipe(plan, test=test_json, description=described.to_json())
    card = model_card(recipe, source.class_names)
    if decision is not None:
        recipe["decision"] = decision.to_json()
        card = with_section(card, decision)
    classifier = Classifier.of(kept, described, recipe, folder.path)
    write_files(folder.path, classifier, history, card)
    samples = choose_samples(plan.settings.samples, source, plan.settings.image_size)
    write_samples(folder.path, samples.images(), plan.start.preprocessing)
    if folder.writes:
        write_run_page(folder.path, plan, job.data, history, report)
    job.publish(source)
    if folder.writes:
        job.options.log(f"written {folder.output}")
        classifier = load_classifier(folder.output)
    return Finished(classifier, report, history)


def finish_masked_patches(
    job: Job, plan: TrainingPlan, model: keras.Model, history: list
) -> Pretrained:
    """Writes the folder of a model without classes; as `finish_classifier`."""
    folder = job.folder
    recipe = job.finished_recipe(plan, objective=OBJECTIVE)
    name = configs.layer_name(plan.start.description.name)
    plain = inference_model(model, include_top=False, name=name)
    described = dataclasses.replace(plan.start.description, config=config_of(plain))
    set_description(plain, described)
    plain.save(folder.path / MODEL)
    write_text(folder.path / DESCRIPTION, description_text(described))
    write_text(folder.path / RECIPE, json.dumps(recipe, indent=2) + "\n")
    write_history(folder.path / HISTORY, history)
    write_text(folder.path / CARD, masked_patch_card(recipe, history))
    job.publish(plan.source)
    if folder.writes:
        job.options.log(
            f"written {folder.output}; give it classes with keras-vit finetune --weights "
            f"{folder.output}"
        )
    return Pretrained(plain, folder.output, history)


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


def _first(texts):
    return ", ".join(texts[:_MAX_LISTED]) + (", ..." if len(texts) > _MAX_LISTED else "")


def _seen_before(plan, test, folder):
    """How many test images this run, or the run of its weights, trained on or chose by.

    This run may have begun with other parts of the data. 0 where the content is not known, and for
    the run of the weights, `start_is_known` is whether it is.
    """
    numbers, start = test.fingerprints(), SplitRecord.read(plan.start.opened.folder)
    records = [found for found in (SplitRecord.read(folder), start) if found is not None]
    is_known = numbers is not None and (
        start is not None or getattr(plan.settings, "weights", None) is None
    )
    if numbers is None or not records:
        return {"seen": 0, "start_is_known": is_known}
    seen = np.any([record.has_seen(numbers) for record in records], axis=0)
    return {"seen": int(seen.sum()), "start_is_known": is_known}
