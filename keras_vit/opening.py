"""The one door to a model: what a name, file, folder or export is, and what builds or runs it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.code_bases.files_beside import read_folder, read_json
from keras_vit.checkpoints.find import DEFAULT_SIZE, Weights, weights_at, weights_of
from keras_vit.checkpoints.hdf5 import has_own_layers
from keras_vit.checkpoints.load import LoadReport
from keras_vit.classifier_folder import read_classifier, read_model
from keras_vit.configs import MODELS, BiTConfig, ViTConfig, default_image_size
from keras_vit.configs.model_table import check_agrees, paper_name, without_hidden_layer
from keras_vit.description import (
    FACTS,
    Description,
    abstains,
    check_one_output,
    completed,
    describe_config,
    fitted_to,
    held_description,
)
from keras_vit.description.run_record import RunRecord
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.export.formats.table import is_export
from keras_vit.hub.repositories import fixed_name, repository_folder
from keras_vit.models.build import build
from keras_vit.models.graph import as_computed, check_described, difference
from keras_vit.models.rebuild import with_probabilities, without_unknown
from keras_vit.predictor import AnyClassifier, Predictor, predictor_in
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, value_range
from keras_vit.utils.files import CLASSES, DESCRIPTION, MODEL, RECIPE, model_in
from keras_vit.utils.quiet_tensorflow import check_not_forked


def open_model(
    anything: AnyClassifier,
    *,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: tuple[int | None, int | None] | None = None,
    num_heads: int | None = None,
    gelu: object = None,
    normalization: str | None = None,
) -> OpenedModel:
    """Opens a model of any origin; builds nothing, and downloads nothing but a repository.

    A name is a name and a path is a path: if both exist, it is an error that shows how to write
    each.

    Args:
        anything: A classifier or its folder, the folder of a pre-trained model, an export of this
            package, anything that `keras_vit.load_checkpoint` reads, "imagenet21k" or another
            name of `keras_vit.list_weights()`; a repository, "hf:owner/name@revision", whose
            commit is in `source`; or "none", for random weights of `model`.
        model: A name or config that the weights must have; official weights need it. By
            default it is recognised from the file.
        image_size: Pixels (height, width), by which an official file is chosen; needed for other
            files that do not show their size.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not state it.
        normalization: A key of `NORMALIZATIONS`; replaces the source's.

    Raises:
        ValueError: If there are no such weights, they are not of the model, or a fact about
            their architecture is in no file and was not given.
        OSError: If a file cannot be read.

    Example:
    >>> opened = open_model("runs/pets")
    >>> opened.description.labels.names
    ('beagle', 'boxer')
    """
    check_not_forked()
    given = {"num_heads": num_heads, "gelu": gelu}
    predictor = predictor_in(anything)
    if predictor is not None:
        others = {"model": model, "image_size": image_size, "normalization": normalization}
        return _of_predictor(predictor, {**others, **given})
    if not isinstance(anything, (str, os.PathLike, ViTConfig, BiTConfig)):
        raise TypeError(
            "A classifier must be a keras_vit.Classifier or what keras_vit.load_classifier takes; "
            "keras_vit.Classifier(model, class_names) makes one of a Keras model. "
            f"Received: {type(anything).__name__}"
        )
    if not isinstance(anything, (str, os.PathLike)) or anything in MODELS:
        raise ValueError(
            "A model's name needs weights (--weights; in Python "
            f'load_classifier("imagenet", model="ViT-B/16")): imagenet21k, imagenet, a key of the '
            "catalogue, a file, or none for random values. "
            f"Received: {anything!r} without weights"
        )
    repository = fixed_name(anything)
    name = repository or os.fspath(anything)
    if anything == "none":
        catalogue.check_unambiguous(name)
        opened = _random(model or "ViT-B/16", given)
    else:
        source = repository_folder(repository) or anything
        opened = _open(name, source, model, image_size, given)
    if repository is not None:
        opened = opened.described(origins={**opened.description.origins, "weights": repository})
    known = opened.description
    for fact, value in given.items():
        held = getattr(known.config, fact, None)
        if value not in (None, held):
            raise ValueError(
                f"{fact} is for weights that do not hold it. Received: {fact}={value!r} for "
                f"{name}, which has {held!r}"
            )
    return opened if normalization is None else _with_normalization(opened, normalization)


def open_predictor(
    anything: AnyClassifier,
    image_size: tuple[int, int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Predictor:
    """Returns a model of any origin as a predictor.

    Args:
        anything: A classifier, or anything that `open_model` takes whose classes have names.
        image_size: Pixels (height, width); the weights' by default.
        facts: More arguments of `open_model`, None where they are not given.

    Raises:
        ValueError: As `open_model`; or if facts are given with a classifier, which has them.
        TypeError: If it is neither a classifier nor a name or path.
        OSError: If a file cannot be read.
    """
    given = {name: value for name, value in (facts or {}).items() if value is not None}
    predictor = predictor_in(anything)
    if predictor is not None and image_size is None and not given:
        return predictor
    return open_model(anything, image_size=image_size, **given).predictor(image_size)


def _of_predictor(predictor, facts):
    """The opened model of a classifier in memory."""
    if given := [name for name, value in facts.items() if value is not None]:
        raise ValueError(
            "A classifier has its model, image size and facts; give them with its name or folder. "
            f"Received: {', '.join(given)}"
        )
    return OpenedModel(
        predictor.source or "a classifier in memory",
        predictor.description,
        predictor.recipe,
        None if predictor.is_export else weights_of(predictor.model),
        predictor.model,
        predictor.folder,
    )


def _random(model, given):
    """A model with random weights; a fact that is given is one of its config."""
    changes = {name: value for name, value in given.items() if value is not None}
    known = describe_config(model, include_top=False, changes=changes)
    preprocessing = Preprocessing((default_image_size(model),) * 2)
    origins = dict.fromkeys(FACTS, "the settings")
    known = dataclasses.replace(known, preprocessing=preprocessing, origins=origins)
    return OpenedModel(known.name, known)


def _open(name, source, model, image_size, given):
    size = image_size or (None, None)
    file = catalogue.find_weights(source, model, size)
    opened = None if isinstance(file, catalogue.OfficialWeights) else _open_model(name, file)
    if opened is None:
        weights = weights_at(file, model, size, **given)
        return OpenedModel(name, weights.description, weights=weights)
    if model is not None:
        check_agrees(model, name, opened.description.config)
    return opened


def _open_model(name, path):
    """A Keras model or an export with what describes it; None for weights alone."""
    keras_model = model_in(path) or (path if has_own_layers(path) else None)
    if keras_model and (path / CLASSES).exists():
        return _of_model(name, *read_classifier(path), path)
    if keras_model:  # Alone, or pre-trained without classes.
        folder, model = path if path.is_dir() else path.parent, read_model(keras_model)
        held = held_description(model)
        known = read_folder(folder, held.classes)
        if known.preprocessing is None and known.labels.names is None:
            known = dataclasses.replace(held, origins={**known.origins, **held.origins})
        return _of_model(name, model, known, read_json(path / RECIPE))
    if is_export(path):
        export = load_artefact(path)
        return OpenedModel(name, export.description, export.recipe, model=export.model, folder=path)
    return None


def _of_model(source, model, description, recipe, folder=None):
    """A Keras model with the description in the files beside it."""
    check_one_output(model)
    held = held_description(model)
    described = as_computed(model, completed(description, held))
    if described.config is not None:
        model = with_probabilities(model, described.labels.task)
    name = RunRecord.from_json(recipe).model or paper_name(described.config) or described.name
    origins = {**dict.fromkeys(FACTS[:2], DESCRIPTION), **dict.fromkeys(FACTS[2:], MODEL)}
    origins |= description.origins
    described = dataclasses.replace(described, name=name, origins=origins)
    return OpenedModel(source, described, recipe, weights_of(model), model, folder)


def _with_normalization(opened, normalization):
    """The weights with the given range of pixels, whatever their source states."""
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            f"normalization must be one of {tuple(NORMALIZATIONS)} or None. "
            f"Received: {normalization!r}"
        )
    given, described = value_range(*NORMALIZATIONS[normalization]), opened.description
    known, notes = described.preprocessing, described.notes
    origins = {**described.origins, "pixels": f"--normalization {normalization}"}
    if known is None:
        known = Preprocessing(described.image_size or DEFAULT_SIZE)
        notes += (f"{described.origin_of('evaluation')}: the official code's resize was assumed",)
        origins["evaluation"] = "assumed"
    if known.value_range != given:
        opened = opened.without_unknown()
    known = dataclasses.replace(known, value_range=given)
    return opened.described(preprocessing=known, origins=origins, notes=notes)


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """What a model is, and where its weights are; most are not read before they are needed.

    Args:
        source: What was given: a name or a path.
        description: What the model is. Its config is None for a classifier whose model is not of
            this package.
        recipe: The `recipe.json` of a folder; {} without one.
        weights: The weights; None for random ones, and for an export, whose are in its own format.
        model: The Keras model of a `.keras` file, an export in its own runtime, or None.
        folder: The folder or file of a classifier, or None.
    """

    source: str
    description: Description
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    weights: Weights | None = None
    model: Any = None
    folder: pathlib.Path | None = None

    def described(self, **changes: Any) -> OpenedModel:
        """Returns the model with changes in its description."""
        description = dataclasses.replace(self.description, **changes)
        return dataclasses.replace(self, description=description)

    def as_weights(self) -> OpenedModel:
        """Returns it for a model that is built anew, which includes no preprocessing."""
        if self.description.included is None:
            return self
        return dataclasses.replace(self, description=fitted_to(self.description, None), model=None)

    @property
    def is_random(self) -> bool:
        """Whether there are no weights."""
        return self.weights is None and self.model is None

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

    def predictor(self, image_size: tuple[int, int] | None = None) -> Predictor:
        """Returns the model as a predictor of image files.

        Args:
            image_size: Pixels (height, width); the weights' by default.

        Raises:
            ValueError: If its classes have no names, or the range of its pixels is unknown.
        """
        if self.description.labels.names is None:
            raise ValueError(
                "The classes of a classifier must have names. keras-vit finetune --weights "
                f"{self.source} makes a classifier of your photos; imagenet has the 1,000 names of "
                "ImageNet; keras-vit convert writes a folder with numbers, in its classes.txt. "
                f"Received: {self.source}, without names"
                + "".join(f"; {note}" for note in self.description.notes)
            )
        size = image_size or self.image_size
        preprocessing, opened, model = self.preprocessing_for(size), self, self.model
        if model is None or size not in (None, self.description.image_size):
            opened = self.without_unknown()  # The bound is of the model that it was found with.
            model, _ = opened.to_model(size)
        description = dataclasses.replace(opened.description, preprocessing=preprocessing)
        return Predictor.of(model, description, self.recipe, self.folder, self.source)

    def without_unknown(self) -> OpenedModel:
        """Returns the model without "unknown", as a changed model has it; an export keeps it."""
        if not abstains(self.model):
            return self
        labels = dataclasses.replace(self.description.labels, abstains=False)
        model = without_unknown(self.model)
        return dataclasses.replace(self.described(labels=labels), model=model)

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
        if self.weights is not None:
            if self.model is not None:
                rule = "Weights that become another model's must be of keras_vit.build"
                check_described(self.model, rule, allows_front=True)
            weights = dataclasses.replace(self.weights, description=self.description)
            return weights.load_into(model, head)
        if self.is_random:
            return None
        raise ValueError(
            "The weights of an export are in its own format; give the classifier's folder. "
            f"Received: {self.source}"
        )

    def to_model(
        self,
        image_size: tuple[int, int] | None = None,
        *,
        new_head: bool = False,
        classes: int | None = None,
    ) -> tuple[Any, tuple[str, ...]]:
        """Returns the model with its weights, and a sentence for each part left out.

        Its head gives probabilities of the classes, without "unknown"; without a head the output
        is what the head would read.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            new_head: Whether the head of a file, with its hidden layer of pre-training, is left out
                for a new one of one class, as for features.
            classes: For random weights the classes of the head; by default one.
        """
        known = self.description
        if self.model is not None and image_size in (None, known.image_size):
            return without_unknown(self.model), ()
        config = known.config
        if config is None:
            reason = difference(self.model)
            raise ValueError(
                "Another image size needs a model of keras_vit.build. "
                f"Received: {self.source}, image_size={image_size}"
                + (f", {reason}" if reason else "")
            )
        if self.is_random:
            classes = classes or 1
        elif new_head:
            config, classes = without_hidden_layer(config), 1
        else:
            classes = known.classes
            is_one_class = classes == 1 and not known.labels.is_multilabel
            if is_one_class or (classes and self.weights and self.weights.is_regression):
                raise ValueError(
                    "A head must give the scores of two classes or more: a regression's gives "
                    "numbers, and a softmax over one is 1 for every image. Received: "
                    f"{self.source}, with {classes} outputs"
                )
        head: dict[str, Any] = {"include_top": False, "pooling": config.pooling}
        included = known.included or False
        if classes:
            head = {"classes": classes, "classifier_activation": known.labels.activation}
        size = image_size or known.image_size or DEFAULT_SIZE
        shape = (*size, known.channels)
        built = build(config, input_shape=shape, include_preprocessing=included, **head)
        report = self.load_into(built, "new" if new_head or not classes else "keep")
        notes = report.notes if report else ()
        return built, tuple(note for note in notes if note not in known.notes)
