"""Layers that hold a config or a description or are made of others; functions that XLA compiles."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_vit.configs.blocks import UNSEEN_FEATURES, BlockConfig
from keras_vit.layers.eager_pytorch import CalledDirectly, on_pytorch
from keras_vit.layers.fused_attention import compute_capability
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


def check_quantization(mode: str) -> None:
    """Raises ValueError for a way of quantising that Keras has for the blocks of language models.

    Args:
        mode: Such as "int8".
    """
    if mode not in _QUANTIZATIONS:
        raise ValueError(
            f"A Vision Transformer is quantised by one of {_QUANTIZATIONS}; Keras's others need "
            f"the texts and the blocks of a language model. Received: {mode!r}"
        )


_QUANTIZATIONS = ("int8", "int4", "float8")


class QuantizedSubclass(keras.layers.Layer):
    """Lets a subclass of one of Keras's dense layers be quantised as its base.

    Keras refuses subclasses, as it does not know what they compute.
    """

    def quantize(self, mode=None, type_check=True, config=None):
        check_quantization(mode)
        super().quantize(mode, type_check=False, config=config)


def arguments(owner: Any, *names: str) -> dict[str, Any]:
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
        return layer.__getattr__(name) if on_pytorch() else layer.__getattribute__(name)

    def get_config(self):
        return {**super().get_config(), **changed_fields(self.config)}


def compiled_in_training(function):
    """Returns the function compiled by XLA with its gradient, on TensorFlow.

    TensorFlow runs a kernel for each step of the function and of the chain rule, and keeps all
    intermediate values of the forward pass. Compiled, each direction is one kernel, and only the
    inputs are kept: a GELU takes a third of the time in training on a CPU. On JAX, which
    compiles the whole step, the function is returned unchanged; it is also called without
    compilation if XLA cannot compile for the device, as in TensorFlow's build for TPUs on their
    host. Compiled, it computes in float32 at least: XLA would round each step of it to bfloat16,
    which takes as long as the step.

    For training only: in inference TensorFlow fuses the function with its neighbours, which it
    cannot do here.

    Args:
        function: Takes tensors or variables by position and returns a tensor; made of
            Keras's differentiable operations.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    def in_float32(*inputs):
        wide = (tf.cast(x, keras.backend.result_type(x.dtype.name, "float32")) for x in inputs)
        return tf.cast(function(*wide), inputs[0].dtype)

    @tf.function(autograph=False, jit_compile=True)
    def differentiate(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = in_float32(*inputs)
        return tape.gradient(outputs, inputs, upstream)

    compiled = tf.function(in_float32, autograph=False, jit_compile=True)

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


def keeping_inputs(function):
    """Returns the function whose gradient computes it again from its inputs, on JAX on a GPU.

    XLA keeps several tensors of a GELU for the backward pass, a fifth of the memory of training
    ViT-B/16; this keeps one. Numbers and second derivatives are the same, but JAX's forward mode
    (`jax.jvp`) cannot go through it. On a CPU or a TPU the function is called as it is.

    Args:
        function: Takes tensors by position and returns a tensor; made of Keras's differentiable
            operations.
    """
    if keras.backend.backend() != "jax":
        return function
    import jax

    kept = jax.custom_vjp(lambda *inputs: function(*inputs))  # Without its default arguments.

    def differentiate(inputs, upstream):
        # Without the barrier XLA finds the same operations in the forward pass, and keeps those.
        inputs = jax.lax.optimization_barrier(inputs)
        return jax.vjp(function, *inputs)[1](upstream)

    kept.defvjp(lambda *inputs: (function(*inputs), inputs), differentiate)
    return lambda *inputs: (function if compute_capability() is None else kept)(*inputs)


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
