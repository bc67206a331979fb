"""A model of any origin that was opened: what it is, and what builds it and loads its weights."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints.catalogue import OfficialWeights
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import (
    DEFAULT_SIZE,
)
from keras_vit.checkpoints.code_bases.files_beside import NAMES_LEFT_OUT
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.load import LoadReport, load_opened
from keras_vit.checkpoints.match import LoadOptions, weights_by_path
from keras_vit.checkpoints.official_weights import download
from keras_vit.checkpoints.resize import find_grid
from keras_vit.classifier import Classifier
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.config_comparison import without_hidden_layer
from keras_vit.configs.recognition import layer_shapes
from keras_vit.description import (
    Description,
    abstains,
    held_description,
    set_description,
)
from keras_vit.models.functional import build_model
from keras_vit.models.rebuild import copy_weights, without_unknown
from keras_vit.preprocessing import (
    Preprocessing,
)
from keras_vit.utils.fields import required

# The head and the hidden layer of pre-training, as patterns of `skip`.
HEAD = tuple(f"{name}/*" for name in configs.HEAD_LAYERS)


@dataclasses.dataclass(frozen=True)
class OpenedModel:
    """What a model is, and where its weights are; most are not read before they are needed.

    Args:
        source: What was given: a name or a path.
        description: What the model is. Its config is None for a classifier whose model is not of
            this package.
        recipe: The `recipe.json` of a folder; {} without one.
        official: A row of the catalogue, or None.
        checkpoint: The opened file, or None.
        model: The Keras model of a `.keras` file, an export in its own runtime, or None.
        folder: The folder or file of a classifier, or None.

    Without official weights, checkpoint and model the weights are random.
    """

    source: str
    description: Description
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    official: OfficialWeights | None = None
    checkpoint: Checkpoint | None = None
    model: Any = None
    folder: pathlib.Path | None = None

    @property
    def is_random(self) -> bool:
        """Whether there are no weights."""
        return self.official is None and self.checkpoint is None and self.model is None

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Pixels (height, width) of images by default; None where they are unknown.

        Those that an image processor of DINOv2 states are fewer than the positions are for.
        """
        known, shown = self.description.preprocessing, self.description.image_size
        if self.checkpoint is None or known is None or shown is None:
            return shown
        return known.image_size

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes; None where they are unknown or numbers that `convert` wrote."""
        names = self.description.labels.names
        is_numbered = names == tuple(map(str, range(len(names or ()))))
        return None if is_numbered and self.recipe.get("converted") else names

    @functools.cached_property
    def file(self) -> Checkpoint | None:
        """The opened file of the weights, official ones downloaded; None for a Keras model."""
        return open_checkpoint(download(self.official)) if self.official else self.checkpoint

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...] | None]:
        """Shapes of the weights by layer; see `keras_vit.configs.recognition.layer_shapes`."""
        if self.file is not None:
            return self.file.shapes
        weights = weights_by_path(self.model)
        return layer_shapes({path: tuple(weight.shape) for path, weight in weights.items()})

    @property
    def stated_config(self) -> ViTConfig | BiTConfig:
        """The config that the weights state.

        Raises:
            ValueError: If they are of a model of other layers, or cannot be loaded into another.
        """
        self._check_no_export()
        if self.description.config is None:
            raise ValueError(
                "The weights must state a model of keras_vit.build; give its name or config. "
                f"Received: {self.source}"
            )
        return self.description.config

    @property
    def grid_of_free_sizes(self) -> tuple[int, int] | None:
        """The grid (down, across) of positions that a model of free image size is built for.

        Other code bases resize the table of the file once, to the grid of the image. None for
        weights of the official rule, whose models have the grid of their default image size.
        """
        known, checkpoint = self.description, self.checkpoint
        own = checkpoint.position_rule() if checkpoint else known.position_resize
        if self.official or own in (None, ViTConfig.position_resize):
            return None
        table = checkpoint.shapes.get("position_embedding") if checkpoint else None
        if checkpoint is None:
            return known.position_grid
        if table is None or len(table) != 3:
            return None
        return find_grid(table[1], checkpoint.prefix_row_counts, known.position_grid)[1]

    def _check_no_export(self):
        if self.model is not None and not isinstance(self.model, keras.Model):
            raise export_error(self.source)

    def classifier(self, image_size: tuple[int, int] | None = None) -> Classifier:
        """Returns the model as a classifier, which predicts image files.

        Args:
            image_size: Pixels (height, width); the weights' by default.

        Raises:
            ValueError: If its classes have no names, or the range of its pixels is unknown.
        """
        if self.description.labels.names is None:
            if "objective" in self.recipe:
                raise ValueError(
                    "A model that was pre-trained without labels has no classes: fine-tune it "
                    f"first, with keras-vit finetune --weights {self.source}"
                )
            notes = self.description.notes
            why = next((note for note in notes if note.endswith(NAMES_LEFT_OUT)), "without names")
            raise ValueError(
                "The classes of a classifier must have names: keras-vit convert writes a folder "
                f"with numbers, in its classes.txt. Received: {self.source}, {why}"
            )
        size = image_size or self.image_size
        preprocessing, opened, model = self.preprocessing_for(size), self, self.model
        if model is None or size not in (None, self.description.image_size):
            opened = self.without_unknown()  # The bound is of the model that it was found with.
            model, _ = opened.to_model(size)
        description = dataclasses.replace(opened.description, preprocessing=preprocessing)
        return Classifier.of(model, description, self.recipe, self.folder)

    def without_unknown(self) -> OpenedModel:
        """Returns the model without "unknown", as a changed model has it; an export keeps it."""
        if not abstains(self.model):
            return self
        labels = dataclasses.replace(self.description.labels, abstains=False)
        description = dataclasses.replace(self.description, labels=labels)
        model = without_unknown(self.model)
        return dataclasses.replace(self, model=model, description=description)

    def preprocessing_for(
        self, image_size: tuple[int, int] | None = None, evaluation: str | None = None
    ) -> Preprocessing:
        """Returns how an image becomes the input of the weights' model.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            evaluation: Another way of resizing than the weights'.

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
            known = Preprocessing(known.image_size, evaluation, known.value_range)
        return known if image_size is None else known.with_image_size(image_size)

    def load_into(
        self,
        model: keras.Model,
        *,
        skip: Sequence[str] = (),
        head_rows: Sequence[int | None] | None = None,
    ) -> LoadReport | None:
        """Loads the weights into a model; raises the errors of `keras_vit.load_checkpoint`.

        Args:
            model: A model of `keras_vit.build`.
            skip: Patterns of weights that are left out.
            head_rows: For each class of the model its number in these weights, or None for a
                class that keeps the initial values.

        Returns:
            The `LoadReport`; None for random weights, which are the model's own.
        """
        if self.is_random:
            return None
        if self.model is not None:
            self._check_no_export()
            return copy_weights(
                self.model,
                model,
                skip=skip,
                head_rows=head_rows,
                position_resize=self.description.position_resize,
            )
        options = LoadOptions(
            tuple(skip),
            position_resize=self.description.position_resize,
            position_grid=self.description.position_grid,
            head_rows=head_rows,
        )
        return load_opened(required(self.file, "file"), model, options)

    def to_model(
        self,
        image_size: tuple[int, int] | None = None,
        *,
        hidden_layer: bool = True,
        classes: int | None = None,
    ) -> tuple[Any, tuple[str, ...]]:
        """Returns the model with its weights, and a sentence for each part left out.

        Its head gives probabilities of the classes, without "unknown"; without a head the output
        is what the head would read.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            hidden_layer: Whether to keep the head and its hidden layer of pre-training, if
                there is one. Without both, the head is new, for one class.
            classes: For random weights the classes of the head; by default one.
        """
        known = self.description
        if self.model is not None and image_size in (None, known.image_size):
            return without_unknown(self.model), ()
        config, shapes = known.config, self.checkpoint.shapes if self.checkpoint else {}
        if config is None:
            raise ValueError(
                "Another image size needs a model of keras_vit.build. "
                f"Received: {self.source}, image_size={image_size}"
            )
        skip: tuple[str, ...] = ()
        notes = []
        classes = (classes or 1) if self.is_random else known.classes
        has_hidden_layer = self.official or getattr(config, "representation_size", None)
        if not hidden_layer and has_hidden_layer:
            config, skip, classes = without_hidden_layer(config), HEAD, 1
        elif classes is None and "pre_logits" in shapes:
            notes.append("the pooler was left out, as there is no head behind it")
            skip = ("pre_logits/*",)
        if classes and self.checkpoint:
            problem = self.checkpoint.config.get("problem_type")
            is_one_class = known.classes == 1 and not known.labels.is_multilabel
            if problem == "regression" or is_one_class:
                raise ValueError(
                    "A head must give the scores of two classes or more: a regression's gives "
                    "numbers, and a softmax over one is 1 for every image. Received: "
                    f"{self.source}, with problem_type={problem!r} and {known.classes} outputs"
                )
        headless = {"include_top": False, "pooling": config.pooling}
        built = build_model(
            config,
            input_shape=(*(image_size or known.image_size or DEFAULT_SIZE), known.channels),
            name="vit" if config.architecture == "vit" else None,
            **(
                {"classes": classes, "classifier_activation": known.labels.activation}
                if classes
                else headless
            ),
        )
        report = self.load_into(built, skip=skip)
        set_description(built, self.description_of(built))
        return built, (*notes, *(report.notes if report else ()))

    def description_of(self, built: keras.Model) -> Description:
        """Returns the description of a model with these weights, perhaps of another size or head.

        Args:
            built: The model, whose own description has its config and shapes.
        """
        known, held = self.description, held_description(built)
        preprocessing = known.preprocessing
        if preprocessing is not None and held.image_size is not None:
            preprocessing = preprocessing.with_image_size(held.image_size)
        labels = known.labels if held.classes == known.classes else held.labels
        return dataclasses.replace(
            known,
            name=known.name or held.name,
            config=held.config,
            input_shape=held.input_shape,
            position_grid=held.position_grid,
            classes=held.classes,
            preprocessing=preprocessing,
            labels=dataclasses.replace(labels, abstains=held.labels.abstains),
        )


def export_error(source: str) -> ValueError:
    """Returns the error of an export whose weights are asked for."""
    return ValueError(
        "The weights of an export are in its own format; give the classifier's folder. "
        f"Received: {source}"
    )
