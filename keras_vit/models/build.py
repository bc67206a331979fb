"""`keras_vit.build`: any model of the package as a Keras application."""

from __future__ import annotations

import dataclasses
import logging
import numbers
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_vit.checkpoints.catalogue import check_is_no_weights, find_released, find_weights
from keras_vit.checkpoints.file_descriptions import free_grid, open_described
from keras_vit.checkpoints.load import Arrays, load_arrays
from keras_vit.configs import ModelConfig, ViTConfig, default_image_size, layer_name, resolve
from keras_vit.configs.model_table import argument_errors, paper_name
from keras_vit.description import INCLUDED, LAYER, Description, Labels
from keras_vit.hub.repositories import located
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.layers import ImagePreprocessing, ModelDescription
from keras_vit.models.graph import check_file_described
from keras_vit.models.resnet import build_resnet, resnet_head
from keras_vit.models.vit import build_vit, vit_head
from keras_vit.preprocessing import Preprocessing, describe_range


def build(
    name_or_config: str | ModelConfig | None = None,
    *,
    include_top: bool = True,
    weights: str | os.PathLike | None = None,
    input_tensor: keras.KerasTensor | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int | None = None,
    classifier_activation: str | Callable | None = "softmax",
    name: str | None = None,
    include_preprocessing: bool | Preprocessing = False,
    **changes: Any,
) -> keras.Model:
    """Returns a model of the paper as a functional `keras.Model`.

    Args:
        name_or_config: A name of `keras_vit.list_models()` such as "ViT-B/16", or a config; with
            weights that state their model it may be left out.
        include_top: Whether to end with the classification head.
        weights: None for random values; "imagenet" (1000 classes), "imagenet21k", a key of
            the catalogue, a classifier of the package, a repository "hf:OWNER/NAME" with an
            optional "@REVISION", or a path: a classifier's folder, a folder of another code
            base, `.keras`, `.npz`, `.weights.h5`, `.safetensors`. Except
            for "imagenet", `classes` other than the file's gives a new head of zeros. Another
            image size resizes the position embeddings, by the rule of the weights' code base or
            by `position_resize`. The answer "unknown" of a calibrated classifier is left out:
            `keras_vit.load_classifier` has it.
        input_tensor: A Keras tensor to build on, instead of a new input.
        input_shape: `(height, width, channels)`; 224 pixels and 3 channels by default, without a
            name the weights' own. The sides may differ, need not be multiples of the patch (the
            rest is cut off at the right and below, as the official code does), and may be None
            without the head.
        pooling: Without the head: None gives the patch tokens as a map `(B, H/P, W/P, D)`
            (for a ResNet the last feature map), "token" the class token `(B, D)`, "avg" and
            "max" a pooling over the map `(B, D)`, "map" the attention pooling of a model with
            `classifier="map"`.
        classes: Classes of the head; by default 1000, or as a classifier of the package has, or
            without a name as the weights have.
        classifier_activation: Activation of the head; None gives logits. With weights it must
            be "softmax" or None, as in Keras; "softmax" is the sigmoid for the head of
            multi-label weights.
        name: Name of the Keras model; such as "vit_b16" by default.
        include_preprocessing: Whether the model takes pixels in [0, 255] and scales them itself, by
            `keras_vit.layers.ImagePreprocessing`, as its weights need it; without weights to
            [-1, 1]. Or the `Preprocessing` to include. An `input_tensor` may then have images of
            any size, which the model resizes.
        **changes: Fields of the config and their new values.

    Returns:
        A `keras.Model`. With the head its output is `(B, classes)`, float32 under every
        dtype policy.

    Raises:
        ValueError: If an argument is unknown or does not fit the others, there are no such weights
            for the model, they do not fit it, or they do not state their model and no name is
            given.
        OSError: If a file cannot be read or downloaded.

    Example:
    >>> model = build("ViT-B/16", classes=10, input_shape=(384, 384, 3))
    >>> model.output_shape
    (None, 10)
    >>> build(weights="cifar10").output_shape
    (None, 10)
    """
    check_is_no_weights(name_or_config)
    given = _Arguments(
        name_or_config=name_or_config,
        include_top=include_top,
        weights=weights,
        input_tensor=input_tensor,
        input_shape=input_shape,
        pooling=pooling,
        classes=classes,
        activation=classifier_activation,
        name=name,
        include_preprocessing=include_preprocessing,
        changes=changes,
    )
    found = _find(given)
    description, head = _settle(given, found)
    model = _construct(description, head, _name(given, found), input_tensor)
    if found.arrays is not None:
        _load(given, found, model)
        _warn_of_range(weights, found, description.included)
    return model


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Arguments:
    """The arguments of `build`."""

    name_or_config: str | ModelConfig | None
    include_top: bool
    weights: str | os.PathLike | None
    input_tensor: keras.KerasTensor | None
    input_shape: tuple[int | None, ...] | None
    pooling: str | None
    classes: int | None
    activation: str | Callable | None
    name: str | None
    include_preprocessing: bool | Preprocessing
    changes: dict


class _Found(NamedTuple):
    """A model with its images and weights, before its head and its other arguments are settled.

    Args:
        model: Its name or config: the given one, or the config that the weights state.
        shape: `(height, width, channels)` of its images.
        arrays: Its weights; None without.
        of_weights: What they are; without a config where a model is given.
        classes: Classes of its head, unless they are given; None for the usual ones.
    """

    model: str | ModelConfig
    shape: tuple[int | None, ...]
    arrays: Arrays | None
    of_weights: Description
    classes: int | None


class _Head(NamedTuple):
    """The end of a model: whether it has a head, else a pooling; its classes and activation."""

    include_top: bool
    pooling: str | None
    classes: int
    activation: str | Callable | None


def _find(given) -> _Found:
    """What is not given is what the weights state, else the usual of the model."""
    model = given.name_or_config
    if model is None:
        arrays, of_weights = _find_weights(given, None)
        config = _stated_config(of_weights, given.changes)
        shape = _image_shape(given, config, of_weights)
        return _Found(config, shape, arrays, of_weights, of_weights.classes)
    shape = _image_shape(given, model)
    arrays, of_weights = _find_weights(given, shape[:2])
    classes = of_weights.classes if find_released(given.weights) else None
    return _Found(model, shape, arrays, of_weights, classes)


def _find_weights(given, image_size) -> tuple[Arrays | None, Description]:
    """The weights; their description has no config if a model is given, with its image size."""
    if given.weights is None:
        return None, Description()
    _check_weights(given)
    repository, weights = located(given.weights)
    if image_size is not None:
        place = find_weights(weights, given.name_or_config, image_size)
        arrays, description = open_described(place, with_config=False, image_size=image_size)
    else:
        facts = {fact: given.changes.get(fact) for fact in ("num_heads", "gelu")}
        arrays, description = open_described(find_weights(weights), **facts)
    check_file_described(arrays)
    origins = dict(description.origins)
    if repository is not None:
        origins["weights"] = repository
    if given.changes.get("position_resize"):
        origins["position_resize"] = "given"
    return arrays, dataclasses.replace(description, origins=origins)


def _settle(given, found) -> tuple[Description, _Head]:
    """The description of the model to construct, without its weights, and its head."""
    _check_channels(given.weights, found.of_weights, found.shape)
    head = _head(given, found)
    config = resolve(found.model, given.changes)
    _check_arguments(config, found.shape, head)
    description = Description(
        name=found.model if isinstance(found.model, str) and not given.changes else "",
        config=config,
        input_shape=found.shape,
        position_grid=_position_grid(config, found),
        labels=Labels.of_activation(head.activation),
    )
    return description.including(_included(given, found.of_weights, found.shape)), head


def _construct(description, head, name, input_tensor) -> keras.Model:
    """The functional model of a description, which a layer of it holds."""
    config, grid = description.config, description.position_grid
    images = input_tensor
    if images is None:
        images = keras.Input(description.input_shape, name="images")
    x = ModelDescription(description.to_json(), name=LAYER)(images)
    if description.included is not None:
        x = _preprocessing_layer(description.included)(x)
    if grid is None:  # A ResNet, also an Axial-ResNet.
        outputs = resnet_head(config, build_resnet(config, x), *head)
    else:
        tokens, patches = build_vit(config, x, grid)  # (B, P + N, D), (B, h, w, D)
        outputs = vit_head(config, tokens, patches, *head)
    if input_tensor is not None:
        sources = keras.utils.get_source_inputs(input_tensor)
        images = sources[0] if len(sources) == 1 else sources
    return keras.Model(images, outputs, name=name)


def _load(given, found, model):
    """Loads weights; unlike `load_checkpoint` with the changes of a transfer."""
    kept = "keep" if given.include_top and given.weights == "imagenet" else "fitting"
    rule = given.changes.get("position_resize")
    report = load_arrays(found.arrays, found.of_weights, model, kept, rule)
    logging.getLogger("keras_vit").info("%s", report)


def _name(given, found):
    """The name of the Keras model."""
    model = found.model
    if given.name_or_config is None:
        model = paper_name(model) or model
    return given.name or layer_name(model)


def _head(given, found) -> _Head:
    classes, activation, of_weights = given.classes, given.activation, found.of_weights
    if classes is None:
        classes = 1000 if found.classes is None else found.classes
    if given.include_top and (not isinstance(classes, numbers.Integral) or classes < 1):
        raise ValueError(f"classes must be a positive integer. Received: classes={classes!r}")
    if activation == "softmax" and classes == of_weights.classes:
        activation = of_weights.labels.activation
    # Not a number of NumPy.
    return _Head(given.include_top, given.pooling, int(classes), activation)


def _check_channels(weights, of_weights, shape):
    if of_weights.channels not in (None, shape[-1]):
        raise ValueError(
            f"The weights {weights} are for images with {of_weights.channels} channels; build "
            'without and call keras_vit.load_checkpoint(model, path, input_channels="adapt"), '
            f"which adapts the first kernel of a file. Received: images with {shape[-1]}"
        )


def _included(given, of_weights, shape):
    """The preprocessing that a model includes, at its image size; None for none."""
    wanted, weights = given.include_preprocessing, given.weights
    if not isinstance(wanted, bool | Preprocessing):
        raise ValueError(
            "include_preprocessing must be True, False or a keras_vit.Preprocessing. "
            f"Received: {wanted!r}"
        )
    if not wanted:
        return None
    if None in shape[:2]:
        raise ValueError(
            "A model that includes its preprocessing must have an image size. Received: "
            f"input_shape={shape}, include_preprocessing={wanted!r}"
        )
    if isinstance(wanted, Preprocessing):
        known = wanted
    elif weights is None:
        known = Preprocessing(shape[:2])
    else:
        known = of_weights.preprocessing
    if known is None:
        raise ValueError(
            "The preprocessing to include must be known: give include_preprocessing="
            f"keras_vit.Preprocessing({tuple(shape[:2])}, value_range=...). Received: "
            f"{os.fspath(weights)} ({of_weights.origin_of('pixels')})"
        )
    # The high bits of a 16-bit image are chosen where it is read.
    return dataclasses.replace(known.with_image_size(shape[:2]), bit_depth=FULL_DEPTH)


def _position_grid(config, found):
    """The grid (down, across) that a model's positions are for; None for a ResNet.

    A model of free image size has the grid of its default image size, or of the weights.
    """
    if not isinstance(config, ViTConfig):
        return None
    size = found.shape[:2]
    if None in size:
        stored = free_grid(found.arrays, found.of_weights.position_grid)
        if stored is not None:
            return stored
        size = (default_image_size(found.model),) * 2
    return config.grid(size)


def _stated_config(of_weights, changes):
    """The config that weights state; raises ValueError where there are neither."""
    if of_weights.config is None:
        raise ValueError(
            argument_errors(changes, ViTConfig)
            or "The model must be given by its name or config, or by weights that state it. "
            "Received: none of them"
        )
    return of_weights.config


def _preprocessing_layer(included):
    return ImagePreprocessing(
        included.image_size,
        included.evaluation,
        included.value_range,
        included.interpolation,
        name=INCLUDED,
    )


def _check_weights(given):
    """Raises ValueError for arguments of the head that do not fit, as in Keras."""
    activation = keras.activations.get(given.activation)
    known = (keras.activations.linear, keras.activations.softmax)
    if given.include_top and activation not in known:
        raise ValueError(
            "With weights, `classifier_activation` must be None or 'softmax'; build with None and "
            "add another activation after the logits. "
            f"Received: classifier_activation={given.activation!r}"
        )
    is_imagenet = isinstance(given.weights, str) and given.weights == "imagenet"
    if given.include_top and is_imagenet and given.classes not in (None, 1000):
        raise ValueError(
            "If using `weights='imagenet'` with `include_top=True`, `classes` should be 1000; "
            "to fine-tune on other classes, take weights='imagenet21k'. "
            f"Received: classes={given.classes}"
        )


def _warn_of_range(weights, found, included):
    """Warns of weights whose images are not in [-1, 1], as `preprocess_input` gives them."""
    if included is not None:
        return
    origin, images = found.of_weights.origin_of("pixels"), found.of_weights.preprocessing
    if images is None:
        if found.arrays.layout.numbered:  # Weights that were saved by hand, without a folder.
            return
        text = f"does not state the range of its pixels ({origin})"
    elif images.value_range == (-1.0, 1.0):
        return
    else:
        text = f"needs pixels of {describe_range(images.value_range)} ({origin})"
    warnings.warn(
        f"{os.fspath(weights)} {text}. keras_vit.preprocess_input(x) gives -1 to 1; with "
        'mode="torch" it gives ImageNet\'s mean and standard deviation.',
        stacklevel=3,
    )


def _image_shape(given, model, of_weights=None):
    """The shape of the images of a model; with `of_weights` by default the weights' own.

    A model that resizes its images takes a tensor of any size.
    """
    side, input_shape = default_image_size(model), given.input_shape
    if of_weights is not None and given.input_tensor is None and input_shape is None:
        size = of_weights.usual_size
        input_shape = (*size, of_weights.channels) if size else of_weights.input_shape
    received: tuple[int | None, ...] = input_shape or (side, side, 3)
    shape = () if isinstance(received, int | float | str) else tuple(received)
    of_tensor = shape if given.input_tensor is None else tuple(given.input_tensor.shape[1:])
    if given.include_preprocessing:
        of_tensor = (*shape[:2], *of_tensor[2:])
    if input_shape is None:
        shape = of_tensor
    if len(shape) != 3 or shape[2] is None or shape != of_tensor:
        raise ValueError(
            "input_shape must be (height, width, channels), the channels known, and match "
            f"input_tensor. Received: {received!r}"
            + ("" if given.input_tensor is None else f", input_tensor of shape {of_tensor}")
        )
    return shape


def _check_arguments(config, shape, head):
    include_top, pooling = head.include_top, head.pooling
    if pooling not in ((None,) if include_top else config.poolings):
        raise ValueError(
            f'pooling must be one of {config.poolings} for this model: "token" needs a class '
            'token, "map" needs classifier="map", and all of them include_top=False. '
            f"Received: include_top={include_top}, pooling={pooling!r}"
        )
    if include_top and None in shape:
        raise ValueError(
            f"If `include_top` is True, the image size must be known. Received: input_shape={shape}"
        )
    if keras.config.image_data_format() != "channels_last":
        raise ValueError(
            "Only the `channels_last` image data format is supported; see "
            "keras.config.set_image_data_format. Received: "
            f"image_data_format={keras.config.image_data_format()!r}"
        )
    for side, smallest in zip(shape[:2], config.min_image_size, strict=True):
        if side is not None and side < smallest:
            raise ValueError(
                f"The image must be at least {'x'.join(map(str, config.min_image_size))} pixels "
                f"for one patch to fit. Received: input_shape={shape}"
            )
    if not getattr(config, "resnet", True) and None not in shape:
        size, (down, across) = shape[:2], config.patch_sizes
        cut = (size[0] - size[0] % down, size[1] - size[1] % across)
        if cut != size:
            warnings.warn(f"Images of {size} pixels are cut to {cut} for patches.", stacklevel=1)
