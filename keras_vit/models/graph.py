"""Comparison of a model with the one that its description builds.

A description is true of a model whose graph, the layers between its images and its output, is
the graph of the described model. Names of layers and numbers of weights do not show this: another
pooling, a temperature or a subclass of a block leaves both unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import keras

from keras_vit import configs
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.hdf5 import read_keras_config
from keras_vit.checkpoints.load import Arrays
from keras_vit.configs import CLASSIFIER_LAYERS, ViTConfig
from keras_vit.configs.blocks import TRAINING_FIELDS
from keras_vit.description import (
    INCLUDED,
    LAYER,
    Description,
    abstains,
    description_layer,
    has_layers_in_front,
)
from keras_vit.keras_private import Functional, without_values
from keras_vit.layers import ModelDescription, class_scores
from keras_vit.models.resnet import build_resnet, resnet_head
from keras_vit.models.vit import build_vit, pool_tokens, vit_head
from keras_vit.utils.fields import required
from keras_vit.utils.safe_text import first_line

# Entries of a layer's config that change nothing of what it computes from its weights.
_NOT_COUNTED = {
    *("name", "trainable", "content"),
    *("dtype", "autocast", "quantization_config"),  # Precision: dtype policies, `quantize`.
    *("lora_rank", "lora_alpha"),  # `enable_lora`.
    *TRAINING_FIELDS,  # Dropout, stochastic depth and remat.
    *("rate", "seed", "noise_shape"),  # Dropout as a layer.
}
_NOT_COUNTED_KINDS = ("_initializer", "_regularizer", "_constraint")

# Layers that return their input in inference, and the preprocessing that a model includes, which
# `included` of the description is read from.
_IDENTITIES = {
    "keras_vit>ImagePreprocessing",
    *("keras_vit>Dropout", "Identity", "ActivityRegularization"),
    *("Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise"),
    *("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"),
}

_TRAINED = "training=True"  # An argument with which a dropout is none of them.

_SCORES = ("linear", "softmax", "sigmoid")  # Activations of a head.


def check_described(model: keras.Model, rule: str, *, allows_front: bool = False) -> None:
    """Raises ValueError if a model computes something else than its description says.

    Args:
        model: Any model; those without a description pass.
        rule: What must hold, for the message.
        allows_front: Whether layers without weights may change the images before the described
            model gets them, such as a `Rescaling`.
    """
    if found := difference(model, allows_front=allows_front):
        raise ValueError(
            f"{rule}; keras_vit.save_classifier and keras_vit.export keep a whole model. "
            f"Received: {model.name}, {found}"
        )


def check_file_described(arrays: Arrays) -> None:
    """Raises ValueError if the model of a `.keras` file is not what its description says.

    Other files hold no model and pass. Layers in front of the model are no part of its weights.

    Args:
        arrays: The weights: an opened file, which may hold the config of its model, or others.
    """
    if not isinstance(arrays, Checkpoint):
        return
    config = arrays.config
    inner = (config.get("config") or {}).get("model")  # A `Trainer` has one.
    model = inner if isinstance(inner, Mapping) else config
    found = _difference_of(model.get("config") or {}, allows_front=True)
    if found and model.get("class_name") != "Functional":
        found = f"a {model.get('class_name')}"
    if found:
        raise ValueError(
            "The weights must be of a model of keras_vit.build with nothing added or changed; "
            "keras_vit.load_classifier(folder).model, or keras.saving.load_model, is the whole "
            f"model. Received: {arrays.path}, {found}"
        )


class StoredLayer:
    """A layer in the JSON of a model, with the attributes by which a model is described.

    Args:
        layer: The JSON of the layer.
        tensor: Its input; None where nothing asks for it.
    """

    def __init__(self, layer: Mapping[str, Any], tensor: keras.KerasTensor | None = None):
        config = layer["config"]
        self.name = self.path = layer["name"]
        self.units = config.get("units")
        self.activation = config.get("activation")
        self.content = config.get("content")
        self.input = tensor
        known = keras.saving.get_registered_object(_kind(layer))
        self.is_of_unknown = getattr(known, "is_of_unknown", False)
        if self.name == INCLUDED:
            self.preprocessing = known.from_config(config).preprocessing


class StoredModel:
    """The model of a `.keras` file by its JSON, with the attributes by which it is described.

    Args:
        name: Its name.
        layers: Its layers.
        images: Its input.
        outputs: The shape of its output, `(None, K)`, or without a head `(None,)`.
    """

    def __init__(
        self,
        name: str,
        layers: list[StoredLayer],
        images: keras.KerasTensor,
        outputs: tuple[int | None, ...],
    ):
        self.name, self.layers = name, layers
        self.inputs, self.outputs = [images], [outputs]
        self.input_shape, self.output_shape = images.shape, outputs


def stored_model(file: str | os.PathLike) -> StoredModel | None:
    """Returns the model of a `.keras` file, which is not built.

    None for a model that only Keras knows: it has layers that no description of this package
    says, also in front of the images.

    Args:
        file: The file, or the folder of its entries.

    Raises:
        ValueError: If it cannot be read.
    """
    config = read_keras_config(file)
    try:
        return _stored_model(config)
    except Exception as error:  # A damaged file may raise anything.
        raise ValueError(f"{file} cannot be read as a Keras model: {first_line(error)}") from error


def _stored_model(config):
    inner = (config.get("config") or {}).get("model")  # A `Trainer` has one.
    model = inner if isinstance(inner, Mapping) else config
    fields = model.get("config") or {}
    if model.get("class_name") != "Functional" or _content(fields) is None:
        return None
    return None if _difference_of(fields, allows_front=False) else _stored(fields)


def _stored(config):
    """As `stored_model`, for the config of a functional model that is described."""
    graph = _Graph(config)
    images = graph.call((LAYER, 0)).places[0]
    if images not in graph.inputs:
        return None
    tensor = keras.KerasTensor(
        graph.layers[LAYER]["inbound_nodes"][0]["args"][0]["config"]["shape"]
    )
    layers = [StoredLayer(layer, tensor) for layer in graph.layers.values()]
    head = configs.classifier_layer({layer.name: layer for layer in layers})
    is_calibrated = any(layer.is_of_unknown for layer in layers)
    outputs = (None,) if head is None else (None, head.units + is_calibrated)
    return StoredModel(config["name"], layers, tensor, outputs)


def as_computed(model: keras.Model, description: Description) -> Description:
    """Returns a description without its config where its model computes something else."""
    if description.config is None or not difference(model, allows_front=True):
        return description
    shape = model.output_shape
    classes = shape[-1] - abstains(model) if len(shape) == 2 else None
    return dataclasses.replace(description, config=None, name=model.name, classes=classes)


def difference(model: keras.Model, *, allows_front: bool = False) -> str | None:
    """Returns in words where a model differs from the one that its description builds.

    None if it does not, or holds no description; arguments as for `check_described`.
    """
    layer = description_layer(model)
    if layer is None:
        return None
    if not isinstance(model, Functional) or type(model).call is not Functional.call:
        return f"a {type(model).__name__} with another method `call`"
    if allows_front and has_layers_in_front(model):
        front = keras.Model(model.inputs, layer.input)
        if name := next((layer.name for layer in front.layers if layer.weights), None):
            return f"whose layer {name!r} in front of the described model has weights"
    return _difference_of(_as_json(model.get_config()), allows_front)


def _difference_of(config, allows_front):
    """As `difference`, for the config of a functional model as JSON."""
    content = _content(config)
    if content is None:
        return None
    if "input_layers" not in config:
        return "a model that is no graph of layers"
    graph = _Graph(config)
    if len(graph.outputs) != 1 or len(graph.inputs) != 1:
        return f"a model of {len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
    facts = json.dumps({name: content.get(name) for name in ("name", "config", "position_grid")})
    is_head = graph.scores[0][0] in (*CLASSIFIER_LAYERS, "mean_logits")
    found: dict[bool, list[_Mismatch]] = {}
    for has_head in (is_head, not is_head):  # What is equal is found first, mostly.
        found[has_head] = []
        for other in _described_graphs(facts, tuple(graph.image_shape), has_head):
            mismatch = _first_difference(graph, other, has_head, allows_front)
            if mismatch is None:
                return None
            found[has_head].append(mismatch)
    if is_head:
        return found[True][0].text
    return max([*found[True], *found[False]], key=lambda mismatch: mismatch.matched).text


def _content(config):
    """The description in the config of a model; None if there is none, or it has no config."""
    for layer in config.get("layers") or ():
        fields = layer.get("config") or {}
        if fields.get("name") == LAYER and "content" in fields:
            content = fields["content"]
            return content if content.get("config") else None
    return None


@functools.lru_cache(maxsize=16)
def _described_graphs(facts, shape, has_head):
    """The graphs of the models that a description builds.

    Args:
        facts: JSON with the name, the config and the grid of positions.
        shape: Shape of the images, `(height, width, channels)`.
        has_head: Whether they give scores of classes, or else what a head may read.
    """
    described = Description.from_json(
        {name: value for name, value in json.loads(facts).items() if value is not None}
    )
    config = required(described.config, "config")
    with without_values():
        images = keras.Input(shape, name="images")
        x = ModelDescription({}, name=LAYER)(images)
        outputs = _outputs(config, x, described.position_grid, shape, has_head)
        return [_Graph.of(keras.Model(images, output)) for output in outputs]


def _outputs(config, x, position_grid, shape, has_head):
    """The scores of classes, or else what a head may read."""
    if not isinstance(config, ViTConfig):
        x = build_resnet(config, x)
        poolings = [None] if has_head else config.poolings
        return [resnet_head(config, x, has_head, pooling, 1, None) for pooling in poolings]
    grid = position_grid if None in shape[:2] else config.grid(shape[:2])
    tokens, patches = build_vit(config, x, grid)
    scores = _scores(config, tokens, patches)
    return scores if has_head else _features(config, x, tokens, patches, scores[0])


def _scores(config, tokens, patches):
    """The scores of a head: both forms of a mean, over the tokens of patches and over their map."""
    scores = [vit_head(config, tokens, patches, True, None, 1, None)]
    if config.classifier in ("gap", "max") and not config.representation_size:
        pooled = vit_head(config, tokens, patches, False, config.pooling, 1, None)
        scores.append(class_scores(pooled, 1, None, config.head_bias))
    return scores


def _features(config, x, tokens, patches, scores):
    """The outputs without a head: tokens, maps, and what a head may read."""
    maps = [
        vit_head(config, tokens, patches, False, pooling, 1, None) for pooling in config.poolings
    ]
    layers = {layer.name: layer for layer in keras.Model(x, scores).layers}
    head = required(configs.classifier_layer(layers), "head")
    read = layers["representation"].output, head.input
    pooled = pool_tokens(config, tokens, "gap"), pool_tokens(config, tokens, "max")
    return [tokens, *read, *maps, *pooled]


class _Mismatch(NamedTuple):
    """Where two graphs differ, in words, and the number of layers behind it that are equal."""

    matched: int
    text: str


def _first_difference(graph, described, has_head, allows_front):
    """The first difference from the output of a graph backwards; None where there is none.

    Args:
        graph: The model's graph.
        described: The graph that it should be.
        has_head: Whether both end in class scores, with any activation.
        allows_front: As for `check_described`.
    """
    start, activations = graph.scores if has_head else (graph.outputs[0], ("linear",))
    end = described.scores[0] if has_head else described.outputs[0]
    waiting = [(start, end)]
    compared: set[tuple[Place, Place]] = set()
    owners: dict[str, str] = {}
    while waiting:
        pair = graph.source(waiting[-1][0]), described.source(waiting.pop()[1])
        if pair in compared:
            continue
        mine, theirs = (graph.layers[pair[0][0]], described.layers[pair[1][0]])
        text = _difference_of_layers(mine, theirs, activations)
        if theirs["name"] in described.with_weights:
            is_shared = owners.setdefault(theirs["name"], mine["name"]) == mine["name"]
            if text is None and not (is_shared and mine["name"].endswith(theirs["name"])):
                text = f"whose layer {_title(mine)} stands where {_title(theirs)} is described"
        inputs = [graph.call(pair[0]), described.call(pair[1])]
        if text is None and inputs[0].others != inputs[1].others:
            text = f"whose layer {_title(mine)} is called with {inputs[0].others}"
        if text is None and len(inputs[0].places) != len(inputs[1].places):
            text = f"whose layer {_title(mine)} has {len(inputs[0].places)} inputs"
        if text is not None:
            return _Mismatch(len(compared), text)
        compared.add(pair)
        if not (allows_front and _kind(mine) == "keras_vit>ModelDescription"):
            waiting += zip(inputs[0].places, inputs[1].places, strict=True)
    return None


def _difference_of_layers(mine, theirs, activations):
    """In words how a layer differs from the one that is described; None if it does not."""
    if _kind(mine) != _kind(theirs):
        return f"whose layer {_title(mine)} stands where {_title(theirs)} is described"
    is_head = theirs["name"] in CLASSIFIER_LAYERS
    own = _kind(theirs).startswith("keras_vit>")  # Their configs leave defaults out.
    names = mine["config"].keys() | theirs["config"].keys()
    if not own:  # Other versions of Keras write more entries or fewer.
        names = mine["config"].keys() & theirs["config"].keys()
    for name in sorted(names):
        values = mine["config"].get(name), theirs["config"].get(name)
        if is_head and name == "activation" and values[0] in activations:
            continue
        if _is_counted(name, is_head) and values[0] != values[1]:
            return f"whose layer {_title(mine)} has {name}={values[0]!r:.80}, not {values[1]!r:.80}"
    return None


def _is_counted(entry, is_head):
    if entry in _NOT_COUNTED or entry.endswith(_NOT_COUNTED_KINDS):
        return False
    return not (is_head and entry == "units")


def _kind(layer):
    """The class of a layer; with its module where it is registered by its bare name."""
    registered = layer.get("registered_name") or ""
    if ">" in registered:
        return registered
    is_keras = str(layer.get("module")).split(".")[0] == "keras"
    return layer["class_name"] if is_keras else f"{layer.get('module')}.{layer['class_name']}"


def _title(layer):
    return f"{layer['name']!r} ({layer['class_name']})"


Place = tuple[str, int]  # The name of a layer and the number of a call of it.


class _Call(NamedTuple):
    """A call of a layer: the places of its tensors, and its other arguments."""

    places: list[Place]
    others: list[str]


class _Graph:
    """The graph of a functional model's config.

    Args:
        config: The config, as JSON.
        with_weights: Names of the layers with weights, where they are known.
    """

    def __init__(self, config, with_weights: Iterable[str] = ()):
        self.layers = {layer["name"]: _first_token(layer) for layer in config["layers"]}
        self.inputs = _places(config["input_layers"])
        self.outputs = _places(config["output_layers"])
        self.with_weights = frozenset(with_weights)

    @classmethod
    def of(cls, model: keras.Model) -> _Graph:
        """Returns the graph of a functional model."""
        names = [layer.name for layer in model.layers if layer.weights]
        return cls(_as_json(model.get_config()), names)

    def call(self, place: Place) -> _Call:
        """Returns the call of a layer at a place; without arguments for an input."""
        nodes = self.layers[place[0]]["inbound_nodes"]
        call = _Call([], [])
        if nodes:
            node = nodes[place[1]]
            kwargs = {name: value for name, value in node["kwargs"].items() if value is not None}
            if kwargs.get("training") is False:
                del kwargs["training"]
            _collect([node["args"], kwargs], call)
        return call

    def source(self, place: Place) -> Place:
        """Returns the place whose output a place has, before layers that return their input."""
        while _kind(self.layers[place[0]]) in _IDENTITIES:
            call = self.call(place)
            if _TRAINED in call.others or not call.places:
                break
            place = call.places[0]
        return place

    @property
    def image_shape(self) -> list[int | None]:
        """The shape of the images that the patches are cut from."""
        shape = self.layers[LAYER]["inbound_nodes"][0]["args"][0]["config"]["shape"][1:]
        if INCLUDED in self.layers:
            return [*self.layers[INCLUDED]["config"]["image_size"], shape[2]]
        return shape

    @property
    def scores(self) -> tuple[Place, tuple[str, ...]]:
        """The place of the head, and the activations that it may have.

        An activation behind it may be a layer, and a calibrated model ends with its decision.
        """
        place = self.outputs[0]
        layer, places = self.layers[place[0]], self.call(place).places
        kind, activation = _kind(layer), layer["config"].get("activation")
        if kind == "keras_vit>UnknownClass" or (
            kind == "Softmax" and layer["config"]["axis"] == -1
        ):
            return places[0], ("linear",)
        if kind == "Activation" and activation in _SCORES:
            return places[0], _SCORES if activation == "linear" else ("linear",)
        return place, _SCORES


def _first_token(layer):
    """A layer; for the operation `tokens[:, 0]` the layer `TakeTokens` that computes the same."""
    nodes = layer["inbound_nodes"]
    if _kind(layer) != "GetItem" or nodes[0]["args"][1:] != [[_ALL, 0]]:
        return layer
    return {
        "name": layer["name"],
        "class_name": "TakeTokens",
        "registered_name": "keras_vit>TakeTokens",
        "config": {"start": 0, "stop": 1},
        "inbound_nodes": [{"args": nodes[0]["args"][:1], "kwargs": {}}],
    }


_ALL = {"class_name": "__slice__", "config": {"start": None, "stop": None, "step": None}}


def _as_json(config):
    return json.loads(json.dumps(config, default=str))


def _places(layers):
    """The places in `input_layers` or `output_layers` of a config, of any structure."""
    if isinstance(layers, Mapping):
        return [place for part in layers.values() for place in _places(part)]
    if layers and isinstance(layers[0], str):
        return [(layers[0], layers[1])]
    return [place for part in layers for place in _places(part)]


def _collect(argument, call):
    """Adds the tensors and the other values of a call's arguments, in order."""
    if isinstance(argument, Mapping) and argument.get("class_name") == "__keras_tensor__":
        name, node, _ = argument["config"]["keras_history"]
        call.places.append((name, node))
    elif isinstance(argument, list):
        for part in argument:
            _collect(part, call)
    elif isinstance(argument, Mapping):
        for name in sorted(argument):
            part = argument[name]
            if isinstance(part, Mapping | list):
                _collect(part, call)
            else:
                call.others.append(f"{name}={part!r}")
    else:
        call.others.append(repr(argument))
