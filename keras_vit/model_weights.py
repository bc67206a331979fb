"""A model at rest: weights of any origin, what they are, and how they become a model."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_vit.checkpoints.code_bases.files_beside import read_folder, read_json
from keras_vit.checkpoints.file_descriptions import DEFAULT_SIZE
from keras_vit.checkpoints.load import (
    Arrays,
    LoadReport,
    arrays_of_model,
    load_arrays,
    open_arrays,
)
from keras_vit.classifier_folder import read_classifier, read_description, read_model
from keras_vit.configs.model_table import paper_name, without_hidden_layer
from keras_vit.description import FACTS, Description, check_one_output
from keras_vit.description.run_record import RunRecord
from keras_vit.models.build import build
from keras_vit.models.graph import as_computed, check_described, difference, stored_model
from keras_vit.models.rebuild import with_probabilities, without_unknown
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import CLASSES, DESCRIPTION, MODEL, RECIPE


@dataclasses.dataclass(frozen=True)
class Weights:
    """Weights of any origin, which are read when they become a model.

    Args:
        source: What was given: a name or a path.
        description: What their model is. Its config is None for a classifier whose model is not of
            this package.
        recipe: The `recipe.json` of a folder; {} without one.
        arrays: Opens their arrays; None for random weights, for an export, whose are in its own
            format, and for a Keras model that no description of this package says.
        whole: Reads the model that the file holds: a Keras model, or an export in its own runtime;
            None of weights alone.
        folder: The folder or file of a classifier, or None.
        is_export: Whether the whole is an export in its own runtime.
    """

    source: str
    description: Description
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    arrays: Callable[[], Arrays] | None = None
    whole: Callable[[], keras.Model] | None = None
    folder: pathlib.Path | None = None
    is_export: bool = False

    def described(self, description: Description) -> Weights:
        """Returns the weights with another description."""
        return dataclasses.replace(self, description=description)

    def without_preprocessing(self) -> Weights:
        """Returns them for a model that is built anew, which includes no preprocessing."""
        if self.description.included is None:
            return self
        return dataclasses.replace(
            self,
            description=self.description.including(None),
            arrays=self.arrays or self._arrays_of_whole,
            whole=None,
        )

    @property
    def is_random(self) -> bool:
        """Whether there are no weights."""
        return self.arrays is None and self.whole is None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Pixels (height, width) of images by default; None where they are unknown."""
        return self.description.usual_size

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes; None where they are unknown or numbers that `convert` wrote."""
        names = self.description.labels.names
        is_numbered = names == tuple(map(str, range(len(names or ()))))
        is_converted = RunRecord.from_json(self.recipe).converted
        return None if is_numbered and is_converted else names

    def classifier(self, image_size: tuple[int, int] | None = None) -> Predictor:
        """Returns the model as a predictor of image files.

        Args:
            image_size: Pixels (height, width); the weights' by default.

        Raises:
            ValueError: If its classes have no names, or the range of its pixels is unknown.
        """
        if self.description.labels.names is None:
            raise ValueError(
                "The classes of a classifier must have names. keras_vit.save_classifier(folder, "
                "model, class_names) writes them with a model; keras-vit finetune --weights "
                f"{self.source} makes a classifier of your photos; imagenet has the 1,000 names of "
                "ImageNet; keras-vit convert writes a folder with numbers, in its classes.txt. "
                f"Received: {self.source}, without names"
                + "".join(f"; {note}" for note in self.description.notes)
            )
        size = image_size or self.image_size
        preprocessing = self.preprocessing_for(size)
        if self.whole is not None and size in (None, self.description.image_size):
            weights, model = self, self.whole()
        else:
            weights = self.without_unknown()  # The bound is of the model that it was found with.
            model = weights.model(size)
        description = dataclasses.replace(weights.description, preprocessing=preprocessing)
        return Predictor.of(model, description, self.recipe, self.folder, self.source)

    def without_unknown(self) -> Weights:
        """Returns the weights without "unknown", as for a changed model; an export keeps it."""
        if self.is_export or not self.description.labels.abstains:
            return self
        labels = dataclasses.replace(self.description.labels, abstains=False)
        whole = self.whole and functools.partial(_without_unknown, self.whole)
        description = dataclasses.replace(self.description, labels=labels)
        return dataclasses.replace(self, description=description, whole=whole)

    def preprocessing_for(
        self,
        image_size: tuple[int, int] | None = None,
        evaluation: str | None = None,
        bit_depth: int | None = None,
    ) -> Preprocessing:
        """Returns how an image becomes the input of the weights' model.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            evaluation: Another way of resizing than the weights'.
            bit_depth: Bits of the values of 16-bit images; the weights' by default.

        Raises:
            ValueError: If the range of the pixels is unknown.
        """
        known = self.description.preprocessing
        if known is None:
            raise ValueError(
                "The range of the pixels must be known: give --normalization half (values from -1 "
                "to 1) or imagenet (ImageNet's mean and standard deviation); in Python "
                f"normalization=. Received: {self.source}, which does not hold it "
                f"({self.description.origin_of('pixels')})"
            )
        if evaluation not in (None, known.evaluation):
            known = Preprocessing(
                known.image_size, evaluation, known.value_range, bit_depth=known.bit_depth
            )
        if bit_depth is not None:
            known = dataclasses.replace(known, bit_depth=bit_depth)
        return known if image_size is None else known.with_image_size(image_size)

    def load_into(
        self,
        model: keras.Model,
        head: str | Sequence[int | None] = "keep",
    ) -> LoadReport | None:
        """Loads the weights into a model; raises the errors of `keras_vit.load_checkpoint`.

        Args:
            model: A model of `keras_vit.build`.
            head: "keep"; "new", which leaves the head out with its hidden layer of pre-training;
                or for each class of the model its number in these weights, None for a class that
                keeps the initial values.

        Returns:
            The `LoadReport`; None for random weights, which are the model's own.
        """
        if self.is_random:
            return None
        arrays = (self.arrays or self._arrays_of_whole)()
        return load_arrays(arrays, self.description, model, head)

    def _arrays_of_whole(self):
        """The arrays of the model that the file holds; ValueError for one of other code."""
        if self.is_export or self.whole is None:
            raise ValueError(
                "The weights of an export are in its own format; give the classifier's folder. "
                f"Received: {self.source}"
            )
        model = self.whole()
        rule = "Weights that become another model's must be of keras_vit.build"
        check_described(model, rule, allows_front=True)
        return arrays_of_model(model)

    def model(
        self,
        image_size: tuple[int, int] | None = None,
        *,
        new_head: bool = False,
        classes: int | None = None,
    ) -> keras.Model:
        """Returns the Keras model with its weights, or the export in its runtime.

        Its head gives probabilities of the classes, without "unknown"; without a head the output
        is what the head would read.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            new_head: Whether the head of a file, with its hidden layer of pre-training, is left out
                for a new one of one class, as for features.
            classes: For random weights the classes of the head; by default one.
        """
        if self.whole is not None and image_size in (None, self.description.image_size):
            return without_unknown(self.whole())
        return self._built(image_size, new_head, classes)[0]

    def model_with_notes(self) -> tuple[keras.Model, tuple[str, ...]]:
        """Returns what `model` does, and a sentence for each part of the weights left out."""
        if self.whole is not None:
            return self.model(), ()
        built, report = self._built(None, False, None)
        notes = report.notes if report else ()
        return built, tuple(note for note in notes if note not in self.description.notes)

    def _built(self, image_size, new_head, classes):
        """A model that is built anew, and the report of its weights."""
        config, known = self._checked_config(image_size), self.description
        if self.is_random:
            classes = classes or 1
        elif new_head:
            config, classes = without_hidden_layer(config), 1
        else:
            classes = known.classes
            self._check_classes()
        size = image_size or known.image_size or DEFAULT_SIZE
        make = functools.partial(
            build,
            config,
            input_shape=(*size, known.channels),
            include_preprocessing=known.included or False,
        )
        if classes:
            built = make(classes=classes, classifier_activation=known.labels.activation)
        else:
            built = make(include_top=False, pooling=config.pooling)
        return built, self.load_into(built, "new" if new_head or not classes else "keep")

    def _checked_config(self, image_size):
        """The config; ValueError for a model of other code, at another image size."""
        if self.description.config is not None:
            return self.description.config
        reason = difference(self.whole()) if self.whole else None
        raise ValueError(
            "Another image size needs a model of keras_vit.build. "
            f"Received: {self.source}, image_size={image_size}" + (f", {reason}" if reason else "")
        )

    def _check_classes(self):
        """Raises ValueError for a head that gives no scores of two classes or more."""
        known = self.description
        is_one_class = known.classes == 1 and not known.labels.is_multilabel
        if is_one_class or (known.classes and self._is_regression):
            raise ValueError(
                "A head must give the scores of two classes or more: a regression's gives "
                "numbers, and a softmax over one is 1 for every image. Received: "
                f"{self.source}, with {known.classes} outputs"
            )

    @property
    def _is_regression(self):
        return self.arrays is not None and self.arrays().is_regression


def _without_unknown(whole):
    return without_unknown(whole())


def keras_file_weights(name: str, path: pathlib.Path, file: pathlib.Path) -> Weights:
    """Returns the weights of a `.keras` file, alone or in a folder of this package.

    Args:
        name: What was given: a name or a path.
        path: The file or the folder.
        file: The file in it.

    Raises:
        ValueError: If a file cannot be read or does not fit the others.
    """
    is_classifier = (path / CLASSES).exists()
    folder = path if path.is_dir() else path.parent
    recipe = read_json(folder / RECIPE)
    if is_classifier:
        read = functools.cache(lambda: read_classifier(path).model)
        describe = functools.partial(read_description, path)
    else:
        read = functools.cache(lambda: read_model(file))
        describe = functools.partial(_beside, folder)
    arrays = None
    stored = stored_model(file)
    if stored is None:  # One of other code is known once it is read.
        described = as_computed(read(), describe(read()))
    else:
        described = describe(stored)
        if file.is_file():
            arrays = functools.cache(lambda: open_arrays(file))
    return Weights(
        name,
        _with_origins(described, recipe),
        recipe,
        arrays=arrays,
        whole=functools.cache(lambda: _with_head(read(), described)),
        folder=path if is_classifier else None,
    )


def _with_head(model, described):
    """A model that gives probabilities, if it is one of this package."""
    if described.config is None:
        return model
    return with_probabilities(model, described.labels.task)


def _with_origins(described, recipe):
    """A description with the model's name in its run, and an origin for each fact."""
    name = RunRecord.from_json(recipe).model or paper_name(described.config) or described.name
    origins = {**dict.fromkeys(FACTS[:2], DESCRIPTION), **dict.fromkeys(FACTS[2:], MODEL)}
    return dataclasses.replace(described, name=name, origins={**origins, **described.origins})


def _beside(folder, model):
    """The description of a Keras model with the files beside it, or what it holds itself."""
    check_one_output(model)
    held = Description.of_model(model)
    known = read_folder(folder, held.classes)
    if known.preprocessing is None and known.labels.names is None:
        known = dataclasses.replace(held, origins={**known.origins, **held.origins})
    return known.merged(held)
