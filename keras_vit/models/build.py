"""`keras_vit.build`: any model of the package as a Keras application."""

from __future__ import annotations

import os
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints.catalogue import find_released
from keras_vit.checkpoints.official_weights import grid_of_weights, load_pretrained
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import LAYER, Description
from keras_vit.layers import ModelDescription
from keras_vit.models.resnet import build_resnet, resnet_head
from keras_vit.models.vit import build_vit, vit_head

POOLINGS = (None, "token", "avg", "max", "map")


class _Default(int):
    """The default of an argument, which differs from the same number given by the caller."""


DEFAULT_CLASSES = _Default(1000)


def build(
    name_or_config: str | ViTConfig | BiTConfig,
    *,
    include_top: bool = True,
    weights: str | os.PathLike | None = None,
    input_tensor: Any | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int = DEFAULT_CLASSES,
    classifier_activation: Any | None = "softmax",
    name: str | None = None,
    **changes: Any,
) -> keras.Model:
    """Returns a model of the paper as a functional `keras.Model`.

    Args:
        name_or_config: A name of `keras_vit.list_models()` such as "ViT-B/16", or a config.
        include_top: Whether to end with the classification head.
        weights: None for random values; "imagenet" (1000 classes), "imagenet21k", a key of
            the catalogue, a classifier of the package, or a path to `.npz`, `.weights.h5` or
            `.safetensors`. Except for "imagenet", `classes` other than the file's gives a new
            head of zeros. Another image size resizes the position embeddings, by the rule of the
            weights' code base or by `position_resize`.
        input_tensor: A Keras tensor to build on, instead of a new input.
        input_shape: `(height, width, channels)`; 224 pixels and 3 channels by default. The
            sides may differ, need not be multiples of the patch (the rest is cut off at the
            right and below, as the official code does), and may be None without the head.
        pooling: Without the head: None gives the patch tokens as a map `(B, H/P, W/P, D)`
            (for a ResNet the last feature map), "token" the class token `(B, D)`, "avg" and
            "max" a pooling over the map `(B, D)`, "map" the attention pooling of a model with
            `classifier="map"`.
        classes: Classes of the head; by default 1000, or as a classifier of the package has.
        classifier_activation: Activation of the head; None gives logits. With weights it must
            be "softmax" or None, as in Keras.
        name: Name of the Keras model; such as "vit_b16" by default.
        **changes: Fields of the config and their new values.

    Returns:
        A `keras.Model`. With the head its output is `(B, classes)`, float32 under every
        dtype policy.

    Raises:
        ValueError: If an argument is unknown or does not fit the others.

    Example:
    >>> model = build("ViT-B/16", classes=10, input_shape=(384, 384, 3))
    >>> model.output_shape
    (None, 10)
    """
    config = configs.resolve(name_or_config, **changes)
    if classes is DEFAULT_CLASSES:
        released = find_released(weights)
        classes = released[0].classes if released else int(classes)
    _check_arguments(config, include_top, weights, pooling, classes, classifier_activation)
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "Only the `channels_last` image data format is supported; see "
            "keras.config.set_image_data_format. Received: "
            f"image_data_format={keras.config.image_data_format()!r}"
        )
    side = configs.default_image_size(name_or_config)
    images = _images(input_tensor, input_shape, (side, side, 3))
    _check_image_size(config, images.shape[1:], include_top)
    is_free = None in images.shape[1:3]
    grid = None
    if isinstance(config, ViTConfig):
        grid = config.grid((side, side) if is_free else images.shape[1:3])
        if is_free and weights is not None:
            grid = grid_of_weights(name_or_config, weights) or grid
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
    if input_tensor is not None and isinstance(input_tensor, keras.KerasTensor):
        # The model includes the layers upstream of the tensor.
        sources = keras.utils.get_source_inputs(input_tensor)
        images = sources[0] if len(sources) == 1 else sources
    if name is None:
        name = configs.layer_name(name_or_config)
    model = keras.Model(images, outputs, name=name)
    if weights is not None:
        load_pretrained(
            model,
            name_or_config,
            weights,
            include_top=include_top,
            position_resize=changes.get("position_resize"),
        )
    return model


def _check_arguments(config, include_top, weights, pooling, classes, classifier_activation):
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {POOLINGS}. Received: pooling={pooling!r}")
    if pooling == "token" and not config.has_class_token:
        raise ValueError(
            'pooling="token" needs a model with a class token; this one has none: use "avg" or '
            f'"max". Received: pooling={pooling!r}'
        )
    if pooling == "map" and getattr(config, "classifier", None) != "map":
        raise ValueError(
            'pooling="map" needs a model with classifier="map", which has the attention pooling. '
            f"Received: {config}"
        )
    if include_top and pooling is not None:
        raise ValueError(
            "pooling needs include_top=False; the head has a fixed pooling. "
            f"Received: include_top=True, pooling={pooling!r}"
        )
    if include_top and (not isinstance(classes, int) or classes < 1):
        raise ValueError(f"classes must be a positive integer. Received: classes={classes!r}")
    activation = keras.activations.get(classifier_activation)
    if (
        include_top
        and weights is not None
        and activation
        not in (
            keras.activations.linear,
            keras.activations.softmax,
        )
    ):
        raise ValueError(
            "With weights, `classifier_activation` must be None or 'softmax'; build with None and "
            "add another activation behind the logits. "
            f"Received: classifier_activation={classifier_activation!r}"
        )
    if include_top and weights == "imagenet" and classes != 1000:
        raise ValueError(
            "If using `weights='imagenet'` with `include_top=True`, `classes` should be 1000; "
            "to fine-tune on other classes, take weights='imagenet21k'. "
            f"Received: classes={classes}"
        )


def _images(input_tensor, input_shape, default):
    if input_tensor is None:
        return keras.Input(input_shape or default, name="images")
    if isinstance(input_tensor, keras.KerasTensor):
        shape = tuple(input_tensor.shape[1:])
        if input_shape is not None and shape != tuple(input_shape):
            raise ValueError(
                "input_shape must match input_tensor, or be None. "
                f"Received: input_shape={tuple(input_shape)}, input_tensor of shape {shape}"
            )
        return input_tensor
    return keras.Input(tensor=input_tensor, shape=input_shape or default, name="images")


def _check_image_size(config, shape, include_top):
    if len(shape) != 3 or shape[2] is None:
        raise ValueError(
            "input_shape must be (height, width, channels), the channels known. "
            f"Received: {tuple(shape)}"
        )
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
