"""Features of images from a frozen model, cached on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib

import keras
import numpy as np

from keras_vit.configs import BiTConfig, classifier_layer
from keras_vit.files import atomic_write
from keras_vit.preprocessing import Preprocessing
from keras_vit.recognition import config_of
from keras_vit.training.data import Examples

from .predictions import predictions_of, weights_hash
from .protocols import FEATURES

_FORMAT = 1  # Version of the cached files: another number makes the older files unused.


def feature_model(model: keras.Model, feature: str = "pre_logits") -> keras.Model:
    """Returns a model from images to one representation `(B, D)`.

    Args:
        model: A model of the package, or with a layer named "predictions".
        feature: One of `FEATURES`.

    Raises:
        ValueError: If the feature is unknown, or the model does not have it.
    """
    if feature not in FEATURES:
        raise ValueError(f"The feature must be one of {FEATURES}. Received: {feature!r}")
    layers = {layer.name: layer for layer in model.layers}
    if feature == "pre_logits":
        head = classifier_layer(layers)
        if head is not None:
            return keras.Model(model.inputs, head.input)
        if len(model.output_shape) == 2:
            return keras.Model(model.inputs, model.outputs[0])
        raise ValueError(
            'The feature "pre_logits" needs a model with a head or with pooling. Received: '
            f"outputs of shape {model.output_shape}"
        )
    if "encoder_norm" not in layers or isinstance(config := config_of(model), BiTConfig):
        raise ValueError(
            f'The feature "{feature}" needs a Vision Transformer, whose layer encoder_norm gives '
            f'the tokens; "pre_logits" works with every model. Received: {model.name}'
        )
    tokens = layers["encoder_norm"].output  # (B, N, D)
    if feature == "avg":
        return keras.Model(
            model.inputs, keras.ops.mean(tokens[:, config.num_prefix_tokens :], axis=1)
        )
    if not config.has_class_token:
        raise ValueError(
            'The feature "token" needs a model with a class token; this one has none: use "avg" '
            f'or "pre_logits". Received: {model.name}'
        )
    return keras.Model(model.inputs, tokens[:, 0])


@dataclasses.dataclass(frozen=True)
class Features:
    """Features of examples.

    Args:
        values: float32 `(N, D)`.
        labels: Class indices `(N,)`.
        key: Hash of everything they depend on: the name of the cached file.
        cached: Whether they were read from the cache.
    """

    values: np.ndarray
    labels: np.ndarray
    key: str
    cached: bool


def extract(
    model: keras.Model,
    examples: Examples,
    *,
    preprocessing: Preprocessing,
    feature: str = "pre_logits",
    batch_size: int = 32,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
) -> Features:
    """Returns the features of all examples, in their order.

    Args:
        model: The model.
        examples: The examples.
        preprocessing: How an image becomes the model's input.
        feature: One of `FEATURES`.
        batch_size: Images in a batch.
        cache: Folder for computed features, or None. The key is a hash of the weights,
            images, labels, preprocessing and feature, not of file names.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If the model does not have the feature, or there are no examples.
    """
    if not len(examples):
        raise ValueError("There must be images to compute features of. Received: none")
    features = feature_model(model, feature)
    key = _key(model, examples, preprocessing, feature) if cache else ""
    path = pathlib.Path(cache) / f"{key}.npz" if cache else None
    if path is not None and path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            return Features(arrays["values"], arrays["labels"], key, cached=True)
    values, labels = zip(
        *predictions_of(
            features,
            examples,
            preprocessing=preprocessing,
            batch_size=batch_size,
            progress="features" if progress else None,
        ),
        strict=True,
    )
    result = Features(
        np.concatenate(values).astype(np.float32), np.concatenate(labels), key, cached=False
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            np.savez(partial, values=result.values, labels=result.labels)
    return result


def default_cache() -> pathlib.Path:
    """Returns the cache folder of the commands, inside Keras's cache."""
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    return pathlib.Path(home) / "keras_vit" / "features"


def _key(model, examples, preprocessing, feature):
    try:
        architecture = repr(config_of(model))
    except ValueError:
        architecture = model.to_json()
    parts = {
        "format": _FORMAT,
        "architecture": architecture,
        "policy": model.dtype_policy.name,
        "weights": weights_hash(model),
        "examples": examples.content_hash(),
        "preprocessing": preprocessing.to_json(),
        "feature": feature,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
