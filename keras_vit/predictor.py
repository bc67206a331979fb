"""Predictors: a model with its description, recipe and folder, which predicts image files.

The public `keras_vit.Classifier` stands for one; rooms below it take the predictor.

Neither TensorFlow nor Keras is imported before a Keras model needs them: an export in another
runtime predicts without both.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_vit import images as image_formats
from keras_vit.checkpoints.catalogue import name_of_folder
from keras_vit.description import (
    UNKNOWN,
    Description,
    Labels,
    check_class_names,
    check_one_output,
)
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL
from keras_vit.images.listing import PATHS, Image, Images, as_image, as_images
from keras_vit.images.transcoding import decode_file, with_pixels
from keras_vit.models.outputs import predict_batch
from keras_vit.prediction import Prediction, highest, split_answers
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.fields import required
from keras_vit.utils.quiet_tensorflow import check_not_forked, is_forked

if TYPE_CHECKING:
    import keras

ONE_UNIT = (
    "A head of one unit with a sigmoid gives the probability of one class: name that class and "
    'pass task="multilabel"; or train a head of two units with a softmax, '
    "keras_vit.with_new_head(model, 2)"
)
_MAX_HELD = 2**24  # Bytes of an image's pixels that wait for a batch, of a model that takes pixels.


class Predictor:
    """A model with its description: class names, preprocessing, where it is from.

    Args:
        model: A Keras model from images `(B, H, W, 3)` to probabilities `(B, K)`, or `(B, K + 1)`
            if it is calibrated and may answer "unknown", its last output.
        class_names: The K names, in the order of the model's outputs, or Keras's `class_indices`.
        preprocessing: The preprocessing from an image to the model's input.
        recipe: Everything needed to repeat the training.
        folder: The folder or export that it was loaded from, or None.
        task: "multiclass" or "multilabel".
        thresholds: For a multi-label classifier, the probability above which an image has the
            label, one for each class; 0.5 by default.

    Raises:
        ValueError: If the class names, the image size or the thresholds do not fit the model, or it
            takes images of another number of channels.

    Attributes:
        source: Human-readable name of where it is from; "" of a model in memory.
    """

    def __init__(
        self,
        model: keras.Model,
        class_names: Sequence[str] | Mapping[str, int],
        preprocessing: Preprocessing,
        recipe: Mapping[str, Any] | None = None,
        folder: str | os.PathLike | None = None,
        *,
        task: str = MULTICLASS,
        thresholds: Sequence[float] | None = None,
    ):
        check_one_output(model)
        labels = Labels.of_names(class_names, task, thresholds)
        held = Description.of_model(model)
        description = dataclasses.replace(held, labels=labels, preprocessing=preprocessing)
        self._set(model, description, recipe, folder)

    @classmethod
    def of(
        cls,
        model: keras.Model,
        description: Description,
        recipe: Mapping[str, Any] | None = None,
        folder: str | os.PathLike | None = None,
        source: str = "",
    ) -> Predictor:
        """Returns the predictor of a model and its description; arguments as above.

        Args:
            model: A Keras model, or an export in its own runtime.
            description: What it is; without names of classes it answers no photos, and computes
                features.
            recipe: As above.
            folder: As above.
            source: Where it is from; by default the folder.
        """
        predictor = cls.__new__(cls)
        predictor._set(model, description, recipe, folder, source)
        return predictor

    def _set(self, model, description, recipe, folder, source=""):
        if description.labels.names is not None:
            description = described_fully(description, model)
        if hasattr(model, "layers"):  # An export, which needs no Keras, has none.
            from keras_vit.models.graph import as_computed

            description = as_computed(model, description)
        self.model, self.description = model, description
        self.recipe = dict(recipe or {})
        self.folder = None if folder is None else pathlib.Path(folder)
        self.source = source or name_of_folder(folder)
        check_not_forked()

    def __reduce__(self):
        facts = (self.description, self.recipe, self.folder, self.source)
        return _unpickled, (*self.model.__reduce__(), *facts)

    @property
    def is_export(self) -> bool:
        """Whether the model is an export in its own runtime, and not a Keras model."""
        return hasattr(self.model, "takes_pixels")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K names of the classes, in the order of the model's outputs; without "unknown"."""
        return self.description.labels.names or ()

    @property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing from an image to the model's input."""
        return required(self.description.preprocessing, "preprocessing")

    @property
    def task(self) -> str:
        """The task: "multiclass", or "multilabel" if an image may have any number of labels."""
        return self.description.labels.task

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """Multi-label only: the probability above which an image has each label."""
        return self.description.labels.thresholds

    def at_bit_depth(self, bit_depth: int | None) -> Predictor:
        """Returns the predictor for 16-bit images of so many bits; None changes nothing."""
        if bit_depth is None:
            return self
        return self.preprocessed_by(dataclasses.replace(self.preprocessing, bit_depth=bit_depth))

    def preprocessed_by(self, preprocessing: Preprocessing) -> Predictor:
        """Returns the predictor with another preprocessing, also of a model that includes one.

        Args:
            preprocessing: What computes the model's input from images.
        """
        description = dataclasses.replace(self.description, preprocessing=preprocessing)
        changed = type(self).__new__(type(self))
        vars(changed).update(vars(self), description=description)
        return changed

    def preprocess(self, images: Images) -> np.ndarray:
        """Returns the model's input for images, as evaluation and prediction compute it.

        Args:
            images: One image `(H, W, C)`, a batch of them, or a list of images of any
                sizes: arrays of pixels in [0, 255], or PIL images, which EXIF's orientation turns.

        Returns:
            A float32 array `(B, height, width, C)`.
        """
        check_not_forked()
        is_one = hasattr(images, "getexif") or getattr(images, "ndim", 4) == 3
        return np.asarray(self.preprocessing([images] if is_one else images))

    def predict(self, paths: Images, top: int = 5, batch_size: int = 32) -> list[Prediction]:
        """Returns a `Prediction` for each image, in order.

        Args:
            paths: A file, a folder (with its subfolders), an image in memory (bytes of a file, an
                open binary file, a PIL image, an array `(H, W, 3)` of uint8), or several of all
                these. The `path` of an image in memory is its place, such as "image 0".
            top: Number of classes of a prediction.
            batch_size: Images that the model computes at once.

        Returns:
            A list. The prediction of an unreadable image has the reason in `.error`.

        Raises:
            ValueError: If a path does not exist, a folder has no images, or an image in memory is
                of another type.
        """
        check_not_forked()
        images = as_images(paths, self.preprocessing.bit_depth)
        return list(self.stream(images, top, batch_size))

    def stream(
        self, paths: Iterable[Image], top: int = 5, batch_size: int = 32
    ) -> Iterator[Prediction]:
        """Yields predictions while the next batch of images is read.

        Args:
            paths: Image files, or images in memory as in `predict`; any number: at most two
                batches are in memory.
            top: Number of classes of a prediction.
            batch_size: Images that the model computes at once.

        Yields:
            A `Prediction` for each image, in order.
        """
        check_not_forked()
        if top < 1 or batch_size < 1:
            raise ValueError(
                "top and batch_size must be at least 1. "
                f"Received: top={top}, batch_size={batch_size}"
            )
        numbered = enumerate(paths)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:

            def start_reading():
                batch = list(itertools.islice(numbered, batch_size))
                images = [image for _, image in batch]
                names = [
                    os.fspath(image) if isinstance(image, PATHS) else f"image {number}"
                    for number, image in batch
                ]
                return names, pool.map(self._read, images)

            batch, reading = start_reading()
            while batch:
                next_batch, next_reading = start_reading()
                yield from self._predict_batch(batch, list(reading), top)
                batch, reading = next_batch, next_reading

    def input_of(self, encoded: bytes) -> np.ndarray:
        """Returns the model's input for the content of an image file.

        Args:
            encoded: The content of the file.

        Returns:
            float32 `(height, width, 3)`, or the image's uint8 pixels where the model takes them.

        Raises:
            ValueError: If it cannot be decoded. The message is the reason, in one line.
        """
        known = self.preprocessing
        if getattr(self.model, "takes_pixels", False):
            return decode_file(encoded, known.bit_depth)
        apply = image_formats.decoding.apply_preprocessing
        return with_pixels(
            encoded, lambda pixels: np.asarray(apply(pixels, known)), known.bit_depth
        )

    def probabilities(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the model's outputs `(B, K)` or `(B, K + 1)` for B inputs of `input_of`."""
        check_not_forked()
        if len({image.shape for image in inputs}) == 1:
            return predict_batch(self.model, np.stack(inputs))
        # Images of several sizes, which the model resizes itself.
        return np.concatenate([predict_batch(self.model, image[np.newaxis]) for image in inputs])

    def prediction(self, path: str, probabilities: np.ndarray, top: int = 5) -> Prediction:
        """Returns the `Prediction` of an image from its row of `probabilities`."""
        if not np.isfinite(probabilities).all():
            return self._failed(path, "The model's probabilities are not finite numbers.")
        if probabilities.min() < 0 or probabilities.max() > 1.001:  # As of a float16 softmax.
            return self._failed(path, "The model's outputs are not probabilities, but logits.")
        names, may_abstain, is_unknown = self.class_names, self.description.labels.abstains, False
        if may_abstain:
            (probabilities,), (is_unknown,) = split_answers(probabilities[np.newaxis])
        order = highest(probabilities, top)
        best = [(names[k], float(probabilities[k])) for k in order]
        given = order[:1]
        if self.thresholds is not None:
            above = np.flatnonzero(probabilities > np.array(self.thresholds))
            given = above[highest(probabilities[above], len(above))]
        labels = (UNKNOWN,) if is_unknown else tuple(names[k] for k in given)
        return Prediction(path, best, None, labels, may_abstain, self.task == MULTILABEL)

    def _failed(self, path, reason):
        return Prediction(path, [], reason, is_multilabel=self.task == MULTILABEL)

    def _read(self, image):
        """Returns an image as the model's input, or as `_held` does, or why it cannot be read."""
        takes_pixels = getattr(self.model, "takes_pixels", False)
        bit_depth = self.preprocessing.bit_depth
        try:
            is_path = isinstance(image, PATHS)
            content = pathlib.Path(image).read_bytes() if is_path else as_image(image, bit_depth)
            if not isinstance(content, bytes):
                return content if takes_pixels else self.preprocess(content)[0]
            if takes_pixels:
                return with_pixels(content, self._held, bit_depth)
            return self.input_of(content)
        except (ValueError, OSError) as error:
            return str(error)
        except MemoryError:
            return "The image needs more memory than there is."

    def _held(self, pixels):
        """Pixels that wait for a batch; of a large image its row of probabilities instead."""
        return pixels if pixels.size <= _MAX_HELD else self.probabilities([pixels])

    def _predict_batch(self, paths, images, top):
        arrays = [image for image in images if not isinstance(image, str) and image.ndim == 3]
        rows = iter(self.probabilities(arrays) if arrays else ())
        for path, image in zip(paths, images, strict=True):
            if isinstance(image, str):
                yield self._failed(path, image)
            else:
                yield self.prediction(path, next(rows) if image.ndim == 3 else image[0], top)


class PredictorHolder:
    """What stands for a predictor: the public `Classifier`, which rooms below it do not import.

    Args:
        predictor: The predictor.
    """

    def __init__(self, predictor: Predictor):
        self._predictor = predictor


def predictor_in(anything: object) -> Predictor | None:
    """Returns the predictor that something is or stands for; None of anything else."""
    if isinstance(anything, PredictorHolder):
        return anything._predictor
    return anything if isinstance(anything, Predictor) else None


# What a function that needs a predictor takes: a classifier, or what `load_classifier` takes.
AnyClassifier: TypeAlias = PredictorHolder | Predictor | str | os.PathLike


def described_fully(description: Description, model: keras.Model) -> Description:
    """Returns the description of a classifier, with a threshold for each label.

    Raises:
        ValueError: If it does not fit the model, or lacks class names or a preprocessing.
    """
    labels, preprocessing = description.labels, description.preprocessing
    if labels.names is None or preprocessing is None:
        raise ValueError(
            "The description of a classifier must have class names and a preprocessing. "
            f"Received: {description}"
        )
    last = getattr((getattr(model, "layers", None) or [None])[-1], "activation", None)
    if getattr(last, "__name__", "") == "linear":
        raise ValueError(
            "The model of a classifier must give probabilities: build it with "
            f'classifier_activation="{labels.activation}". Received: {model.name}, whose last '
            "layer gives logits"
        )
    labels = dataclasses.replace(labels, thresholds=labels.limits)
    described = dataclasses.replace(description, labels=labels)
    whole = described.merged(Description.of_model(model))
    check_classifier(whole.labels, model, preprocessing)
    return whole


def check_classifier(labels: Labels, model: keras.Model, preprocessing: Preprocessing) -> None:
    """Checks what a classifier's folder needs, before there is one.

    Args:
        labels: The classes.
        model: The model, with or without its last activation.
        preprocessing: The preprocessing of its images.

    Raises:
        ValueError: If a class name cannot be a line of text or there is one twice, or the model
            does not fit the names and the preprocessing.
    """
    check_class_names(labels.output_names)
    count, wanted = len(labels.output_names), (*preprocessing.image_size, 3)
    inputs, outputs = tuple(model.input_shape), tuple(model.output_shape)
    fits = [side in (None, size) for side, size in zip(inputs[1:], wanted, strict=False)]
    if count > 1 and outputs[1:] == (1,):
        raise ValueError(f"{ONE_UNIT}. Received: {count} names, outputs of shape {outputs}")
    if len(inputs) != 4 or not all(fits) or len(outputs) != 2 or outputs[1] != count:
        raise ValueError(
            "The model of a classifier must take images of the preprocessing's size in 3 channels "
            '(keras_vit.load_checkpoint(model, path, input_channels="adapt") adapts the first '
            "kernel) and give one probability for each class name. Received: "
            f"image_size={preprocessing.image_size}, {count} names, a model with inputs of shape "
            f"{inputs} and outputs of shape {outputs}"
        )


def _unpickled(read, arguments, *facts):
    if is_forked():  # Its use is refused.
        return Predictor.__new__(Predictor)
    return Predictor.of(read(*arguments), *facts)
