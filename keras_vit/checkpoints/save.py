"""Writing a model's weights under the names of a layout."""

from __future__ import annotations

import dataclasses
import os
import pathlib

import keras
import numpy as np

from keras_vit.checkpoints.code_bases.layouts import Layout
from keras_vit.checkpoints.code_bases.official import BIT, OFFICIAL
from keras_vit.checkpoints.formats import write_npz
from keras_vit.checkpoints.match import weights_by_path
from keras_vit.configs.blocks import UNSEEN_FEATURES, BlockConfig
from keras_vit.configs.recognition import config_of
from keras_vit.description import Description, Labels, held_description


def save_checkpoint(
    model: keras.Model, path: str | os.PathLike, description: Description | None = None
) -> None:
    """Writes the weights to an `.npz` in the official layout, atomically.

    Names and shapes are as in the published files, BiT's for a BiT ResNet, so that the
    official code, timm and big_vision read it; variants without published weights have
    names of the same style. Values keep their bits. What the layout has no array for, such as
    the form of GELU, is in the comment of the archive, which other readers ignore and
    `load_checkpoint` and `build` read.

    Args:
        model: A model of `keras_vit.build`.
        path: The file to write; must end in ".npz".
        description: What the comment holds; by default what the model holds, without the
            preprocessing.

    Raises:
        ValueError: If the layout has no name for a variable or no model with the same forward
            pass, or `path` another suffix.
        OSError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"The path of a checkpoint must end in .npz. Received: {path}")
    is_bit = "final_norm/gamma" in weights_by_path(model)
    if not is_bit:
        _check_official(model)
    write_npz(
        path,
        stored_arrays(model, BIT if is_bit else OFFICIAL),
        note_of(model) if description is None else description,
    )


# Fields of a config without a trace in names and shapes, and their values in the official code
# and ours for its variants.
_OFFICIAL_VALUES = {
    "classifier": ("token", "gap", "map", "token+distillation"),
    "gelu": ("tanh", "exact"),
    "final_norm": ("tokens",),
    "unread_class_token": (False,),
    **{field: (getattr(BlockConfig, field),) for field in UNSEEN_FEATURES},
}


def _check_official(model):
    """Raises ValueError if weights under official names would belong to another model."""
    try:
        config = config_of(model)
    except ValueError:  # A part of a model, or one with additional layers.
        return
    others = [
        f"{field}={getattr(config, field)!r}"
        for field, values in _OFFICIAL_VALUES.items()
        if getattr(config, field) not in values
    ]
    if others:
        raise ValueError(
            "The official layout must match the model; save_weights of Keras keeps any. "
            f"Received: a model with {', '.join(others)}"
        )


def stored_arrays(model: keras.Model, layout: Layout) -> dict[str, np.ndarray]:
    """Returns the weights of a model as the arrays of a layout, sorted by name.

    Raises:
        ValueError: If the layout has no name for a variable.
    """
    weights = weights_by_path(model)
    rules_of_paths = layout.rules_of_model(weights)
    nameless = sorted(weights.keys() - rules_of_paths.keys())
    if nameless:
        raise ValueError(
            f"The {layout.name} layout must have a name for every variable; save_weights of "
            f"Keras has. Received: a model with {', '.join(nameless)}"
        )
    rules = {rule.stored: rule for rule in rules_of_paths.values()}
    return {
        name: rule.transform.stored([np.asarray(weights[path]) for path in rule.paths])
        for name, rule in sorted(rules.items())
    }


def note_of(model: keras.Model) -> Description:
    """Returns what the arrays of a model do not show, in a description without images.

    The preprocessing and the names of the classes belong to the files beside weights.
    """
    held = held_description(model)
    return dataclasses.replace(
        held,
        preprocessing=None,
        labels=Labels(task=held.labels.task),
        origins={},
        notes=(),
    )
