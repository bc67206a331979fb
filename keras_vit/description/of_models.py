"""The description that a model holds, in its layer "description"."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

from keras_vit import configs
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import config_of
from keras_vit.description.class_labels import (
    MULTICLASS,
    Labels,
    task_of_model,
)
from keras_vit.description.description import Description

LAYER = "description"  # Name of the layer that holds the description of a model.


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
    description = Description(name, config, shape, classes=classes if include_top else None)
    description.cost  # noqa: B018  # An image size that is wrong is an error here.
    return description


def _describe_model(model):
    described = held_description(model)
    config: Any = described.config or config_of(model)  # An error that shows the layers.
    height, width, channels = described.input_shape or model.input_shape[1:]
    if height is None or width is None:
        height, width = _counted_size(config, (height, width), described.position_grid)
    described = dataclasses.replace(
        described, name=model.name, input_shape=(height, width, channels)
    )
    of_unknown = [layer.count_params() for layer in model.layers if _is_of_unknown(layer)]
    parameters = model.count_params() - sum(of_unknown)
    if described.classes is None and described.parameters != parameters:
        described = dataclasses.replace(described, classes=0)  # With the pooling of its head.
    if described.parameters != parameters:
        raise ValueError(
            "Only whole models of keras_vit.build can be described, with or without their head and "
            f"without additional layers. Received: a model with {parameters:,} "
            f"parameters, of which {described.parameters:,} are "
            f"{config.architecture}'s"
        )
    return described


def _counted_size(config, image_size, grid):
    """Returns the pixels (height, width) at which a model with a free side is counted.

    They are what its tables of positions are for, also at a side that is known.
    """
    usual = configs.DEFAULT_IMAGE_SIZE
    if grid is None:
        return tuple(side or usual for side in image_size)
    stride = config.resnet.stride if config.resnet else 1
    return tuple(
        usual if patches == patches_of_usual else patches * patch * stride
        for patches, patches_of_usual, patch in zip(
            grid, config.grid((usual, usual)), config.patch_sizes, strict=True
        )
    )


def held_description(model: Any) -> Description:
    """Returns the description that a Keras model holds, completed by its shapes.

    Models of this package have a layer with it, also those that were cut out of one. The config
    of any other model is None.

    Args:
        model: A functional `keras.Model`, or an export in its runtime.
    """
    layer = description_layer(model)
    described = Description() if layer is None else _description_of_text(layer.text, layer.path)
    layers = {part.name: part for part in getattr(model, "layers", ())}
    head = configs.classifier_layer(layers)
    has_head = head is not None
    outputs = tuple(model.output_shape) if described.config is None or has_head else ()
    labels = described.labels if has_head or described.config is None else Labels()
    names, preprocessing = labels.names, described.preprocessing
    # Weights may be loaded from a model with another head or image size.
    if names is not None and len(names) != getattr(head, "units", len(names)):
        labels = Labels()
    if layers and labels.task == MULTICLASS and labels.names is None:
        labels = Labels(task=task_of_model(model))
    if abstains(model):
        labels = dataclasses.replace(labels, abstains=True)
    shape, grid = _images_shape(model, layer), described.position_grid
    if grid is None and isinstance(described.config, ViTConfig) and shape and None not in shape:
        grid = described.config.grid(shape[:2])
    # Layers in front of the model's own may take images of another size.
    if preprocessing and shape and None not in shape and model.input_shape == (None, *shape):
        preprocessing = preprocessing.with_image_size(shape[:2])
    return dataclasses.replace(
        described,
        name=described.name or getattr(model, "name", ""),
        input_shape=shape,
        position_grid=grid,
        classes=outputs[-1] - labels.abstains if outputs else None,
        preprocessing=preprocessing,
        labels=labels,
    )


@functools.lru_cache(maxsize=16)
def _description_of_text(text, path):
    return Description.from_json(json.loads(text), f"the layer {path}")


def abstains(model: Any) -> bool:
    """Returns whether a Keras model's last output is "unknown", by its layer `UnknownClass`."""
    return any(map(_is_of_unknown, getattr(model, "layers", ())))


def _is_of_unknown(layer):
    return getattr(layer, "is_of_unknown", False)


def set_description(model: Any, description: Description) -> None:
    """Makes a model of this package hold a description; others have no place for one.

    Whether it answers with "unknown" is left out: its layers show it.
    """
    layer = description_layer(model)
    if layer is not None:
        labels = dataclasses.replace(description.labels, abstains=False)
        layer.content = dataclasses.replace(description, labels=labels).to_json()


def description_for(model: Any, known: Description) -> Description:
    """Returns the description of a model with some weights, perhaps of another size or head.

    Args:
        model: The model, whose own description has its config and shapes.
        known: The description of the weights.
    """
    held, preprocessing = held_description(model), known.preprocessing
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


def description_layer(model: Any) -> Any:
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
