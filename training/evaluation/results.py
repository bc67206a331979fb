"""Result files of evaluations, and the protocols that they name.

Imports neither Keras nor TensorFlow, so that `keras-vit evaluate --help` is fast.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from collections.abc import Mapping
from typing import Any, Self

from keras_vit._version import __version__
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.run_record import RunRecord
from keras_vit.description.without_paths import shown_path, without_paths
from keras_vit.utils.files import MODEL, RECIPE, write_text
from keras_vit.utils.json_files import read_json

RESULT = "result.json"
FORMAT = 1  # Version of result files.

# Few-shot evaluation, as in big_vision's `fewshot_lsr`.
SHOTS = (1, 5, 10, 25)  # Images per class.
SEEDS = (0, 1, 2)  # Each chooses other images.
L2 = 1024.0  # Added to the diagonal of the summed, not averaged, squares.
FEW_SHOT_RESIZE = "resize_central_crop"  # Resizing of images, one of preprocessing.EVALUATIONS.


# Test sets of ImageNet classifiers, and their titles in tables.
REAL = "imagenet-real"
IMAGENET_PROTOCOLS = {"imagenet": "ImageNet", REAL: "ImageNet ReaL"}

# Names of data sets in the paper's tables, by TFDS name or folder name.
TASKS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet2012": "ImageNet",
    "imagenet": "ImageNet",
    "imagenet2012_real": "ImageNet ReaL",
    "oxford_iiit_pet": "Pets",
    "oxford_flowers102": "Flowers-102",
}

# Numbers of a run's `recipe.json` that are results.
_METRICS = ("top_1", "top_5", "mAP", "micro_AP", "macro_F1", "micro_F1", "subset_accuracy", "loss")

# Pre-training data by the name of the weights.
PRETRAINING = {"imagenet21k": "ImageNet-21k", "imagenet": "ImageNet"}
FROM_SCRATCH = "from scratch"
_OPTIMIZERS = {"adam": "Adam", "muon": "Muon", "sgd": "SGD"}  # Names in tables.


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one evaluation.

    Args:
        protocol: "classification", "multilabel", "few-shot", "vtab", "vtab-linear" or a name of
            `IMAGENET_PROTOCOLS`.
        task: Name of the test set in tables.
        model: Name, config, weights and their hash, pre-training data, preprocessing.
        data: Origin of the data and number of images in each split.
        metrics: The numbers; accuracies are in [0, 1].
        images: Number of test images.
        recipe: Settings of the training or evaluation.
        seed: The seed, or None if nothing is random.
        command: The command line.
        versions: Versions of the packages.
    """

    protocol: str
    task: str
    model: dict[str, Any]
    data: dict[str, Any]
    metrics: dict[str, Any]
    images: int
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    command: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: versions())

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file atomically, with each path as a page shows it."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = dataclasses.asdict(self)
        reduced = without_paths({"data": self.data, "command": self.command})
        fields |= {name: reduced[name] for name in ("data", "command")}
        if isinstance(weights := self.model.get("weights"), str):
            fields["model"]["weights"] = shown_path(weights)
        text = json.dumps({"format": FORMAT, **fields}, indent=2)
        write_text(path, text + "\n")

    @property
    def pretraining(self) -> str:
        """Origin of the weights, as in tables."""
        return self.model.get("pretraining") or str(self.model.get("weights") or FROM_SCRATCH)

    @classmethod
    def of_run(cls, folder: str | os.PathLike) -> Self:
        """Returns the result of a training run, from the folder of its classifier.

        Raises:
            KeyError: If the run has no test result.
        """
        path = pathlib.Path(folder)
        recipe = RunRecord.from_json(read_json(path / RECIPE))
        settings, test = recipe.settings, recipe.test
        if test is None:
            raise KeyError(f"A run must have a test result. Received: {path}, without one")
        task = task_of(recipe.data_name)
        with open(path / MODEL, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(
            protocol=protocol_of(test),
            task=task,
            model={
                "name": recipe.model,
                "config": recipe.config,
                "weights": recipe.weights,
                **pretraining_fields(recipe, task),
                "model_keras_sha256": digest,
                "image_size": settings["image_size"],
                "evaluation": settings["evaluation"],
                **recipe.preprocessing,
            },
            data={**recipe.data, "images": recipe.images},
            metrics={name: value for name, value in test.items() if name in _METRICS},
            images=test["images"],
            recipe=settings,
            seed=settings["seed"],
            command=recipe.command,
            versions=recipe.versions,
        )


def task_of(data: str | os.PathLike) -> str:
    """Returns the name of a data set in tables: "CIFAR-10" for "tfds:cifar10:3.0.2"."""
    text = os.fspath(data).removeprefix("tfrecords:")
    name = text.removeprefix("tfds:").partition(":")[0] if text.startswith("tfds:") else ""
    name = name.partition("/")[0] or pathlib.Path(text).name
    return TASKS.get(name.lower().replace("-", ""), name)


def protocol_of(metrics: Mapping[str, Any]) -> str:
    """Returns the protocol of a classifier's evaluation on its own task."""
    return MULTILABEL if metrics.get("task") == MULTILABEL else "classification"


def pretraining_fields(recipe: RunRecord, task: str | None = None) -> dict[str, Any]:
    """Returns the fields of a result file about the pre-training of its model.

    If the run started from a classifier's folder that still exists, that folder's recipe is
    read, and so on back to the run that started from random weights.

    Args:
        recipe: The record of a classifier's folder; empty if it has none.
        task: The test set, if the classifier's own head is evaluated. A model trained only
            on this data set was not pre-trained.

    Returns:
        `pretraining`, and where known `pretraining_images`, `pretraining_epochs`,
        `pretraining_optimizer`, `pretraining_image_size` and `pretraining_classes`.
    """
    first = recipe
    while (start := first.weights) is not None:
        if first.pretraining is not None:  # Noted by the run, which knew where its weights lay.
            return first.pretraining
        if start in PRETRAINING:
            return {"pretraining": PRETRAINING[start]}
        try:
            first = RunRecord.from_json(read_json(pathlib.Path(start) / RECIPE))
        except (OSError, ValueError):
            return {"pretraining": os.fspath(start)}
        if not _is_of_run(first):
            return {"pretraining": os.fspath(start)}
    if not _is_of_run(first):  # A recipe of another program, or none.
        return {"pretraining": None}
    data, settings, images = task_of(first.data_name), first.settings, first.images["train"]
    if first is recipe and data == task:
        return {"pretraining": FROM_SCRATCH}
    steps, batch_size = settings.get("steps"), settings.get("batch_size")
    epochs = round(steps * batch_size / images, 1) if steps and batch_size and images else None
    facts: dict[str, str | float | list[int] | None] = {
        "images": images,
        "epochs": int(epochs) if epochs is not None and epochs.is_integer() else epochs,
        "optimizer": _OPTIMIZERS.get(settings.get("optimizer", "")),
        "image_size": settings.get("image_size"),
        "classes": first.classes,
    }
    stated = {f"pretraining_{name}": value for name, value in facts.items() if value is not None}
    return {"pretraining": data, **stated}


def _is_of_run(recipe):
    return bool(recipe.settings and recipe.data_name and "train" in recipe.images)


def check_same_settings(
    path: str | os.PathLike, found: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    """Raises an error if a file of an earlier run was made with other settings.

    Args:
        path: The file, for the error.
        found: The settings in the file.
        given: The settings of this run; they are compared as JSON.

    Raises:
        ValueError: If a setting differs; it lists all that do.
    """
    given = json.loads(json.dumps(given, default=os.fspath))
    differing = [
        f"{name} ({found.get(name)!r}, not {given.get(name)!r})"
        for name in sorted({*found, *given})
        if found.get(name) != given.get(name)
    ]
    if differing:
        raise ValueError(
            "The output must be of the same settings; use another folder. "
            f"{path} differs in: {', '.join(differing)}"
        )


def versions() -> dict[str, str]:
    """Returns the versions of the packages that affect the numbers."""
    versions = {"keras_vit": __version__, "python": platform.python_version()}
    keras = sys.modules.get("keras")
    backend = keras.backend.backend() if keras else os.environ.get("KERAS_BACKEND", "tensorflow")
    packages = ["tensorflow", "keras", "numpy", "tensorflow-datasets", "pillow"]
    for package in packages if backend == "tensorflow" else [*packages, backend]:
        for name in (package, f"{package}-nightly"):  # As keras-nightly.
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(name)
    return versions
