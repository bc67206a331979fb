"""Functional models with random values, from a config."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import keras

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import LAYER, Description
from keras_vit.layers import ModelDescription
from keras_vit.models.resnet import build_resnet, resnet_head
from keras_vit.models.vit import build_vit, vit_head


def build_model(
    name_or_config: str | ViTConfig | BiTConfig,
    *,
    include_top: bool = True,
    input_tensor: Any | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int = 1000,
    classifier_activation: Any | None = "softmax",
    name: str | None = None,
    position_grid: tuple[int, int] | None = None,
    **changes: Any,
) -> keras.Model:
    """Returns a model with random values; arguments as for `keras_vit.build`.

    Args:
        name_or_config: A name of `keras_vit.list_models()`, or a config.
        include_top: Whether to end with the classification head.
        input_tensor: A Keras tensor to build on, instead of a new input.
        input_shape: `(height, width, channels)`.
        pooling: The output without the head.
        classes: Classes of the head.
        classifier_activation: Activation of the head; None gives logits.
        name: Name of the Keras model.
        position_grid: Patches (down, across) of the tables of positions where the image size is
            free; by default as for the default image size.
        **changes: Fields of the config and their new values.

    Raises:
        ValueError: If an argument is unknown or does not fit the others.
    """
    config = configs.resolve(name_or_config, **changes)
    shape = images_shape(name_or_config, input_tensor, input_shape)
    _check_arguments(config, shape, include_top, pooling, classes)
    classes = int(classes) if include_top else 0  # Not a number of NumPy.
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "Only the `channels_last` image data format is supported; see "
            "keras.config.set_image_data_format. Received: "
            f"image_data_format={keras.config.image_data_format()!r}"
        )
    side = configs.default_image_size(name_or_config)
    images = _images(input_tensor, input_shape, shape)
    grid = None
    if isinstance(config, ViTConfig):
        height, width, _ = shape
        if height is None or width is None:
            grid = position_grid or config.grid((side, side))
        else:
            grid = config.grid((height, width))
    is_row = isinstance(name_or_config, str) and not changes
    description = Description(
        name=str(name_or_config) if is_row else "",
        config=config,
        input_shape=tuple(images.shape[1:]),
        position_grid=grid,
    )
    described = ModelDescription(description.to_json(), name=LAYER)(images)
    if grid is None:  # A ResNet, also an Axial-ResNet.
        x = build_resnet(config, described, side)  # (B, h, w, C)
        outputs = resnet_head(config, x, include_top, pooling, classes, classifier_activation)
    else:
        x, patches = build_vit(config, described, grid)  # (B, P + N, D), (B, h, w, D)
        outputs = vit_head(config, x, patches, include_top, pooling, classes, classifier_activation)
    if input_tensor is not None:
        # The model includes the layers upstream of the tensor.
        sources = keras.utils.get_source_inputs(input_tensor)
        images = sources[0] if len(sources) == 1 else sources
    if name is None:
        name = configs.layer_name(name_or_config)
    return keras.Model(images, outputs, name=name)


def images_shape(
    name_or_config: str | ViTConfig | BiTConfig,
    input_tensor: Any | None,
    input_shape: tuple[int | None, ...] | None,
) -> tuple[int | None, ...]:
    """Returns `(height, width, channels)` of the images that `build_model` builds for."""
    side = configs.default_image_size(name_or_config)
    received: Any = input_shape or (side, side, 3)
    if input_tensor is not None:
        received = input_tensor.shape[1:]
    shape = () if isinstance(received, int | float | str) else tuple(received)
    if len(shape) != 3 or shape[2] is None:
        raise ValueError(
            "input_shape must be (height, width, channels), the channels known. "
            f"Received: {received!r}"
        )
    return shape


def _check_arguments(config, shape, include_top, pooling, classes):
    poolings = [None, "avg", "max", *(["token"] if config.has_class_token else [])]
    poolings += ["map"] if getattr(config, "classifier", None) == "map" else []
    if pooling not in poolings:
        raise ValueError(
            f'pooling must be one of {poolings} for this model: "token" needs a class token, "map" '
            f'needs classifier="map". Received: pooling={pooling!r}'
        )
    if include_top and pooling is not None:
        raise ValueError(
            "pooling needs include_top=False; the head has a fixed pooling. "
            f"Received: include_top=True, pooling={pooling!r}"
        )
    if include_top and (not isinstance(classes, numbers.Integral) or classes < 1):
        raise ValueError(f"classes must be a positive integer. Received: classes={classes!r}")
    if include_top and None in shape:
        raise ValueError(
            "If `include_top` is True, the image size must be known. "
            f"Received: input_shape={tuple(shape)}"
        )
    for side, smallest in zip(shape[:2], config.min_image_size, strict=True):
        if side is not None and side < smallest:
            raise ValueError(
                f"The image must be at least {config.min_image_size[0]}x"
                f"{config.min_image_size[1]} pixels for one patch to fit. "
                f"Received: input_shape={tuple(shape)}"
            )
    if not getattr(config, "resnet", True) and None not in shape:
        cut = [side - side % patch for side, patch in zip(shape, config.patch_sizes, strict=False)]
        if cut != [*shape[:2]]:
            warnings.warn(
                f"Images of {shape[0]}x{shape[1]} pixels are cut to {cut[0]}x{cut[1]}, which "
                "patches fill.",
                stacklevel=1,
            )


def _images(input_tensor, input_shape, default):
    if input_tensor is None:
        return keras.Input(input_shape or default, name="images")
    shape = tuple(input_tensor.shape[1:])
    if input_shape is not None and shape != tuple(input_shape):
        raise ValueError(
            "input_shape must match input_tensor, or be None. "
            f"Received: input_shape={tuple(input_shape)}, input_tensor of shape {shape}"
        )
    return input_tensor
