"""Features of images from a frozen model, cached on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib

import keras
import numpy as np

from keras_vit.configs.recognition import config_of
from keras_vit.models.rebuild import feature_model
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples
from keras_vit.utils.files import atomic_write, check_writable

from .predictions import predictions_of, weights_hash

_FORMAT = 1  # Version of the cached files: another number makes the older files unused.


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
    unreadable: list[tuple[int, str]] | None = None,
) -> Features:
    """Returns the features of all examples, in their order.

    Args:
        model: The model.
        examples: The examples.
        preprocessing: How an image becomes the model's input.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        cache: Folder for computed features, or None. The key is a hash of the weights,
            images, labels, preprocessing and feature, not of file names.
        progress: Whether to show a line with the rate and the time left.
        unreadable: See `predictions_of`; images that are left out are not in the features, which
            are not cached then.

    Raises:
        ValueError: If the model does not have the feature, or there are no examples.
    """
    if not len(examples):
        raise ValueError("There must be images to compute features of. Received: none")
    features = feature_model(model, feature)
    key = _key(model, examples, preprocessing, feature) if cache else ""
    path = pathlib.Path(cache) / f"{key}.npz" if cache else None
    if path is not None:  # An error of a given folder comes before the work.
        path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(path)
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
            unreadable=unreadable,
        ),
        strict=True,
    )
    result = Features(
        np.concatenate(values).astype(np.float32), np.concatenate(labels), key, cached=False
    )
    if path is not None and not unreadable:
        with atomic_write(path) as partial:
            np.savez(partial, values=result.values, labels=result.labels)
    return result


def default_cache() -> pathlib.Path | None:
    """Returns the cache folder of the commands, inside Keras's cache; None if it cannot be made.

    A container's user may have no home.
    """
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    cache = pathlib.Path(home) / "keras_vit" / "features"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        check_writable(cache / "features.npz")
    except (ValueError, OSError):
        return None
    return cache


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
