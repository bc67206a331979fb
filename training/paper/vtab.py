"""VTAB-1k: one model transferred to 19 tasks with 1000 training images each."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from keras_vit import configs
from keras_vit.preprocessing import Preprocessing
from keras_vit.text_tables import align_columns
from keras_vit.training import recipes
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.features import default_cache, extract
from keras_vit.training.evaluation.predictions import EvaluatedModel, open_model
from keras_vit.training.evaluation.results import Result, check_same_settings, read_result
from keras_vit.training.fields import required
from keras_vit.training.run.job import finetune
from keras_vit.training.settings import FineTuning

from . import tables
from .vtab_tasks import GROUPS, VtabTask, is_published_version, open_builder, open_vtab, resolve

SEEDS = (0, 1, 2)

# Paper, Table 4 and section 4.1: 384 pixels for all tasks. No augmentation, as in the
# benchmark's own code; 1000 images leave none over for validation: the last weights count.
_ROW = recipes.FINETUNING["VTAB"].settings
SETTINGS = FineTuning(
    image_size=_ROW["image_size"],
    steps=_ROW["steps"],
    batch_size=_ROW["batch_size"],
    learning_rate=_ROW["learning_rate"],
    augmentation="none",
    validation=0.0,
)

# What a linear probe chooses from, on the 200 images for validation.
L2_CHOICES = tuple(10.0**power for power in range(-1, 6))

_LEAST_BATCH = 8


def scaled(settings: FineTuning, scale: float) -> FineTuning:
    """Returns the settings of a small try.

    Steps and batch are multiplied by the scale, the batch being 8 at least; the learning
    rate is multiplied by what the batch was. Warm-up stays a fifth of the steps.

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
    batch_size = max(_LEAST_BATCH, round(settings.batch_size * scale))
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
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    settings: FineTuning = SETTINGS,
    scale: float = 1.0,
    linear: bool = False,
    tune: bool = False,
    data_dir: str | os.PathLike | None = None,
    skip_missing: bool = False,
    keep_models: bool = False,
    command: str = "",
    log: Callable[[str], object] = print,
) -> list[Result]:
    """Transfers a model to VTAB's tasks and writes a result file for each task and seed.

    What is done already is not done again: after a stop the same call goes on, within a
    task from its last checkpoint.

    Args:
        model: A name of `keras_vit.list_models()` or a classifier's folder.
        output: The folder for results.
        weights: Of a name: what `keras_vit.build` takes, or "random".
        tasks: Names of tasks or groups; all 19 by default.
        seeds: Runs of each task; the median counts.
        settings: The recipe.
        scale: Less than 1 for a small try; see `scaled`.
        linear: Whether to fit a linear map to the frozen model's features instead; its
            regularisation is chosen on the 200 images for validation.
        tune: Whether to train on 800 images and evaluate on the 200 for validation, to
            choose settings by.
        data_dir: Where TFDS data are.
        skip_missing: Whether to leave tasks out whose data are not there.
        keep_models: Whether to keep the fine-tuned models, as classifiers' folders.
        command: What to write down as the command.
        log: Where messages go.

    Returns:
        The results, also those of earlier calls.

    Raises:
        ValueError: If a task is unknown, data are missing, or there are results that were
            made with other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    if linear and tune:
        raise ValueError("A linear probe tunes itself on the validation images. Received: both")
    chosen = resolve(tasks)
    settings = dataclasses.replace(scaled(settings, scale), **_start(model, weights))
    if settings.model is not None:
        configs.resolve(settings.model)  # A wrong name is told before data are looked for.
    chosen = _with_data(chosen, data_dir, skip_missing, log)
    output = pathlib.Path(output)
    results = []
    if linear:
        subject = open_model(
            model,
            weights=weights,
            image_size=None if pathlib.Path(model).is_dir() else settings.image_size,
            evaluation="resize",
        )
        described = subject.to_json()
    for name, task in chosen.items():
        for seed in (None,) if linear else seeds:
            recipe = _recipe(described if linear else settings, seed, scale, linear, tune)
            path = output / name / ("result.json" if linear else f"result_seed_{seed}.json")
            if path.exists():
                results.append(_done(path, recipe))
                continue
            log(f"{task.title}" + ("" if linear else f", seed {seed}"))
            if linear:
                result = _probe(subject, described, name, data_dir)
            else:
                folder = output / name / f"seed_{seed}"
                result = _finetune(name, folder, settings, seed, tune, data_dir, command, log)
            result = dataclasses.replace(
                result,
                protocol=_protocol(linear, tune, scale),
                task=task.title,
                recipe=recipe,
                seed=seed,
                command=command,
                data={**result.data, **_described(task, data_dir)},
            )
            result.write(path)
            if not linear and not keep_models:
                shutil.rmtree(folder)
            results.append(result)
    return results


def summarize(results: Iterable[Result]) -> str:
    """Returns the results by task and group and their mean, beside the paper's Table 9."""
    results = list(results)
    header, *paper_rows = tables.paper_table("9")
    paper = [dict(zip(header, row, strict=True)) for row in paper_rows]
    by_task: dict[str, list[float]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(100 * result.metrics["top_1"])
    lines = [["", "median", *(row["model"] for row in paper), "by seed"]]
    medians: dict[str, float] = {}
    for group in GROUPS:
        tasks = [task.title for task in resolve([group]).values()]
        for title in tasks:
            values = by_task.get(title, [])
            if values:
                medians[title] = statistics.median(values)
            lines.append(
                [
                    title,
                    f"{medians[title]:.1f}" if values else "",
                    *(row[title] for row in paper),
                    "  ".join(f"{value:.2f}" for value in values),
                ]
            )
        lines.append(_mean_line(f"{group} (mean of {len(tasks)})", tasks, medians, paper))
        lines.append([""] * len(lines[0]))
    titles = [task.title for task in resolve().values()]
    lines.append(_mean_line("mean of 19 tasks", titles, medians, paper))
    return align_columns(lines, left=(0, -1))


def _mean_line(name, tasks, medians, paper):
    """A mean over all of some tasks; empty where one has no result."""
    mean = statistics.fmean(medians[t] for t in tasks) if set(tasks) <= set(medians) else None
    theirs = [statistics.fmean(float(row[title]) for title in tasks) for row in paper]
    ours = "" if mean is None else f"{mean:.1f}"
    return [name, ours, *(f"{value:.1f}" for value in theirs), ""]


def _protocol(linear, tune, scale):
    """Only what was done by the whole protocol may stand beside the paper's numbers."""
    name = "vtab-linear" if linear else "vtab-tune" if tune else "vtab"
    return name if scale == 1 or linear else f"{name}-scaled"


def _start(model, weights):
    """The settings' fields that say what to start from."""
    if pathlib.Path(model).is_dir():
        if weights is not None:
            raise ValueError(
                "The weights are those of the classifier's folder; give others with a model's "
                f"name only. Received: weights={weights!r}"
            )
        return {"model": None, "weights": os.fspath(model)}
    if weights is None:
        raise ValueError(
            "A model's name needs weights: imagenet21k, a key or a file, or random (--weights). "
            f"Received: {os.fspath(model)!r} without"
        )
    return {"model": os.fspath(model), "weights": None if weights == "random" else weights}


def _with_data(tasks: dict[str, VtabTask], data_dir, skip_missing, log):
    """Opens every task before the first is trained: a missing one is told at once."""
    there, missing = {}, []
    for name, task in tasks.items():
        try:
            open_vtab(name, data_dir)
            there[name] = task
        except ValueError as error:
            missing.append(str(error))
    if missing and (not skip_missing or not there):
        raise ValueError("; ".join(missing))
    for reason in missing:
        log(f"left out: {reason}")
    return there


def _recipe(start, seed, scale, linear, tune):
    """What two runs must have in common to be one."""
    if linear:
        kept = ("name", "weights_sha256", "image_size", "evaluation")
        return {"linear": True, "l2_choices": list(L2_CHOICES), **{k: start[k] for k in kept}}
    return {**dataclasses.replace(start, seed=seed).to_json(), "scale": scale, "tune": tune}


def _done(path, recipe):
    """The result of an earlier call, which must have had the same settings."""
    result = read_result(path)
    check_same_settings(path, result.recipe, recipe)
    return result


def _finetune(name, folder, settings, seed, tune, data_dir, command, log):
    if not folder.exists():  # Else a stop came between its end and the result file.
        finetune(
            f"vtab{'-tune' if tune else ''}:{name}",
            folder,
            dataclasses.replace(settings, seed=seed),
            data_dir=data_dir,
            resume=(folder.with_name(folder.name + ".partial") / "recipe.json").exists(),
            command=command,
            log=log,
        )
    return read_result(folder / "recipe.json")


def _probe(subject: EvaluatedModel, described: dict[str, Any], name, data_dir) -> Result:
    """The linear map from frozen features; without a head nothing else is to be learned."""
    tuning = open_source(f"vtab-tune:{name}", data_dir=data_dir).splits
    test = open_source(f"vtab:{name}", data_dir=data_dir).splits["test"]
    preprocessing = Preprocessing(subject.preprocessing.image_size)
    train, validation, test = (
        extract(
            subject.model,
            examples,
            preprocessing=preprocessing,
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
    l2 = max(scores, key=lambda choice: (scores[choice], choice))  # Of equal ones the smoothest.
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
