"""Fine-tuning and pre-training: a run from data to a folder, read from top to bottom."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.classifier_folder import read_classifier, write_files, write_without_classes
from keras_vit.configs.recognition import config_of
from keras_vit.description.class_labels import ACTIVATIONS, SCORES
from keras_vit.images.samples import write_samples
from keras_vit.models.build import build
from keras_vit.models.rebuild import inference_model
from keras_vit.predictor import Predictor, check_classifier
from keras_vit.training.data.spec import Data
from keras_vit.training.data.things import shown_before
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import OBJECTIVE, FineTuning, MaskedPatches, PreTraining
from keras_vit.training.trainer.devices import Place, backend_devices
from keras_vit.training.trainer.trainer import Trainer

from .card import describe_end, describe_plan, masked_patch_card, model_card, write_run_page
from .head_start import CLEARLY, left_out_answers
from .job import Job, job_of
from .loop import choose_trained, make_loss, make_metric, make_trainer, train
from .machine import attention_as_it_began, dtype_policy
from .masked_patches import make_masked_patch_trainer, masked_patch_model
from .settle import Outcome, Settled


def finetune(
    data: Data, output: str | os.PathLike, settings: FineTuning | None = None, **options: object
) -> Finished:
    """Fine-tunes a model on a data set and writes a classifier's folder; paper, section 3.2.

    The pre-training head is replaced by a linear probe of the features, except for the rows of
    classes that the weights name too, unless the probe is clearly better (`head_start`; "zero" is
    the paper's layer of zeros). Position embeddings are interpolated to the new resolution, and
    everything is trained: by default with SGD with momentum, cosine decay after a linear warm-up,
    gradients clipped at global norm 1. Of the weights, or their averages, whose validation accuracy
    is not clearly below the best, those with the lowest validation loss are kept, and evaluated on
    the test images, which are used for nothing else.

    Args:
        data: A folder `{train,test}/<class>/*` or `<class>/*`, a CSV file of paths and
            labels, or "tfds:NAME". None with `resume`. Arrays, see `open_source`; with
            `resume` the same again. Or a `DataSpec`, which has the options of the data too.
        output: The folder to write. Until the end everything is in `OUTPUT.partial`.
        settings: The recipe; by default the one of docs/finetune.md, which differs from the paper.
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
    return run(job_of(data, output, settings or FineTuning(), options))


def pretrain(
    data: Data, output: str | os.PathLike, settings: PreTraining | None = None, **options: object
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
    return run(job_of(data, output, settings or PreTraining(), options))


def pretrain_masked_patches(
    data: Data, output: str | os.PathLike, settings: MaskedPatches | None = None, **options: object
) -> Finished:
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
        A `Finished`, without a classifier.

    Raises:
        ValueError: If data and settings do not fit, or the loss is not finite.
        OSError: If the output cannot be written.
        Interrupted: On Ctrl-C or SIGTERM, after saving; a KeyboardInterrupt.

    Example:
    >>> settings = MaskedPatches(model="ViT-S/16", steps=10_000, batch_size=512)
    >>> pretrain_masked_patches("photos", "runs/body", settings)
    >>> finetune("pets", "runs/pets", FineTuning(weights="runs/body"))
    """
    return run(job_of(data, output, settings or MaskedPatches(), options))


@dataclasses.dataclass(frozen=True, repr=False)
class Finished:
    """A finished run.

    Args:
        folder: The folder.
        history: The rows of `history.csv`; of masked patches, "accuracy" is the share of correct
            colours.
        model: The model with its best weights, as saved; of masked patches without a head.
        classifier: It as read back from the folder; None of masked patches.
        report: The evaluation on the test images, a `ClassificationReport`, or of
            multi-label data a `MultilabelReport`; None if the data have none.
    """

    folder: pathlib.Path
    history: list[dict[str, str]]
    model: keras.Model
    classifier: Predictor | None = None
    report: EvaluationReport | None = None

    def __repr__(self) -> str:
        summary = self.report.summary if self.report else "no test images"
        return f"<Finished: {self.folder}, {summary}; print(finished.report) shows all>"


def run(job: Job) -> Finished:
    """Trains the model of a job and writes the folder.

    Args:
        job: The data, the folder and the settings.

    Returns:
        A `Finished`.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    with job.running(), attention_as_it_began(job.begun):
        # Open the data and find the weights.
        # Before TensorFlow's first use: workers meet here.
        place = Place(job.settings.strategy, job.options.log)
        plan = settled_at_best_size(job, place)
        settings = plan.settings
        job.recipe = plan.recipe

        # Open the model.
        keras.utils.set_random_seed(settings.seed)
        with dtype_policy(settings.precision), place.scope():
            model, origin = build_model(plan)
            trainer = compiled_trainer(model, plan)
        if plan.has_classes:
            check_classifier(plan.labels, model, plan.preprocessing)
        job.check_unchanged(plan, model)
        start_step = job.folder.checkpoints.restore(trainer) if job.folder.resume else 0
        if not start_step:
            with place.scope():
                for stage in plan.stages:
                    facts = stage.before(plan, model, job.recipe.facts, progress=job.folder.writes)
                    job.recipe = job.recipe.with_facts(**facts)

        # Train. The folder's first write is after all errors of the input.
        images = place.batches(plan.source.splits["train"], **plan.batches, start_step=start_step)
        job.begin(plan, start_step)
        lines = {"weights": origin}
        if start_step:
            lines["resumed"] = f"after step {start_step}"
        job.options.log(describe_plan(plan, lines, job.recipe.facts))
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
        if line := below_start(history, SCORES[plan.source.task]):
            best = job.folder.best_score() if settings.keep == "best" else None
            job.options.log(line if best is None else f"{line}. Kept: step {best[0]}, the best")
        skipped_steps = int(keras.ops.convert_to_numpy(trainer.skipped_steps))
        job.recipe = dataclasses.replace(job.recipe, skipped_steps=skipped_steps)

        # Evaluate and save.
        finish = finish_classifier if plan.has_classes else finish_masked_patches
        finished = finish(job, plan, model, history)
        place.leave()
        return finished


def settled_at_best_size(job: Job, place: Place) -> Settled:
    """Returns what is settled, for larger images where their size is open and a probe is better.

    A linear probe must name clearly more of the left-out images right, by two standard errors.
    """
    plan = job.settle(place.replicas, in_first=place.from_first)
    larger = job.size_to_try(plan)
    if larger is None:
        return plan
    side, times = larger
    size = (side, side)
    right = []
    for tried in (plan, job.settle(place.replicas, size=(size, ""))):
        with dtype_policy(tried.settings.precision), place.scope():
            model, _ = build_model(tried)
            answers, groups = left_out_answers(model, tried, progress=job.folder.writes)
        right.append(answers)
    gains = np.bincount(groups, right[1].astype(float) - right[0])
    is_clear = gains.mean() > CLEARLY * gains.std() / len(gains) ** 0.5
    seen = plan.preprocessing.image_size
    reason = (
        f"a linear probe of {len(groups)} training images, each left out: {right[0].mean():.1%} "
        f"right at {seen[0]}, {right[1].mean():.1%} at {side}, {times:.1f} times as long"
    )
    return job.settle(place.replicas, size=(size if is_clear else seen, reason))


def build_model(plan: Settled) -> tuple[keras.Model, str]:
    """Returns the model to train, which gives logits, and a text on the origin of its weights."""
    settings, description = plan.settings, plan.description
    changes = {
        name: getattr(settings, name)
        for name in ("dropout_rate", "stochastic_depth_rate", "remat", "head_bias")
        # A ResNet's config has no dropout: 0 changes nothing, other rates raise an error.
        if getattr(settings, name) or hasattr(plan.config, name)
    }
    config = configs.resolve(plan.config, **changes)
    if isinstance(settings, MaskedPatches):
        given = {name: getattr(settings, name) for name in ("image_size", "target", "corruption")}
        return masked_patch_model(config, **given), "random"
    model = build(
        config,
        input_shape=description.input_shape,
        classes=description.classes,
        classifier_activation=None,
        name=configs.layer_name(description.name),
    )
    report = plan.weights.load_into(model, plan.head)
    if isinstance(settings, FineTuning):
        choose_trained(model, settings.train, settings.lora_rank)
    if report is None:
        return model, "random"
    origin = str(settings.weights) + (", a new head" if plan.head == "new" else "")
    if report.resized:
        grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
        origin += f", positions interpolated from {', '.join(sorted(grids))} patches"
    return model, origin


def below_start(history: list[dict[str, str]], score: str) -> str | None:
    """Returns a line for a run whose last weights are worse than those that it began with."""
    column = f"validation_{score}"
    rows = [row for row in history if row.get(column)]
    if not rows or rows[0]["step"] != "0" or float(rows[-1][column]) >= float(rows[0][column]):
        return None
    return (
        f"The run ends below its start on the validation images: {float(rows[-1][column]):.1%} "
        f"after step {rows[-1]['step']}, {float(rows[0][column]):.1%} before the first; try a "
        "lower --learning-rate or --train head"
    )


def compiled_trainer(model: keras.Model, plan: Settled) -> Trainer:
    """Returns the trainer of a plan's model, as its stages want it."""
    settings = plan.settings
    if isinstance(settings, MaskedPatches):
        return make_masked_patch_trainer(model, settings)
    options: dict[str, Any] = {
        "loss": make_loss(settings, plan.class_weight or None),
        "metric": make_metric(plan.source.task),
    }
    for stage in plan.stages:
        options |= stage.trainer(plan)
    return make_trainer(model, settings, **options)


def validation(trainer: Trainer, plan: Settled) -> Callable[[], Any] | None:
    """Returns a function that evaluates the weights on the validation images; None without any.

    Its result has a `loss` and a `score`, by which the best weights are chosen.
    """
    examples = plan.validation
    if examples is None:
        return None
    predictor = backend_devices().predictor_of(trainer)
    return lambda: plan.evaluate(predictor, examples, from_logits=True)


def finish_classifier(job: Job, plan: Settled, model: keras.Model, history: list) -> Finished:
    """Evaluates the model on the test images and writes the classifier's folder.

    Args:
        job: The job.
        plan: What was settled.
        model: The model with its best weights.
        history: The rows of `history.csv`.
    """
    folder, source, log = job.folder, plan.source, job.options.log
    trained = inference_model(model, activation=ACTIVATIONS[source.task])
    outcome = Outcome(trained, plan.labels, job.fingerprints, log)
    for stage in plan.stages:
        stage.after(plan, outcome)
    kept, labels = outcome.model, outcome.labels
    report, tested, test = None, None, source.splits.get("test")
    if test is not None and len(test):
        report = plan.evaluate(kept, test, labels, progress=folder.writes)
        skipped = tuple(source.skipped)
        start = plan.weights.folder
        is_shown_before, has_record = shown_before(source, job.fingerprints, start)
        is_known = has_record or getattr(plan.settings, "weights", None) is None
        report = dataclasses.replace(
            report,
            skipped=skipped,
            simple=job.recipe.simple,
            is_shown_before=is_shown_before,
            ignores_copies=plan.images.ignores_copies,
        )
        for stage in plan.stages:
            stage.tested(plan, report, log)
        seen = 0 if is_shown_before is None else int(is_shown_before.sum())
        tested = {**report.to_json(), "seen": seen, "start_is_known": is_known}
    described = dataclasses.replace(plan.description, config=config_of(kept), labels=labels)
    recipe = job.finished_recipe(
        plan, test=tested, description=described.to_json(), decision=outcome.decision
    )
    card = model_card(recipe, source.class_names, report) + "".join(outcome.sections)
    classifier = Predictor.of(kept, described, recipe.to_json(), folder.path)
    write_files(folder.path, classifier, history, card)
    write_samples(folder.path, plan.samples.images(), plan.preprocessing)
    if folder.writes:
        write_run_page(folder, plan, job.data, recipe, history, report)
    job.publish(source)
    if folder.writes:
        log(describe_end(report, folder.output))
        classifier = read_classifier(folder.output)
    return Finished(folder.output, history, classifier.model, classifier, report)


def finish_masked_patches(job: Job, plan: Settled, model: keras.Model, history: list) -> Finished:
    """Writes the folder of a model without classes; as `finish_classifier`."""
    folder, recipe = job.folder, job.finished_recipe(plan, objective=OBJECTIVE)
    name = configs.layer_name(plan.description.name)
    plain = inference_model(model, include_top=False, name=name)
    described = dataclasses.replace(plan.description, config=config_of(plain))
    card = masked_patch_card(recipe, history)
    write_without_classes(folder.path, plain, described, recipe.to_json(), history, card)
    job.publish(plan.source)
    if folder.writes:
        command = f"keras-vit finetune --weights {folder.output}"
        job.options.log(f"written {folder.output}; give it classes with {command}")
    return Finished(folder.output, history, plain)
