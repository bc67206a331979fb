"""Descriptions of models: config, preprocessing, classes, and the origin of each fact.

A `Description` is made once, by `keras_vit.build` or by the reader of a file. The model holds it,
and a classifier's folder, an export, `recipe.json` and a result file store it as the same JSON.
Imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from keras_vit import configs
from keras_vit.configs import ModelConfig, ViTConfig
from keras_vit.configs.blocks import Cost
from keras_vit.configs.counting import cost_of
from keras_vit.configs.recognition import config_of_json
from keras_vit.description.class_labels import UNKNOWN, Labels
from keras_vit.preprocessing import Preprocessing, describe_range, describe_resize
from keras_vit.utils.files import CLASSES, DESCRIPTION
from keras_vit.utils.json_files import changed_fields, check_fields, parse_json, with_present_names
from keras_vit.utils.safe_text import first_names

if TYPE_CHECKING:
    import keras

_MAX_NAMES = 5  # Names of classes that are printed.


@dataclasses.dataclass(frozen=True)
class Description:
    """What a model is, with the place that each fact is from.

    A further fact about a model is one more field, with a default: files, exports and the opened
    classifier carry it.

    Args:
        name: The model's name, as in the paper where it has one.
        config: The architecture, with heads, GELU and epsilon; None for a model that is not of
            this package.
        input_shape: `(height, width, channels)` of its images; a side is None where any size
            fits, the whole is None where it is unknown.
        position_grid: Patches (down, across) that its tables of positions are for; None without.
        classes: Outputs of its head, without "unknown"; None without a head, 0 if the output is
            the head's input.
        preprocessing: How an image becomes the model's input; None if that is unknown.
        included: The preprocessing that the model itself computes, whose images are then pixels in
            [0, 255]; None for a model that takes preprocessed images.
        labels: The names of the classes and the task.
        origins: Where "pixels" (their range), "evaluation" (the resize), "gelu",
            "norm_epsilon" and "position_resize" are from, human-readable; and "weights", the
            repository that the weights, or those that its training started from, are from.
        license: The license of the weights, or of those that its training started from, as their
            source states it.
        notes: A sentence for each assumption and each difference from the source.

    Raises:
        ValueError: If a size is not a positive number, the range of the pixels does not have the
            channels of the images, or they would be scaled in front of a model that scales them.

    Example:
    >>> keras_vit.describe("ViT-B/16").parameters
    86567656
    """

    name: str = ""
    config: ModelConfig | None = None
    input_shape: tuple[int | None, int | None, int] | None = None
    position_grid: tuple[int, int] | None = None
    classes: int | None = None
    preprocessing: Preprocessing | None = None
    included: Preprocessing | None = None
    labels: Labels = Labels()
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    license: str = UNKNOWN
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for field in ("input_shape", "position_grid", "notes"):
            if isinstance(getattr(self, field), list):
                object.__setattr__(self, field, tuple(getattr(self, field)))
        texts = (*self.notes, *self.origins, *self.origins.values())
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise ValueError(f"notes and origins must be texts. Received: {wrong[0]!r:.80}")
        _check_sides("input_shape", self.input_shape, 3, free=2)
        _check_sides("position_grid", self.position_grid, 2)
        wanted, channels = self.preprocessing and self.preprocessing.num_channels, self.channels
        if None not in (wanted, channels) and wanted != channels:
            raise ValueError(
                "The range of the pixels must have the model's channels. Received: "
                f"{wanted} channels ({self.origin_of('pixels')}), a model of {channels} channels, "
                f"{self.name}"
            )

        known = self.preprocessing
        if self.included and known and known.value_range != PIXELS:
            raise ValueError(
                f"Pixels must be scaled once, and {self.name or 'the model'} includes its "
                "preprocessing: leave the preprocessing out, or give value_range=(0, 255). "
                f"Received: value_range={known.value_range}"
            )

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Pixels (height, width); None where any size fits, or it is unknown."""
        height, width, _ = self.input_shape or (None, None, None)
        return None if height is None or width is None else (height, width)

    @property
    def usual_size(self) -> tuple[int, int] | None:
        """Pixels (height, width) of images for a checkpoint; None where they are unknown.

        Those that an image processor of DINOv2 states are fewer than the positions are for.
        """
        known = self.preprocessing
        return self.image_size if known is None or self.image_size is None else known.image_size

    @property
    def position_resize(self) -> str | None:
        """The rule by which tables of positions are resized; None where there are none."""
        if isinstance(self.config, ViTConfig) and self.config.adds_positions:
            return self.config.position_resize
        return None

    @property
    def channels(self) -> int | None:
        """Channels of the images; None if they are unknown."""
        return self.input_shape[2] if self.input_shape else None

    @functools.cached_property
    def cost(self) -> Cost:
        """Parameters, FLOPs and activations; for 224 pixels where any size fits.

        Raises:
            ValueError: If the config is unknown, or the image smaller than a patch.
        """
        if self.config is None:
            raise ValueError(
                "The cost is known for models of keras_vit.build. "
                f"Received: {self.name or 'another model'}"
            )
        return cost_of(self.config, self.counted_shape, self.classes)

    @property
    def parameters(self) -> int:
        """Numbers that the model learns; `model.count_params()` of the built model."""
        return self.cost.parameters

    @property
    def flops(self) -> int:
        """Multiplications and additions of a forward pass of one image."""
        return self.cost.flops

    @property
    def activations(self) -> int:
        """Elements of the outputs of convolutions and matrix products."""
        return self.cost.activations

    @property
    def sequence_length(self) -> int | None:
        """Tokens, including those in front of the patches; None for a ResNet."""
        if not isinstance(self.config, ViTConfig):
            return None
        down, across = self.config.grid(self.counted_shape[:2])
        return self.config.num_prefix_tokens + down * across

    @property
    def counted_shape(self) -> tuple[int, int, int]:
        """`(height, width, channels)` that the cost is for, also where images of any size fit.

        They are then those that the tables of positions are for, else 224 pixels wide and high.
        """
        side = configs.DEFAULT_IMAGE_SIZE
        height, width, channels = self.input_shape or (side, side, 3)
        if None in (height, width) and self.position_grid and isinstance(self.config, ViTConfig):
            stride = self.config.resnet.stride if self.config.resnet else 1
            grid, patch = self.position_grid, self.config.patch_sizes
            height, width = (n * side * stride for n, side in zip(grid, patch, strict=True))
        return (height or side, width or side, channels)

    def __str__(self) -> str:
        height, width, channels = self.counted_shape
        lines = [f"{self.name}, {height}x{width} pixels, {channels} channels"]
        if self.config is not None:
            lines += [
                f"  parameters       {self.parameters:,}",
                f"  FLOPs per image  {self.flops:,}",
                f"  activations      {self.activations:,}",
                f"  sequence length  {self.sequence_length or '-'}",
            ]
        if (known := self.preprocessing) is not None:
            pixels = f"{describe_range(known.value_range)}, {describe_resize(known)}"
            lines.append(f"  pixels           {pixels}")
        if names := self.labels.names:
            lines.append(f"  classes          {first_names(names, _MAX_NAMES)}")
        return "\n".join(lines)

    @property
    def facts(self) -> str:
        """The facts that change the numbers, with their origins, and the notes; one line."""
        known = self.preprocessing
        pixels = "unknown" if known is None else describe_range(known.value_range)
        parts = [f"pixels {pixels} ({self.origin_of('pixels')})"]
        if self.included is not None:
            parts.append(f"made {describe_range(self.included.value_range)} by the model")
        if known is not None:
            parts.append(f"evaluation {describe_resize(known)} ({self.origin_of('evaluation')})")
        if isinstance(self.config, ViTConfig):
            parts.append(f"GELU {self.config.gelu} ({self.origin_of('gelu')})")
        if rule := self.position_resize:
            from_where = self.origins.get("position_resize")
            parts.append(f"positions {rule}" + (f" ({from_where})" if from_where else ""))
        if self.labels.is_multilabel:
            parts.append("multi-label")
        return "; ".join([", ".join(parts), *self.notes])

    def origin_of(self, fact: str) -> str:
        """Returns where a fact is from, for messages."""
        return self.origins.get(fact, "not recorded")

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON, those with their default left out."""
        fields = changed_fields(self)
        if self.config is not None:
            fields["config"] = {"type": type(self.config).__name__, **fields["config"]}
        return fields

    @classmethod
    def from_json(cls, content: Any, source: str | os.PathLike = "a description") -> Description:
        """Returns the description that `to_json` wrote.

        Args:
            content: The JSON object.
            source: The file, for the message.

        Raises:
            ValueError: If a field is unknown or its value is wrong.
        """
        try:
            content = with_present_names(content)
            check_fields(content, _FIELDS, source)
            return cls(
                **{
                    name: _READERS[name](value) if name in _READERS else value
                    for name, value in content.items()
                    if value is not None
                }
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{source} must hold a description; a newer version may write further fields. "
                f"Received: {error}"
            ) from error

    @classmethod
    def stored(cls, texts: Mapping[str, str], source: str | os.PathLike) -> Description:
        """Returns the description in the texts of a folder or an export.

        Args:
            texts: The texts of `texts_of`.
            source: The folder or file, for messages; "" for an export's own.

        Raises:
            ValueError: If a text is missing or wrong, or they do not agree with each other.
        """
        if DESCRIPTION not in texts:
            raise ValueError(f"There must be a {DESCRIPTION}. Missing in {source}")
        place = f"{source}/" if str(source) else ""
        file = f"{place}{DESCRIPTION}"
        described = cls.from_json(parse_json(texts[DESCRIPTION], file), file)
        named = described.labels.output_names if described.labels.names is not None else ()
        lines = tuple(texts.get(CLASSES, "").splitlines())
        if lines != named:
            raise ValueError(
                f"{place}{CLASSES} and {DESCRIPTION} do not belong together: the first has one "
                "class name a line, made from the second, so change both. Received: "
                f"{len(lines)} lines, {len(named)} names"
            )
        return described

    @classmethod
    def of_model(cls, model: keras.Model) -> Description:
        """Returns the description that a Keras model holds, completed by its shapes.

        Models of this package have a layer with it, also those that were cut out of one. The config
        of any other model is None.

        Args:
            model: A functional `keras.Model`; or what has its attributes, as an export in its
                runtime and the JSON of a model.
        """
        layer = description_layer(model)
        described = cls()
        if layer is not None:
            described = cls.from_json(layer.content, f"the layer {layer.path}")
        layers = {part.name: part for part in getattr(model, "layers", ())}
        head = configs.classifier_layer(layers)
        is_whole = head is not None or described.config is None
        has_one_output = len(getattr(model, "outputs", ("scores",))) == 1
        outputs = tuple(model.output_shape) if is_whole and has_one_output else ()
        labels = _labels(model, described.labels if is_whole else Labels(), head)
        shape, grid = _images_shape(model, layer), described.position_grid
        if grid is None and isinstance(described.config, ViTConfig) and shape and None not in shape:
            grid = described.config.grid(shape[:2])
        described = described.including(included_preprocessing(model))
        preprocessing, origins = described.preprocessing, described.origins
        if has_layers_in_front(model):
            preprocessing, origins = None, {**origins, "pixels": IN_FRONT}
        elif preprocessing and shape and None not in shape:
            preprocessing = preprocessing.with_image_size(shape[:2])
        return dataclasses.replace(
            described,
            name=described.name or getattr(model, "name", ""),
            input_shape=shape,
            position_grid=grid,
            classes=outputs[-1] - labels.abstains if outputs else None,
            preprocessing=preprocessing,
            labels=labels,
            origins=origins,
        )

    def including(self, included: Preprocessing | None) -> Description:
        """Returns the description of the same weights in a model that includes a preprocessing.

        Its `preprocessing` is then what prepares the images in front of it.

        Args:
            included: What the model includes, or None.

        Raises:
            ValueError: If the weights need another range of the pixels.
        """
        before, known = self.included, self.preprocessing
        if included is None:
            if before is None:
                return self
            return dataclasses.replace(self, preprocessing=before, included=None)
        whole = before or known
        if whole is not None and whole.value_range not in (included.value_range, PIXELS):
            raise ValueError(
                "The weights must be for the range of the pixels that the model includes, "
                f"{describe_range(included.value_range)}: build it with these weights. "
                f"Received: {describe_range(whole.value_range)} ({self.origin_of('pixels')})"
            )
        in_front = dataclasses.replace(included, value_range=PIXELS)
        if known is not None:
            in_front = dataclasses.replace(in_front, bit_depth=known.bit_depth)
        return dataclasses.replace(self, preprocessing=in_front, included=included)

    def merged(self, held: Description) -> Description:
        """Returns the description in a file, completed by what the model in it holds.

        Args:
            held: The description in its model.

        Raises:
            ValueError: If they are of two models.
        """
        if None not in (self.config, held.config) and self.config != held.config:
            raise ValueError(
                "The description must match the model. "
                f"Received: a description of {self.config}, a model of {held.config}"
            )
        description = self
        if held.config is not None:  # An export computes what its model did.
            description = self.including(held.included)
        classes, labels = held.classes, description.labels
        if held.labels.abstains:
            labels = dataclasses.replace(labels, abstains=True)
        elif classes and labels.abstains:
            classes -= 1  # An export, whose layers are not known.
        return dataclasses.replace(
            description,
            name=description.name or held.name,
            config=description.config or held.config,
            input_shape=held.input_shape,
            position_grid=held.position_grid,
            classes=classes,
            labels=labels,
        )


# What the fields hold in JSON, and the readers of those that are objects in Python.
_FIELDS = {
    "classes": int,
    **dict.fromkeys(("name", "license"), str),
    **dict.fromkeys(("input_shape", "position_grid", "notes"), list),
    **dict.fromkeys(("config", "preprocessing", "included", "labels", "origins"), dict),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "config": config_of_json,
    "preprocessing": Preprocessing.from_fields,
    "included": Preprocessing.from_fields,
    "labels": Labels.from_json,
}


def _check_sides(name, sides, count, free=0):
    """Raises ValueError unless sides are positive numbers; the first `free` of them may be None."""
    if sides is None:
        return
    if len(sides) != count or not all(
        (side is None and place < free) or (type(side) is int and side > 0)
        for place, side in enumerate(sides)
    ):
        raise ValueError(f"{name} must be {count} positive numbers. Received: {sides!r:.80}")


def description_text(description: Description) -> str:
    """Returns the text of a JSON file that holds a description."""
    return json.dumps(description.to_json(), indent=2) + "\n"


LAYER = "description"  # Name of the layer that holds the description of a model.
INCLUDED = "image_preprocessing"  # Name of the layer with the preprocessing that it includes.
PIXELS = (0.0, 255.0)  # The range of images in front of it.
# What `origins` has a text for: of the images, then of the model.
FACTS = ("pixels", "evaluation", "gelu", "norm_epsilon", "position_resize")
# Where the range of the pixels would be from, of a model with `has_layers_in_front`.
IN_FRONT = "layers in front of it change its images; save_classifier takes what the whole needs"


def included_preprocessing(model: keras.Model) -> Preprocessing | None:
    """Returns the preprocessing that a Keras model computes by its layer; None without one."""
    for layer in getattr(model, "layers", ()):
        if layer.name == INCLUDED and hasattr(layer, "preprocessing"):
            return layer.preprocessing
    return None


def _labels(model, labels, head):
    """The labels of a model by those that it holds and by what its layers show."""
    names, layers = labels.names, getattr(model, "layers", ())
    # Weights may be loaded from a model with another head.
    if names is not None and len(names) != getattr(head, "units", len(names)):
        labels = Labels()
    if layers and labels.names is None:
        last = getattr(layers[-1], "activation", None)
        labels = Labels.of_activation(last, labels.task)
    return dataclasses.replace(labels, abstains=True) if abstains(model) else labels


def check_one_output(model: keras.Model) -> None:
    """Raises ValueError unless a model takes images alone and has one output.

    Exports in their own runtimes have no others, and models without a graph show neither.
    """
    for kind in ("input", "output"):
        tensors = getattr(model, f"{kind}s", None) or ("one",)
        if len(tensors) != 1:
            structure = getattr(model, kind)
            if isinstance(structure, Mapping):
                names = list(structure)
            elif kind == "input":
                names = [image.name for image in model.inputs]
            else:
                names = model.output_names
            raise ValueError(
                f"A model must have one {kind}; keras.Model(model.input, one_output) is a model "
                f"with one output of another. Received: {model.name}, with {len(tensors)} {kind}s: "
                f"{', '.join(names)}"
            )


def has_layers_in_front(model: keras.Model) -> bool:
    """Returns whether layers stand in front of a model of this package, such as a `Rescaling`.

    What is known of the weights then says nothing about the images that the whole takes.
    """
    layer = description_layer(model)
    return layer is not None and all(layer.input is not images for images in model.inputs)


def input_dtype(model: keras.Model) -> str:
    """Returns the type to which a model casts its images before it computes with them."""
    layer = description_layer(model)
    if layer is None or has_layers_in_front(model) or included_preprocessing(model):
        return "float32"
    return layer.compute_dtype


def abstains(model: keras.Model) -> bool:
    """Returns whether a Keras model's last output is "unknown", by its layer `UnknownClass`."""
    return any(getattr(layer, "is_of_unknown", False) for layer in getattr(model, "layers", ()))


def set_description(model: keras.Model, description: Description) -> None:
    """Makes a model of this package hold a description; others have no place for one.

    Whether it answers with "unknown" is left out: its layers show it. Behind other layers it keeps
    the preprocessing of its weights.
    """
    layer = description_layer(model)
    if layer is not None:
        labels = dataclasses.replace(description.labels, abstains=False)
        own = Description.from_json(layer.content)
        description = description.including(included_preprocessing(model))
        # A model that computes something else still shows which config its layers are from.
        description = dataclasses.replace(description, config=description.config or own.config)
        if has_layers_in_front(model):
            origins = {**description.origins, "pixels": IN_FRONT}
            description = dataclasses.replace(
                description, preprocessing=own.preprocessing, origins=origins
            )
        layer.content = dataclasses.replace(description, labels=labels).to_json()


def description_layer(model: keras.Model) -> keras.layers.Layer | None:
    """Returns the layer that holds the description of a model, or None."""
    for layer in getattr(model, "layers", ()):
        if layer.name == LAYER and hasattr(layer, "content"):
            return layer
    return None


def _images_shape(model, layer):
    """The shape of the images; layers in front of the model's own may resize them."""
    try:
        shape = model.input_shape if layer is None else layer.input.shape
    except AttributeError:  # A layer that other models share has several inputs.
        shape = model.input_shape
    return tuple(shape[1:]) if len(shape) == 4 else None
