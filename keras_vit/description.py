"""Descriptions of models: config, preprocessing, classes, and the origin of each fact.

A `Description` is made once, by `keras_vit.build` or by the reader of a file. The model holds it,
and a classifier's folder, an export, `recipe.json` and a result file store it as the same JSON.
Imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.costs import Cost
from keras_vit.counting import cost_of
from keras_vit.json_files import check_fields, parse_json
from keras_vit.preprocessing import Preprocessing, describe_range, describe_resize
from keras_vit.recognition import config_of, config_of_json
from keras_vit.tasks import (
    ACTIVATIONS,
    DEFAULT_THRESHOLD,
    MULTICLASS,
    MULTILABEL,
    TASKS,
    check_label_names,
    task_of_model,
)

_MAX_LISTED = 3  # Names in an error.

LAYER = "description"  # Name of the layer that holds the description of a model.


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of a classifier, and how many of them an image may have.

    Args:
        names: The K names, in the order of the model's outputs; None if they are unknown.
        task: "multiclass" if an image has one class, "multilabel" if it may have several.
        thresholds: Multi-label only: the probability above which an image has each label, K
            numbers in [0, 1); None stands for 0.5 each.

    Raises:
        ValueError: If the task is unknown, thresholds do not fit it or the names, or a name of
            a label holds the separator of labels.
    """

    names: tuple[str, ...] | None = None
    task: str = MULTICLASS
    thresholds: tuple[float, ...] | None = None

    def __post_init__(self):
        names, thresholds = self.names, self.thresholds
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {TASKS}. Received: task={self.task!r}")
        if self.task == MULTICLASS and thresholds is not None:
            raise ValueError(
                f"Thresholds are for task={MULTILABEL!r}. Received: {len(thresholds)} of them"
            )
        if names is not None:
            object.__setattr__(self, "names", tuple(names))
        if names is not None and self.is_multilabel:
            check_label_names(names)
        if thresholds is not None:
            values = tuple(float(value) for value in thresholds)
            if len(values) != len(names or ()) or not all(0 <= value < 1 for value in values):
                raise ValueError(
                    "Thresholds must be probabilities in [0, 1), one for each of the "
                    f"{len(names or ())} classes. Received: {list(values)[:10]}"
                )
            object.__setattr__(self, "thresholds", values)

    @property
    def is_multilabel(self) -> bool:
        """Whether an image may have several of the labels."""
        return self.task == MULTILABEL

    @property
    def activation(self) -> str:
        """Activation of the model's last layer."""
        return ACTIVATIONS[self.task]

    @property
    def limits(self) -> tuple[float, ...] | None:
        """The threshold of each label, 0.5 where none was chosen; None for one class an image."""
        if not self.is_multilabel or self.names is None:
            return None
        return self.thresholds or (DEFAULT_THRESHOLD,) * len(self.names)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON."""
        return {
            "names": None if self.names is None else list(self.names),
            "task": self.task,
            "thresholds": None if self.thresholds is None else list(self.thresholds),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Labels:
        """Returns the labels that `to_json` wrote."""
        check_fields(content, {"names": list, "task": str, "thresholds": list}, "labels")
        return cls(**content)


def check_class_names(class_names: Sequence[str]) -> None:
    """Raises ValueError if a class name cannot be a line of text, or there is one twice."""
    wrong = [
        name
        for name in class_names
        if not isinstance(name, str) or not name.strip() or not _is_line(name)
    ]
    if not class_names or wrong:
        raise ValueError(
            "Class names must be one line of text each; rename the folder or label. "
            f"Received: {wrong[:_MAX_LISTED] or 'none'}"
        )
    if len(set(class_names)) != len(class_names):
        counts = collections.Counter(class_names)
        twice = sorted(name for name, count in counts.items() if count > 1)[:_MAX_LISTED]
        raise ValueError(f"Class names must differ from each other. Received twice: {twice}")


def _is_line(name):
    # Bytes of a file name that are no UTF-8 are surrogates.
    return len(name.splitlines()) == 1 and not any("\ud800" <= c <= "\udfff" for c in name)


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
        classes: Outputs of its head; None without a head, 0 if the output is the head's input.
        preprocessing: How an image becomes the model's input; None if that is unknown.
        labels: The names of the classes and the task.
        origins: Where "pixels" (their range), "evaluation" (the resize), "gelu",
            "norm_epsilon" and "position_resize" are from, human-readable.
        notes: A sentence for each assumption and each difference from the source.

    Raises:
        ValueError: If a size is not a positive number, or the range of the pixels does not have
            the channels of the images.

    Example:
    >>> describe("ViT-B/16").parameters
    86567656
    """

    name: str = ""
    config: ViTConfig | BiTConfig | None = None
    input_shape: tuple[int | None, int | None, int] | None = None
    position_grid: tuple[int, int] | None = None
    classes: int | None = None
    preprocessing: Preprocessing | None = None
    labels: Labels = Labels()
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for field in ("input_shape", "position_grid", "notes"):
            if isinstance(getattr(self, field), list):
                object.__setattr__(self, field, tuple(getattr(self, field)))
        _check_sides("input_shape", self.input_shape, 3, free=2)
        _check_sides("position_grid", self.position_grid, 2)
        known, channels = self.preprocessing, self.channels
        if (
            known is not None
            and None not in (channels, known.num_channels)
            and (known.num_channels != channels)
        ):
            raise ValueError(
                "The range of the pixels must have the model's channels. Received: "
                f"{known.num_channels} channels ({self.origins.get('pixels', 'given')}), a model "
                f"of {channels} channels, {self.name}"
            )

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Pixels (height, width); None where any size fits, or it is unknown."""
        height, width, _ = self.input_shape or (None, None, None)
        return None if height is None or width is None else (height, width)

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
        return cost_of(self.config, self._counted_shape, self.classes)

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
        down, across = self.config.grid(self._counted_shape[:2])
        return self.config.num_prefix_tokens + down * across

    @property
    def _counted_shape(self):
        side = configs.DEFAULT_IMAGE_SIZE
        height, width, channels = self.input_shape or (side, side, 3)
        return (height or side, width or side, channels)

    def __str__(self) -> str:
        height, width, channels = self._counted_shape
        lines = [
            f"{self.name}, {height}x{width} pixels, {channels} channels",
            f"  parameters       {self.parameters:,}",
            f"  FLOPs per image  {self.flops:,}",
            f"  activations      {self.activations:,}",
            f"  sequence length  {self.sequence_length or '-'}",
        ]
        return "\n".join(lines)

    @property
    def facts(self) -> str:
        """The facts that change the numbers, with their origins, and the notes; one line."""
        known, origins = self.preprocessing, self.origins
        pixels = "unknown" if known is None else describe_range(known.value_range)
        parts = [f"pixels {pixels} ({origins['pixels']})"]
        if known is not None:
            parts.append(f"resize {describe_resize(known)} ({origins['evaluation']})")
        if isinstance(self.config, ViTConfig):
            parts.append(f"GELU {self.config.gelu} ({origins['gelu']})")
        if rule := self.position_resize:
            from_where = origins.get("position_resize")
            parts.append(f"positions {rule}" + (f" ({from_where})" if from_where else ""))
        if self.labels.is_multilabel:
            parts.append("multi-label")
        return "; ".join([", ".join(parts), *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON, those without a value left out."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _to_json(value) for name, value in fields.items() if value is not None}

    @classmethod
    def from_json(cls, content: Any, source: object = "a description") -> Description:
        """Returns the description that `to_json` wrote.

        Args:
            content: The JSON object.
            source: The file, for the message.

        Raises:
            ValueError: If a field is unknown or its value is wrong.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(content, Mapping) or not content.keys() <= known:
            wrong = sorted(content.keys() - known) if isinstance(content, Mapping) else content
            raise ValueError(
                f"A description must be a JSON object with fields of {sorted(known)}; a newer "
                f"version may write others. Received: {str(wrong)[:80]} in {source}"
            )
        try:
            check_fields(content, _FIELDS, source)
            return cls(
                **{
                    name: _READERS[name](value) if name in _READERS and value is not None else value
                    for name, value in content.items()
                }
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{source} must hold a description. Received: {error}") from error


# What the fields hold in JSON, and the readers of those that are objects in Python.
_FIELDS = {
    "name": str,
    "config": dict,
    "input_shape": list,
    "position_grid": list,
    "classes": int,
    "preprocessing": dict,
    "labels": dict,
    "origins": dict,
    "notes": list,
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "config": config_of_json,
    "preprocessing": Preprocessing.from_fields,
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


def _to_json(value):
    if isinstance(value, (ViTConfig, BiTConfig)):
        return {"type": type(value).__name__, **configs.config_fields(value)}
    if hasattr(value, "to_fields"):
        return value.to_fields()
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def description_text(description: Description) -> str:
    """Returns the text of a JSON file that holds a description."""
    return json.dumps(description.to_json(), indent=2) + "\n"


def read_description(text: str | bytes, source: object) -> Description:
    """Returns the description in the text of a JSON file.

    Args:
        text: What `description_text` returned.
        source: The file, for the message.

    Raises:
        ValueError: If it is not JSON, or not a description.
    """
    return Description.from_json(parse_json(text, source), source)


def describe(
    name_or_config_or_model: Any,
    *,
    input_shape: tuple[int, int, int] | None = None,
    include_top: bool = True,
    classes: int = 1000,
    **changes: Any,
) -> Description:
    """Returns what a model is, with its size and cost, without building it.

    Args:
        name_or_config_or_model: A name of `keras_vit.list_models()`, a config, or a model
            that `keras_vit.build` returned, that was loaded from a file, or that was cut out of
            one; the other arguments are then known from the model and must be left out.
        input_shape: `(height, width, channels)`; 224 pixels and 3 channels by default, also
            for a model of free image size.
        include_top: Whether the classification head counts.
        classes: Classes of the head.
        **changes: Fields of the config and their new values.

    Raises:
        ValueError: If the name is unknown, or the model is not from this package, has
            additional layers or lacks some of its config's.

    Example:
    >>> describe("ViT-B/16").parameters
    86567656
    """
    if hasattr(name_or_config_or_model, "count_params"):
        model = name_or_config_or_model
        if changes or input_shape or not include_top or classes != 1000:
            raise ValueError(
                "The input shape, classes and config of a model are known; leave them out. "
                f"Received: input_shape={input_shape}, include_top={include_top}, "
                f"classes={classes}, {changes}"
            )
        return _describe_model(model)
    config = configs.resolve(name_or_config_or_model, **changes)
    side = configs.default_image_size(name_or_config_or_model)
    name = (
        name_or_config_or_model if isinstance(name_or_config_or_model, str) else config.architecture
    )
    shape = input_shape or (side, side, 3)
    classes_counted = classes if include_top else None
    return _with_cost(Description(name, config, shape, classes=classes_counted))


def _describe_model(model):
    described = held_description(model)
    config: Any = described.config or config_of(model)  # An error that shows the layers.
    height, width, channels = described.input_shape or model.input_shape[1:]
    side = _table_side(config, model.layers)  # Where the image size is free.
    described = dataclasses.replace(
        described, name=model.name, input_shape=(height or side, width or side, channels)
    )
    _with_cost(described)
    if described.classes is None and described.parameters != model.count_params():
        described = dataclasses.replace(described, classes=0)  # With the pooling of its head.
    if described.parameters != model.count_params():
        missing = _missing_layers(config, {layer.name for layer in model.layers})
        raise ValueError(
            "Only whole models of keras_vit.build can be described, with or without their head and "
            f"without additional layers. Received: a model with {model.count_params():,} "
            f"parameters, of which {described.parameters:,} are "
            f"{config.architecture}'s" + (f"; it lacks {', '.join(missing[:3])}" if missing else "")
        )
    return described


def _missing_layers(config, names):
    """The first and last layers of the blocks of a config that a model lacks."""
    if isinstance(config, ViTConfig):
        block = "row_block" if config.architecture == "axial_vit" else "encoder_block"
        wanted = [f"{block}_{index}" for index in range(config.depth)]
    else:
        wanted = [
            f"block_{block}_unit_{unit}"
            for block, units in enumerate(config.num_blocks, 1)
            for unit in range(1, units + 1)
        ]
    return [name for name in wanted if name not in names]


def _with_cost(description):
    """The description, whose cost is known; errors of the image size are raised here."""
    description.cost  # noqa: B018
    return description


def _table_side(config, layers):
    """Returns the pixels per side that tables of positions are made for."""
    side = configs.DEFAULT_IMAGE_SIZE
    for layer in layers:
        if hasattr(layer, "grid") and hasattr(layer, "num_prefix_tokens"):
            if layer.grid[-1] != config.grid((side, side))[-1]:
                stride = config.resnet.stride if config.resnet else 1
                side = layer.grid[-1] * config.patch_sizes[1] * stride
            break
    return side


def held_description(model: Any) -> Description:
    """Returns the description that a Keras model holds, completed by its shapes.

    Models of this package have a layer with it, also those that were cut out of one. Files of
    earlier versions have none: their config is recognised by the names of layers. The config of
    any other model is None.

    Args:
        model: A functional `keras.Model`, or an export in its runtime.
    """
    layer = description_layer(model)
    if layer is None:
        described = Description(config=_recognised(model))
    else:
        described = _description_of_text(layer.text, layer.path)
    layers = {part.name: part for part in getattr(model, "layers", ())}
    has_head = configs.classifier_layer(layers) is not None
    outputs = tuple(model.output_shape) if described.config is None or has_head else ()
    labels = described.labels if has_head or described.config is None else Labels()
    if layers and labels.task == MULTICLASS and labels.names is None:
        labels = Labels(task=task_of_model(model))
    shape, grid = _images_shape(model, layer), described.position_grid
    if grid is None and isinstance(described.config, ViTConfig) and shape and None not in shape:
        grid = described.config.grid(shape[:2])
    return dataclasses.replace(
        described,
        name=described.name or getattr(model, "name", ""),
        input_shape=shape,
        position_grid=grid,
        classes=outputs[-1] if outputs else None,
        labels=labels,
    )


@functools.lru_cache(maxsize=16)
def _description_of_text(text, path):
    return Description.from_json(json.loads(text), f"the layer {path}")


def set_description(model: Any, description: Description) -> None:
    """Makes a model of this package hold a description; others have no place for one."""
    layer = description_layer(model)
    if layer is not None:
        layer.content = description.to_json()


@contextlib.contextmanager
def described(model: Any, description: Description) -> Iterator[None]:
    """Makes a model hold a description inside a `with` block, as when it is saved."""
    layer = description_layer(model)
    before = None if layer is None else layer.content
    set_description(model, description)
    try:
        yield
    finally:
        if layer is not None:
            layer.content = before


def completed(description: Description, held: Description) -> Description:
    """Returns the description in a file, completed by what the model in it holds.

    Args:
        description: The file's description.
        held: The description in its model.

    Raises:
        ValueError: If they are of two models.
    """
    if None not in (description.config, held.config) and description.config != held.config:
        raise ValueError(
            "The description must match the model. "
            f"Received: a description of {description.config}, a model of {held.config}"
        )
    return dataclasses.replace(
        description,
        name=description.name or held.name,
        config=description.config or held.config,
        input_shape=held.input_shape,
        position_grid=held.position_grid,
        classes=held.classes,
    )


def description_layer(model: Any) -> Any:
    """Returns the layer that holds the description of a model, or None."""
    for layer in getattr(model, "layers", ()):
        if layer.name == LAYER and hasattr(layer, "content"):
            return layer
    return None


def _images_shape(model, layer):
    """The shape of the images; layers in front of the model's own may resize them."""
    layers = {part.name: part for part in getattr(model, "layers", ())}
    first = layer or layers.get("root_conv") or layers.get("patch_embedding")
    try:
        shape = model.input_shape if first is None else first.input.shape
    except AttributeError:  # A layer that other models share has several inputs.
        shape = model.input_shape
    return tuple(shape[1:]) if len(shape) == 4 else None


def _recognised(model):
    try:
        return config_of(model)
    except ValueError:
        return None
