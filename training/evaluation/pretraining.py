"""What a result's model was pre-trained on and for how long, as its files tell.

Nothing is assumed: what no file tells is missing, by name. Imports neither Keras nor
TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

from keras_vit import configs
from keras_vit.compute import JFT_CLASSES, JFT_IMAGES, pretraining_flops

from .result import RECIPE, Result, task_of

# Name: images and classes; paper, section 4.1.
DATA_SETS = {
    "ImageNet": (1_281_167, 1000),
    "ImageNet-21k": (14e6, 21_843),
    "JFT-300M": (JFT_IMAGES, JFT_CLASSES),
}

# What compute is counted from, besides the config.
COUNTED = ("images", "epochs", "image_size", "classes")

_CONFIGS = {
    kind.__name__: kind
    for kind in (
        configs.ViTConfig,
        configs.BiTConfig,
        configs.AxialConfig,
        configs.AxialResNetConfig,
    )
}


@dataclasses.dataclass(frozen=True)
class PreTrainingRun:
    """A model's pre-training; None for what is not known.

    Args:
        data: What tables call the data set.
        images: Different images that were seen.
        epochs: Passes over them.
        image_size: Pixels (height, width).
        classes: Classes of the head.
        exaflops: Its compute, 10^18 operations.
    """

    data: str | None = None
    images: float | None = None
    epochs: float | None = None
    image_size: tuple[int, int] | None = None
    classes: int | None = None
    exaflops: float | None = None

    def missing(self, *names: str) -> list[str]:
        """Returns those of the names whose value is not known."""
        return [name for name in names if getattr(self, name) is None]


def pretraining_of(path: pathlib.Path, result: Result) -> PreTrainingRun:
    """Returns the pre-training of a result's model.

    From the result's own fields `model.pretraining`, `pretraining_images`,
    `pretraining_epochs`, `pretraining_image_size`, `pretraining_classes` and
    `pretraining_exaflops`; then, if its weights are from a run of this package, from the
    recipe of the run that began with random weights; then from the data set's name.

    Args:
        path: The result's file.
        result: What is in it.
    """
    model = result.model
    said: dict[str, Any] = {
        name: model.get(f"pretraining_{name}")
        for name in ("images", "epochs", "image_size", "classes", "exaflops")
    }
    run = _from_random_weights(path, result)
    told = _told_by(run) if run else {"data": model.get("pretraining")}
    images, classes = DATA_SETS.get(str(told["data"]), (None, None))
    known = {"images": images, "classes": classes, **told}
    found = {name: known.get(name) if value is None else value for name, value in said.items()}
    if found["image_size"] is not None:
        found["image_size"] = _sides(found["image_size"])
    run_found = PreTrainingRun(data=known["data"], **found)
    config = config_of(model)
    if run_found.exaflops is None and config is not None and not run_found.missing(*COUNTED):
        flops = pretraining_flops(
            config,
            images=run_found.images,
            epochs=run_found.epochs,
            input_shape=(*run_found.image_size, 3),
            classes=run_found.classes,
        )
        run_found = dataclasses.replace(run_found, exaflops=flops / 1e18)
    return run_found


def config_of(model: dict[str, Any]) -> Any:
    """Returns the config that a result file names, or None."""
    fields, name = model.get("config"), model.get("name")
    named = configs.MODELS.get(name) if isinstance(name, str) else None
    if not fields:
        return named
    fields = dict(fields)
    kind = _CONFIGS.get(fields.pop("type", None), type(named) if named is not None else None)
    if kind is None:
        return None
    if fields.get("resnet"):
        fields["resnet"] = configs.ResNetStem(**fields["resnet"])
    if isinstance(fields.get("patch_size"), list):
        fields["patch_size"] = tuple(fields["patch_size"])
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        return None  # Of another version.


def _from_random_weights(path, result):
    """The recipe of the run that the weights began with, or None."""
    if path.name == RECIPE:
        recipe = _read(path)
    else:
        recipe = _read(pathlib.Path(str(result.model.get("weights"))) / RECIPE)
    while recipe is not None and recipe["settings"].get("weights") is not None:
        recipe = _read(pathlib.Path(str(recipe["settings"]["weights"])) / RECIPE)
    return recipe


def _read(path):
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
        recipe["settings"], recipe["data"], recipe["images"]  # Of this package's runs.
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return recipe


def _told_by(recipe):
    settings, images = recipe["settings"], recipe["images"].get("train")
    steps, batch_size = settings.get("steps"), settings.get("batch_size")
    epochs = steps * batch_size / images if steps and batch_size and images else None
    return {
        "data": task_of(recipe["data"]["data"]),
        "images": images,
        "epochs": epochs,
        "image_size": settings.get("image_size"),
        "classes": recipe.get("classes"),
    }


def _sides(size):
    return (size, size) if isinstance(size, int) else tuple(size)
