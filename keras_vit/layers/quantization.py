"""Saving and loading of layers whose sublayers are quantised."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import keras


class QuantizedSublayers(keras.layers.Layer):
    """Quantises the sublayers again when a saved layer is built.

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
