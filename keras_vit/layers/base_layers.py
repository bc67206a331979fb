"""Layers that hold a config, and layers that are made of other layers."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import keras

from keras_vit.utils.json_files import changed_fields


class ConfiguredLayer(keras.layers.Layer):
    """A layer whose arguments are the fields of a config.

    `MLP(MLPConfig(768))`, `MLP(768)` and `MLP(hidden_dim=768)` are the same. The config is kept
    as `config`, its fields are read as attributes of the layer, too, and `get_config` has those
    that differ from their defaults.

    Args:
        *fields: A config of `config_type`, or the values of its first fields.
        **kwargs: More fields by name, which replace the config's; and arguments of
            `keras.layers.Layer`.
    """

    config_type: Any

    def __init__(self, *fields, **kwargs):
        names = {field.name for field in dataclasses.fields(self.config_type)}
        named = {name: kwargs.pop(name) for name in names & kwargs.keys()}
        super().__init__(**kwargs)
        if fields and isinstance(fields[0], self.config_type):
            self.config = dataclasses.replace(fields[0], **named)
        else:
            self.config = self.config_type(*fields, **named)

    def __getattr__(self, name):
        # Called for what is no attribute: a field, or a mistake.
        if "config" in vars(self) and name in self.config.__dataclass_fields__:
            return getattr(self.config, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def get_config(self):
        return {**super().get_config(), **changed_fields(self.config)}


class CompositeLayer(keras.layers.Layer):
    """A layer made of other layers, which are quantised again when it is built from a file.

    `model.quantize("int8")` changes the variables of dense layers. Keras saves the mode of a
    layer in its dtype policy, but not for the sublayers of another layer; so it cannot read its
    own files of a quantised `keras.layers.MultiHeadAttention`.
    """

    def get_build_config(self):
        modes = {path: layer.quantization_mode for path, layer in _sublayers(self)}
        modes = {path: mode for path, mode in modes.items() if mode}
        config = super().get_build_config()
        return {**config, "quantized": modes} if modes else config

    def build_from_config(self, config):
        super().build_from_config({k: v for k, v in config.items() if k != "quantized"})
        for path, mode in config.get("quantized", {}).items():
            operator.attrgetter(path)(self).quantize(mode)


def _sublayers(layer: keras.layers.Layer, prefix: str = "") -> Iterator[tuple[str, keras.Layer]]:
    """Yields the sublayers, and theirs, with the paths of their attributes."""
    for name, value in vars(layer).items():
        if isinstance(value, keras.layers.Layer):
            yield f"{prefix}{name}", value
            yield from _sublayers(value, f"{prefix}{name}.")
