"""Descriptions of models: config, preprocessing, classes, and the origin of each fact.

A `Description` is made once, by `keras_vit.build` or by the reader of a file. The model holds it,
and a classifier's folder, an export, `recipe.json` and a result file store it as the same JSON.
Imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.blocks import Cost
from keras_vit.configs.counting import cost_of
from keras_vit.configs.recognition import config_of_json
from keras_vit.description.class_labels import UNKNOWN, Labels
from keras_vit.preprocessing import Preprocessing, describe_range, describe_resize
from keras_vit.utils.json_files import changed_fields, check_fields, parse_json


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
        labels: The names of the classes and the task.
        origins: Where "pixels" (their range), "evaluation" (the resize), "gelu",
            "norm_epsilon" and "position_resize" are from, human-readable; and "weights", the
            repository that the weights, or those that its training started from, are from.
        licence: The licence of the weights, or of those that its training started from, as their
            source states it.
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
    licence: str = UNKNOWN
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for field in ("input_shape", "position_grid", "notes"):
            if isinstance(getattr(self, field), list):
                object.__setattr__(self, field, tuple(getattr(self, field)))
        _check_texts("notes", self.notes)
        _check_texts("origins", [*self.origins, *self.origins.values()])
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
                f"{known.num_channels} channels ({self.origin_of('pixels')}), a model "
                f"of {channels} channels, {self.name}"
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
        known = self.preprocessing
        pixels = "unknown" if known is None else describe_range(known.value_range)
        parts = [f"pixels {pixels} ({self.origin_of('pixels')})"]
        if known is not None:
            parts.append(f"resize {describe_resize(known)} ({self.origin_of('evaluation')})")
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
                    name: _READERS[name](value) if name in _READERS else value
                    for name, value in content.items()
                    if value is not None
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
    "licence": str,
    "notes": list,
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "config": config_of_json,
    "preprocessing": Preprocessing.from_fields,
    "labels": Labels.from_json,
}


def _check_texts(name, values):
    wrong = [value for value in values if not isinstance(value, str)]
    if wrong:
        raise ValueError(f"{name} must be texts. Received: {wrong[0]!r:.80}")


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


def read_description(text: str | bytes, source: object) -> Description:
    """Returns the description in the text of a JSON file.

    Args:
        text: What `description_text` returned.
        source: The file, for the message.

    Raises:
        ValueError: If it is not JSON, or not a description.
    """
    return Description.from_json(parse_json(text, source), source)
