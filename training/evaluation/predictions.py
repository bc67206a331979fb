"""Models to evaluate, and their outputs or features for every image of a data set."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.configs import FEATURES
from keras_vit.description import Labels, input_dtype
from keras_vit.description.run_record import RunRecord
from keras_vit.models.outputs import array_of, mesh_of, predict_batch
from keras_vit.predictor import AnyClassifier, Predictor
from keras_vit.preprocessing import Preprocessing, as_size
from keras_vit.training.data import evaluation_batches
from keras_vit.training.data.examples import Examples
from keras_vit.training.data.image_files import FileExamples, verify_files
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.trainer.data_adapter import ahead
from keras_vit.utils.progress import progress_bar

from .results import FEW_SHOT_RESIZE, PRETRAINING, pretraining_fields

if TYPE_CHECKING:
    import keras


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
        left_out: Images of the count that the batches leave out; complete when they end.

    Yields:
        Outputs `(B, K)`, and labels `(B,)` or None.

    Raises:
        NonFiniteScores: If an output is NaN or infinite.
        ValueError: If the batches hold more or fewer than `count` images.
    """
    done, largest = 0, 0
    with progress_bar(count, progress or "", disable=not progress) as bar:
        if mesh_of(model) is None:
            batches = ahead(batches, input_dtype(model))
        for images, *labels in batches:
            largest = max(largest, len(images))
            outputs = predict_batch(model, images, rows=largest)
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
    preprocessing: Preprocessing,
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
    is_skipping = unreadable is not None and isinstance(examples, FileExamples)
    batches: Iterable[tuple] = evaluation_batches(
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        as_pixels=getattr(model, "takes_pixels", False),  # Only exports do.
        skip_unreadable=is_skipping,
    )
    left_out = [] if unreadable is None else unreadable
    if is_skipping:
        batches = _noting_unreadable(batches, examples.names, left_out)
    return predictions(
        model,
        batches,
        len(examples),
        name_of=lambda number: examples.names[number],
        progress=progress,
        left_out=left_out,
    )


def _noting_unreadable(batches, names, unreadable):
    """Yields images and labels, then notes the places that had none, with the reasons."""
    was_read = np.zeros(len(names), bool)
    for images, labels, places in batches:
        was_read[np.asarray(places)] = True
        yield images, labels
    places = np.flatnonzero(~was_read).tolist()
    # An image that can be read and was not is lost: an error of the count.
    reasons = verify_files([names[place] for place in places]).reasons
    unreadable += [(places[number], reason) for number, reason in reasons.items()]
    if len(unreadable) == len(names):
        skipped = [(names[place], reason) for place, reason in unreadable]
        raise ValueError(
            "There must be images that can be read. Received: none; "
            + "; ".join(describe_skipped(skipped, names=3)[:3])
        )


def without(
    examples: Examples, unreadable: Sequence[tuple[int, str]]
) -> tuple[Examples, list[tuple[str, str]]]:
    """Returns the examples that can be read, and `(path, reason)` of the others.

    Args:
        examples: The examples.
        unreadable: Places and reasons; see `predictions_of`.
    """
    if not unreadable:
        return examples, []
    kept = np.delete(np.arange(len(examples)), [place for place, _ in unreadable])
    names = examples.names
    return examples.take(kept), [(names[place], reason) for place, reason in unreadable]


class Features(NamedTuple):
    """Features of examples.

    Args:
        values: float32 `(N, D)`.
        labels: Class indices `(N,)`.
    """

    values: np.ndarray
    labels: np.ndarray


def extract(
    model: keras.Model,
    examples: Examples,
    *,
    preprocessing: Preprocessing,
    feature: str = FEATURES[0],
    batch_size: int = 32,
    progress: bool = False,
    unreadable: list[tuple[int, str]] | None = None,
) -> Features:
    """Returns the features of all examples from a frozen model, in their order.

    Args:
        model: The model.
        examples: The examples.
        preprocessing: How an image becomes the model's input.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.
        unreadable: See `predictions_of`; images that are left out are not in the features.

    Raises:
        ValueError: If the model does not have the feature, or there are no examples.
    """
    from keras_vit.models.rebuild import feature_model  # With Keras.

    outputs = predictions_of(
        feature_model(model, feature),
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        progress="features" if progress else None,
        unreadable=unreadable,
    )
    values, labels = map(np.concatenate, zip(*outputs, strict=True))
    return Features(values.astype("float32"), labels)


def features_of(
    predictor: Predictor,
    examples: Examples,
    *,
    feature: str = FEATURES[0],
    batch_size: int = 32,
    progress: bool = False,
    unreadable: list[tuple[int, str]] | None = None,
) -> Features:
    """Returns the features of examples by a predictor; see `extract`."""
    return extract(
        predictor.model,
        examples,
        preprocessing=predictor.preprocessing,
        feature=feature,
        batch_size=batch_size,
        progress=progress,
        unreadable=unreadable,
    )


def model_fields(predictor: Predictor, task: str | None = None) -> dict[str, Any]:
    """Returns the field `model` of a result file.

    Args:
        predictor: The model that was evaluated.
        task: The test set, if the classifier's own head is evaluated.
    """
    description = predictor.description.to_json()
    return {
        "name": name_of_model(predictor),
        "config": description.get("config"),
        "weights": predictor.source,
        "weights_sha256": weights_hash(predictor.model),
        **pretraining_fields(RunRecord.from_json(predictor.recipe), task),
        **predictor.preprocessing.to_fields(),
        "description": description,
    }


def name_of_model(predictor: Predictor) -> str:
    """Returns the model's name as in the paper, or the name or place of its weights."""
    recipe = RunRecord.from_json(predictor.recipe)
    return recipe.model or predictor.source or predictor.description.name


def build_evaluated(
    model: AnyClassifier,
    *,
    weights: AnyClassifier | None = None,
    image_size: int | tuple[int, int] | None = None,
    evaluation: str | None = None,
    classes: int | None = None,
    num_heads: int | None = None,
    gelu: str | None = None,
    normalization: str | None = None,
) -> Predictor:
    """Returns the model to evaluate, from its weights or by its name.

    Args:
        model: Anything that `keras_vit.load_classifier` takes, also without names of classes.
        weights: For a name: its weights, or "none" for random values.
        image_size: Pixels; by default the weights', or 224.
        evaluation: How images are resized; by default as for the weights.
        classes: For a name: the head's classes, to be read from the weights. None makes a
            new head of zeros, for features.
        num_heads: What the weights may not hold; see `keras_vit.load_classifier`.
        gelu: As `num_heads`.
        normalization: As `num_heads`.

    Raises:
        ValueError: If it is neither, arguments are missing or do not fit, or a fact about the
            weights was neither found nor given.
    """
    from keras_vit.opening import open_model  # With Keras.

    size = None if image_size is None else as_size(image_size)
    name = None if weights is None else str(model)
    opened = open_model(
        model if weights is None else weights,
        model=name,
        image_size=size,
        num_heads=num_heads,
        gelu=gelu,
        normalization=normalization,
    )
    size = size or opened.image_size
    recipe: Mapping[str, Any] = opened.recipe if opened.folder else {}
    if name is not None:
        recipe = {"model": name}
        if str(weights) in PRETRAINING:
            recipe["weights"] = str(weights)
        if classes not in (None, opened.description.classes) and not opened.is_random:
            raise ValueError(
                f"The weights must have a head of {classes} classes. "
                f"Received: {weights}, with {opened.description.classes or 'none'}"
            )
    # A name makes a new head, unless its classes are read; "imagenet" needs its own.
    keeps_head = classes is not None or weights in (None, "imagenet")
    opened = opened.without_unknown()
    if not keeps_head:
        opened = opened.described(dataclasses.replace(opened.description, labels=Labels()))
    built = opened.model(size, classes=classes, new_head=not keeps_head)
    known, preprocessing = opened.description, opened.preprocessing_for(size, evaluation)
    origins = dict(known.origins)
    if evaluation not in (None, opened.preprocessing_for().evaluation):
        is_protocol = evaluation == FEW_SHOT_RESIZE
        origins["evaluation"] = "the few-shot protocol" if is_protocol else "given"
    description = dataclasses.replace(known, preprocessing=preprocessing, origins=origins)
    source = str(weights or name_of_folder(opened.folder or opened.source))
    predictor = Predictor.of(built, description, recipe, opened.folder, source)
    return predictor.preprocessed_by(preprocessing)  # Also where the model includes another.


def weights_hash(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's weights, in their order."""
    digest = hashlib.sha256()
    for variable in model.weights:
        value = np.ascontiguousarray(array_of(variable))
        digest.update(f"{value.shape} {value.dtype}".encode())
        digest.update(value.view(np.uint8).data if value.size else b"")
    return digest.hexdigest()
