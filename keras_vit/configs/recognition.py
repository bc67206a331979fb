"""The config of a model: held by it, from the shapes of weights, or from JSON.

Imports neither Keras nor TensorFlow. A checkpoint of another code base holds arrays; its config is
recognised by the names of layers, which are part of the format.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_vit import configs
from keras_vit.configs import (
    AxialConfig,
    AxialResNetConfig,
    BiTConfig,
    ModelConfig,
    ResNetStem,
    ViTConfig,
)
from keras_vit.configs.blocks import BLOCK_LAYERS

if TYPE_CHECKING:
    import keras

Shape = tuple[int, ...]

# Attention heads by width in the paper. ViT-b has the width of ViT-S and more heads.
_HEADS = {size["width"]: size["num_heads"] for name, size in configs.SIZES.items() if name != "b"}

_CONFIG_TYPES = {
    kind.__name__: kind for kind in (ViTConfig, BiTConfig, AxialConfig, AxialResNetConfig)
}


def config_of(model: keras.Model) -> ModelConfig:
    """Returns the config of a model of `keras_vit.build`, which its layer "description" holds.

    So a model has it that was saved, cloned or cut out of another one, with that layer in it.

    Args:
        model: A functional `keras.Model`.

    Raises:
        ValueError: If the model holds no config.
    """
    layers = {layer.name: layer for layer in getattr(model, "layers", ())}
    content = getattr(layers.get("description"), "content", None)
    if isinstance(content, Mapping) and content.get("config"):
        return config_of_json(content["config"])
    inner = (layer for layer in layers.values() if hasattr(layer, "layers"))
    one = next(
        (layer for layer in inner if any(x.name == "description" for x in layer.layers)), None
    )
    raise ValueError(
        "The model must be one of keras_vit.build. Received: a model with layers "
        f"{', '.join(list(layers)[:5]) or 'none'} ..."
        + (f"; one of them is: pass model.get_layer({one.name!r})" if one else "")
    )


def config_of_shapes(
    shapes: Mapping[str, Shape | None],
    fields: Mapping[str, Any] | None = None,
    *,
    has_paper_sizes: bool = True,
) -> tuple[ModelConfig, tuple[str, ...]]:
    """Returns the config of a Vision Transformer, hybrid or BiT from its weights.

    Args:
        shapes: What `layer_shapes` returns.
        fields: Fields of `ViTConfig` that weights do not show: the form of GELU, LayerNorm's
            epsilon, the heads where shapes do not show them, and others.
        has_paper_sizes: Whether weights that do not show the heads have the paper's for their
            width.

    Returns:
        The config, and a sentence for each assumption.

    Raises:
        ValueError: If the weights are not of such a model, or the heads or the form of GELU must
            be given.
    """
    stem = _resnet_stem(shapes)
    if stem and "final_norm" in shapes:
        return BiTConfig(*stem), ()
    sizes = sizes_of_shapes(shapes)
    missing = [size for size in ("patch_size", "mlp_dim", "depth") if size not in sizes]
    if missing:
        raise ValueError(
            "The weights must be of a model of this package. "
            f"Received: weights that do not show {', '.join(missing)}"
        )
    fields = {name: value for name, value in (fields or {}).items() if value is not None}
    heads, notes = _heads_of(sizes, fields, has_paper_sizes)
    _check_given(heads, fields.get("gelu"), sizes["width"])
    if "norm_epsilon" not in fields:
        notes.append(
            "the file does not hold LayerNorm's epsilon: 1e-6, the official one, is assumed"
        )
    if "pre_logits" in shapes and num_classes(shapes) is None:
        notes.append("the pooler was left out, because no head reads it")
    classifier = fields.get("classifier") or _classifier(shapes)
    shown: dict[str, Any] = {
        size: sizes[size] for size in ("patch_size", "width", "depth", "mlp_dim")
    }
    shown |= _norms_and_tokens(shapes, classifier)
    if classifier == "map":
        shown |= _map_sizes(shapes, heads, sizes["mlp_dim"])
    if stem:
        shown["resnet"] = ResNetStem(*stem)
    for field, layer in BLOCK_LAYERS.items():
        shown[field] = f"encoder_block_0/{layer}" in shapes
    config = ViTConfig(**{**shown, **fields, "num_heads": heads, "classifier": classifier})
    if config.block(0).reads_grid and not {"position_embedding"} & (shapes.keys() | fields.keys()):
        config = dataclasses.replace(config, position_embedding="none")  # No table.
    return config, tuple(notes)


def _resnet_stem(shapes):
    """Units of each block and the width factor of a ResNet; None of a plain model."""
    root = shapes.get("root_conv")
    if not root or len(root) != 4:
        return None
    return _num_blocks(shapes), root[3] / 64


def _heads_of(sizes, fields, has_paper_sizes):
    """The attention heads, None where they are unknown, and a list of notes."""
    heads = sizes.get("num_heads") or fields.get("num_heads")
    if heads is not None or not has_paper_sizes or sizes["width"] not in _HEADS:
        return heads, []
    heads = _HEADS[sizes["width"]]
    return heads, [f"{heads} heads were assumed, the paper's for a token size of {sizes['width']}"]


def _check_given(heads, gelu, width):
    """Raises ValueError for what weights never show, if it was not given."""
    unknown, hint = [], ""
    if heads is None:
        unknown.append("attention heads (num_heads, --num-heads)")
    if gelu is None:
        unknown.append("the form of GELU (gelu, --gelu)")
        hint = (
            "; GELU is exact in timm, transformers and torchvision, tanh in the official code and "
            "big_vision"
        )
    if unknown:
        raise ValueError(
            f"What the file does not show must be given: {' and '.join(unknown)}{hint}. "
            f"Received: weights with a token size of {width}"
        )


def _map_sizes(shapes, num_heads, mlp_dim):
    """Fields of `ViTConfig` that the shapes of an attention pooling show."""
    query, mlp = (shapes.get(f"map_head/{layer}") for layer in ("query", "mlp/dense_2"))
    heads = query[1] if query and len(query) == 3 else num_heads
    hidden = mlp[0] if mlp else mlp_dim
    return {
        "map_num_heads": None if heads == num_heads else heads,
        "map_mlp_dim": None if hidden == mlp_dim else hidden,
    }


def shows_swiglu(shapes: Mapping[str, Shape | None]) -> bool:
    """Returns whether the MLPs of weights are SwiGLU, by what `layer_shapes` returns."""
    first, second = (shapes.get(f"encoder_block_0/mlp/dense_{index}") for index in (1, 2))
    return bool(first and second and first == (second[1], 2 * second[0]))


def _norms_and_tokens(shapes: Mapping[str, Shape | None], classifier: str) -> dict[str, Any]:
    """Fields of `ViTConfig` that the names of layers in front of the head show."""
    if "encoder_norm" in shapes:
        final_norm = "tokens"
    elif "pooled_norm" in shapes:
        final_norm = "pooled"
    else:
        final_norm = "none"
    representation, registers = shapes.get("pre_logits"), shapes.get("registers")
    has_head = num_classes(shapes) is not None
    return {
        "representation_size": representation[1] if representation and has_head else None,
        "num_registers": registers[1] if registers else 0,
        "embedding_norm": "embedding_norm" in shapes,
        "final_norm": final_norm,
        "unread_class_token": classifier in ("gap", "max", "map") and "class_token" in shapes,
    }


def config_of_json(fields: Mapping[str, Any], kind: str | None = None) -> ModelConfig:
    """Returns the config that `dataclasses.asdict` and JSON stored.

    Args:
        fields: Fields of the config by name.
        kind: Name of the config's class, such as "ViTConfig"; by default the field "type".

    Raises:
        ValueError: If the class, a field or a value is unknown.
    """
    fields = dict(fields)
    kind = fields.pop("type", kind)
    if kind not in _CONFIG_TYPES:
        raise ValueError(f"A config must be one of {sorted(_CONFIG_TYPES)}. Received: {kind!r}")
    try:
        return _CONFIG_TYPES[kind](**fields)  # Makes tuples and the ResNet's stem itself.
    except TypeError as error:
        raise ValueError(f"The fields must match {kind}. Received: {error}") from error


def layer_shapes(shapes: Mapping[str, Shape | None]) -> dict[str, Shape | None]:
    """Returns the shape of the first variable of each layer: a kernel, a scale or a table.

    Args:
        shapes: Shape by the variable's path, such as "encoder_norm/gamma", or with its number
            in the layer, such as "encoder_norm/0"; None where it is unknown.
    """
    found = {}
    for path, shape in shapes.items():
        layer, _, variable = path.rpartition("/")
        is_later = variable in ("bias", "beta") or (variable.isdigit() and variable != "0")
        if layer not in found or not is_later:
            found[layer] = None if is_later else shape
    return found


def num_classes(shapes: Mapping[str, Shape | None]) -> int | None:
    """Returns the classes of the head, or None without a head.

    Args:
        shapes: What `layer_shapes` returns.
    """
    kernel = configs.classifier_layer(shapes)
    return kernel[-1] if kernel else None


def sizes_of_shapes(shapes: Mapping[str, Shape | None]) -> dict[str, int | tuple[int, ...]]:
    """Returns the sizes of `ViTConfig` that shapes show.

    Args:
        shapes: What `layer_shapes` returns.
    """
    shown: dict[str, int | tuple[int, ...]] = {}

    def shape_of(layer, rank):
        shape = shapes.get(layer)
        return shape if shape and len(shape) == rank else None

    if patch := shape_of("patch_embedding", 4):
        shown["patch_size"], shown["width"] = tuple(patch[:2]), patch[3]
    if mlp := shape_of("encoder_block_0/mlp/dense_2", 2):
        shown["mlp_dim"] = mlp[0]
    if query := shape_of("encoder_block_0/attention/query", 3):
        shown["num_heads"] = query[1]
    layers = {layer.partition("/")[0] for layer in shapes}
    if depth := sum(bool(re.fullmatch(r"encoder_block_\d+", name)) for name in layers):
        shown["depth"] = depth
    return shown


def _num_blocks(shapes: Iterable[str]) -> tuple[int, ...]:
    """Units in each block of a ResNet."""
    layers = {layer.partition("/")[0] for layer in shapes}
    units = [re.fullmatch(r"block_(\d+)_unit_\d+", name) for name in layers]
    blocks = collections.Counter(int(match[1]) for match in units if match)
    return tuple(count for _, count in sorted(blocks.items()))


def _classifier(shapes: Mapping[str, Shape | None]) -> str:
    """The input of the head; a file does not show weightless layers and gives the usual one."""
    layers = {layer.partition("/")[0] for layer in shapes}
    if "distillation_token" in layers:
        return "token+distillation"
    if "map_head" in layers:
        return "map"
    if "class_token" not in layers or "pooled_norm" in shapes:  # The latter as timm's models.
        return "gap"
    kernel, patches = configs.classifier_layer(shapes), shapes.get("patch_embedding")
    if kernel and patches and "pre_logits" not in shapes and kernel[0] == 2 * patches[3]:
        return "token+gap"
    return "token"
