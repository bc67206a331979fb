"""The public `Classifier`, and `load_classifier`, which opens one of any origin.

They stand on top of the package and use every room of it; what they do is done there. Neither
TensorFlow nor Keras is imported before a Keras model needs them.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.checkpoints.catalogue import find_weights
from keras_vit.description.class_labels import MULTICLASS
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.export.formats.table import format_to_write, runs_without_tensorflow
from keras_vit.images.listing import PATHS, Images, is_one_image
from keras_vit.prediction import Prediction
from keras_vit.predictor import AnyClassifier, Predictor, PredictorHolder
from keras_vit.preprocessing import Preprocessing, as_size
from keras_vit.utils.synonyms import ATTRIBUTES, answers_synonyms

if TYPE_CHECKING:
    import keras

    from keras_vit.configs import ModelConfig
    from keras_vit.export import ExportReport
    from keras_vit.training.data.spec import Data
    from keras_vit.training.evaluation.reports import EvaluationReport

_SHOWN = 3  # Class names in what a classifier prints.

# Arguments of the functions of the package that the methods do not have.
_OF_FUNCTIONS = {
    "unknown": "keras_vit.calibrate",
    "protocol": "keras_vit.evaluate",
    "output": "keras_vit.evaluate",
}


class Classifier(PredictorHolder):
    """A model with the names of its classes and the preprocessing of its photos.

    `load_classifier` opens one of any origin, `save_classifier` writes a Keras model as one. Called
    with photos it gives answers.

    Args:
        model: A Keras model from images `(B, H, W, 3)` to probabilities `(B, K)`.
        class_names: The K names, in the order of the model's outputs, or Keras's `class_indices`.
        preprocessing: The preprocessing from an image to the model's input; by default the one of
            the weights that the model was built with, if they state one.
        task: "multiclass" or "multilabel".
        thresholds: For a multi-label classifier, the probability above which an image has the
            label, one for each class; 0.5 by default.

    Raises:
        ValueError: If the class names, the image size or the thresholds do not fit the model, it
            takes images of another number of channels, or no preprocessing is known.

    Example:
    >>> classifier = load_classifier("cifar10")
    >>> classifier("frog.jpg").label
    'frog'
    """

    def __init__(
        self,
        model: keras.Model,
        class_names: Sequence[str] | Mapping[str, int],
        preprocessing: Preprocessing | None = None,
        *,
        task: str = MULTICLASS,
        thresholds: Sequence[float] | None = None,
    ):
        from keras_vit.classifier_saving import model_preprocessing

        known = preprocessing or model_preprocessing(model)
        self._predictor = Predictor(model, class_names, known, task=task, thresholds=thresholds)

    def __call__(self, photos: Images, top: int = 5) -> Prediction | list[Prediction]:
        """Returns the answer to a photo, or a list of the answers to several.

        Args:
            photos: A path, a PIL image, an array `(H, W, 3)` of uint8, or the bytes of a file; or a
                folder or several of these, as for `predict`.
            top: Number of classes in `.top`.

        Returns:
            A `Prediction` with `.label`, `.probability` and `.top`; of several photos a list.

        Raises:
            ValueError: If a photo does not exist or cannot be read.
        """
        answers = self.predict(photos, top)
        for answer in answers:
            if answer.error is not None:
                raise ValueError(f"{answer.path} cannot be classified: {answer.error}")
        return answers[0] if is_one_image(photos) else answers

    def __repr__(self) -> str:
        predictor = self._predictor
        names, description = predictor.class_names, predictor.description
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        height, width = predictor.preprocessing.image_size
        unknown = 'never answers "unknown"'
        if description.labels.abstains:
            unknown = f'may answer "unknown", the last of the model\'s {len(names) + 1} outputs'
        facts = [
            description.name or getattr(predictor.model, "name", "") or "a model",
            f"{len(names)} {'labels' if description.labels.is_multilabel else 'classes'} ({shown})",
            f"photos of {height}x{width} pixels",
            unknown,
            f"from {predictor.source or 'memory'}",
        ]
        return f"<Classifier: {', '.join(facts)}>"

    def __getattr__(self, name: str):
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ATTRIBUTES:
            text += f". {ATTRIBUTES[name].answer()}"
        raise AttributeError(text)

    def __reduce__(self):
        return _holding, (self._predictor,)

    @property
    def model(self) -> keras.Model:
        """The Keras model, from preprocessed images to probabilities; of an export its runtime.

        Its outputs are `(B, K)` for K class names. Of a classifier that may answer "unknown" they
        are `(B, K + 1)`, and the last one is "unknown".
        """
        return self._predictor.model

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K names of the classes, in the order of the model's outputs; without "unknown"."""
        return self._predictor.class_names

    def preprocess(self, images: Images) -> np.ndarray:
        """Returns the model's input for images, as evaluation and prediction compute it.

        Args:
            images: One image `(H, W, C)`, a batch of them, or a list of images of any
                sizes: arrays of pixels in [0, 255], or PIL images, which EXIF's orientation turns.

        Returns:
            A float32 array `(B, height, width, C)`.
        """
        return self._predictor.preprocess(images)

    def predict(self, paths: Images, top: int = 5, batch_size: int = 32) -> list[Prediction]:
        """Returns the answer to each photo, in order.

        Args:
            paths: A file, a folder (with its subfolders), an image in memory (bytes of a file, an
                open binary file, a PIL image, an array `(H, W, 3)` of uint8), or several of all
                these. The `path` of an image in memory is its place, such as "image 0".
            top: Number of classes in `.top`.
            batch_size: Photos that the model computes at once.

        Returns:
            A list of `Prediction`. The one of an unreadable photo has the reason in `.error`.

        Raises:
            ValueError: If a path does not exist, a folder has no images, or an image in memory is
                of another type.
        """
        return self._predictor.predict(paths, top, batch_size)

    @functools.partial(answers_synonyms, changes=_OF_FUNCTIONS)
    def evaluate(
        self,
        data: Data,
        *,
        split: str | None = None,
        batch_size: int = 32,
        progress: bool = False,
        data_dir: str | os.PathLike | None = None,
        strict: bool = False,
        follow_symlinks: bool = False,
    ) -> EvaluationReport:
        """Returns the accuracy on labelled photos, and more; `print` shows the report.

        Args:
            data: Folders of classes, a CSV file, "tfds:NAME", arrays and so on, or a `DataSpec`.
            split: "train", "validation", "calibration" or "test"; by default "test" if the run or
                the data have it, else all photos.
            batch_size: Photos that the model computes at once.
            progress: Whether to show a line with the rate and the time left.
            data_dir: The folder of TensorFlow Datasets, or of the relative paths in a CSV file.
            strict: Whether a photo that cannot be read is an error.
            follow_symlinks: Whether links in folders are followed.

        Returns:
            The report of the classifier's task.

        Raises:
            ValueError: If the data cannot be opened, lack the split, have a class that the
                classifier does not know, or are multi-label where it gives one class.
        """
        from keras_vit.training.evaluation.classification import evaluate_classifier

        return evaluate_classifier(
            self._predictor,
            data,
            split=split,
            batch_size=batch_size,
            progress=progress,
            data_dir=data_dir,
            strict=strict,
            follow_symlinks=follow_symlinks,
        )

    @functools.partial(answers_synonyms, changes=_OF_FUNCTIONS)
    def calibrate(
        self,
        data: Data,
        *,
        max_error: float | None = None,
        confidence: float = 0.95,
        strange: float = 0.01,
        split: str | None = None,
        training_data: Data = None,
        batch_size: int = 32,
    ) -> Classifier:
        """Returns the classifier that answers "unknown" when it is not sure, written to its folder.

        Args:
            data: The data of the classifier's run, or others with its classes.
            max_error: Largest share of wrong answers, such as 0.02; None bounds nothing, and only
                strange photos are refused.
            confidence: Probability with which the bound holds.
            strange: Largest share of known photos that are refused as strange.
            split: The calibration photos: a part of the run or of the data.
            training_data: The data that the run trained on, by which strange photos are recognised;
                by default the data.
            batch_size: Photos that the model computes at once.

        Raises:
            ValueError: If the classifier is not from a folder that can be written; if the photos
                are too few, were trained on, or lack a class; or if no threshold is within the
                bound.
        """
        from keras_vit.training.settings import DecisionSettings
        from keras_vit.training.trust import calibrate

        calibrated = calibrate(
            self._predictor,
            data,
            DecisionSettings(max_error=max_error, confidence=confidence, strange=strange),
            split=split,
            training_data=training_data,
            batch_size=batch_size,
        )
        return _holding(calibrated)

    def export(
        self, path: str | os.PathLike, format: str | None = None, **options: Any
    ) -> ExportReport:
        """Writes the classifier as an export, and compares its answers with the Keras model's.

        Args:
            path: The file, whose suffix gives the format (`.tflite`, `.onnx`, `.html`), or the
                folder to write.
            format: "tflite", "onnx", "html", "openvino" or "saved_model"; needed for a folder.
            **options: The options of the format, such as `precision="int8"` or
                `check_images="photos"`; the flags of `keras-vit export`.

        Returns:
            An `ExportReport`; `print` shows its table.

        Raises:
            ValueError: If the format is unknown or has no such option, the output exists, or the
                check fails. Nothing is written then.
            ImportError: If a package that the format needs is not installed.
        """
        from keras_vit.export.publish import write_export

        format_type = format_to_write(path, format, options)
        return write_export(format_type(**options), self._predictor, path)

    def save(self, folder: str | os.PathLike, *, overwrite: bool = False) -> Classifier:
        """Writes the classifier's folder, complete or not at all; returns the classifier in it.

        Args:
            folder: The folder to write.
            overwrite: Whether to replace an older classifier.

        Raises:
            ValueError: If the folder has the name of a file, is not empty and may not be replaced,
                or the classifier is an export.
            OSError: If there is no space, or no permission to write.
        """
        from keras_vit.classifier_saving import copy_classifier

        if self._predictor.is_export:
            raise ValueError(
                "An export holds no Keras model to save: load the classifier that it was made of, "
                f"or copy the file. Received: {self._predictor.source}"
            )
        if pathlib.Path(folder).suffix in (".keras", ".h5"):
            raise ValueError(
                "A classifier is saved as a folder; classifier.model.save(path) writes the Keras "
                f"model alone. Received: {os.fspath(folder)}"
            )
        return _holding(copy_classifier(folder, self._predictor, overwrite=overwrite))

    def push(self, name: str, *, private: bool = False) -> None:
        """Pushes the classifier to the Hugging Face Hub, with a model card, in one commit.

        No photos, absolute paths or names of training photos are pushed. The files and their sizes
        are printed.

        Args:
            name: The repository, "OWNER/NAME", which is made if it is missing.
            private: Whether nobody else may see it.

        Raises:
            ValueError: If the name is no repository's, or the classifier is an export.
            OSError: If the Hub cannot be reached, or refuses.
        """
        from keras_vit.pushing import push_classifier

        push_classifier(self._predictor, name, private=private)


def _holding(predictor):
    classifier = Classifier.__new__(Classifier)
    PredictorHolder.__init__(classifier, predictor)
    return classifier


@answers_synonyms
def load_classifier(
    anything: AnyClassifier,
    *,
    model: str | ModelConfig | None = None,
    image_size: int | tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: str | None = None,
    normalization: str | None = None,
) -> Classifier:
    """Returns a classifier of any origin.

    A Keras model is read in safe mode: nothing in its file is run as code. An export is a program
    that is run, so it must be from people you trust.

    Args:
        anything: A classifier's folder; an export of this package (a `.tflite`, `.onnx` or `.html`
            file, a folder of OpenVINO or SavedModel); "cifar10" or another classifier of the
            package; "imagenet", a ViT-B/16 that knows the 1,000 classes of ImageNet and is
            downloaded at first use, or a key of `keras_vit.list_weights()` with these classes;
            "hf:OWNER/NAME" with an optional "@REVISION"; the folder or file of another code base
            that states its class names; or a `.keras` file of this package.
        model: For "imagenet" another model than ViT-B/16, such as "ViT-L/16".
        image_size: Pixels (height, width), or a number for squares, if others than the weights'.
        num_heads: Attention heads, where a file of weights does not show them.
        gelu: The form of GELU, where a file of weights does not state it.
        normalization: "half" for pixels in [-1, 1], "imagenet" for ImageNet's mean and standard
            deviation, where a file of weights does not state it.

    Returns:
        The `Classifier`; one that is given, as it is.

    Raises:
        ValueError: If there is nothing of that name, its classes have no names, a file cannot be
            read, or a fact about the weights is in no file and was not given.
        OSError: If a file cannot be read or downloaded.
        ImportError: If a package that it needs is not installed.

    Example:
    >>> load_classifier("cifar10")("frog.jpg").label
    'frog'
    """
    facts = {"model": model, "num_heads": num_heads, "gelu": gelu, "normalization": normalization}
    facts = {name: value for name, value in facts.items() if value is not None}
    if isinstance(anything, Classifier) and image_size is None and not facts:
        return anything
    size = None if image_size is None else as_size(image_size)
    return _holding(find_predictor(anything, size, facts))


def find_predictor(
    anything: AnyClassifier,
    image_size: tuple[int, int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Predictor:
    """Returns the predictor of anything that `load_classifier` takes.

    An export whose runtime is not TensorFlow is opened without TensorFlow and Keras.

    Args:
        anything: See `load_classifier`.
        image_size: See `load_classifier`.
        facts: The other arguments of `load_classifier` that are given.
    """
    is_alone = not image_size and not facts
    if is_alone and isinstance(anything, (str, os.PathLike)) and runs_without_tensorflow(anything):
        find_weights(anything)  # Raises for a file that has a name of weights.
        return load_artefact(anything)
    from keras_vit.opening import open_predictor

    return open_predictor(anything, image_size, facts)


@answers_synonyms
def save_classifier(
    folder: str | os.PathLike,
    model: keras.Model,
    class_names: Sequence[str] | Mapping[str, int],
    preprocessing: Preprocessing | None = None,
    *,
    samples: Images = (),
    recipe: Mapping[str, Any] | None = None,
    history: Sequence[Mapping[str, str | float]] = (),
    model_card: str = "",
    overwrite: bool = False,
    task: str = MULTICLASS,
    thresholds: Sequence[float] | None = None,
) -> Classifier:
    """Writes a Keras model as a classifier's folder, complete or not at all.

    Args:
        folder: The folder to write. It appears at the end, in one rename.
        model: A model from images `(B, H, W, 3)` to probabilities, as for `Classifier`.
        class_names: The K names, in the order of the model's outputs, or Keras's `class_indices`.
        preprocessing: The preprocessing from an image to the model's input; by default the one
            of the weights that the model was built with, if they state one.
        samples: Photos that the folder holds, without metadata and at the model's size; exports
            are checked on them, and hold a few: files, folders or images in memory as in
            `Classifier.predict`.
        recipe: Everything needed to repeat the training; types that JSON has.
        history: Rows of `history.csv`, each a mapping from column to value.
        model_card: The text of `README.md`; a short one by default.
        overwrite: Whether to replace an older classifier.
        task: See `Classifier`.
        thresholds: See `Classifier`.

    Returns:
        The `Classifier`.

    Raises:
        ValueError: If the folder is not empty and may not be replaced, if the model, the names
            and the preprocessing do not fit each other, if no preprocessing is known, or if a
            sample cannot be read.
        OSError: If there is no space, or no permission to write.
    """
    from keras_vit.classifier_saving import model_preprocessing, write_classifier

    if not isinstance(folder, PATHS):
        raise TypeError(
            "The folder comes first: keras_vit.save_classifier(folder, model, class_names). "
            f"Received: {type(folder).__name__} in its place"
        )
    known = preprocessing or model_preprocessing(model)
    predictor = Predictor(
        model, class_names, known, recipe, folder, task=task, thresholds=thresholds
    )
    written = write_classifier(
        folder, predictor, history, model_card, samples=samples, overwrite=overwrite
    )
    return _holding(written)
