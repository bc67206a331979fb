"""Learning-rate sweep, then the best rate with several seeds (paper, section 4.1)."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from keras_vit.description.class_labels import MULTILABEL, SCORES
from keras_vit.training import recipes
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.results import RESULT, read_result
from keras_vit.training.settings import FineTuning
from keras_vit.utils.files import HISTORY, RECIPE, write_text
from keras_vit.utils.report import markdown_table

from .folds import FoldsResult, finetune_folds, finetune_once, score_text, start_or_continue

PROTOCOL = "sweep"

SWEEP = "sweep.json"  # The settings and data of the sweep, in the output's folder.
TABLE = "sweep.md"


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Args:
        learning_rate: The best learning rate.
        development: Accuracy on the development split by learning rate; empty for a single
            rate without folds, which needs no choice. With folds, the mean out of them.
        test: Accuracy on the test images by seed.
        folder: The folder of all runs.
        metric: Name in result files of what is called accuracy here: "top_1", or "mAP" of
            multi-label data.
        development_images: Images of the development split; 0 if it is not known.
        test_images: The test images; 0 if it is not known.
        folds: With folds, the cross-validation of each learning rate.
    """

    learning_rate: float
    development: dict[float, float]
    test: dict[int, float]
    folder: pathlib.Path
    metric: str = "top_1"
    development_images: int = 0
    test_images: int = 0
    folds: dict[float, FoldsResult] = dataclasses.field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean of the test accuracy over the seeds."""
        return statistics.fmean(self.test.values())

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the test accuracy; None for a single seed."""
        return statistics.stdev(self.test.values()) if len(self.test) > 1 else None

    def __str__(self) -> str:
        """The tables, in Markdown."""
        tables, metric = [], self.metric.replace("_", "-")
        if self.development:
            where = "on the development split"
            if self.folds:
                where = f"out of {len(self.folds[self.learning_rate].images)} folds"
            rows = [("learning rate", f"{metric} {where}")]
            for rate, accuracy in self.development.items():
                best = " (best)" if rate == self.learning_rate else ""
                text = (
                    self.folds[rate].mean_text
                    if self.folds
                    else score_text(self.metric, accuracy, self.development_images)
                )
                rows.append((f"{rate:g}{best}", text))
            tables.append(markdown_table(rows))
        deviation = "" if self.deviation is None else f", ± {100 * self.deviation:.2f} over seeds"
        rows = [
            (f"seed, learning rate {self.learning_rate:g}", f"{metric} on test"),
            *(
                (str(seed), score_text(self.metric, value, self.test_images))
                for seed, value in self.test.items()
            ),
            ("mean", score_text(self.metric, self.mean, self.test_images) + deviation),
        ]
        tables.append(markdown_table(rows))
        return "\n\n".join(tables)


def sweep(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    *,
    learning_rates: Sequence[float] | None = None,
    seeds: Sequence[int] = recipes.SWEEP_SEEDS,
    folds: int | None = None,
    command: str = "",
    log: Callable[[str], object] = print,
    **data_options: Any,
) -> SweepResult:
    """Finds the learning rate on a development split, then trains on all with several seeds.

    A development split (`settings.validation`, by default the recipe's fraction) is kept out
    of the training images; data with a validation part use that. Each learning rate is
    scored on it after the last step. With folds, each rate is trained K times instead, each time
    without another K-th of the training images, and scored by its mean accuracy on the images
    that were left out (`finetune_folds`). The best rate is trained on all training images, once
    with each seed, and the last weights are evaluated on the test images, which are used for
    nothing else.

    Each run has a folder: `learning_rates/RATE`, without weights, and `seeds/SEED`, a
    classifier. The same call continues a stopped sweep: finished runs are kept, and an
    unfinished run resumes from its last checkpoint. `result.json` and `sweep.md` have the
    result.

    Args:
        data: As for `finetune`.
        output: The folder for all runs.
        settings: The recipe; the sweep sets `learning_rate` and `seed`.
        learning_rates: Learning rates to try; by default the rates in the recipe's row of
            Table 4. A single rate is taken, and tried with folds only.
        seeds: Seeds of the final runs. The first also seeds the trial runs, the development
            split, and the test images held out of data without a test part, unless the data
            have a `split_seed`.
        folds: K, at least 2; None for a development split.
        command: The command to record.
        log: Receives messages.
        **data_options: As for `finetune`.

    Returns:
        A `SweepResult`.

    Raises:
        ValueError: If something does not fit, there are no test images, or the output has
            runs of other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> settings = FineTuning.from_recipe("Oxford Flowers-102", model="ViT-B/16")
    >>> print(sweep("tfds:oxford_flowers102", "runs/flowers", settings))
    """
    settings = settings or FineTuning()
    rates = tuple(learning_rates or _recipe_rates(settings))
    seeds = tuple(seeds)
    for name, values in (("learning_rates", rates), ("seeds", seeds)):
        if not values or len(set(values)) != len(values):
            raise ValueError(f"{name} must be one or more, each once. Received: {values}")
    if folds is not None:
        settings = dataclasses.replace(settings, validation=0.0)
    spec = data_spec(data, **data_options)
    if spec.split_seed is None:
        spec = dataclasses.replace(spec, split_seed=seeds[0])
    if folds is not None:  # Whether the images allow them, before anything is written.
        dataclasses.replace(spec, test=False, fold=(1, folds)).open(verify=False)
    folder = pathlib.Path(output).absolute()
    start_or_continue(
        folder,
        spec,
        settings,
        name=SWEEP,
        varied=("learning_rate", "seed"),
        validated=folds is None and len(rates) > 1,
        **({} if folds is None else {"folds": folds}),
    )

    development_images = 0
    scores = {}  # (accuracy, -loss) on images kept out of training.
    by_folds = {}
    for rate in rates if folds or len(rates) > 1 else ():
        log(f"learning rate {rate:g}")
        run = folder / "learning_rates" / f"{rate:g}"
        trial = dataclasses.replace(settings, learning_rate=rate, seed=seeds[0], patience=None)
        without_test = dataclasses.replace(spec, test=False)
        if folds is None:
            recipe = finetune_once(without_test, run, trial, command=command, log=log)
            development_images = recipe["images"]["validation"]
            scores[rate] = _last_score(run, "averaged" if settings.averaging else "validation")
        else:
            by_folds[rate] = finetune_folds(
                without_test, run, trial, folds=folds, command=command, log=log
            )
            scores[rate] = by_folds[rate].mean, 0.0
        for weights in run.rglob("*.keras"):
            weights.unlink()
    # The highest accuracy; ties go to the lowest loss, or with folds to the first rate.
    best = max(scores, key=lambda rate: scores[rate], default=rates[0])

    test = {}
    for seed in seeds:
        log(f"seed {seed}, learning rate {best:g}")
        run = folder / "seeds" / str(seed)
        final = dataclasses.replace(
            settings, learning_rate=best, seed=seed, validation=0.0, patience=None
        )
        recipe = finetune_once(spec, run, final, command=command, log=log)
        if recipe["settings"]["learning_rate"] != best:
            raise ValueError(
                "The final runs must have the best learning rate, but there is one of another "
                f"sweep: remove it, or take another output. Received: {run}, with learning "
                f"rate {recipe['settings']['learning_rate']:g} instead of {best:g}"
            )
        metric = "mAP" if recipe.get("task") == MULTILABEL else "top_1"
        test[seed] = recipe["test"][metric]

    development = {rate: accuracy for rate, (accuracy, _) in scores.items()}
    images = development_images, recipe["test"]["images"]
    result = SweepResult(best, development, test, folder, metric, *images, by_folds)
    write_result(result, command)
    return result


def _recipe_rates(settings):
    """Returns the learning rates of the settings' recipe, scaled as the recipe was."""
    if settings.recipe is None:
        return recipes.SWEEP_RATES
    if settings.recipe == recipes.HYPER_RULE_NAME:
        return (settings.learning_rate,)
    recipe = recipes.find_recipe(settings.recipe)
    scaled = FineTuning.from_recipe(settings.recipe, settings.scale)
    share = scaled.learning_rate / recipe.settings["learning_rate"]
    return tuple(rate * share for rate in recipe.learning_rates)


def _last_score(run, weights):
    """Returns (accuracy, -loss) of the last validation; weights: "validation" or "averaged"."""
    with open(run / HISTORY, newline="", encoding="utf-8") as file:
        last = list(csv.DictReader(file))[-1]
    score = next(
        last[f"{weights}_{name}"] for name in SCORES.values() if f"{weights}_{name}" in last
    )
    return float(score), -float(last[f"{weights}_loss"])


def write_result(result: SweepResult, command: str) -> None:
    """Writes `result.json` and `sweep.md` to the folder of a sweep.

    Args:
        result: The result.
        command: The command to record.
    """
    first_seed, metric = next(iter(result.test)), result.metric
    final_run = read_result(result.folder / "seeds" / str(first_seed) / RECIPE)
    dataclasses.replace(
        final_run,
        protocol=PROTOCOL,
        metrics={
            metric: result.mean,
            f"{metric}_deviation": result.deviation,
            f"{metric}_by_seed": {str(seed): value for seed, value in result.test.items()},
            f"development_{metric}": {
                f"{rate:g}": value for rate, value in result.development.items()
            },
            **({"folds": _folds_json(result.folds)} if result.folds else {}),
            "learning_rate": result.learning_rate,
        },
        seed=None,
        command=command,
    ).write(result.folder / RESULT)
    write_text(result.folder / TABLE, f"{result}\n")


def _folds_json(folds):
    """The cross-validation of each learning rate, as JSON can hold it."""
    return {f"{rate:g}": done.to_json() for rate, done in folds.items()}
