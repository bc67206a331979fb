"""`keras_vit.build`: any model of the package as a Keras application."""

from __future__ import annotations

import dataclasses
import logging
import os
import warnings
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints.catalogue import (
    OfficialWeights,
    describe_official,
    download,
    find_released,
    find_weights,
)
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import describe_checkpoint
from keras_vit.checkpoints.load import LoadOptions, load_opened, weights_by_path
from keras_vit.checkpoints.resize import find_grid
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.model_table import paper_name
from keras_vit.configs.recognition import layer_shapes, num_classes
from keras_vit.description import description_for, set_description
from keras_vit.models.functional import build_model, images_shape
from keras_vit.preprocessing import describe_range


def build(
    name_or_config: str | ViTConfig | BiTConfig | None = None,
    *,
    include_top: bool = True,
    weights: str | os.PathLike | None = None,
    input_tensor: Any | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int | None = None,
    classifier_activation: Any | None = "softmax",
    name: str | None = None,
    **changes: Any,
) -> keras.Model:
    """Returns a model of the paper as a functional `keras.Model`.

    Args:
        name_or_config: A name of `keras_vit.list_models()` such as "ViT-B/16", or a config; with
            weights that state their model it may be left out.
        include_top: Whether to end with the classification head.
        weights: None for random values; "imagenet" (1000 classes), "imagenet21k", a key of
            the catalogue, a classifier of the package, or a path: a classifier's folder, a
            folder of another code base, `.keras`, `.npz`, `.weights.h5`, `.safetensors`. Except
            for "imagenet", `classes` other than the file's gives a new head of zeros. Another
            image size resizes the position embeddings, by the rule of the weights' code base or
            by `position_resize`.
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
    options: dict[str, Any] = {
        "include_top": include_top,
        "input_tensor": input_tensor,
        "pooling": pooling,
        **changes,
    }
    if weights is None:
        if name_or_config is None:
            raise ValueError(
                "The model must be given by its name or config, or by weights that state it. "
                "Received: none of them"
            )
        return build_model(
            name_or_config,
            input_shape=input_shape,
            classes=1000 if classes is None else classes,
            classifier_activation=classifier_activation,
            name=name,
            **options,
        )
    if str(weights).startswith("hf:"):
        raise ValueError(
            "A repository is opened by keras_vit.open_model; here give its folder, such as weights="
            f"huggingface_hub.snapshot_download('OWNER/NAME'). Received: weights={weights!r}"
        )
    _check_head(include_top, weights, classes, classifier_activation)
    rule, takes_classes = changes.get("position_resize"), bool(find_released(weights))
    model_of: Any = name_or_config
    found: Any = None
    checkpoint = None
    if name_or_config is None:  # The weights state their model.
        found, takes_classes = find_weights(weights), True
        if isinstance(found, OfficialWeights):
            model_of, known = found.model, describe_official(found, configs.resolve(found.model))
        else:
            checkpoint = open_checkpoint(found)
            facts: dict[str, Any] = {fact: changes.get(fact) for fact in ("num_heads", "gelu")}
            known = describe_checkpoint(checkpoint, **facts)
            model_of = known.config
        if input_tensor is None and input_shape is None:
            size = known.usual_size
            input_shape = (*size, known.channels) if size else known.input_shape
        name = name or configs.layer_name(paper_name(known.config) or model_of)
    shape = images_shape(model_of, input_tensor, input_shape)
    config = configs.resolve(model_of, **changes)
    if found is None:
        height, width, _ = shape
        found = find_weights(weights, model_of, (height, width))
        if isinstance(found, OfficialWeights):
            known = dataclasses.replace(describe_official(found, config), name="")
        else:
            checkpoint = open_checkpoint(found)
            known = describe_checkpoint(checkpoint, is_given=True, image_size=(height, width))
    if known.channels not in (None, shape[-1]):
        raise ValueError(
            f"The weights {os.fspath(weights)} are for images with {known.channels} channels; "
            "build with weights=None, then keras_vit.load_checkpoint(model, path, "
            'input_channels="adapt") adapts the first kernel of a file. '
            f"Received: images with {shape[-1]}"
        )
    if classes is None:
        classes = (takes_classes and known.classes) or 1000
    if classifier_activation == "softmax" and classes == known.classes:
        classifier_activation = known.labels.activation
    model = build_model(
        model_of,
        input_shape=input_shape,
        classes=classes,
        classifier_activation=classifier_activation,
        name=name,
        position_grid=_grid_of_free_sizes(checkpoint, known, shape),
        **options,
    )
    if checkpoint is None:  # Wrong arguments are errors before the download.
        checkpoint = open_checkpoint(download(found))
    # Unlike `load_checkpoint` this allows the changes of a transfer.
    variables = weights_by_path(model)
    shapes = layer_shapes({path: tuple(weight.shape) for path, weight in variables.items()})
    skip = _skipped_heads(checkpoint.shapes, shapes, include_top, weights == "imagenet")
    loading = LoadOptions(skip, rule or checkpoint.position_rule, known.position_grid)
    logging.getLogger("keras_vit").info("%s", load_opened(checkpoint, model, loading))
    if rule:
        known = dataclasses.replace(known, origins={**known.origins, "position_resize": "given"})
    set_description(model, description_for(model, known))
    _warn_of_range(weights, checkpoint, known)
    return model


def _grid_of_free_sizes(checkpoint, known, shape):
    """The grid (down, across) of positions that a model of free image size is built for.

    Other code bases resize the table of the file once, to the grid of the image. None for weights
    of the official rule, whose models have the grid of their default image size.
    """
    if checkpoint is None or None not in shape[:2]:
        return None
    table = checkpoint.shapes.get("position_embedding")
    if checkpoint.position_rule == ViTConfig.position_resize or len(table or ()) != 3:
        return None
    return find_grid(table[1], checkpoint.prefix_row_counts, known.position_grid)[1]


def _check_head(include_top, weights, classes, classifier_activation):
    """Raises ValueError if arguments of the head do not fit weights, as in Keras."""
    activation = keras.activations.get(classifier_activation)
    known = (keras.activations.linear, keras.activations.softmax)
    if include_top and activation not in known:
        raise ValueError(
            "With weights, `classifier_activation` must be None or 'softmax'; build with None and "
            "add another activation behind the logits. "
            f"Received: classifier_activation={classifier_activation!r}"
        )
    if include_top and weights == "imagenet" and classes not in (None, 1000):
        raise ValueError(
            "If using `weights='imagenet'` with `include_top=True`, `classes` should be 1000; "
            "to fine-tune on other classes, take weights='imagenet21k'. "
            f"Received: classes={classes}"
        )


def _skipped_heads(in_file, in_model, include_top, keep_head):
    """Patterns of the layers behind the encoder that are not loaded.

    If the head has other classes, the model's is not changed: it is zero. The hidden layer of
    pre-training is left out with the head if the model has none (paper, section 3.2: the whole
    prediction head is removed). Both are left out for a model without the head. All else is strict.

    Args:
        in_file: Layer shapes of the file.
        in_model: Layer shapes of the model.
        include_top: Whether the model has a head.
        keep_head: Whether a head of other classes is an error.
    """
    heads = tuple(f"{name}/*" for name in configs.CLASSIFIER_LAYERS)
    if not include_top:
        has_pooling = any(layer.startswith("map_head") for layer in in_model)
        return (*heads, "pre_logits/*", *(() if has_pooling else ("map_head/*",)))
    if "pre_logits" in in_file and "pre_logits" not in in_model:
        return (*heads, "pre_logits/*")
    return () if keep_head or num_classes(in_file) == num_classes(in_model) else heads


def _warn_of_range(weights, checkpoint, known):
    """Warns of weights whose images are not in [-1, 1], as `preprocess_input` gives them."""
    origin, images = known.origin_of("pixels"), known.preprocessing
    if images is None:
        if checkpoint.layout.numbered:  # Weights that were saved by hand, without a folder.
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
