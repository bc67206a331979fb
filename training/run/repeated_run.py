"""A recorded run that is trained again, and how the result differs from the recorded one."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.weight_sources import classifier_folder
from keras_vit.classifier_folder import load_classifier
from keras_vit.training.data.spec import Data, DataSpec, data_spec
from keras_vit.training.evaluation.intervals import accuracy_text, wilson_interval
from keras_vit.utils.files import HISTORY, MODEL, RECIPE, model_in
from keras_vit.utils.json_files import read_json
from keras_vit.utils.safe_text import for_line

from .classifier_jobs import FineTune, Pretrain
from .data_record import DataRecord
from .run_fingerprints import describe_processor, differing_fields, differing_versions
from .run_options import RunOptions

# The answers, the strongest first.
BITS, ROUNDING, ACCURACY, DIFFERENT = "bits", "rounding", "accuracy", "different"
LEVELS = (BITS, ROUNDING, ACCURACY)
# Largest difference of a weight, relative to the largest weight of its array. Rounding in float32,
# 6e-8 for an operation, grows over the steps; a run of another seed differs by 1e-1 and more.
ROUNDING_LIMIT = 1e-4
# Arrays with smaller weights count as of this size: a softmax over keys does not see their bias, so
# its gradient is rounding alone, and so is the whole bias (1e-11, and 1e-11 apart where TensorFlow
# optimises the graphs of one run and not of the other; every other array is 3e-7 apart).
_SMALLEST_SCALE = 1e-2
# Settings that may be paths: what they lead to is compared, by the starting weights and images.
PATHS = ("weights", "teacher", "replay", "class_weights")
_JOBS = {job.settings_type.command: job for job in (FineTune, Pretrain)}
_SENTENCES = {
    BITS: "The weights are equal to the bit.",
    ROUNDING: "The weights are equal to float32 rounding.",
    ACCURACY: "The weights differ, and the accuracy is within the interval of the recorded one.",
    DIFFERENT: "The run is not reproduced.",
}


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """How a run that was repeated differs from the recorded one.

    Args:
        level: "bits", "rounding", "accuracy" or "different".
        differences: What differs before the first step, a line each: images, starting weights,
            versions, processor and settings.
        notes: What was compared, a line each.
    """

    level: str
    differences: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def reaches(self, level: str) -> bool:
        """Returns whether the answer is at least as strong as a level."""
        order = (*LEVELS, DIFFERENT)
        return order.index(self.level) <= order.index(level)

    def __str__(self) -> str:
        """The answer, then a line for each difference and note."""
        lines = [f"differs  {line}" for line in self.differences]
        return "\n".join([_SENTENCES[self.level], *map(for_line, [*lines, *self.notes])])


def reproduce(
    folder: str | os.PathLike,
    data: Data,
    *,
    first_steps: int | None = None,
    repeated: str | os.PathLike | None = None,
    paths: Mapping[str, str | None] | None = None,
    log: Callable[[str], object] = print,
) -> Reproduction:
    """Trains a recorded run again and compares the weights.

    If the images or the starting weights are others, nothing is trained: the answer names them.
    Other versions and another processor are named too, and the run is trained.

    Args:
        folder: The folder of the recorded run, a finished classifier, or its repository.
        data: The data of the run, wherever they are now. None with `repeated`.
        first_steps: Trains so many steps and compares the last of them that the history has.
        repeated: The folder of a run that was repeated already; nothing is trained.
        paths: Where "weights", "teacher", "replay" and "class_weights" of the settings are now,
            for those that are paths: a recipe has the last part of each.
        log: Receives messages.

    Returns:
        A `Reproduction`.

    Raises:
        ValueError: If the folder has no run that can be repeated, the data have other classes, or
            there is no step to compare.
    """
    folder = classifier_folder(folder)
    recipe = _recipe(folder)
    if repeated is not None:
        return _compared_folders(folder, recipe, pathlib.Path(repeated))
    job_type = _JOBS.get(recipe["job"])
    if job_type is None:
        raise ValueError(
            f"The run must be of {' or '.join(_JOBS)}. Received: {folder}, of {recipe['job']}"
        )
    history = _rows(folder, first_steps)
    settings = job_type.settings_type.from_json(recipe["settings"])
    given = {name: value for name, value in (paths or {}).items() if value is not None}
    settings = dataclasses.replace(settings, samples="none", **given)
    spec = _spec(recipe, data_spec(data))
    with tempfile.TemporaryDirectory() as scratch:
        output = pathlib.Path(scratch) / "repeated"
        stop = _Comparison(folder, recipe, first_steps, output)
        options = RunOptions(output, log=log, callbacks=[stop])
        try:
            job_type(spec, options, settings).run()
        except _OtherInput as other:
            return Reproduction(DIFFERENT, tuple(other.differences), ("Nothing was trained.",))
        except _EnoughSteps:
            return _compared_steps(history, _rows(stop.partial, first_steps), stop.differences)
        return _compared_results(folder, recipe, output, stop.differences)


class _OtherInput(Exception):
    def __init__(self, differences):
        super().__init__()
        self.differences = differences


class _EnoughSteps(Exception):
    pass


class _Comparison(keras.callbacks.Callback):
    """Compares the repeated run's recipe before its first step, and stops after the last."""

    def __init__(self, folder, recipe, first_steps, output):
        super().__init__()
        self.folder, self.recipe, self.first_steps = folder, recipe, first_steps
        self.partial = output.with_name(output.name + ".partial")
        self.differences: list[str] = []
        self.step = 0

    def on_train_begin(self, logs=None):
        now = read_json(self.partial / RECIPE)
        self.differences, decisive = differences_of(
            self.folder, self.recipe, self.partial, now, ignored=("samples", *PATHS)
        )
        if decisive:
            raise _OtherInput(self.differences)

    def on_train_batch_end(self, batch, logs=None):
        self.step += self.model.steps_per_execution
        if self.first_steps is not None and self.step >= self.first_steps:
            raise _EnoughSteps


def differences_of(
    folder: pathlib.Path,
    recipe: Mapping[str, Any],
    repeated: pathlib.Path,
    now: Mapping[str, Any],
    *,
    ignored: Sequence[str] = (),
) -> tuple[list[str], bool]:
    """Returns what differs between the inputs of two runs, a line each.

    Args:
        folder: The folder of the first run.
        recipe: Its recipe.
        repeated: The folder of the second run.
        now: Its recipe.
        ignored: Settings that are not compared.

    Returns:
        The lines; and whether images, classes, starting weights or settings are others, so that
        the runs cannot be equal.
    """
    lines: list[str] = []
    known, present = recipe.get("fingerprints", {}), now.get("fingerprints", {})
    records = DataRecord.read(folder), DataRecord.read(repeated)
    if records[0] is not None and records[1] is not None:
        lines += [f"data: {line}" for line in records[0].differences(records[1])]
    elif known.get("data") and known["data"] != present.get("data"):
        lines.append("data: their SHA-256; the folder has no data.npz to say which images")
    elif not known:
        found = differing_fields(recipe["images"], now["images"])
        lines += [f"data: number of images, {line}" for line in found]
    classes = [part["description"].get("labels") or {} for part in (recipe, now)]
    names = [list(part.get("names") or ()) for part in classes]
    if set(names[0]) != set(names[1]):
        other = sorted(set(names[0]) ^ set(names[1]))
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        lines.append(f"classes: only in one of the runs: {', '.join(other[:3])}{more}")
    settings = [
        {name: value for name, value in part["settings"].items() if name not in ignored}
        for part in (recipe, now)
    ]
    lines += [f"setting: {line}" for line in differing_fields(*settings)]
    if "weights" in known and known["weights"] != present.get("weights"):
        lines.append("starting weights: their SHA-256")
    decisive = bool(lines)
    lines += [
        f"version: {line}" for line in differing_versions(recipe["versions"], now["versions"])
    ]
    before = recipe.get("versions_before")
    if before:
        found = differing_versions(before, recipe["versions"])
        lines.append(f"version: the recorded run was resumed with others: {'; '.join(found)}")
    if "processor" in known:
        processor = present.get("processor") or describe_processor()
        lines += [f"processor: {line}" for line in differing_fields(known["processor"], processor)]
    return lines, decisive


def _compared_folders(folder, recipe, repeated):
    now = _recipe(repeated)
    lines, decisive = differences_of(folder, recipe, repeated, now)
    found = _compared_results(folder, recipe, repeated, lines)
    return dataclasses.replace(found, level=DIFFERENT) if decisive else found


def _compared_results(folder, recipe, repeated, lines) -> Reproduction:
    """Compares the weights and the accuracy of two finished runs."""
    lines, notes = tuple(lines), list(_about(recipe))
    before, after = (load_classifier(path) for path in (folder, repeated))
    values = [part.model.get_weights() for part in (before, after)]
    if [value.shape for value in values[0]] != [value.shape for value in values[1]]:
        return Reproduction(DIFFERENT, (*lines, "model: other shapes of weights"), tuple(notes))
    pairs = list(zip(*values, strict=True))
    if all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs):
        return Reproduction(BITS, lines, tuple(notes))
    apart = max(
        float(np.abs(a - b).max() / max(np.abs(a).max(), _SMALLEST_SCALE))
        for a, b in pairs
        if a.size
    )
    notes.append(f"Largest difference of a weight, relative to its array: {apart:.1e}.")
    if apart <= ROUNDING_LIMIT:
        return Reproduction(ROUNDING, lines, tuple(notes))
    tests = [part.recipe.get("test") or {} for part in (before, after)]
    if not all("top_1" in test for test in tests):
        notes.append("Without a top-1 accuracy on test images in both, it is not compared.")
        return Reproduction(DIFFERENT, lines, tuple(notes))
    count, (top_1, again) = tests[0]["images"], (test["top_1"] for test in tests)
    low, high = wilson_interval(round(top_1 * count), count)
    notes.append(
        f"Top-1 {accuracy_text(again, count)}; recorded {accuracy_text(top_1, count)} of {count} "
        "test images, 95% Wilson intervals."
    )
    return Reproduction(ACCURACY if low <= again <= high else DIFFERENT, lines, tuple(notes))


def _compared_steps(history, now, lines) -> Reproduction:
    """Compares the weights, or the losses, of two runs in the last row that both histories have."""
    steps = [row["step"] for row in now]
    row = next(row for row in reversed(history) if row["step"] in steps)
    other = now[steps.index(row["step"])]
    hashes = row.get("weights"), other.get("weights")
    at = f"after step {row['step']}"
    if hashes[0] and hashes[0] == hashes[1]:
        return Reproduction(BITS, tuple(lines), (f"Compared by the hash of the weights {at}.",))
    losses = float(row["loss"]), float(other["loss"])
    note = f"Loss {at}: {losses[1]:.6g}, recorded {losses[0]:.6g}."
    close = abs(losses[0] - losses[1]) <= ROUNDING_LIMIT * abs(losses[0])
    if close and not hashes[0]:
        note += " The history has no hash of the weights."
    return Reproduction(ROUNDING if close else DIFFERENT, tuple(lines), (note,))


def _about(recipe):
    """A note for a run of an earlier version."""
    if "fingerprints" not in recipe:
        yield "The run has no fingerprints, as runs of earlier versions: only counts were compared."


def _recipe(folder: pathlib.Path) -> dict[str, Any]:
    if model_in(folder) is None or not (folder / RECIPE).is_file():
        raise ValueError(
            f"There must be the folder of a finished run, with {MODEL} and {RECIPE}. "
            f"Received: {folder}"
        )
    needed = {"job": str, "data": dict, "settings": dict, "versions": dict, "description": dict}
    recipe = read_json(folder / RECIPE, needed)
    missing = [name for name in (*needed, "images") if name not in recipe]
    if missing:
        raise ValueError(
            f"The recipe must be of a training run. Received: {folder / RECIPE} without "
            f"{', '.join(missing)}"
        )
    return recipe


def _rows(folder: pathlib.Path, first_steps: int | None) -> list[dict[str, str]]:
    """The rows of a history up to a step; all without one."""
    try:
        with open(folder / HISTORY, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        rows = []
    if first_steps is None:
        return rows
    early = [row for row in rows if int(row["step"]) <= first_steps]
    if not early:
        first = rows[0]["step"] if rows else "none"
        raise ValueError(
            f"first_steps must reach a row of the history; the first is of step {first} "
            f"(--first-steps). Received: {first_steps}"
        )
    return early


def _spec(recipe: dict[str, Any], given: DataSpec) -> DataSpec:
    """The data of the run with its options, in their present place."""
    if given.data is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    spec = DataSpec.from_recipe_json(recipe, given)
    return dataclasses.replace(spec, data=given.data, data_dir=given.data_dir)
