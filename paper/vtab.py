"""VTAB-1k, the paper's Table 9: one model transferred to 19 tasks with 1000 images each.

    python paper/vtab.py ViT-B/16 --weights imagenet21k --output runs/vtab
    python paper/vtab.py ViT-B/16 --weights imagenet21k --output runs/probe --linear-probe
    python paper/vtab.py runs/b16 --output runs/try --tasks dtd natural --scale 0.01

Fine-tuning follows the paper (section 4.1, Table 4): SGD with momentum, learning rate 0.01, 2500
steps of 512 images of 384 pixels, a new head of zeros, three seeds, of which the median counts. No
augmentation, as in the benchmark's official code. The same command continues a stopped run.

- The splits are `train800val200` of the benchmark's definition. All 1000 images train, so none
  validate and the last weights count.
- `--tune` trains on the 800 and tests on the 200 images, to choose settings without test images;
  `--scale` is a small try; `--linear-probe` fits a linear map to frozen features, whose
  regularisation is chosen on the 200 images. None of these is comparable with Table 9.
- Resisc45 and Diabetic Retinopathy must be downloaded by hand; the message says from where.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import vtab_tasks
from read_results import read_result
from tables import paper_table
from vtab_tasks import GROUPS, TASKS, VtabTask, resolve

from keras_vit.description.run_record import RunRecord
from keras_vit.opening import open_predictor
from keras_vit.reports.report import align_columns
from keras_vit.training import FineTuning, finetune, recipes
from keras_vit.training.data import open_source
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.evaluation.measures import accuracy_text
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.evaluation.results import (
    Result,
    check_same_settings,
    pretraining_fields,
)

_ROW = recipes.FINETUNING["VTAB"].settings
SETTINGS = FineTuning(
    image_size=_ROW["image_size"],
    steps=_ROW["steps"],
    batch_size=_ROW["batch_size"],
    learning_rate=_ROW["learning_rate"],
    augmentation="none",
    evaluation="resize",
    validation=0.0,
    head="new",
    head_start="zero",
)

# Choices for the linear probe, judged on the 200 validation images.
L2_CHOICES = tuple(10.0**power for power in range(-1, 6))

_MIN_BATCH = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vtab:
    """A model on VTAB-1k.

    Args:
        output: The folder for results.
        settings: The settings of fine-tuning, with the model or its weights.
        seeds: One run of each task for each.
        scale: See `scaled`.
        linear: Whether a linear map is fitted to frozen features instead.
        tune: Whether the 200 validation images test.
        data_dir: The folder of TensorFlow Datasets.
        keep_models: Whether the folders of the classifiers stay.
        command: What is recorded in the results.
        log: Receives messages.
    """

    output: pathlib.Path
    settings: FineTuning = SETTINGS
    seeds: tuple[int, ...] = (0, 1, 2)
    scale: float = 1.0
    linear: bool = False
    tune: bool = False
    data_dir: str | None = None
    keep_models: bool = False
    command: str = ""
    log: Callable[[str], object] = print

    def __post_init__(self):
        if self.linear and self.tune:
            raise ValueError("A linear probe tunes itself on the validation images. Received: both")

    @property
    def protocol(self) -> str:
        """The protocol's name; only "vtab" is comparable to the paper."""
        name = "vtab-linear" if self.linear else "vtab-tune" if self.tune else "vtab"
        return name if self.scale == 1 or self.linear else f"{name}-scaled"

    def run(self, tasks: dict[str, VtabTask]) -> list[Result]:
        """Returns a result for each task and seed; finished ones are read from their files.

        Raises:
            ValueError: If the output has results of other settings.
        """
        results = []
        for name, task in tasks.items():
            for seed in (None,) if self.linear else self.seeds:
                path = self.output / name / f"result_seed_{seed}.json"
                settings = scaled(dataclasses.replace(self.settings, seed=seed or 0), self.scale)
                recipe = {**settings.to_json(), "scale": self.scale, "tune": self.tune}
                if self.linear:
                    recipe |= {"linear": True, "l2_choices": list(L2_CHOICES)}
                if path.exists():
                    check_same_settings(path, read_result(path).recipe, recipe)
                else:
                    self.log(task.title if seed is None else f"{task.title}, seed {seed}")
                    make = self._probe if self.linear else self._finetune
                    result = make(name, settings, path.with_name(f"seed_{seed}"))
                    dataclasses.replace(result, recipe=recipe, seed=seed).write(path)
                results.append(read_result(path))
            shutil.rmtree(self.output / name / "images", ignore_errors=True)
        return results

    def _finetune(self, name, settings, folder):
        images = self._images(name, tune=self.tune)
        if not (folder / "model.keras").exists():
            train = f"tfrecords:{images / 'train'}"
            finetune(train, folder, settings, holdout=0, command=self.command, log=self.log)
        classifier = open_predictor(folder)
        report = evaluate_classifier(classifier, f"tfrecords:{images / 'test'}")
        model = {"name": classifier.recipe["model"], "config": classifier.recipe["config"]}
        model |= {
            "weights": settings.weights,
            **pretraining_fields(RunRecord.from_json(classifier.recipe)),
        }
        if not self.keep_models:
            shutil.rmtree(folder)
        return self._result(name, model, {"top_1": report.top_1}, report.count)

    def _probe(self, name, settings, folder):
        evaluated = build_evaluated(
            settings.model or settings.weights,
            weights=(settings.weights or "random") if settings.model else None,
            image_size=settings.image_size if settings.model else None,
            evaluation=settings.evaluation,
        )

        def features(tune, part):
            source = open_source(f"tfrecords:{self._images(name, tune=tune) / part}", holdout=0)
            examples = next(iter(source.splits.values()))
            return evaluated.features(examples)

        train, validation = features(True, "train"), features(True, "test")
        shutil.rmtree(self.output / name / "images")
        whole, test = features(False, "train"), features(False, "test")

        def accuracy(fitted, judged, l2):
            fit = few_shot.LinearMap(fitted.values.astype("float64"), fitted.labels, l2=l2)
            return float(np.mean(fit.predict(judged.values) == judged.labels))

        scores = {l2: accuracy(train, validation, l2) for l2 in L2_CHOICES}
        l2 = max(scores, key=lambda choice: (scores[choice], choice))  # Ties: the smoothest.
        metrics = {"top_1": accuracy(whole, test, l2), "l2": l2, "validation_top_1": scores[l2]}
        return self._result(name, evaluated.to_json(), metrics, len(test.labels))

    def _images(self, name, tune):
        folder = self.output / name / "images"
        if not folder.exists():
            vtab_tasks.write_task(name, folder, self.data_dir, tune=tune)
        return folder

    def _result(self, name, model, metrics, images):
        task = TASKS[name]
        builder = vtab_tasks.open_builder(task, self.data_dir)
        # In another major version the first 1000 examples may be other ones.
        published = str(builder.version).partition(".")[0] == task.version
        data = {"dataset": builder.info.full_name, "published_version": published}
        return Result(self.protocol, task.title, model, data, metrics, images, command=self.command)


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
        steps=max(1, round((settings.steps or 0) * scale)),
        batch_size=batch_size,
        learning_rate=settings.learning_rate * batch_size / settings.batch_size,
    )


def summarize(results: Iterable[Result]) -> str:
    """Returns a table of medians by task, group means and the mean, with the paper's Table 9."""
    results = list(results)
    header, *paper_rows = paper_table("9")
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


def available(
    names: Sequence[str],
    data_dir: str | None = None,
    skip_missing: bool = False,
    log: Callable[[str], object] = print,
) -> dict[str, VtabTask]:
    """Returns the tasks by name or group whose data are there, all opened before one trains."""
    found, missing = {}, []
    for name, task in resolve(names).items():
        try:
            vtab_tasks.open_builder(task, data_dir)
            found[name] = task
        except ValueError as error:
            if isinstance(error.__cause__, OSError) and not skip_missing:
                raise  # There is no network, so that the other downloads would fail too.
            missing.append(str(error))
    if missing and (not skip_missing or not found):
        raise ValueError("; ".join(missing))
    for reason in missing:
        log(f"left out: {reason}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the tasks and prints the results with the paper's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a name of `keras-vit models`, or weights")
    parser.add_argument("--weights", help="for a name: its weights, or random")
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--tasks", nargs="+", default=[], help=f"names, or {', '.join(GROUPS)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--scale", type=float, default=1.0, help="of steps and batch size")
    parser.add_argument("--linear-probe", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--data-dir")
    parser.add_argument("--skip-missing", action="store_true")
    parser.add_argument("--keep-models", action="store_true")
    parser.add_argument("--image-size", type=int, default=_ROW["image_size"][0])
    given = parser.parse_args(arguments)
    weights = None if given.weights == "random" else given.weights
    start = {"model": given.model, "weights": weights}
    if given.weights is None:
        start = {"model": None, "weights": given.model}
    study = Vtab(
        output=given.output,
        settings=dataclasses.replace(SETTINGS, image_size=(given.image_size,) * 2, **start),
        seeds=tuple(given.seeds),
        scale=given.scale,
        linear=given.linear_probe,
        tune=given.tune,
        data_dir=given.data_dir,
        keep_models=given.keep_models,
        command=shlex.join(["python", *sys.argv]),
    )
    results = study.run(available(given.tasks, given.data_dir, given.skip_missing))
    print(summarize(results))
    if study.protocol != "vtab":
        print(f"\nThe results are of the protocol {study.protocol}, unlike the paper's columns.")


if __name__ == "__main__":
    main()
