"""Comparison of configs: which name a config has, and whether two are of the same model."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig


def paper_name(config: ViTConfig | BiTConfig | None) -> str:
    """Returns the name in `keras_vit.list_models()` of a config; "" if it has none.

    GELU, LayerNorm's epsilon and the hidden layer of pre-training may differ.
    """
    if config is None:
        return ""
    names = {_plain(configs.resolve(name)): name for name in configs.list_models()}
    return names.get(_plain(config), "")


def without_hidden_layer(config: Any) -> Any:
    """Returns a config without the hidden layer of pre-training, for a new head."""
    fields = {field.name for field in dataclasses.fields(config)}
    changes = {"representation_size": None, "head_bias": 0.0}
    return dataclasses.replace(config, **{k: v for k, v in changes.items() if k in fields})


def check_agrees(
    model: str | ViTConfig | BiTConfig,
    weights: str | os.PathLike,
    config: ViTConfig | BiTConfig | None,
) -> None:
    """Raises ValueError if the config of weights is not of a given model.

    Args:
        model: The name or config that was given.
        weights: The weights, for the message.
        config: The config of the weights; None if they are of another size.
    """
    if config is None or _plain(configs.resolve(model)) != _plain(config):
        raise ValueError(
            "The weights must be of the given model; without a model, the weights' own is used. "
            f"Received: model={model}, weights={os.fspath(weights)}, "
            f"a model of {config or 'another size'}"
        )


def _plain(config):
    """A config without what the weights of one model may differ in: numerics and head."""
    config = configs.for_inference(without_hidden_layer(config))
    if not isinstance(config, ViTConfig):
        return config
    gelu = config.gelu if config.gelu == "swiglu" else ViTConfig.gelu  # SwiGLU has more weights.
    return dataclasses.replace(
        config,
        gelu=gelu,
        norm_epsilon=ViTConfig.norm_epsilon,
        position_resize=ViTConfig.position_resize,
    )
