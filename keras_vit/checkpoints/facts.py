"""Facts about a model that a source of weights states apart from the arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args

from keras_vit.configs import UNSEEN_FIELDS, checked_fields
from keras_vit.configs.recognition import config_of_json
from keras_vit.configs.resnet_configs import EpsilonIn
from keras_vit.description.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts that a file, its `config.json` or its code base states.

    What a source states of the architecture is `fields`, under the names of the config. No code
    between a source and the config names a field, so that a further one needs no edit there.

    Args:
        fields: Fields of `ViTConfig` and their values; None is left out.
        position_grid: Patches (down, across) that the tables of positions are for, or None.
        image_size: Pixels (height, width) of the images, or None.
        epsilon_in: How the kernels of a hybrid's ResNet are standardised, or None.
        task: The task of the head, or None.
        noted: The JSON that this package noted, under "description"; {} in files of others.
        keras_version: 2 or 3 for HDF5 files of Keras; 0 for others.
        wrapper: The key of a PyTorch file under which the state dict is, or "".

    Raises:
        ValueError: If a field's value, a grid or a size is wrong.
    """

    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    position_grid: tuple[int, int] | None = None
    image_size: tuple[int, int] | None = None
    epsilon_in: EpsilonIn | None = None
    task: str | None = None
    noted: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keras_version: int = 0
    wrapper: str = ""

    def __post_init__(self):
        known = {name: value for name, value in self.fields.items() if value is not None}
        object.__setattr__(self, "fields", checked_fields(known))
        for name in ("position_grid", "image_size"):
            sides = getattr(self, name)
            if sides is not None:
                object.__setattr__(self, name, _checked_sides(name, sides))
        if self.epsilon_in not in (None, *get_args(EpsilonIn)):
            raise ValueError(
                f"epsilon_in must be one of {get_args(EpsilonIn)}. "
                f"Received: epsilon_in={self.epsilon_in!r:.80}"
            )

    def over(self, others: Facts) -> Facts:
        """Returns these facts, completed by the facts of another source."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        known = {name: value for name, value in mine.items() if value}
        merged = {name: {**getattr(others, name), **mine[name]} for name in ("fields", "noted")}
        return dataclasses.replace(others, **{**known, **merged})

    @classmethod
    def from_note(cls, note: Mapping[str, Any]) -> Facts:
        """Returns the facts in the JSON object that this package writes into files of weights.

        Args:
            note: Fields of `UNSEEN_FIELDS`, "position_grid", "epsilon_in", "task",
                "description"; other keys are left out.

        Raises:
            ValueError: If a value is wrong.
        """
        return cls(
            fields=_unseen(note),
            position_grid=note.get("position_grid") or None,
            epsilon_in=note.get("epsilon_in"),
            task=note["task"] if note.get("task") in TASKS else None,
            noted={k: v for k, v in note.items() if k == "description" and isinstance(v, dict)},
        )

    @classmethod
    def from_description(cls, description: Any) -> Facts:
        """Returns the facts in the JSON of a description.

        Raises:
            ValueError: If it is no JSON object, or a value is wrong.
        """
        if not isinstance(description, dict):
            raise ValueError(f"A description must be a JSON object. Received: {description!r:.80}")
        config, grid = description.get("config"), description.get("position_grid")
        fields = _unseen(vars(config_of_json(config))) if isinstance(config, dict) else {}
        return cls(fields, grid or None, noted={"description": description})


def _unseen(config):
    return {name: config[name] for name in UNSEEN_FIELDS if name in config}


def _checked_sides(name, sides):
    if not isinstance(sides, list | tuple) or len(sides) != 2:
        raise ValueError(f"{name} must be two numbers. Received: {sides!r:.80}")
    down, across = sides
    if not all(isinstance(side, int) and 0 < side < 2**31 for side in sides):
        raise ValueError(f"Sides must be positive. Received: {name}={sides!r:.80}")
    return (down, across)
