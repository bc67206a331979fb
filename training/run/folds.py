"""Cross-validation: K runs, each with another part of the images held out."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from keras_vit.classifier_folder import load_classifier
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.training.data import Examples, Source
from keras_vit.training.data.spec import Data, DataSpec, data_spec
from keras_vit.training.evaluation.classification import evaluate_examples
from keras_vit.training.evaluation.intervals import (
    CONFIDENCE,
    accuracy_text,
    mean_interval,
    wilson_interval,
)
from keras_vit.training.evaluation.results import check_same_settings
from keras_vit.training.settings import FineTuning
from keras_vit.utils.files import RECIPE, write_text
from keras_vit.utils.json_files import read_json
from keras_vit.utils.report import markdown_table

from .finetune import finetune
from .folder import unfinished_recipe
from .job import Job
from .run_options import RunOptions

FOLDS = "folds.json"  # Settings and data of the runs, and their result, in the output's folder.
TABLE = "folds.md"


@dataclasses.dataclass(frozen=True)
class FoldsResult:
    """The result of K runs.

    Args:
        accuracies: Accuracy of each run on the images of its fold, top-1 or mAP.
        images: Images of each fold.
        test: Accuracy of each run on the test part of the data; empty without one.
        folder: The folder of all runs.
        metric: Name of the accuracy: "top_1", or "mAP" of multi-label data.
        test_images: Images of the test part; 0 if it is not known.
    """

    accuracies: tuple[float, ...]
    images: tuple[int, ...]
    test: tuple[float, ...]
    folder: pathlib.Path
    metric: str = "top_1"
    test_images: int = 0

    @property
    def mean(self) -> float:
        """Mean of the accuracies."""
        return statistics.fmean(self.accuracies)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean by Student's t with K - 1 degrees of freedom.

        The runs share training images, so that it is only nearly an interval of 95% (Bengio and
        Grandvalet, 2004).
        """
        return mean_interval(self.accuracies)

    @property
    def mean_text(self) -> str:
        """The mean and its interval, such as "85.00%, 95% t-interval 78.10% to 91.90%"."""
        low, high = self.interval
        return f"{self.mean:.2%}, 95% t-interval {low:.2%} to {high:.2%}"

    @property
    def pooled(self) -> tuple[int, int] | None:
        """Images of all folds with the right answer, and all images; None of multi-label data."""
        if self.metric != "top_1":
            return None
        right = zip(self.accuracies, self.images, strict=True)
        return sum(round(top_1 * count) for top_1, count in right), sum(self.images)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `folds.json` in the field `result`."""
        return {
            "metric": self.metric,
            "images": list(self.images),
            "out_of_fold": list(self.accuracies),
            "mean": self.mean,
            "interval": {"kind": "Student's t", "confidence": CONFIDENCE, "of": self.interval},
            "pooled": self.pooled
            and {
                "right": self.pooled[0],
                "images": self.pooled[1],
                "accuracy": self.pooled[0] / self.pooled[1],
                "interval": {
                    "kind": "Wilson",
                    "confidence": CONFIDENCE,
                    "of": wilson_interval(*self.pooled),
                },
            },
            "test": list(self.test),
            "test_mean": statistics.fmean(self.test) if self.test else None,
        }

    def __str__(self) -> str:
        """The table and the intervals, in Markdown."""
        metric = self.metric.replace("_", "-")
        rows: list[tuple[str, ...]] = [("fold", "images", f"{metric} out of fold")]
        for number, (count, accuracy) in enumerate(
            zip(self.images, self.accuracies, strict=True), 1
        ):
            rows.append((str(number), str(count), score_text(self.metric, accuracy, count)))
        rows.append(("mean", str(sum(self.images)), f"{self.mean:.2%}"))
        if self.test:
            values = (*self.test, statistics.fmean(self.test))
            texts = (score_text(self.metric, value, self.test_images) for value in values)
            cells = [f"{metric} on test", *texts]
            rows = [(*row, cell) for row, cell in zip(rows, cells, strict=True)]
        lines = [
            markdown_table(rows),
            "",
            f"mean {self.mean_text} (of {len(self.images)} runs, which share training images: "
            "nearly 95%)",
        ]
        if self.pooled is not None:
            right, count = self.pooled
            lines.append(
                f"all images out of their fold: {right} of {count} right, "
                f"{accuracy_text(right / count, count)} (95% Wilson intervals, as if the images "
                "were independent)"
            )
        return "\n".join(lines)


def score_text(metric: str, value: float, images: int) -> str:
    """Returns an accuracy with its interval; an mAP, which is no share of images, has none."""
    return accuracy_text(value, images) if metric == "top_1" and images else f"{value:.2%}"


def finetune_folds(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    *,
    folds: int,
    command: str = "",
    log: Callable[[str], object] = print,
    **data_options: Any,
) -> FoldsResult:
    """Trains K times, each time without one of K parts of the training images, which is tested.

    The parts are stratified, and keep groups together (`group_by`). A test part that the data have
    themselves is in no fold: each run is evaluated on it in addition. Without one, every image is
    in a fold, and `holdout` has no effect. Images for validation and calibration are taken from
    the training images of each run.

    Each run is a classifier in `fold-1`, `fold-2` and so on. The same call continues a stopped one:
    finished runs are kept, and an unfinished run resumes from its last checkpoint. `folds.json` and
    `folds.md` have the result.

    Args:
        data: As for `finetune`.
        output: The folder for all runs.
        settings: The recipe; the paper's by default.
        folds: K, at least 2.
        command: The command to record.
        log: Receives messages.
        **data_options: As for `finetune`.

    Returns:
        A `FoldsResult`.

    Raises:
        ValueError: If something does not fit, there are too few images or groups for the folds, or
            the output has runs of other settings.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> print(finetune_folds("photos", "runs/photos", FineTuning(model="ViT-S/16"), folds=5))
    """
    settings = settings or FineTuning()
    spec = data_spec(data, **data_options)
    if spec.split_seed is None:
        spec = dataclasses.replace(spec, split_seed=settings.seed)
    folder = pathlib.Path(output).absolute()
    first = dataclasses.replace(spec, fold=(1, folds))
    start_or_continue(folder, first, settings, name=FOLDS, varied=("fold",), folds=folds)
    whole = dataclasses.replace(spec, holdout=0.0, calibration=0.0)
    source = whole.open(min_classes=1, verify=False)
    test = source.splits.get("test")

    found, of_test = [], []
    for number in range(1, folds + 1):
        log(f"fold {number} of {folds}")
        run = folder / f"fold-{number}"
        of_fold = dataclasses.replace(spec, fold=(number, folds))
        recipe = finetune_once(of_fold, run, settings, command=command, log=log)
        metric = "mAP" if recipe.get("task") == MULTILABEL else "top_1"
        found.append((recipe["test"][metric], recipe["test"]["images"]))
        if test is not None:
            of_test.append(_test_accuracy(run, source, test, metric))
    accuracies, images = zip(*found, strict=True)
    test_images = 0 if test is None else len(test)
    result = FoldsResult(accuracies, images, tuple(of_test), folder, metric, test_images)
    written = {**read_json(folder / FOLDS), "result": result.to_json()}
    write_text(folder / FOLDS, json.dumps(written, indent=2) + "\n")
    write_text(folder / TABLE, f"{result}\n")
    return result


def _test_accuracy(run: pathlib.Path, source: Source, test: Examples, metric: str) -> float:
    """The accuracy of a run on the data's own test part."""
    report = evaluate_examples(load_classifier(run), test, source.class_names, skip_unreadable=True)
    return float(report.to_json()[metric])


def start_or_continue(
    folder: pathlib.Path,
    data: DataSpec,
    settings: FineTuning,
    *,
    name: str,
    varied: Sequence[str],
    validated: bool = False,
    **more: Any,
) -> None:
    """Makes the folder of several new runs, or checks that it is of the same runs.

    Args:
        folder: The output of the runs.
        data: The data, with the seed of their split.
        settings: Settings of all runs.
        name: Name of the file that records settings and data.
        varied: Settings in which the runs differ.
        validated: Whether the runs are compared by their validation images.
        **more: More fields of the file.

    Raises:
        ValueError: If the folder is of other runs, or the data have no test images, or none for
            the validation.
    """
    fields = {**more, **settings.to_json(), **data.to_json()}
    for field in varied:
        fields.pop(field)
    fields = json.loads(json.dumps(fields))
    path = folder / name
    if path.exists():
        known = read_json(path)
        known.pop("result", None)
        check_same_settings(path, known, fields)
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            "The output folder must be new, empty or of the same "
            f"{name.removesuffix('.json')}. Received: {folder}"
        )
    plan = Job(data, RunOptions(folder / "plan"), settings).plan()
    images = plan.recipe["images"]
    if not images["test"]:
        raise ValueError(f"There must be test images to report on. Received: {data.data}")
    if validated and not images["validation"]:
        raise ValueError(
            "A sweep is scored on images kept out of training: validation must leave some, or "
            f"there must be folds. Received: validation={plan.settings.validation}, none of "
            f"{images['train']} images"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(fields, indent=2) + "\n")


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
        resume = bool(unfinished_recipe(folder))
        finetune(data, folder, settings, resume=resume, command=command, log=log)
    return read_json(folder / RECIPE)
