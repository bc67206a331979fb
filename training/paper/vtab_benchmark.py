"""VTAB-1k: one model transferred to 19 tasks with 1000 training images each."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.weight_sources import classifier_folder
from keras_vit.models.opening import open_model
from keras_vit.training import recipes
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.vtab_tasks import (
    GROUPS,
    VtabTask,
    is_published_version,
    open_builder,
    open_vtab,
    resolve,
)
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.features import default_cache, extract
from keras_vit.training.evaluation.intervals import accuracy_text
from keras_vit.training.evaluation.predictions import EvaluatedModel, build_evaluated
from keras_vit.training.evaluation.protocols import VtabOptions
from keras_vit.training.evaluation.results import Result, check_same_settings, read_result
from keras_vit.training.run.classifier_jobs import finetune_once
from keras_vit.training.settings import FineTuning
from keras_vit.utils.fields import required
from keras_vit.utils.files import RECIPE
from keras_vit.utils.text_tables import align_columns

from . import tables

# Paper, Table 4 and section 4.1: 384 pixels for all tasks. No augmentation, as in the official
# code of the benchmark. All 1000 images train, so none validate and the last weights count.
_ROW = recipes.FINETUNING["VTAB"].settings
SETTINGS = FineTuning(
    image_size=_ROW["image_size"],
    steps=_ROW["steps"],
    batch_size=_ROW["batch_size"],
    learning_rate=_ROW["learning_rate"],
    augmentation="none",
    evaluation="resize",
    validation=0.0,
)

# Choices for the linear probe, judged on the 200 validation images.
L2_CHOICES = tuple(10.0**power for power in range(-1, 6))

_MIN_BATCH = 8


def scaled(settings: FineTuning, scale: float) -> FineTuning:
    """Returns settings for a small trial.

    Steps and batch size are multiplied by the scale; the batch size is at least 8. The
    learning rate is scaled as the batch size. Warm-up stays a fifth of the steps.

    Args:
        settings: The settings.
        scale: In (0, 1].

    Raises:
        ValueError: If the scale is out of range.
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale must be in (0, 1]. Received: scale={scale}")
    if scale == 1:
        return settings
    batch_size = max(_MIN_BATCH, round(settings.batch_size * scale))
    return dataclasses.replace(
        settings,
        steps=max(1, round(required(settings.steps, "steps") * scale)),
        batch_size=batch_size,
        learning_rate=settings.learning_rate * batch_size / settings.batch_size,
    )


def run_vtab(
    model: str | os.PathLike,
    output: str | os.PathLike,
    *,
    weights: str | None = None,
    settings: FineTuning = SETTINGS,
    command: str = "",
    log: Callable[[str], object] = print,
    **options: Any,
) -> list[Result]:
    """Transfers a model to VTAB's tasks and writes a result file for each task and seed.

    Finished runs are not repeated. The same call continues a stopped run from the last
    checkpoint of the task.

    Args:
        model: A name of `keras_vit.list_models()` or a classifier's folder.
        output: The folder for results.
        weights: For a name: `weights` of `keras_vit.build`, or "random".
        settings: The settings of fine-tuning.
        command: The command line, for the result files.
        log: Receives messages.
        **options: Fields of `VtabOptions`, such as `tasks` and `seeds`.

    Returns:
        The results, including results of earlier calls.

    Raises:
        ValueError: If a task is unknown, data are missing, or the output has results of
            other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving; a KeyboardInterrupt.
    """
    asked = VtabOptions(**options)
    linear, data_dir = asked.linear, asked.data_dir
    if linear and asked.tune:
        raise ValueError("A linear probe tunes itself on the validation images. Received: both")
    chosen = resolve(asked.tasks)
    settings = dataclasses.replace(scaled(settings, asked.scale), **_start(model, weights))
    if settings.model is not None:
        configs.resolve(settings.model)  # A wrong name is an error before data are downloaded.
    facts = settings.unknown_facts
    if settings.weights is not None:  # So is a fact that must be given.
        start = {"model": settings.model, "image_size": settings.image_size}
        open_model(settings.weights, **start, **facts).preprocessing_for()
    chosen = _available(chosen, data_dir, asked.skip_missing, log)
    output = pathlib.Path(output)
    results = []
    if linear:
        probed = build_evaluated(
            model,
            weights=weights,
            image_size=None if classifier_folder(model).exists() else settings.image_size,
            evaluation=settings.evaluation,
            **facts,
        )
        log(probed.description.facts)
        described = probed.to_json()
    for name, task in chosen.items():
        for seed in (None,) if linear else asked.seeds:
            recipe = _recipe(described if linear else settings, seed, asked)
            path = output / name / ("result.json" if linear else f"result_seed_{seed}.json")
            if path.exists():
                done = read_result(path)
                check_same_settings(path, done.recipe, recipe)
                results.append(done)
                continue
            log(f"{task.title}" + ("" if linear else f", seed {seed}"))
            if linear:
                result = _probe(probed, described, name, data_dir)
            else:
                folder = output / name / f"seed_{seed}"
                result = _finetune(name, folder, settings, seed, asked, command, log)
            result = dataclasses.replace(
                result,
                protocol=_protocol(asked),
                task=task.title,
                recipe=recipe,
                seed=seed,
                command=command,
                data={**result.data, **_described(task, data_dir)},
            )
            result.write(path)
            if not linear and not asked.keep_models:
                shutil.rmtree(folder)
            results.append(result)
    return results


def summarize(results: Iterable[Result]) -> str:
    """Returns a table of medians by task, group means and the mean, with the paper's Table 9."""
    results = list(results)
    header, *paper_rows = tables.paper_table("9")
    paper = [dict(zip(header, row, strict=True)) for row in paper_rows]
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    lines = [["", "median", *(row["model"] for row in paper), "by seed"]]
    medians: dict[str, float] = {}
    for group in GROUPS:
        tasks = [task.title for task in resolve([group]).values()]
        for title in tasks:
            values = [(seed.metrics["top_1"], seed.images) for seed in by_task.get(title, [])]
            if values:
                medians[title] = 100 * statistics.median(top_1 for top_1, _ in values)
            lines.append(
                [
                    title,
                    f"{medians[title]:.1f}" if values else "",
                    *(row[title] for row in paper),
                    "  ".join(accuracy_text(*value) for value in values),
                ]
            )
        lines.append(_mean_line(f"{group} (mean of {len(tasks)})", tasks, medians, paper))
        lines.append([""] * len(lines[0]))
    titles = [task.title for task in resolve().values()]
    lines.append(_mean_line("mean of 19 tasks", titles, medians, paper))
    return align_columns(lines, left=(0, -1))


def _mean_line(
    name: str, tasks: list[str], medians: dict[str, float], paper: list[dict[str, str]]
) -> list[str]:
    """The mean over tasks; empty if a task has no result."""
    mean = statistics.fmean(medians[t] for t in tasks) if set(tasks) <= set(medians) else None
    theirs = [statistics.fmean(float(row[title]) for title in tasks) for row in paper]
    ours = "" if mean is None else f"{mean:.1f}"
    return [name, ours, *(f"{value:.1f}" for value in theirs), ""]


def _protocol(asked: VtabOptions) -> str:
    """The protocol's name; only "vtab" is comparable to the paper."""
    name = "vtab-linear" if asked.linear else "vtab-tune" if asked.tune else "vtab"
    return name if asked.scale == 1 or asked.linear else f"{name}-scaled"


def _start(model: str | os.PathLike, weights: str | None) -> dict[str, str | None]:
    """The fields `model` and `weights` of the settings."""
    if classifier_folder(model).exists() and os.fspath(model) not in configs.MODELS:
        if weights is not None:
            raise ValueError(
                "A classifier folder has its own weights; give weights only with a model's "
                f"name. Received: weights={weights!r}"
            )
        return {"model": None, "weights": os.fspath(model)}
    if weights is None:
        raise ValueError(
            "A model's name needs weights: imagenet21k, a key or a file, or random (--weights). "
            f"Received: {os.fspath(model)!r} without weights"
        )
    return {"model": os.fspath(model), "weights": None if weights == "random" else weights}


def _available(
    tasks: dict[str, VtabTask],
    data_dir: str | os.PathLike | None,
    skip_missing: bool,
    log: Callable[[str], object],
) -> dict[str, VtabTask]:
    """The tasks with data; all are opened before the first one trains."""
    available, missing = {}, []
    for name, task in tasks.items():
        try:
            open_vtab(name, data_dir)
            available[name] = task
        except ValueError as error:
            if isinstance(error.__cause__, OSError) and not skip_missing:
                raise  # There is no network, so that the other downloads would fail too.
            missing.append(str(error))
    if missing and (not skip_missing or not available):
        raise ValueError("; ".join(missing))
    for reason in missing:
        log(f"left out: {reason}")
    return available


def _recipe(start: Any, seed: int | None, asked: VtabOptions) -> dict[str, Any]:
    """The settings in a result file, which must be equal to continue."""
    if asked.linear:
        kept = ["name", "weights_sha256", "image_size", "evaluation"]
        if start["value_range"] != [-1.0, 1.0]:
            kept.append("value_range")
        return {"linear": True, "l2_choices": list(L2_CHOICES), **{k: start[k] for k in kept}}
    settings = dataclasses.replace(start, seed=seed).to_json()
    return {**settings, "scale": asked.scale, "tune": asked.tune}


def _finetune(name, folder, settings, seed, asked, command, log):
    data = DataSpec(f"vtab{'-tune' if asked.tune else ''}:{name}", asked.data_dir)
    settings = dataclasses.replace(settings, seed=seed, head="new")  # As in the protocol.
    finetune_once(data, folder, settings, command=command, log=log)
    return read_result(folder / RECIPE)


def _probe(
    probed: EvaluatedModel,
    described: dict[str, Any],
    name: str,
    data_dir: str | os.PathLike | None,
) -> Result:
    """Fits a linear map to features of the frozen model."""
    tuning = open_source(f"vtab-tune:{name}", data_dir=data_dir).splits
    test = open_source(f"vtab:{name}", data_dir=data_dir).splits["test"]
    train, validation, test = (
        extract(
            probed.model,
            examples,
            preprocessing=probed.preprocessing,
            cache=default_cache(),
            progress=True,
        )
        for examples in (tuning["train"], tuning["test"], test)
    )

    def share(fitted, features):
        return float(np.mean(fitted.predict(features.values) == features.labels))

    fit = few_shot.LinearMap
    scores = {
        l2: share(fit(train.values, train.labels, l2=l2, dtype="float64"), validation)
        for l2 in L2_CHOICES
    }
    l2 = max(scores, key=lambda choice: (scores[choice], choice))  # Ties go to the smoothest.
    values = np.concatenate([train.values, validation.values])
    labels = np.concatenate([train.labels, validation.labels])
    top_1 = share(fit(values, labels, l2=l2, dtype="float64"), test)
    counts = {"train": len(labels), "validation": 0, "test": len(test.labels)}
    return Result(
        "vtab-linear",
        name,
        described,
        {"data": f"vtab:{name}", "images": counts},
        {"top_1": top_1, "l2": l2, "validation_top_1": scores[l2]},
        len(test.labels),
    )


def _described(task, data_dir):
    builder = open_builder(task, data_dir)
    return {
        "dataset": builder.info.full_name,
        "published_version": is_published_version(builder, task),
    }
