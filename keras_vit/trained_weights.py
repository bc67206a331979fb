"""Trained weights of any origin: opened once, with the facts that are needed to use them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import OfficialWeights, classifier_folder
from keras_vit.checkpoints.checkpoint import (
    BuildArguments,
    Checkpoint,
    build_arguments,
    open_checkpoint,
)
from keras_vit.checkpoints.layouts import KERAS
from keras_vit.checkpoints.load import LoadReport, load_opened
from keras_vit.checkpoints.match import LoadOptions
from keras_vit.checkpoints.metadata import (
    Metadata,
    read_folder,
    read_metadata,
    usual_resize,
)
from keras_vit.checkpoints.official_weights import download
from keras_vit.classifier import load_classifier, read_model
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.files import CLASSES, MODEL, PREPROCESSING
from keras_vit.models.build import build
from keras_vit.models.rebuild import copy_weights
from keras_vit.preprocessing import (
    NORMALIZATIONS,
    Preprocessing,
    check_normalization,
    describe_range,
    describe_resize,
    value_range,
)
from keras_vit.recognition import config_of
from keras_vit.tasks import ACTIVATIONS, MULTICLASS, MULTILABEL, Thresholds, task_of_model

DEFAULT_SIZE = (configs.DEFAULT_IMAGE_SIZE, configs.DEFAULT_IMAGE_SIZE)
# The head and the hidden layer of pre-training, as patterns of `skip`.
HEAD = tuple(f"{name}/*" for name in configs.HEAD_LAYERS)


@dataclasses.dataclass(frozen=True)
class TrainedWeights:
    """Weights and the facts about them, with the place of each fact.

    Args:
        name: What was given: an official name, or a path.
        model_name: The model's name as in the paper, or "ViT".
        config: The architecture, with the heads, GELU and epsilon of the weights; None for a
            classifier whose model is not of this package.
        image_size: Pixels (height, width); None where any size fits.
        channels: Channels of the images.
        classes: Classes of the head, or None without a head.
        class_names: Names of the classes, or None.
        preprocessing: How an image becomes the model's input, or None if that is unknown.
        origins: Where "pixels" (their range), "evaluation", "gelu" and "norm_epsilon" are from,
            for people.
        notes: A sentence for each assumption and each difference from the source.
        recipe: The `recipe.json` of a folder; {} without one.
        official: A row of the catalogue, or None.
        checkpoint: The opened file, or None.
        position_grid: Patches (down, across) of its position table, or None.
        model: The Keras model of a `.keras` file, or None.
        task: "multilabel" if an image may have several labels, else "multiclass".
        thresholds: For several labels the probability above which an image has each, or None
            for 0.5.
    """

    name: str
    model_name: str
    config: ViTConfig | BiTConfig | None
    image_size: tuple[int, int] | None
    channels: int
    classes: int | None
    class_names: tuple[str, ...] | None
    preprocessing: Preprocessing | None
    origins: Mapping[str, str]
    notes: tuple[str, ...] = ()
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    official: OfficialWeights | None = None
    checkpoint: Checkpoint | None = None
    position_grid: tuple[int, int] | None = None
    model: keras.Model | None = None
    task: str = MULTICLASS
    thresholds: Thresholds = None

    def __post_init__(self):
        known = self.preprocessing
        if known is not None and known.num_channels not in (None, self.channels):
            raise ValueError(
                "The range of the pixels must have the model's channels. Received: "
                f"{known.num_channels} channels ({self.origins['pixels']}), a model of "
                f"{self.channels} channels, {self.name}"
            )

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
        known = self.preprocessing
        if known is None:
            raise ValueError(
                "The range of the pixels must be known: give --normalization half (values from -1 "
                "to 1) or imagenet (ImageNet's mean and standard deviation); in Python "
                f"normalization=. Received: {self.name}, which does not hold it "
                f"({self.origins['pixels']})"
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
    ) -> LoadReport:
        """Loads the weights into a model; errors are those of `keras_vit.load_checkpoint`.

        Args:
            model: A model of `keras_vit.build`.
            skip: Patterns of weights that are left out.
            head_rows: For each class of the model its number in these weights, or None for a
                class that keeps the initial values.
        """
        if self.model is not None:
            return copy_weights(self.model, model, skip=skip, head_rows=head_rows)
        checkpoint = self.checkpoint
        if checkpoint is None:
            assert self.official is not None
            checkpoint = open_checkpoint(download(self.official))
        options = LoadOptions(tuple(skip), position_grid=self.position_grid, head_rows=head_rows)
        return load_opened(checkpoint, model, options)

    def to_model(
        self, image_size: tuple[int, int] | None = None, *, hidden_layer: bool = True
    ) -> tuple[keras.Model, tuple[str, ...]]:
        """Returns the model with its weights, and a sentence for each part left out.

        Its head gives probabilities; without a head the output is what the head would read.

        Args:
            image_size: Pixels (height, width); the weights' by default.
            hidden_layer: Whether to keep the head and its hidden layer of pre-training, if
                there is one. Without both, the head is new, for one class.
        """
        if self.model is not None and image_size in (None, self.image_size):
            return self.model, ()
        config, shapes = self.config, self.checkpoint.shapes if self.checkpoint else {}
        if config is None:
            raise ValueError(
                "Another image size needs a model of keras_vit.build. "
                f"Received: {self.name}, image_size={image_size}"
            )
        skip: tuple[str, ...] = ()
        notes = []
        classes = self.classes
        if not hidden_layer and getattr(config, "representation_size", None):
            config, skip, classes = without_hidden_layer(config), HEAD, 1
        elif classes is None and "pre_logits" in shapes:
            notes.append("the pooler was left out, as there is no head behind it")
            skip = ("pre_logits/*",)
        headless = {"include_top": False, "pooling": config.pooling}
        built = build(
            config,
            input_shape=(*(image_size or self.image_size or DEFAULT_SIZE), self.channels),
            name="vit" if config.architecture == "vit" else None,
            **(
                {"classes": classes, "classifier_activation": ACTIVATIONS[self.task]}
                if classes
                else headless
            ),
        )
        return built, (*notes, *self.load_into(built, skip=skip).notes)

    def describe(self) -> str:
        """Returns the facts that change the numbers, and the notes, in one line for people."""
        known = self.preprocessing
        pixels = "unknown" if known is None else describe_range(known.value_range)
        parts = [f"pixels {pixels} ({self.origins['pixels']})"]
        if known is not None:
            parts.append(f"resize {describe_resize(known)} ({self.origins['evaluation']})")
        if isinstance(self.config, ViTConfig):
            parts.append(f"GELU {self.config.gelu} ({self.origins['gelu']})")
        if self.task == MULTILABEL:
            parts.append("several labels an image")
        return "; ".join([", ".join(parts), *self.notes])


def open_weights(
    weights: str | os.PathLike,
    *,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: tuple[int | None, int | None] | None = None,
    source_size: tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: Any = None,
    normalization: str | None = None,
) -> TrainedWeights:
    """Opens weights of any origin and returns the facts about them; downloads nothing.

    Args:
        weights: "imagenet21k" or another name of `keras_vit.list_weights()`, a classifier's
            folder, the folder of a pre-trained model, or anything that
            `keras_vit.load_checkpoint` reads.
        model: A name or config that the weights must have; official weights need it. By
            default it is recognised from the file.
        image_size: Pixels (height, width), by which an official file is chosen; and those of
            the file where it does not show them.
        source_size: Pixels (height, width) of the file's images; another size is an error.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not say.
        normalization: A key of `NORMALIZATIONS`; replaces what the source says.

    Raises:
        ValueError: If there are no such weights, they are not of the model, or a fact about
            their architecture is in no file and was not given.
        OSError: If a file cannot be read.
    """
    check_normalization(normalization)
    opened = _open(weights, model, image_size, source_size, num_heads, gelu)
    for name, value in (("num_heads", num_heads), ("gelu", gelu)):
        found = getattr(opened.config, name, None)
        if value not in (None, found):
            raise ValueError(
                f"{name} is for weights that do not hold it. Received: {name}={value!r} for "
                f"{os.fspath(weights)}, which has {found!r}"
            )
    if source_size is not None and opened.image_size != source_size:
        raise ValueError(
            "The image size (image_size, --image-size) must be that of the source. "
            f"Received: {source_size} for {opened.name} of {opened.image_size}"
        )
    return opened if normalization is None else _with_normalization(opened, normalization)


def _with_normalization(opened, normalization):
    """The weights with the range of pixels that was given, whatever their source says."""
    given = value_range(*NORMALIZATIONS[normalization])
    known, notes = opened.preprocessing, opened.notes
    origins = {**opened.origins, "pixels": f"--normalization {normalization}"}
    if known is None:
        layout = opened.checkpoint.layout.name if opened.checkpoint else ""
        known = usual_resize(layout, opened.image_size or DEFAULT_SIZE)
        resize = describe_resize(known)
        notes += (f"{origins['evaluation']}: the usual resize was assumed ({resize})",)
        origins["evaluation"] = f"the usual of {layout or 'the official code'}"
    elif known.value_range != given:
        origins["pixels"] += (
            f" instead of {describe_range(known.value_range)}, {opened.origins['pixels']}"
        )
    known = dataclasses.replace(known, value_range=given)
    return dataclasses.replace(opened, preprocessing=known, origins=origins, notes=notes)


def _open(weights, model, image_size, source_size, num_heads, gelu):
    if weights in catalogue.NAMES or any(row.key == weights for row in catalogue.rows()):
        return _open_official(weights, model, image_size)
    path = classifier_folder(weights, model)
    if not path.exists():
        raise ValueError(
            f"Weights must be {', '.join(catalogue.RELEASED_NAMES)}, imagenet21k, a name of "
            "keras_vit.list_weights(), a file or a classifier's folder. "
            f"Received: {os.fspath(weights)}"
        )
    if path.is_dir() and (path / CLASSES).exists():
        classifier = load_classifier(path)
        names = None if is_numbered(classifier) else classifier.class_names
        metadata = Metadata(
            classifier.preprocessing,
            names,
            PREPROCESSING,
            task=classifier.task,
            thresholds=classifier.thresholds,
        )
        opened = _of_model(weights, classifier.model, metadata, classifier.recipe)
    elif (path / MODEL).is_file():  # Pre-trained without classes.
        opened = _of_model(weights, read_model(path / MODEL), read_folder(path, None), {})
    else:
        checkpoint = open_checkpoint(path)
        if checkpoint.layout is not KERAS or not checkpoint.config:
            return _of_checkpoint(
                weights, checkpoint, model, image_size, source_size, num_heads, gelu
            )
        found = read_model(path)  # A `.keras` file holds more than its weights show.
        classes = found.output_shape[-1] if has_head(found) else None
        opened = _of_model(weights, found, read_folder(path.parent, classes), {})
    if model is not None:
        _check_agrees(model, weights, opened.config)
    return opened


def _open_official(weights, model, image_size):
    if model is None:
        model = next((row.model for row in catalogue.rows() if row.key == weights), "ViT-B/16")
    if not isinstance(model, str):
        raise ValueError(
            "Official weights are for the models of keras_vit.list_models(); any other "
            f"config needs a path. Received: weights={weights!r} for {model}"
        )
    config = configs.resolve(model)
    row = catalogue.find(model, os.fspath(weights), image_size or (None, None))
    return TrainedWeights(
        name=os.fspath(weights),
        model_name=model,
        config=config,
        image_size=(row.resolution, row.resolution),
        channels=3,
        classes=row.classes,
        class_names=None,
        preprocessing=Preprocessing((row.resolution, row.resolution)),
        origins=dict.fromkeys(
            ("pixels", "evaluation", "gelu", "norm_epsilon"), "the official code"
        ),
        official=row,
    )


def _of_model(weights, model, metadata, recipe):
    try:
        config = config_of(model)
    except ValueError:
        config = None
    _, height, width, channels = model.input_shape
    return TrainedWeights(
        name=os.fspath(weights),
        model_name=recipe.get("model") or paper_name(config) or model.name,
        config=config,
        image_size=None if None in (height, width) else (height, width),
        channels=channels,
        classes=model.output_shape[-1] if config is None or has_head(model) else None,
        class_names=metadata.class_names,
        preprocessing=metadata.preprocessing,
        origins={
            "pixels": metadata.origin,
            "evaluation": metadata.origin,
            "gelu": MODEL,
            "norm_epsilon": MODEL,
        },
        recipe=recipe,
        model=model,
        task=MULTILABEL if metadata.task == MULTILABEL else task_of_model(model),
        thresholds=metadata.thresholds,
    )


def _of_checkpoint(weights, checkpoint, model, image_size, source_size, num_heads, gelu):
    given = None if model is None else configs.resolve(model)
    kernel = checkpoint.shapes.get("patch_embedding")
    if given is not None and kernel and kernel[-1] != given.width:
        _check_agrees(model, weights, None)
    if given is None or _is_shown_by_shapes(given):
        shown = _shown(checkpoint, given, image_size, source_size, num_heads, gelu)
        if model is not None:
            _check_agrees(model, weights, shown.config)
    else:
        facts = {name: checkpoint.facts.get(name) for name in ("gelu", "norm_epsilon")}
        known = {name: value for name, value in facts.items() if value is not None}
        shown = BuildArguments(dataclasses.replace(given, **known), None, 3, None)
    config = shown.config
    if checkpoint.layout is KERAS:  # Such a file is of this package and holds no numerics.
        numerics = "the given model" if given else "assumed"
        if isinstance(config, ViTConfig) and given is not None:
            config = dataclasses.replace(config, gelu=given.gelu, norm_epsilon=given.norm_epsilon)
    else:
        numerics = "config.json" if checkpoint.config else f"usual for {checkpoint.layout.name}"
    metadata = read_metadata(checkpoint, shown.image_size or DEFAULT_SIZE, shown.classes)
    return TrainedWeights(
        name=os.fspath(weights),
        model_name=paper_name(config) or "ViT",
        config=config,
        image_size=shown.image_size,
        position_grid=shown.position_grid,
        channels=shown.channels,
        classes=shown.classes,
        class_names=metadata.class_names,
        preprocessing=metadata.preprocessing,
        origins={
            "pixels": metadata.origin,
            "evaluation": metadata.origin,
            "gelu": numerics if checkpoint.states("gelu") or gelu is None else "--gelu",
            "norm_epsilon": numerics,
        },
        notes=(*shown.notes, *metadata.notes),
        checkpoint=checkpoint,
        task=metadata.task,
        thresholds=metadata.thresholds,
    )


def _shown(checkpoint, given, image_size, source_size, num_heads, gelu):
    """The model that names and shapes of a file show; what they leave open, as given."""
    num_heads = num_heads or getattr(given, "num_heads", None)
    if checkpoint.layout is KERAS:
        gelu = gelu or getattr(given, "gelu", None)
    try:
        shown = build_arguments(checkpoint, num_heads, source_size, gelu)
    except ValueError:
        if image_size is None or None in image_size or source_size is not None:
            raise
        shown = build_arguments(checkpoint, num_heads, image_size, gelu)
    config = shown.config
    if isinstance(config, ViTConfig) and len(set(config.patch_sizes)) == 1:
        config = dataclasses.replace(config, patch_size=config.patch_sizes[0])
    return dataclasses.replace(shown, config=config)


def _is_shown_by_shapes(config):
    """Whether names and shapes in a file show a config; see `recognition.config_of_shapes`."""
    positions = getattr(config, "position_embedding", "learned_1d")
    place = getattr(config, "position_embedding_at", "input")
    return (
        type(config) in (ViTConfig, BiTConfig)
        and (positions, place) == ("learned_1d", "input")
        and not getattr(config, "rotary", None)
    )  # fmt: skip


def _check_agrees(model, weights, config):
    if config is None or _plain(configs.resolve(model)) != _plain(config):
        raise ValueError(
            "The weights must be of the given model; without a model, the weights' own is used. "
            f"Received: model={model}, weights={os.fspath(weights)}, "
            f"a model of {config or 'another size'}"
        )


def _plain(config):
    """A config without what the weights of one model may differ in: numerics and head."""
    config = configs.for_inference(without_hidden_layer(config))
    if not isinstance(config, ViTConfig):
        return config
    gelu = config.gelu if config.gelu == "swiglu" else ViTConfig.gelu  # SwiGLU has more weights.
    return dataclasses.replace(config, gelu=gelu, norm_epsilon=ViTConfig.norm_epsilon)


def paper_name(config: ViTConfig | BiTConfig | None) -> str:
    """Returns the name in `keras_vit.list_models()` of a config; "" if it has none.

    GELU, LayerNorm's epsilon and the hidden layer of pre-training may differ.
    """
    if config is None:
        return ""
    names = {_plain(configs.resolve(name)): name for name in configs.list_models()}
    return names.get(_plain(config), "")


def without_hidden_layer(config: Any) -> Any:
    """Returns a config without the hidden layer of pre-training, for a new head."""
    fields = {field.name for field in dataclasses.fields(config)}
    changes = {"representation_size": None, "head_bias": 0.0}
    return dataclasses.replace(config, **{k: v for k, v in changes.items() if k in fields})


def has_head(model: keras.Model) -> bool:
    """Returns whether a model of this package ends in a head."""
    return configs.classifier_layer({layer.name: layer for layer in model.layers}) is not None


def is_numbered(classifier: Any) -> bool:
    """Returns whether class names are the numbers that `convert` writes for unknown names."""
    numbers = tuple(map(str, range(len(classifier.class_names))))
    return bool(classifier.recipe.get("converted")) and classifier.class_names == numbers
