"""Writing a model's weights under the names of a layout."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import check_expressible
from keras_vit.checkpoints.code_bases.layouts import Layout
from keras_vit.checkpoints.code_bases.official import BIT, OFFICIAL
from keras_vit.checkpoints.load import weights_by_path
from keras_vit.configs import ViTConfig
from keras_vit.configs.blocks import UNSEEN_FEATURES
from keras_vit.description import Description, Labels


def official_layout(model: keras.Model) -> Layout:
    """Returns the official layout for a model, BiT's for a BiT ResNet.

    Raises:
        ValueError: If the layout has no model with the same forward pass.
    """
    config = Description.of_model(model).config
    if "final_norm/gamma" in weights_by_path(model):
        return BIT
    if isinstance(config, ViTConfig):
        check_expressible(
            config,
            "The official layout must match the model; save_weights of Keras keeps any",
            {
                "classifier": config.classifier in ("token", "gap", "map"),
                "gelu": config.gelu in ("tanh", "exact"),
                "final_norm": config.final_norm == "tokens",
                "unread_class_token": not config.unread_class_token,
                **{name: getattr(config, name) is None for name in UNSEEN_FEATURES},
            },
        )
    return OFFICIAL


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
    held = Description.of_model(model)
    labels = Labels(task=held.labels.task)
    return dataclasses.replace(held, preprocessing=None, labels=labels, origins={}, notes=())
