"""`keras_vit.features`: the representations of images that a model of any origin computes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit.models.rebuild import feature_model, map_model
from keras_vit.opening import open_model
from keras_vit.utils.synonyms import answers_synonyms


@answers_synonyms
def features(
    model_or_name: Any,
    feature: str = "pre_logits",
    *,
    at: int | Sequence[int] | None = None,
    weights: str | os.PathLike | None = None,
    image_size: tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: str | None = None,
    normalization: str | None = None,
) -> keras.Model:
    """Returns a model from images to one representation `(B, D)`, as `keras-vit embed` computes it.

    With `at` it is a model from images to maps of the patches at several depths, for segmentation
    or detection. timm calls the first `forward_head(forward_features(images), pre_logits=True)`,
    and the second `features_only=True, out_indices=at`.

    Args:
        model_or_name: A Keras model of the package, whose layers are shared; what
            `keras_vit.load_classifier` takes; or a name of `keras_vit.list_models()`, which needs
            `weights`.
        feature: "pre_logits", what the head reads; "avg", the mean of the patch tokens; or "token",
            the class token.
        at: Encoder blocks from 0, whose outputs are maps `(B, h, w, D)`, before the last
            normalization; a number gives one map, several a list. None gives `feature`.
        weights: For a name: its weights, which are what `keras_vit.load_classifier` takes.
        image_size: See `keras_vit.load_classifier`.
        num_heads: See `keras_vit.load_classifier`.
        gelu: See `keras_vit.load_classifier`.
        normalization: See `keras_vit.load_classifier`.

    Raises:
        ValueError: If the feature or a block is unknown, the model does not have it, or the model
            cannot be opened.

    Example:
    >>> features("cifar10").output_shape
    (None, 256)
    >>> features("vit_mini4_cifar10", at=(1, 3)).output_shape
    [(None, 8, 8, 128), (None, 8, 8, 128)]
    """
    model = model_or_name
    if not isinstance(model, keras.Model) and not hasattr(model, "takes_pixels"):
        opened = open_model(
            model if weights is None else weights,
            model=None if weights is None else model,
            image_size=image_size,
            num_heads=num_heads,
            gelu=gelu,
            normalization=normalization,
        )
        # Without a name the hidden layer of pre-training is one of the model's own.
        model = opened.model(new_head=weights is not None)
    return feature_model(model, feature) if at is None else map_model(model, at)
