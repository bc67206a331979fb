"""Arguments that several commands share."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.configs import FEATURES
from keras_vit.training.settings import UNKNOWN_FACTS, FineTuning
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, part, setting


def unknown_facts() -> Any:
    """Returns the field of what a file of weights may not hold; see `keras_vit.open_model`."""
    return part(FineTuning, make=dict, only=UNKNOWN_FACTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """MODEL, and the flags for a model's name and for weights of others."""

    model: str = setting(
        REQUIRED,
        "a classifier's folder, other weights, or a name of keras-vit models",
        unit="MODEL",
        positional=True,
        completion=("models",),
    )
    weights: str | None = setting(
        None,
        "for a model's name: imagenet21k, imagenet, a key of the catalogue, a file, or random",
        unit="NAME",
        completion=("weights",),
    )
    image_size: int | None = setting(
        None, "images of another size", unit="PIXELS", absent="the weights', or 224"
    )
    facts: dict[str, Any] = unknown_facts()

    def open(self, **options: Any) -> Any:
        """Returns the opened model, an `EvaluatedModel`.

        Args:
            **options: More arguments of `build_evaluated`.
        """
        from keras_vit.training.evaluation.predictions import build_evaluated

        return build_evaluated(
            self.model,
            weights=self.weights,
            image_size=self.image_size,
            **self.facts,
            **options,
        )


def classifier(more: str = "", completion: tuple[str, ...] = ("classifiers",)) -> Any:
    """Returns the field of MODEL, which `open_classifier` opens.

    Args:
        more: What else it may be, for the help text.
        completion: See `FieldInfo`.
    """
    return setting(
        REQUIRED,
        "a classifier's folder, or an export of one: a folder of SavedModel or OpenVINO, a "
        f".tflite or an .onnx file{more}",
        unit="MODEL",
        positional=True,
        completion=completion,
    )


def batch_size(default: int = 32) -> Any:
    """Returns the field of --batch-size."""
    return setting(default, "images at once", unit="N", limits=AT_LEAST_1)


def feature() -> Any:
    """Returns the field of --feature."""
    return setting(
        FEATURES[0],
        "input of the head, class token, or mean of the patch tokens",
        choices=FEATURES,
    )


def tasks() -> Any:
    """Returns the field of --task, the names of data sets in the paper's tables."""
    return setting(
        (),
        "the paper's name of a data set whose own name is not known, such as photos=CIFAR-10; may "
        "be repeated",
        unit="DATA=TASK",
        repeated=True,
    )


def no_pictures() -> Any:
    """Returns the field of --no-pictures."""
    return setting(False, "draw no pictures, which need matplotlib")
