"""Layers that hold a config or a description, or are made of other layers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.configs.blocks import UNSEEN_FEATURES, BlockConfig
from keras_vit.layers.fused import ON_PYTORCH, CalledDirectly, check_quantization
from keras_vit.utils.json_files import changed_fields


class CompositeLayer(CalledDirectly):
    """A layer made of other layers, which are quantised and frozen again when a file is read.

    `model.quantize("int8")` changes the variables of dense layers. Keras saves how a layer is
    quantised and whether it is trained in its config, but neither for the sublayers of another
    layer; so it cannot read its own files of a quantised `keras.layers.MultiHeadAttention`, and
    all of a frozen one would be trained, also in a clone.
    """

    def __setattr__(self, name, value):
        # Set at each call, too.
        is_news = name == "built" and value and not vars(self).get("built")
        super().__setattr__(name, value)
        if is_news and not self.trainable:  # type: ignore[has-type]
            # Keras freezes the parts that there are, none before `build`; TensorFlow leaves out
            # to set a value that is set already.
            self.trainable = True
            self.trainable = False

    def get_build_config(self):
        config, parts = super().get_build_config(), dict(_sublayers(self))
        quantized = {
            path: keras.saving.serialize_keras_object(
                getattr(layer, "quantization_config", None) or layer.quantization_mode
            )
            for path, layer in parts.items()
            if layer.quantization_mode
        }
        frozen = [path for path, layer in parts.items() if not layer.trainable]
        if quantized:
            config = {**config, "quantized": quantized}
        return {**config, "frozen": frozen} if frozen else config

    def build_from_config(self, config):
        shapes = dict(config)
        quantized, frozen = shapes.pop("quantized", {}), shapes.pop("frozen", [])
        super().build_from_config(shapes)
        parts = dict(_sublayers(self))
        for path, how in quantized.items():
            if not parts[path].quantization_mode:  # A dtype policy may do so before.
                parts[path].quantize(config=keras.saving.deserialize_keras_object(how))
        if frozen:
            for path, layer in parts.items():  # Each before its own ones, which it changes.
                layer.trainable = path not in frozen


def arguments(owner: object, *names: str) -> dict[str, Any]:
    """Returns arguments of a constructor that an object keeps under their own names."""
    return {name: getattr(owner, name) for name in names}


def add_table(layer: keras.layers.Layer, name: str, shape: tuple) -> keras.Variable:
    """Adds a table of embeddings, drawn from a normal distribution of deviation 0.02."""
    initializer = keras.initializers.RandomNormal(stddev=0.02)
    return layer.add_weight(shape=shape, initializer=initializer, name=name)


def _sublayers(layer: keras.layers.Layer, prefix: str = "") -> Iterator[tuple[str, keras.Layer]]:
    """Yields the sublayers, and theirs, with the paths of their attributes."""
    modules = vars(layer).get("_modules", {})  # Where PyTorch keeps them.
    for name, value in {**vars(layer), **modules}.items():
        if isinstance(value, keras.layers.Layer):
            yield f"{prefix}{name}", value
            yield from _sublayers(value, f"{prefix}{name}.")


class ConfiguredLayer(CompositeLayer):
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
        layer: Any = super()
        # PyTorch's modules find their parameters in this method; other backends have none.
        return layer.__getattr__(name) if ON_PYTORCH else layer.__getattribute__(name)

    def get_config(self):
        return {**super().get_config(), **changed_fields(self.config)}


ENTRY = "description"  # In a file of weights.


@keras.saving.register_keras_serializable(package="keras_vit")
class ModelDescription(keras.layers.Layer):
    """Holds the description of the model that it is the first layer of; computes nothing.

    So a model that was saved, cloned, quantised, converted to another precision or cut out of
    another one keeps its description; see `keras_vit.describe`. A subclass of `keras.Model` would
    lose it where Keras makes a plain functional model of its layers.

    Args:
        content: The JSON object of `keras_vit.description.Description.to_json`.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        Any.

    Output shape:
        The input's.
    """

    def __init__(self, content, **kwargs):
        # The images keep their dtype; the layer behind this one converts them.
        super().__init__(**{"autocast": False, **kwargs})
        self.content = content
        self.built = True

    @property
    def content(self):
        """The JSON object; a copy of it."""
        return json.loads(self.text)

    @content.setter
    def content(self, content):
        self.text = json.dumps(content)  # Keras would track the variables in a dictionary.

    def save_own_variables(self, store):
        """Saves the description beside the weights; files of weights hold nothing else."""
        store[ENTRY] = np.frombuffer(self.text.encode(), "uint8")

    def load_own_variables(self, store):
        """Takes over what belongs to the weights: preprocessing, classes, origins.

        Raises:
            ValueError: If they were saved for other positions or blocks.
        """
        saved, own = json.loads(bytes(np.asarray(store[ENTRY]))), self.content
        has_tables = (own.get("config") or {}).get("position_embedding") != "none"
        for fact in (*(["position_grid"] if has_tables else []), *UNSEEN_FEATURES):
            theirs, ours = _fact(saved, fact), _fact(own, fact)
            if theirs != ours:
                raise ValueError(
                    "The blocks and positions of the weights must match the model "
                    f"({fact}); keras_vit.load_checkpoint resizes tables of positions. "
                    f"Received: {theirs}, the model has {ours}"
                )
        of_weights = {k: value for k, value in saved.items() if k not in _OF_THE_MODEL}
        self.content = {**of_weights, **{name: own[name] for name in _OF_THE_MODEL & own.keys()}}

    def quantize(self, mode=None, type_check=True, config=None):
        check_quantization(mode)  # The first layer, so that nothing of the model is changed yet.

    def call(self, inputs):
        return inputs

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)

    def get_config(self):
        return {**super().get_config(), "content": self.content}


# Facts that a model does not take from weights.
_OF_THE_MODEL = {"name", "config", "input_shape", "classes", "position_grid"}


def _fact(content, name):
    """The grid of positions, or a field of the config; the default where there is none."""
    default = getattr(BlockConfig, name, None)
    return content.get(name) or (content.get("config") or {}).get(name, default)
