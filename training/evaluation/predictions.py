"""Models to evaluate, and their outputs for every image of a data set."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import classifier_folder
from keras_vit.classifier import Classifier, predict_batch
from keras_vit.models.build import build
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, describe_range, value_range
from keras_vit.progress import progress_bar
from keras_vit.recognition import config_of
from keras_vit.tasks import Thresholds, check_task
from keras_vit.trained_weights import open_weights
from keras_vit.training.data import Examples, evaluation_batches
from keras_vit.training.data.image_files import decoding_errors
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.trainer.data_adapter import pad_rows

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
    left_out: Sized = (),
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yields a model's outputs for each batch, and checks that no image is lost.

    Args:
        model: From images `(B, H, W, C)` to outputs `(B, K)`.
        batches: Tuples of images, and labels `(B,)` if there are any.
        count: Images in all batches together.
        name_of: Function from an image's number, from 0, to its name in an error message.
        progress: First word of a line with the rate and the time left; None shows no line.
        left_out: Those of the count that the batches leave out; complete when they end.

    Yields:
        Outputs `(B, K)`, and labels `(B,)` or None.

    Raises:
        NonFiniteScores: If an output is NaN or infinite.
        ValueError: If the batches hold more or fewer than `count` images.
    """
    done, largest = 0, 0
    with progress_bar(count, progress or "", disable=not progress) as bar:
        for images, *labels in batches:
            rows = len(images)
            if keras.backend.backend() != "tensorflow":
                # It compiles for each size: the last batch gets the size of the others.
                largest = max(largest, rows)
                images = pad_rows(np.asarray(images), largest)
            outputs = predict_batch(model, images)[:rows]
            if not np.isfinite(outputs).all():
                raise NonFiniteScores(
                    "The model's outputs must be finite numbers. Received: NaN or infinity in "
                    f"the batch that starts with {name_of(done)}"
                )
            yield outputs, np.asarray(labels[0]) if labels else None
            done += len(outputs)
            bar.update(len(outputs))
    if done + len(left_out) != count:
        raise ValueError(
            "Every image must be evaluated exactly once. "
            f"Received: {done} predictions for {count} images"
        )


def predictions_of(
    model: keras.Model,
    examples: Examples,
    *,
    preprocessing: Preprocessing | None,
    batch_size: int,
    progress: str | None = None,
    unreadable: list[tuple[int, str]] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Returns what `predictions` yields for examples, each once and in their order.

    Args:
        model: From images `(B, H, W, C)` to outputs `(B, K)`.
        examples: The examples.
        preprocessing: How an image becomes the model's input; see `evaluation_batches`.
        batch_size: Images in a batch.
        progress: See `predictions`.
        unreadable: Receives the place and the reason of each image file that cannot be read,
            which is left out; None if it is an error.

    Raises:
        ValueError: If there are no examples, or none that can be read.
    """
    if not len(examples):
        raise ValueError("There must be images to evaluate. Received: none")
    batches: Iterable[tuple] = evaluation_batches(
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        skip_unreadable=unreadable is not None,
    )
    if unreadable is not None:
        batches = _noting_unreadable(batches, examples.names, unreadable)
    return predictions(
        model,
        batches,
        len(examples),
        name_of=lambda number: examples.names[number],
        progress=progress,
        left_out=() if unreadable is None else unreadable,
    )


def _noting_unreadable(batches, names, unreadable):
    """Yields images and labels, then notes the places that had none, with the reasons."""
    read = np.zeros(len(names), bool)
    for images, labels, places in batches:
        read[np.asarray(places)] = True
        yield images, labels
    places = np.flatnonzero(~read).tolist()
    reasons = decoding_errors([names[place] for place in places])
    # An image that can be read and was not is lost: an error of the count.
    found = zip(places, reasons, strict=True)
    unreadable += [(place, reason) for place, reason in found if reason is not None]
    if len(unreadable) == len(names):
        raise ValueError(
            "There must be images that can be read. Received: none; "
            + "; ".join(describe_skipped(_named(unreadable, names), names=3)[:3])
        )


def _named(unreadable: Iterable[tuple[int, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the paths and reasons of images by their places."""
    return [(names[place], reason) for place, reason in unreadable]


def without(
    examples: Examples, unreadable: Sequence[tuple[int, str]] | None
) -> tuple[Examples, list[tuple[str, str]]]:
    """Returns the examples that were read, and the paths and reasons of the others.

    Args:
        examples: The examples that `predictions_of` was called with.
        unreadable: What it received.
    """
    if not unreadable:
        return examples, []
    kept = np.delete(np.arange(len(examples)), [place for place, _ in unreadable])
    return examples.take(kept), _named(unreadable, examples.names)


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
        facts: Range of the pixels and GELU, with where they are from, for people.
        thresholds: For several labels an image, the probability above which it has each of the
            class names; None for one class an image.
    """

    model: keras.Model
    preprocessing: Preprocessing
    name: str
    weights: str
    class_names: tuple[str, ...] | None = None
    pretraining: dict[str, Any] = dataclasses.field(default_factory=dict)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    facts: str = ""
    thresholds: Thresholds = None

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
    num_heads: int | None = None,
    gelu: Any = None,
    normalization: str | None = None,
) -> EvaluatedModel:
    """Returns the model to evaluate, from its weights or by its name.

    Args:
        model: A classifier's folder or any other weights that `open_weights` takes, or a name
            of `keras_vit.list_models()`.
        weights: For a name: weights as `keras_vit.build` takes them, or "random".
        image_size: For a name: pixels; by default those of a file, or 224.
        evaluation: How images are resized; by default as for the weights.
        classes: For a name: the head's classes, to be read from the weights. None makes a
            new head of zeros, for features.
        num_heads: Attention heads, where the weights do not show them.
        gelu: The form of GELU, where the weights do not say.
        normalization: "half" or "imagenet", where the weights do not hold the range of the
            pixels.

    Raises:
        ValueError: If it is neither, arguments are missing or do not fit, or a fact about the
            weights was neither found nor given.
    """
    name = os.fspath(model)
    given = {"num_heads": num_heads, "gelu": gelu, "normalization": normalization}
    if classifier_folder(model).exists() and name not in configs.MODELS:
        if weights is not None or image_size is not None:
            raise ValueError(
                "Weights and image size are stored in the classifier's folder; give them only "
                f"with a model's name. Received: model={name!r}, "
                f"weights={weights!r}, image_size={image_size}"
            )
        opened = open_weights(model, **given)
        preprocessing = opened.preprocessing_for(evaluation=evaluation)
        return EvaluatedModel(
            opened.to_model()[0],
            preprocessing,
            name=opened.recipe.get("model") or name,
            weights=os.fspath(classifier_folder(model)),
            class_names=opened.class_names,
            pretraining=pretraining_fields(dict(opened.recipe), None),
            recipe=dict(opened.recipe),
            facts=opened.describe(),
            thresholds=_thresholds(opened),
        )
    try:
        configs.resolve(name)
    except ValueError as error:
        raise ValueError(
            f"The model must be a classifier's folder or a model's name. {error}"
        ) from error
    if weights is None:
        raise ValueError(
            "A model's name needs weights (--weights): imagenet21k, imagenet, a key of the "
            f"catalogue, a file, or random. Received: {name!r} without weights"
        )
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    pretraining = {"pretraining": PRETRAINING.get(weights)}
    if weights in (*catalogue.NAMES, *catalogue.list_weights(), "random"):
        changes = {"num_heads": num_heads, "gelu": gelu}
        changes = {field: value for field, value in changes.items() if value is not None}
        if changes and weights != "random":
            raise ValueError(
                "The number of heads and GELU are given for files that do not hold them. "
                f"Received: {changes} for {weights}"
            )
        side = configs.default_image_size(name)
        height, width = size or (side, side)
        # Weights "imagenet" need their own classes; others accept a new head.
        built = build(
            name,
            weights=None if weights == "random" else weights,
            input_shape=(height, width, 3),
            classes=classes or (1000 if weights == "imagenet" else 1),
            **changes,
        )
        values = value_range(*NORMALIZATIONS[normalization or "half"])
        preprocessing = Preprocessing((height, width), evaluation or "resize", values)
        facts = f"pixels {describe_range(values)}"
        return EvaluatedModel(
            built, preprocessing, name, weights, pretraining=pretraining, facts=facts
        )
    opened = open_weights(weights, model=name, image_size=size, **given)
    preprocessing = opened.preprocessing_for(size, evaluation)
    if classes not in (None, opened.classes):
        raise ValueError(
            f"The weights must have a head of {classes} classes. "
            f"Received: {weights}, with {opened.classes or 'none'}"
        )
    return EvaluatedModel(
        opened.to_model(size, hidden_layer=classes is not None)[0],
        preprocessing,
        name,
        weights,
        class_names=opened.class_names,
        pretraining=pretraining,
        facts=opened.describe(),
        thresholds=_thresholds(opened),
    )


def _thresholds(opened):
    """The thresholds of weights whose classes have names."""
    names = opened.class_names
    return None if names is None else check_task(opened.task, names, opened.thresholds)


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
