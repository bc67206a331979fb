"""Models to evaluate, and their outputs for every image of a data set."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.catalogue import classifier_folder
from keras_vit.classifier import Classifier, load_classifier, predict_batch
from keras_vit.models.build import build
from keras_vit.preprocessing import Preprocessing
from keras_vit.progress import progress_bar
from keras_vit.recognition import config_of

from .results import PRETRAINING, pretraining_fields


class NonFiniteScores(ValueError):
    """A model's outputs contain NaN or infinity."""


def predictions(
    model: keras.Model,
    batches: Iterable[tuple],
    count: int,
    *,
    name_of: Callable[[int], str] = "image {}".format,
    progress: str | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yields a model's outputs for each batch, and checks that no image is lost.

    Args:
        model: From images `(B, H, W, C)` to outputs `(B, K)`.
        batches: Tuples of images, and labels `(B,)` if there are any.
        count: Images in all batches together.
        name_of: Function from an image's number, from 0, to its name in an error message.
        progress: First word of a line with the rate and the time left; None shows no line.

    Yields:
        Outputs `(B, K)`, and labels `(B,)` or None.

    Raises:
        NonFiniteScores: If an output is NaN or infinite.
        ValueError: If the batches hold more or fewer than `count` images.
    """
    done = 0
    with progress_bar(count, progress or "", disable=not progress) as bar:
        for images, *labels in batches:
            outputs = predict_batch(model, images)
            if not np.isfinite(outputs).all():
                raise NonFiniteScores(
                    "The model's outputs must be finite numbers. Received: NaN or infinity in "
                    f"the batch that starts with {name_of(done)}"
                )
            yield outputs, np.asarray(labels[0]) if labels else None
            done += len(outputs)
            bar.update(len(outputs))
    if done != count:
        raise ValueError(
            "Every image must be evaluated exactly once. "
            f"Received: {done} predictions for {count} images"
        )


@dataclasses.dataclass(frozen=True)
class EvaluatedModel:
    """A model with its preprocessing and its origin.

    Args:
        model: From images `(B, H, W, C)` to scores.
        preprocessing: How an image becomes the model's input.
        name: The model's name as in the paper, or its folder.
        weights: Name, file or folder of the weights.
        class_names: Names of the outputs, or None for a model without a trained head.
        pretraining: Fields of result files about the pre-training; see
            `pretraining_fields`.
        recipe: The `recipe.json` of its folder; empty if there is none.
    """

    model: keras.Model
    preprocessing: Preprocessing
    name: str
    weights: str
    class_names: tuple[str, ...] | None = None
    pretraining: dict[str, Any] = dataclasses.field(default_factory=dict)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the field `model` of a result file."""
        try:
            config = config_of(self.model)
        except ValueError:
            config = None
        return {
            "name": self.name,
            "config": config and {"type": type(config).__name__, **dataclasses.asdict(config)},
            "weights": self.weights,
            "weights_sha256": weights_hash(self.model),
            **self.pretraining,
            **json.loads(self.preprocessing.to_json()),
        }


def open_model(
    model: str | os.PathLike,
    *,
    weights: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    evaluation: str | None = None,
    classes: int | None = None,
) -> EvaluatedModel:
    """Returns the model to evaluate, from a classifier's folder or by its name.

    Args:
        model: A classifier's folder, or a name of `keras_vit.list_models()`.
        weights: For a name: weights as `keras_vit.build` takes them, or "random".
        image_size: For a name: pixels; 224 by default.
        evaluation: How images are resized; by default as in the folder, or "resize".
        classes: For a name: the head's classes, to be read from the weights. None makes a
            new head of zeros, for features.

    Raises:
        ValueError: If it is neither, or arguments are missing or do not fit.
    """
    if classifier_folder(model).is_dir():
        if weights is not None or image_size is not None:
            raise ValueError(
                "Weights and image size are stored in the classifier's folder; give them only "
                f"with a model's name. Received: model={os.fspath(model)!r}, "
                f"weights={weights!r}, image_size={image_size}"
            )
        opened = evaluated_classifier(load_classifier(model))
        if evaluation in (None, opened.preprocessing.evaluation):
            return opened
        preprocessing = Preprocessing(
            opened.preprocessing.image_size, evaluation, opened.preprocessing.value_range
        )
        return dataclasses.replace(opened, preprocessing=preprocessing)
    try:
        configs.resolve(os.fspath(model))
    except ValueError as error:
        raise ValueError(
            f"The model must be a classifier's folder or a model's name. {error}"
        ) from error
    if weights is None:
        raise ValueError(
            "A model's name needs weights (--weights): imagenet21k, imagenet, a key of the "
            f"catalogue, a file, or random. Received: {os.fspath(model)!r} without weights"
        )
    size = configs.default_image_size(os.fspath(model)) if image_size is None else image_size
    height, width = (size, size) if isinstance(size, int) else size
    if classes is None:
        # Weights "imagenet" need their own classes; others accept a new head.
        classes = 1000 if weights == "imagenet" else 1
    built = build(
        os.fspath(model),
        weights=None if weights == "random" else weights,
        input_shape=(height, width, 3),
        classes=classes,
    )
    return EvaluatedModel(
        built,
        Preprocessing((height, width), evaluation or "resize"),
        name=os.fspath(model),
        weights=weights,
        pretraining={"pretraining": PRETRAINING.get(weights)},
    )


def evaluated_classifier(classifier: Classifier, task: str | None = None) -> EvaluatedModel:
    """Returns the model of a loaded classifier with its origin.

    Args:
        classifier: The classifier.
        task: The test set, if the classifier's own head is evaluated.
    """
    recipe, folder = classifier.recipe, os.fspath(classifier.folder or "")
    return EvaluatedModel(
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
