"""A sweep: several learning rates, then the best with several seeds."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Sequence

from keras_vit.description.class_labels import MULTILABEL, SCORES
from keras_vit.description.run_record import RunRecord
from keras_vit.training import recipes
from keras_vit.training.data.labelled_images import Things
from keras_vit.training.data.spec import Data, DataSpec, data_spec
from keras_vit.training.evaluation.predictions import NonFiniteScores
from keras_vit.training.evaluation.results import check_same_settings
from keras_vit.training.settings import FineTuning, RunOptions
from keras_vit.training.trainer.trainer import NonFiniteError
from keras_vit.utils.files import HISTORY, MODEL, RECIPE, partial_of, write_text
from keras_vit.utils.json_files import read_json
from keras_vit.utils.progress import Log

from .finetune import plan_of, run
from .folder import clear_finished, unfinished_record
from .loop import read_history
from .start import start
from .sweep_result import SweepResult, write_result

SWEEP = "sweep.json"  # Settings and data of the runs, in the output's folder.
DIVERGED = "diverged.txt"  # Why a learning rate diverged, in place of its run.


def sweep(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    *,
    learning_rates: Sequence[float] | None = None,
    seeds: Sequence[int] = recipes.SWEEP_SEEDS,
    command: str = "",
    log: Log = print,
) -> SweepResult:
    """Finds the learning rate on a development split, then trains on all with several seeds.

    A development split (`settings.validation`, by default the recipe's fraction) is kept out
    of the training images; data with a validation part use that. Each learning rate is
    scored on it after the last step. The best rate is trained on all training images, once
    with each seed, and the last weights are evaluated on the test images, which are used for
    nothing else.

    Each run has a folder: `learning_rates/RATE`, without weights, and `seeds/SEED`, a
    classifier. The same call continues a stopped sweep: finished runs are kept, and an
    unfinished run resumes from its last checkpoint. A rate or a seed whose loss or scores become
    NaN or infinite has diverged and is not tried again; `diverged.txt` in its folder has the error.
    `result.json` has the result.

    Args:
        data: As for `finetune`; a `DataSpec` has the options of the data.
        output: The folder for all runs.
        settings: The recipe; the sweep sets `learning_rate` and `seed`.
        learning_rates: Learning rates to try; by default the rates in the recipe's row of
            Table 4. A single rate is taken without a trial.
        seeds: Seeds of the final runs. The first also seeds the trial runs, the development
            split, and the test images held out of data without a test part, unless the data
            have a `split_seed`.
        command: The command to record.
        log: Receives messages.

    Returns:
        A `SweepResult`.

    Raises:
        ValueError: If something does not fit, there are no test images, every rate or every seed
            diverges, or the output has runs of other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> settings = FineTuning.from_recipe("Oxford Flowers-102", model="ViT-B/16")
    >>> print(sweep("tfds:oxford_flowers102", "runs/flowers", settings))
    """
    settings, folder = settings or FineTuning(), pathlib.Path(output).absolute()
    settings = dataclasses.replace(settings, patience=None)
    if learning_rates is None:
        learning_rates = recipes.rates_of_sweep(settings.recipe)
    rates, seeds = tuple(learning_rates), tuple(seeds)
    for name, values in (("learning_rates", rates), ("seeds", seeds)):
        if not values or len(set(values)) != len(values):
            raise ValueError(f"{name} must be one or more, each once. Received: {values}")
    for seed in seeds:
        dataclasses.replace(settings, seed=seed)  # A wrong one fails before the first run.
    spec = data_spec(data)
    if spec.split_seed is None:
        spec = dataclasses.replace(spec, split_seed=seeds[0])
    begun = {**settings.to_json(), **spec.to_json(), "learning_rate": None, "seed": None}
    runs = _Runs(command, log)
    runs.things = _begin(folder / SWEEP, begun, spec, settings, validated=len(rates) > 1)

    scores: dict[float, tuple[float, float] | None] = {}
    developed = 0  # Images kept out of training.
    for rate in rates if len(rates) > 1 else ():
        log(f"learning rate {rate:g}")
        place = folder / "learning_rates" / f"{rate:g}"
        trial = dataclasses.replace(settings, learning_rate=rate, seed=seeds[0])
        recipe = runs.run(dataclasses.replace(spec, test=False), place, trial)
        scores[rate] = None
        if recipe is not None:
            developed = recipe.images["validation"]
            scores[rate] = _last_score(place, "averaged" if settings.ema_momentum else "validation")
            (place / MODEL).unlink(missing_ok=True)
        if scores[rate] is None:
            log(f"learning rate {rate:g} diverged; the others go on")
    best = _best_rate(scores) if scores else rates[0]

    tested: dict[int, RunRecord | None] = {}
    for seed in seeds:
        log(f"seed {seed}, learning rate {best:g}")
        final = dataclasses.replace(settings, learning_rate=best, seed=seed, validation=0.0)
        tested[seed] = runs.run(spec, folder / "seeds" / str(seed), final)
        if tested[seed] is None:
            log(f"seed {seed} diverged; the others go on")

    development = {rate: score and score[0] for rate, score in scores.items()}
    result = _result_of(tested, best, development, developed, folder)
    result = dataclasses.replace(result, ignores_copies=spec.ignores_copies)
    write_result(result, command)
    return result


def _result_of(tested, best, development, developed, folder):
    """The result of the recipes of final runs by seed, None of one that diverged."""
    finished = {seed: recipe for seed, recipe in tested.items() if recipe is not None}
    if not finished:
        raise ValueError(
            f"A seed must give finite scores: try a lower rate than {best:g} (--learning-rates) in "
            f"another folder. Received: {', '.join(map(str, tested))}, which all diverged"
        )
    last = next(reversed(finished.values()))
    metric = _metric(last)
    new_things = {seed: recipe.test.get("new_things", {}) for seed, recipe in finished.items()}
    right = {seed: new.get("right") for seed, new in new_things.items()}
    return SweepResult(
        best,
        development,
        {seed: recipe and recipe.test[metric] for seed, recipe in tested.items()},
        folder,
        metric,
        (developed, last.test.get("independent_images", last.test["images"])),
        last.test.get("new_things", {}).get("images"),
        {seed: value for seed, value in right.items() if value is not None},
    )


def _begin(path, fields, data, settings, *, validated=False):
    """Makes the folder of several new runs, or checks that it is of the same runs.

    Returns the things that the photos of new runs show.
    """
    if path.exists():
        check_same_settings(path, read_json(path), fields)
        return None
    folder = path.parent
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"The output folder must be new, empty or of the same {path.stem}. Received: {folder}"
        )
    plan = plan_of(start(data, RunOptions(folder / "plan"), settings))
    images = plan.images.counts
    if not images["test"]:
        raise ValueError(f"There must be test images to report on. Received: {data.data}")
    if validated and not images["validation"]:
        raise ValueError(
            "A sweep is scored on images kept out of training: validation must leave some. "
            f"Received: validation={plan.settings.validation}, none of {images['train']} images"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(fields, indent=2) + "\n")
    return plan.source.things


def _best_rate(scores):
    """The rate with the highest accuracy; ties go to the lowest loss."""
    ranked = {rate: score for rate, score in scores.items() if score is not None}
    if not ranked:
        raise ValueError(
            "A learning rate must give finite scores: try lower ones (--learning-rates) in another "
            f"folder. Received: {', '.join(f'{rate:g}' for rate in scores)}, which all diverged"
        )
    return max(ranked, key=lambda rate: ranked[rate])


class _Runs:
    """The runs of a sweep, of which the first looks for the things that the photos show."""

    def __init__(self, command: str, log: Log):
        self.command, self.log = command, log
        self.things: Things | None = None

    def run(self, data: DataSpec, folder: pathlib.Path, settings: FineTuning) -> RunRecord | None:
        """Starts, resumes or skips a run; returns its recipe, None if it diverges or did before."""
        if (folder / DIVERGED).exists():
            return None
        try:
            return self._run_once(data, folder, settings)
        except (NonFiniteError, NonFiniteScores) as error:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / DIVERGED, f"{error}\n")
            shutil.rmtree(partial_of(folder), ignore_errors=True)
            return None

    def _run_once(self, data, folder, settings):
        clear_finished(folder)
        if not (folder / RECIPE).exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            resume = bool(unfinished_record(folder).job)
            options = RunOptions(folder, resume=resume, command=self.command, log=self.log)
            started = start(data, options, settings, self.things)
            run(started)
            if started.images is not None:
                self.things = started.images.source.things
        return RunRecord.from_json(read_json(folder / RECIPE))


def _metric(recipe):
    """The accuracy of a run in its results."""
    return "mAP" if recipe.task == MULTILABEL else "top_1"


def _last_score(run, weights):
    """Returns (accuracy, -loss) of the last validation, or None if its scores were not finite.

    Args:
        run: The folder of the run.
        weights: "validation" or "averaged".
    """
    last = read_history(run / HISTORY)[-1]
    columns = (f"{weights}_{name}" for name in SCORES.values())
    score = next(last[column] for column in columns if column in last)
    return (float(score), -float(last[f"{weights}_loss"])) if score else None
