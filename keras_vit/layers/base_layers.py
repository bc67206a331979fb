"""Layers that hold a config or are made of other layers, and functions that XLA compiles."""

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


def compiled_in_training(function):
    """Returns the function compiled by XLA with its gradient, on TensorFlow.

    TensorFlow runs a kernel for each step of the function and of the chain rule, and keeps all
    intermediate values of the forward pass. Compiled, each direction is one kernel, and only the
    inputs are kept: a GELU takes a third of the time in training on a CPU. On JAX, which
    compiles the whole step, the function is returned unchanged; it is also called without
    compilation if XLA cannot compile for the device, as in TensorFlow's build for TPUs on their
    host.

    For training only: in inference TensorFlow fuses the function with its neighbours, which it
    cannot do here.

    Args:
        function: Takes tensors or variables by position and returns a tensor; made of
            Keras's differentiable operations.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    compiled = tf.function(function, autograph=False, jit_compile=True)

    @tf.custom_gradient
    def differentiable(*inputs):
        return compiled(*inputs), lambda upstream: differentiate(inputs, upstream)

    def trained(*inputs):
        # Not above: that module may be the first to import Keras, which imports the layers.
        from keras_vit.keras_private import xla_compiles

        if not xla_compiles():
            return function(*inputs)
        # Variables are read here; inside they would need a separate gradient function.
        return differentiable(*map(tf.convert_to_tensor, inputs))

    return trained
