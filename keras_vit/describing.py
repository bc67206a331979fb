"""`keras_vit.describe`: what any model is."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from keras_vit import configs
from keras_vit.checkpoints.catalogue import NAMES, list_weights
from keras_vit.configs import ModelConfig
from keras_vit.configs.recognition import config_of
from keras_vit.description import Description, check_one_output
from keras_vit.predictor import predictor_in


def describe(
    anything: Any,
    *,
    input_shape: tuple[int, int, int] | None = None,
    include_top: bool = True,
    classes: int = 1000,
    **changes: Any,
) -> Description:
    """Returns what a model is, with its size and cost, without building it.

    Args:
        anything: A name of `keras_vit.list_models()`, or a config; or what has a description: a
            model of `keras_vit.build`, also loaded from a file or cut out of one, or anything that
            `keras_vit.load_classifier` takes, also without names of its classes. The other
            arguments are for a name or a config; all else knows them.
        input_shape: `(height, width, channels)`; 224 pixels and 3 channels by default, also
            for a model of free image size.
        include_top: Whether the classification head counts.
        classes: Classes of the head.
        **changes: Fields of the config and their new values.

    Raises:
        ValueError: If the name is unknown, or a Keras model is not from this package or computes
            something else than its description says: it has layers more, fewer or other ones.
        TypeError: If it is none of these.
        OSError: If a file cannot be read.

    Example:
    >>> describe("ViT-B/16").parameters
    86567656
    """
    if _is_planned(anything):
        config, side = configs.resolve(anything, changes), configs.default_image_size(anything)
        planned = Description(
            name=anything if isinstance(anything, str) else config.architecture,
            config=config,
            input_shape=input_shape or (side, side, 3),
            classes=classes if include_top else None,
        )
        planned.cost  # noqa: B018  # An image size that is wrong is an error here.
        return planned
    if changes or input_shape or not include_top or classes != 1000:
        raise ValueError(
            "The input shape, classes and config of a model are known; leave them out. "
            f"Received: input_shape={input_shape}, include_top={include_top}, "
            f"classes={classes}, {changes}"
        )
    if isinstance(anything, str | os.PathLike):
        from keras_vit.opening import open_model  # Imports Keras.

        return open_model(anything).description
    if (predictor := predictor_in(anything)) is not None:
        return predictor.description
    if not hasattr(anything, "layers"):
        raise TypeError(
            "What is described must be a name, a config, a path, a Keras model or a Classifier. "
            f"Received: {type(anything).__name__}"
        )
    from keras_vit.models.graph import check_described  # Imports Keras.

    check_one_output(anything)
    described = Description.of_model(anything)
    if described.config is None:
        config_of(anything)  # An error that shows the layers.
    check_described(
        anything,
        "Only whole models of keras_vit.build can be described, with or without their head and "
        "without additional layers",
        allows_front=True,
    )
    layers = {layer.name for layer in anything.layers}
    if described.classes is None and layers.intersection(_IN_FRONT_OF_HEAD):
        described = dataclasses.replace(described, classes=0)
    shape = described.counted_shape
    return dataclasses.replace(described, name=anything.name, input_shape=shape)


# Layers between the tokens and the head. A model that has one without the head ends with it.
_IN_FRONT_OF_HEAD = ("map_head", "pooled_norm", "pre_logits", "representation")


def _is_planned(anything):
    """Whether something is a config, or a text that names no weights and no file."""
    if not isinstance(anything, str) or anything in configs.MODELS:
        return isinstance(anything, str | ModelConfig)
    is_weights = anything in (*NAMES, *list_weights()) or anything.startswith(("hf:", "kaggle:"))
    return not is_weights and not os.path.exists(anything)
