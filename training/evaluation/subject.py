"""What is evaluated: a model with its preprocessing, from a folder or by name."""

from __future__ import annotations

import dataclasses
import hashlib
import os

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.catalogue import classifier_folder
from keras_vit.classifier import Classifier, load_classifier
from keras_vit.models.application import build
from keras_vit.models.recognition import config_of
from keras_vit.preprocessing import Preprocessing

from .results import PRETRAINING, pretraining_fields


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model that is evaluated.

    Args:
        model: From images `(B, H, W, C)` to scores.
        preprocessing: How an image becomes the model's input.
        name: The model's name as in the paper, or its folder.
        weights: Where the weights are from.
        class_names: Names of the outputs, or None for a model without a trained head.
        pretraining: What result files say of its pre-training; see `pretraining_fields`.
        recipe: How it was trained, where its folder tells.
    """

    model: keras.Model
    preprocessing: Preprocessing
    name: str
    weights: str
    class_names: tuple[str, ...] | None = None
    pretraining: dict = dataclasses.field(default_factory=dict)
    recipe: dict = dataclasses.field(default_factory=dict)

    def weights_hash(self) -> str:
        """Returns the SHA-256 of all weights: equal for equal values only."""
        return weights_hash(self.model)

    def to_json(self) -> dict:
        """Returns what a result file says of the model."""
        try:
            config = config_of(self.model)
        except ValueError:
            config = None
        return {
            "name": self.name,
            "config": config and {"type": type(config).__name__, **dataclasses.asdict(config)},
            "weights": self.weights,
            "weights_sha256": self.weights_hash(),
            **self.pretraining,
            "image_size": list(self.preprocessing.image_size),
            "evaluation": self.preprocessing.evaluation,
            "value_range": list(self.preprocessing.value_range),
        }


def open_subject(
    model: str | os.PathLike,
    *,
    weights: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    evaluation: str | None = None,
    classes: int | None = None,
) -> Subject:
    """Returns the subject that a command's MODEL stands for.

    Args:
        model: A classifier's folder, or a name of `keras_vit.list_models()`.
        weights: For a name: what `keras_vit.build` takes, or "random".
        image_size: For a name: pixels; 224 by default.
        evaluation: How an image gets its size; the folder's own, or "resize", by default.
        classes: For a name: the head's classes, to be read from the weights. None makes a
            new head of zeros, for features.

    Raises:
        ValueError: If it is neither, or arguments are missing or do not fit.
    """
    if classifier_folder(model).is_dir():
        if weights is not None or image_size is not None:
            raise ValueError(
                "Weights and image size are those of the classifier's folder; give them with a "
                f"model's name only. Received: model={os.fspath(model)!r}, weights={weights!r}, "
                f"image_size={image_size}"
            )
        subject = of_classifier(load_classifier(model))
        if evaluation is None:
            return subject
        preprocessing = dataclasses.replace(subject.preprocessing, evaluation=evaluation)
        return dataclasses.replace(subject, preprocessing=preprocessing)
    try:
        configs.resolve(os.fspath(model))
    except ValueError as error:
        raise ValueError(f"There is no such classifier's folder, nor model. {error}") from error
    if weights is None:
        raise ValueError(
            "A model's name needs weights: imagenet21k, imagenet, a key or a file, or random "
            f"(--weights). Received: {os.fspath(model)!r} without"
        )
    size = configs.default_image_size(model) if image_size is None else image_size
    height, width = (size, size) if isinstance(size, int) else size
    built = build(
        os.fspath(model),
        weights=None if weights == "random" else weights,
        input_shape=(height, width, 3),
        classes=_classes(weights) if classes is None else classes,
    )
    return Subject(
        built,
        Preprocessing((height, width), evaluation or "resize"),
        name=os.fspath(model),
        weights=weights,
        pretraining={"pretraining": PRETRAINING.get(weights)},
    )


def of_classifier(classifier: Classifier, task: str | None = None) -> Subject:
    """Returns a classifier that was read from its folder as a subject.

    Args:
        classifier: The classifier.
        task: The test set, if its own head is evaluated.
    """
    recipe, folder = classifier.recipe, os.fspath(classifier.folder or "")
    return Subject(
        classifier.model,
        classifier.preprocessing,
        name=recipe.get("model") or folder,
        weights=folder,
        class_names=classifier.class_names,
        pretraining=pretraining_fields(recipe, task),
        recipe=recipe,
    )


def weights_hash(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's weights, in their order."""
    digest = hashlib.sha256()
    for variable in model.weights:
        value = np.ascontiguousarray(keras.ops.convert_to_numpy(variable))
        digest.update(f"{value.shape} {value.dtype}".encode())
        digest.update(value.view(np.uint8).data if value.size else b"")
    return digest.hexdigest()


def _classes(weights):
    # Weights "imagenet" insist on their own classes; others give way to a head of zeros.
    return 1000 if weights == "imagenet" else 1
