"""What a result's model was pre-trained on and for how long, as its files tell.

Nothing is assumed: what no file tells is missing, by name. Imports neither Keras nor
TensorFlow.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit import configs
from keras_vit.compute import JFT_CLASSES, JFT_IMAGES, pretraining_flops
from keras_vit.training.evaluation.results import Result
from keras_vit.training.run.required import required

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


def pretraining_of(result: Result) -> PreTrainingRun:
    """Returns the pre-training of a result's model.

    From the result's fields `model.pretraining`, `pretraining_images`, `pretraining_epochs`,
    `pretraining_image_size`, `pretraining_classes` and `pretraining_exaflops`, as
    `result.pretraining_fields` writes them. Images and classes of the paper's data sets are
    known by name; compute that is not stated is counted, if all that it takes is known.
    """
    model = result.model
    said: dict[str, Any] = {
        name: model.get(f"pretraining_{name}")
        for name in ("images", "epochs", "image_size", "classes", "exaflops")
    }
    images, classes = DATA_SETS.get(str(model.get("pretraining")), (None, None))
    said["images"] = said["images"] or images
    said["classes"] = said["classes"] or classes
    if said["image_size"] is not None:
        size = said["image_size"]
        said["image_size"] = (size, size) if isinstance(size, int) else tuple(size)
    run = PreTrainingRun(data=model.get("pretraining"), **said)
    config = config_of(model)
    if run.exaflops is not None or config is None or run.missing(*COUNTED):
        return run
    flops = pretraining_flops(
        config,
        images=required(run.images, "images"),
        epochs=required(run.epochs, "epochs"),
        input_shape=(*required(run.image_size, "image_size"), 3),
        classes=run.classes,
    )
    return dataclasses.replace(run, exaflops=flops / 1e18)


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
