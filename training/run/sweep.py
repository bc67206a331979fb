"""The paper's protocol of fine-tuning, section 4.1: a sweep of learning rates, three seeds."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Callable, Iterable, Sequence

from keras_vit.classifier import HISTORY, RECIPE
from keras_vit.files import atomic_write
from keras_vit.training import recipes
from keras_vit.training.evaluation.results import RESULT, check_same_settings, read_result
from keras_vit.training.settings import FineTuning

from .job import Data, FineTune, data_spec, finetune

SEEDS = (0, 1, 2)
LEARNING_RATES = (0.001, 0.003, 0.01, 0.03)  # Where the recipe does not say; CIFAR, Pets, Flowers.
PROTOCOL = "sweep"

SWEEP = "sweep.json"  # What is swept, in the output's folder.
TABLE = "sweep.md"
# Fields of the data that a sweep must have in common with an earlier one to continue it.
_SAME_DATA = ("data", "data_dir", "holdout", "exclude", "split_seed")


@dataclasses.dataclass(frozen=True)
class Swept:
    """A sweep that is done.

    Args:
        learning_rate: The best.
        development: Accuracy on the development split by learning rate; empty where there
            was one rate, and so nothing to choose.
        test: Accuracy on the test images by seed.
        folder: Where everything is.
    """

    learning_rate: float
    development: dict[float, float]
    test: dict[int, float]
    folder: pathlib.Path

    @property
    def mean(self) -> float:
        """Mean of the test accuracy over the seeds."""
        return statistics.fmean(self.test.values())

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, of the sample; None of a single one."""
        return statistics.stdev(self.test.values()) if len(self.test) > 1 else None

    def __str__(self) -> str:
        """The tables, in Markdown."""
        lines = []
        if self.development:
            lines += ["| learning rate | top-1 on the development split |", "| --- | --- |"]
            for rate, accuracy in self.development.items():
                best = " (best)" if rate == self.learning_rate else ""
                lines.append(f"| {rate:g}{best} | {accuracy:.2%} |")
            lines.append("")
        lines += [
            f"| seed, learning rate {self.learning_rate:g} | top-1 on test |",
            "| --- | --- |",
        ]
        lines += [f"| {seed} | {accuracy:.2%} |" for seed, accuracy in self.test.items()]
        deviation = "" if self.deviation is None else f" ± {100 * self.deviation:.2f}"
        lines.append(f"| mean | {100 * self.mean:.2f}{deviation}% |")
        return "\n".join(lines)


def sweep(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    *,
    learning_rates: Sequence[float] | None = None,
    seeds: Sequence[int] = SEEDS,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: Iterable[str] = (),
    command: str = "",
    log: Callable[[str], object] = print,
) -> Swept:
    """Finds the learning rate on a development split, then trains on all with several seeds.

    Every learning rate is trained on the training images but those of the development split
    (`settings.validation`, by default the recipe's share), and scored on these after the last
    step. The best is trained on all training images, once with each seed, and the last
    weights are evaluated on the test images, which nothing was chosen by. Data with a
    validation part of their own are scored on that.

    Each run has a folder: `learning_rates/RATE`, of which no weights are kept, and
    `seeds/SEED`, a classifier's. After a stop the same call goes on: finished runs are not
    done again, and an unfinished one goes on from its last checkpoint. `result.json` and
    `sweep.md` have the outcome.

    Args:
        data: As for `finetune`.
        output: The folder for all runs.
        settings: The recipe; `learning_rate` and `seed` are those of the runs.
        learning_rates: What to try; by default those of the recipe's row of Table 4. One
            alone is not tried.
        seeds: Of the final runs. The first is also that of the development split, of the
            sweep, and of what is held out of data without a test part.
        data_dir: As for `finetune`.
        holdout: As for `finetune`.
        strict: As for `finetune`.
        exclude: As for `finetune`.
        command: The command to record.
        log: Receives messages.

    Returns:
        A `Swept`.

    Raises:
        ValueError: If something does not fit, there are no test images, or the output has
            runs of other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> settings = FineTuning.from_recipe("Oxford Flowers-102", model="ViT-B/16")
    >>> print(sweep("tfds:oxford_flowers102", "runs/flowers", settings))
    """
    settings = settings or FineTuning()
    rates = tuple(learning_rates or _rates_of(settings))
    seeds = tuple(seeds)
    for name, values in (("learning_rates", rates), ("seeds", seeds)):
        if not values or len(set(values)) != len(values):
            raise ValueError(f"{name} must be one or more, each once. Received: {values}")
    if settings.validation == 0 and len(rates) > 1:
        raise ValueError(
            "A sweep is scored on images kept out of training: validation must not be 0. "
            f"Received: validation={settings.validation}"
        )
    spec = data_spec(data, data_dir, holdout, strict, exclude)
    runs = _Runs(spec, output, settings, seeds[0], command, log)
    development = {}
    for rate in rates if len(rates) > 1 else ():
        log(f"learning rate {rate:g}")
        development[rate] = runs.try_rate(rate)
    # Of equal accuracies the one with the lowest loss.
    learning_rate = max(development, key=lambda rate: development[rate], default=rates[0])
    test = {}
    for seed in seeds:
        log(f"seed {seed}, learning rate {learning_rate:g}")
        test[seed] = runs.train_all(learning_rate, seed)
    return _write(runs, learning_rate, development, test, command)


def _rates_of(settings):
    """The learning rates of the settings' recipe, scaled as it was."""
    if settings.recipe is None:
        return LEARNING_RATES
    if settings.recipe == recipes.HYPER_RULE_NAME:
        return (settings.learning_rate,)
    recipe = recipes.find_recipe(settings.recipe)
    scaled = FineTuning.from_recipe(settings.recipe, settings.scale)
    share = scaled.learning_rate / recipe.settings["learning_rate"]
    return tuple(rate * share for rate in recipe.learning_rates)


class _Runs:
    """The runs of a sweep, of which each is done once."""

    def __init__(self, data, output, settings, first_seed, command, log):
        self.data = dataclasses.replace(data, split_seed=first_seed)
        self.folder = pathlib.Path(output).absolute()
        self.settings = settings
        self.first_seed = first_seed
        self.command = command
        self.log = log
        self._check_same()

    def try_rate(self, rate):
        """Returns (accuracy, -loss) on the development split after the last step."""
        changes = {"learning_rate": rate, "seed": self.first_seed, "patience": None}
        folder = self.folder / "learning_rates" / f"{rate:g}"
        self._run(folder, changes, test=False)
        for weights in folder.glob("*.keras"):
            weights.unlink()
        with open(folder / HISTORY, newline="", encoding="utf-8") as file:
            last = list(csv.DictReader(file))[-1]
        kept = "averaged" if self.settings.averaging else "validation"
        return float(last[f"{kept}_accuracy"]), -float(last[f"{kept}_loss"])

    def train_all(self, rate, seed):
        """Returns the accuracy on the test images after training on all others."""
        folder = self.folder / "seeds" / str(seed)
        changes = {"learning_rate": rate, "seed": seed, "validation": 0.0, "patience": None}
        recipe = self._run(folder, changes)
        if recipe["settings"]["learning_rate"] != rate:
            raise ValueError(
                "The final runs must have the best learning rate, but there is one of another "
                f"sweep: remove it, or take another output. Received: {folder}, with learning "
                f"rate {recipe['settings']['learning_rate']:g} instead of {rate:g}"
            )
        return recipe["test"]["top_1"]

    def _run(self, folder, changes, test=True):
        if not (folder / RECIPE).exists():
            settings = dataclasses.replace(self.settings, **changes)
            folder.parent.mkdir(parents=True, exist_ok=True)
            is_begun = (folder.with_name(folder.name + ".partial") / RECIPE).exists()
            finetune(
                dataclasses.replace(self.data, test=test),
                folder,
                settings,
                resume=is_begun,
                command=self.command,
                log=self.log,
            )
        return json.loads((folder / RECIPE).read_text(encoding="utf-8"))

    def _check_same(self):
        """Writes down what is swept, or compares it with what is there."""
        data = self.data.to_json()
        fields = {**self.settings.to_json(), **{name: data[name] for name in _SAME_DATA}}
        for name in ("learning_rate", "seed"):
            fields.pop(name)
        fields = json.loads(json.dumps(fields))
        path = self.folder / SWEEP
        if path.exists():
            check_same_settings(path, json.loads(path.read_text(encoding="utf-8")), fields)
            return
        if self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(
                "The output folder must be new or empty, or that of the same sweep. "
                f"Received: {self.folder}"
            )
        plan = FineTune(self.data, self.folder / "plan", self.settings).plan()
        if not plan.recipe["images"]["test"]:
            raise ValueError(f"There must be test images to report on. Received: {self.data.data}")
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def _write(runs, learning_rate, development, test, command):
    """Writes the result and the table."""
    accuracies = {rate: score[0] for rate, score in development.items()}
    done = Swept(learning_rate, accuracies, test, runs.folder)
    last = read_result(runs.folder / "seeds" / str(next(iter(test))) / RECIPE)
    result = dataclasses.replace(
        last,
        protocol=PROTOCOL,
        metrics={
            "top_1": done.mean,
            "top_1_deviation": done.deviation,
            "top_1_by_seed": {str(seed): value for seed, value in test.items()},
            "development_top_1": {f"{rate:g}": value for rate, value in accuracies.items()},
            "learning_rate": learning_rate,
        },
        seed=None,
        command=command,
    )
    result.write(runs.folder / RESULT)
    with atomic_write(runs.folder / TABLE) as partial:
        partial.write_text(f"{done}\n", encoding="utf-8")
    return done
