"""Fine-tuning and pre-training: a run from data to a folder, read from top to bottom."""

from __future__ import annotations

import os

import keras

from keras_vit.description.class_labels import SCORES
from keras_vit.description.run_record import RunRecord
from keras_vit.training.data.spec import Data
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining, Settings
from keras_vit.training.trainer.devices import Place

from .card import describe_plan
from .classes import Classes, FineTunedClasses
from .image_size import probed_size, size_to_try
from .loop import standard_error, train
from .machine import dtype_policy
from .masked_patches import HiddenPatches
from .objective import Finished, Objective
from .plan import Plan, make_plan
from .start import Run, start_of

# By the settings of a run.
OBJECTIVES: dict[type[Settings], type[Objective]] = {
    FineTuning: FineTunedClasses,
    MaskedPatches: HiddenPatches,
    PreTraining: Classes,
}


def objective_of(settings: Settings) -> Objective:
    """Returns what a run with some settings trains for."""
    return OBJECTIVES[type(settings)](settings)


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
    return run(start_of(data, output, settings or FineTuning(), options))


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
    return run(start_of(data, output, settings or PreTraining(), options))


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
    return run(start_of(data, output, settings or MaskedPatches(), options))


def run(started: Run) -> Finished:
    """Trains the model of a run and writes the folder.

    Args:
        started: The data, the folder and the settings; see `start`.

    Returns:
        A `Finished`.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    folder, log, objective = started.folder, started.options.log, objective_of(started.settings)
    with started.running():
        # Open the weights and the data, and plan the run.
        # Before TensorFlow's first use: workers meet here.
        place = Place(started.settings.strategy, log)
        opened = objective.start(started, place.replicas, in_first=place.from_first)
        size = None
        if not folder.resume:
            size = probed_size(opened, place, progress=folder.writes)
        plan = make_plan(opened, started.begun, size)
        settings = plan.settings
        started.add(plan.record)

        # Open the model.
        keras.utils.set_random_seed(settings.seed)
        with dtype_policy(settings.precision), place.scope():
            model, origin = objective.build(plan)
            trainer = objective.trainer(model, plan)
        contents = started.check_unchanged(plan.source, model)
        start_step = folder.checkpoints.restore(trainer) if folder.resume else 0
        if not start_step:
            with place.scope():
                for stage in plan.stages:
                    facts = started.record.facts
                    facts = stage.before(plan, model, facts, progress=folder.writes)
                    started.add(RunRecord(facts=facts))

        # Train. The folder's first write is after all errors of the input.
        images = place.batches(plan.source.splits["train"], plan.batches(start_step))
        objective.begin(started, plan, contents, start_step)
        lines = {**objective.facts(plan), "weights": origin}
        if start_step:
            lines["resumed"] = f"after step {start_step}"
        log(describe_plan(plan, started.record, lines))
        history = train(
            trainer,
            images,
            folder,
            settings,
            start_step=start_step,
            validate=objective.validation(trainer, plan),
            task=plan.source.task,
            callbacks=started.options.callbacks,
        )
        validated = plan.images.counts["validation"]
        if line := below_start(history, SCORES[plan.source.task], validated):
            best = folder.best_score() if settings.keep == "best" else None
            log(line if best is None else f"{line}. Kept: step {best[0]}, the best")
        skipped_steps = int(keras.ops.convert_to_numpy(trainer.skipped_steps))
        started.add(RunRecord(skipped_steps=skipped_steps))

        # Evaluate and save.
        finished = objective.finish(started, plan, model, history, contents)
        place.leave()
        return finished


def plan_of(started: Run, *, download: bool = True) -> Plan:
    """Returns the plan of a run on one device, without a probe of larger images; writes nothing.

    Args:
        started: The run.
        download: Whether missing data and repositories are downloaded.

    Raises:
        ValueError: If something does not fit; weights are not read.
    """
    opened = objective_of(started.settings).start(started, download=download)
    return make_plan(opened, started.begun)


def dry_run(started: Run) -> str:
    """Returns a human-readable description of a run; trains, writes and fetches nothing.

    Data or a repository that would have to be downloaded are named instead.

    Args:
        started: The run.

    Raises:
        ValueError: If something does not fit; weights are not read.
    """
    try:
        plan = plan_of(started, download=False)
    except NotPrepared as missing:
        return f"{missing}. A dry run fetches nothing; the other lines need it"
    lines = objective_of(started.settings).facts(plan)
    if not started.folder.resume and (larger := size_to_try(plan.start)):
        side, times = larger
        longer = f"a step takes {times:.1f} times as long"
        lines["larger size"] = f"{side}x{side} is tried first by a linear probe; {longer}"
    return describe_plan(plan, started.record.add(plan.record), lines)


def below_start(history: list[dict[str, str]], score: str, count: int) -> str | None:
    """Returns a line for a run whose last weights are worse than those that it began with.

    None for a fall within two standard errors of the start, which is chance.

    Args:
        history: The rows of `history.csv`.
        score: The name of the score.
        count: Validation images.
    """
    column = f"validation_{score}"
    rows = [row for row in history if row.get(column)]
    if not rows or rows[0]["step"] != "0":
        return None
    first, last = float(rows[0][column]), float(rows[-1][column])
    if last >= first - 2 * standard_error(first, count):
        return None
    return (
        f"The run ends below its start on the validation images: {last:.1%} "
        f"after step {rows[-1]['step']}, {first:.1%} before the first; try a "
        "lower --learning-rate or --train head"
    )
