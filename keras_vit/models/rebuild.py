"""The same weights in a changed model: another size, head or precision.

inference_model(model)          after training: float32, probabilities, no dropout, LoRA merged
feature_model(model, feature)   a representation of the image instead of class scores
map_model(model, at)            maps of the patches at several depths
with_new_head(model, classes)   a new head of zeros on the same body, for transfer
with_unknown(model, ...)        calibrated, with "unknown" as a further class
without_unknown(model)          the model within a calibrated one
"""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.load import weights_by_path
from keras_vit.configs.model_table import ANSWERS, LEVERAGE
from keras_vit.configs.recognition import config_of
from keras_vit.description import (
    Description,
    Labels,
    abstains,
    check_one_output,
    description_layer,
    set_description,
)
from keras_vit.description.class_labels import ACTIVATIONS, MULTICLASS
from keras_vit.keras_private import all_layers
from keras_vit.layers import Leverage, TokensToMap, UnknownClass, class_scores
from keras_vit.models.build import build
from keras_vit.models.vit import classification_head, pool_tokens
from keras_vit.utils.synonyms import answers_synonyms


def inference_model(
    model: keras.Model,
    *,
    include_top: bool = True,
    name: str | None = None,
    activation: str = "softmax",
) -> keras.Model:
    """Returns a trained model as it is saved: float32, probabilities, no dropout, LoRA merged.

    Args:
        model: A trained model of `keras_vit.build`. Layers of a pre-training objective on top
            of it are left out, and "unknown".
        include_top: Whether to keep the head; without it the output is the map of patches.
        name: Name of the new model; the model's by default.
        activation: Activation of the head.
    """
    model = without_unknown(model)
    with in_float32():
        rebuilt = build(
            configs.for_inference(config_of(model)),
            include_top=include_top,
            input_shape=model.input_shape[1:],
            classes=model.output_shape[-1] if include_top else 1,
            classifier_activation=activation,
            name=name or model.name,
            include_preprocessing=Description.of_model(model).included or False,
        )
    values = merged_weights(model)
    rebuilt.set_weights([values[weight.path] for weight in rebuilt.weights])
    held = Description.of_model(model)
    set_description(rebuilt, dataclasses.replace(held, config=config_of(rebuilt)))
    return rebuilt


@contextlib.contextmanager
def in_float32() -> Iterator[None]:
    """Makes layers that compute in float32, within the context."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


def float32_model(model: keras.Model) -> keras.Model:
    """Returns a model with the same weights that computes in float32.

    The converters to TFLite and ONNX do not know all bfloat16 and float16 operations of a
    mixed-precision graph, and weights that were written are compared in float32.

    Args:
        model: A functional or sequential model, not only of this package.

    Returns:
        The model itself if it computes in float32.
    """
    if computes_in_float32(model):
        return model

    def converted(operation):
        config = operation.get_config()
        if isinstance(operation, keras.layers.Layer):  # A slice is an operation, not a layer.
            config["dtype"] = "float32"
        return type(operation).from_config(config)

    clone = keras.models.clone_model(model, clone_function=converted, recursive=True)
    clone.set_weights(model.get_weights())
    return clone


def computes_in_float32(model: keras.Model) -> bool:
    """Returns whether every layer of a model computes in float32."""
    return all(
        computes_in_float32(layer)
        if isinstance(layer, keras.Model)
        else layer.compute_dtype == "float32" or isinstance(layer, keras.layers.InputLayer)
        for layer in model.layers
    )


def merged_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns a model's weights as arrays by path, with LoRA's product added to the kernels."""
    weights = weights_by_path(model)
    check_not_quantized(model, "Weights that become another model's must not be quantised")
    for layer in all_layers(model):
        if getattr(layer, "lora_enabled", False):
            kernel = next(weight for weight in layer.weights if weight.name == "kernel")
            weights[kernel.path] = layer.kernel
    return {path: keras.ops.convert_to_numpy(weight) for path, weight in weights.items()}


def check_not_quantized(model: keras.Model, rule: str) -> None:
    """Raises ValueError with a rule if Keras quantised a layer of a model."""
    for layer in all_layers(model):
        if mode := getattr(layer, "quantization_mode", None):
            raise ValueError(f"{rule}. Received: {model.name}, whose {layer.path} is {mode}")


def feature_model(model: keras.Model, feature: str = "pre_logits") -> keras.Model:
    """Returns a model from images to one representation `(B, D)`.

    Args:
        model: A model of the package, or any functional model with one input and one output.
        feature: One of `configs.FEATURES`.

    Raises:
        ValueError: If the feature is unknown, the model does not have it, or is an export.
    """
    _check_is_no_export(model)
    check_one_output(model)
    head = class_layer(model)
    norm = next((layer for layer in model.layers if layer.name == "encoder_norm"), None)
    if feature == "pre_logits" and (head is not None or len(model.output_shape) == 2):
        return keras.Model(model.input, model.outputs[0] if head is None else head.input)
    config: configs.ModelConfig | None = config_of(model) if norm else None
    tokens: Any = norm.output if norm else None  # (B, N, D)
    if feature == "avg" and isinstance(config, configs.ViTConfig):
        return keras.Model(model.input, pool_tokens(config, tokens, "gap"))
    if feature == "token" and getattr(config, "has_class_token", False):
        return keras.Model(model.input, tokens[:, 0])
    raise ValueError(
        f"The feature must be one of {configs.FEATURES}: pre_logits needs a head or pooling, avg "
        'and token need the tokens of a Vision Transformer with final_norm="tokens", and token a '
        f"class token. Received: feature={feature!r}, {model.name}"
    )


def _check_is_no_export(model):
    if hasattr(model, "takes_pixels"):  # Only an export in its own runtime has it.
        raise ValueError(
            "Features are computed by a Keras model, and an export gives answers alone: give the "
            f"folder of the classifier that was exported. Received: {model}"
        )


def map_model(model: keras.Model, at: int | Sequence[int]) -> keras.Model:
    """Returns a model from images to maps of the patch tokens behind encoder blocks.

    Args:
        model: A Vision Transformer of the package.
        at: Numbers of blocks, from 0.

    Returns:
        A model that gives a map `(B, h, w, D)` for a number, and a list of maps for several.

    Raises:
        ValueError: If the model has no such block, or is an export.
    """
    _check_is_no_export(model)
    blocks = [at] if isinstance(at, int) else list(at)
    layers = {layer.name: layer for layer in model.layers}
    depth = sum(name.startswith("encoder_block_") for name in layers)
    wrong = [block for block in blocks if f"encoder_block_{block}" not in layers]
    config = config_of(model)
    if not blocks or wrong or not isinstance(config, configs.ViTConfig):
        raise ValueError(
            f"at must be encoder blocks of a Vision Transformer, from 0 to {depth - 1} here. "
            f"Received: at={at!r}, {model.name} with {depth} blocks"
        )
    patches = layers["patch_embedding"].output
    maps = [
        TokensToMap(config.num_prefix_tokens, name=f"map_{block}")(
            layers[f"encoder_block_{block}"].output, patches
        )
        for block in blocks
    ]
    return keras.Model(model.input, maps[0] if isinstance(at, int) else maps)


def class_layer(model: keras.Model) -> keras.layers.Layer | None:
    """Returns the layer that gives a model's class scores, whose input is the features.

    It is the last layer with weights, if its units are the model's outputs. A hidden layer, with an
    activation that scores do not have, is none. None without a head.

    Raises:
        ValueError: If the scores are from another layer, such as a model within the model.
    """
    if named := configs.classifier_layer({layer.name: layer for layer in model.layers}):
        return named
    last = next((layer for layer in reversed(model.layers) if layer.weights), model.layers[-1])
    activations = {getattr(layer, "activation", None) for layer in (last, model.layers[-1])}
    gives_scores = bool(activations & _OF_SCORES)
    is_dense = model.output_shape[1:] == (getattr(last, "units", None),)
    if is_dense and (gives_scores or activations <= _LINEAR):
        return last
    is_model = len(getattr(last, "outputs", ())) == 1
    is_within = is_model and class_layer(last) is not None
    if gives_scores or is_within or isinstance(model.layers[-1], keras.layers.Softmax):
        raise ValueError(
            "The features are the input of the last layer with weights, whose units are the classes"
            + (f": pass model.get_layer({last.name!r})" if is_within else "")
            + f". Received: {model.name}, whose scores are not the output of such a layer"
        )
    return None


_OF_SCORES = {keras.activations.softmax, keras.activations.sigmoid}
_LINEAR = {None, keras.activations.linear}


@answers_synonyms
def with_new_head(
    model: keras.Model,
    classes: int,
    *,
    classifier_activation: str | Callable | None = "softmax",
    name: str | None = None,
) -> keras.Model:
    """Returns a model with a new head of zeros on the body of another one, for transfer.

    The two share all other layers: training one changes the other, and what is frozen stays so.
    The whole head is replaced, with its hidden layer of pre-training, as in section 3.2 of the
    paper. The description keeps its preprocessing and loses its classes. timm calls this
    `reset_classifier`.

    Args:
        model: A model of the package with a head or pooling, or any functional model whose last
            layer with weights gives its scores.
        classes: Classes of the new head.
        classifier_activation: Activation of the new head; None gives logits.
        name: Name of the new model; the model's by default.

    Returns:
        A model from the same images to `(B, classes)`, float32 under every dtype policy.

    Raises:
        ValueError: If the model has neither a head nor pooled features, or `classes` is not a
            positive whole number.

    Example:
    >>> model = with_new_head(build("ViT-Ti/16"), classes=37)
    >>> model.output_shape
    (None, 37)
    """
    if not isinstance(classes, numbers.Integral) or classes < 1:
        raise ValueError(f"classes must be a positive integer. Received: classes={classes!r}")
    held, layers = Description.of_model(model), {layer.name: layer for layer in model.layers}
    config = held.config
    features = feature_model(model).outputs[0]
    if "class_token_alone" in layers:  # The two heads of a distilled model.
        features = layers["class_token_alone"].input
    hidden = layers.get("pre_logits")
    if hidden is not None and (
        features is hidden.output or features is layers["representation"].output
    ):
        features = hidden.input
        config = dataclasses.replace(config, representation_size=None)
    elif "representation" not in layers and isinstance(config, configs.ViTConfig):
        config = _reading(config, layers)
    # Only the description is another layer, as it holds the classes.
    description = description_layer(model)
    body = keras.models.clone_model(
        keras.Model(model.input, features),
        clone_function=lambda layer: (
            type(layer).from_config(layer.get_config()) if layer is description else layer
        ),
    )
    if isinstance(config, configs.ViTConfig):
        scores = classification_head(config, body.output, int(classes), classifier_activation)
    else:
        scores = class_scores(body.output, int(classes), classifier_activation)
    changed = keras.Model(body.input, scores, name=name or model.name)
    if description is not None:
        labels = Labels.of_activation(classifier_activation)
        set_description(
            changed,
            dataclasses.replace(held, config=config, classes=int(classes), labels=labels),
        )
    return changed


def _reading(config, layers):
    """The config of a model whose head reads what the layers without a head end with."""
    poolings = {"map_head": "map", "avg_pool": "gap", "max_pool": "max", "first_token": "token"}
    pooling = next((poolings[name] for name in poolings if name in layers), config.classifier)
    if pooling == config.classifier or config.classifier == "token+distillation":
        return config
    return dataclasses.replace(
        config,
        classifier=pooling,
        representation_size=None,
        unread_class_token=config.has_class_token and pooling != "token",
        map_num_heads=None,
        map_mlp_dim=None,
    )


def with_unknown(
    model: keras.Model,
    temperature: float,
    threshold: float,
    largest_leverage: float | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> keras.Model:
    """Returns a model with calibrated probabilities and "unknown" as its last output.

    Args:
        model: From images to probabilities `(B, K)`, the output of one head.
        temperature: See `layers.UnknownClass`.
        threshold: See `layers.UnknownClass`.
        largest_leverage: See `layers.UnknownClass`.
        arrays: With a largest leverage: `center` `(D,)` and `factor` `(D, D)` of
            `layers.Leverage`.

    Returns:
        From images to `(B, K + 1)`. It shares all layers but the head.

    Raises:
        ValueError: If the model's output is not one head's.
    """
    head = head_of(model)
    logits = _activated(head, None)
    answer = UnknownClass(temperature, threshold, largest_leverage, name=ANSWERS)
    if largest_leverage is None or arrays is None:
        return keras.Model(model.input, answer(logits), name=model.name)
    leverage = Leverage(name=LEVERAGE)
    rows = answer(logits, leverage(head.input))
    leverage.set_weights([arrays["center"], arrays["factor"]])
    return keras.Model(model.input, rows, name=model.name)


def without_unknown(model: keras.Model) -> keras.Model:
    """Returns the model within a calibrated one: the probabilities of its K classes as trained.

    Any other model, or an export in its own runtime, is returned.
    """
    if not abstains(model):
        return model
    probabilities = _activated(head_of(model), ACTIVATIONS[MULTICLASS])
    return keras.Model(model.input, probabilities, name=model.name)


def with_probabilities(model: keras.Model, task: str) -> keras.Model:
    """Returns a model of `keras_vit.build` that gives probabilities where its head gives logits.

    Args:
        model: With or without a head.
        task: "multiclass" or "multilabel".
    """
    last = model.layers[-1]
    if last.name != "predictions" or last.activation is not keras.activations.linear:
        return model
    return keras.Model(model.input, _activated(last, ACTIVATIONS[task]), name=model.name)


def head_of(model: keras.Model) -> keras.layers.Layer:
    """Returns the layer whose output is a model's, or the layers' of "unknown" within it.

    Raises:
        ValueError: If there is none.
    """
    head = configs.classifier_layer({layer.name: layer for layer in model.layers})
    is_last = len(model.outputs) == 1 and (
        abstains(model) or (head is not None and head.output is model.outputs[0])
    )
    if head is None or not is_last:
        raise ValueError(
            "A decision needs a model whose probabilities are the output of one head "
            f'("predictions"). Received: {model.name}'
        )
    return head


def _activated(head, activation):
    """The output of a copy of a head with another activation."""
    copy = type(head).from_config({**head.get_config(), "activation": activation})
    outputs = copy(head.input)
    copy.set_weights(head.get_weights())
    return outputs
