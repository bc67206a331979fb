"""The config of a model that was built or loaded before; imports neither Keras nor TensorFlow.

A `.keras` file holds layers and no config, so the config is read from the layers, whose
names are part of the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from keras_vit import configs
from keras_vit.configs import AxialConfig, AxialResNetConfig, BiTConfig, ResNetStem, ViTConfig

POSITION_LAYERS = {"PositionEmbedding": "learned_1d", "PositionEmbedding2D": "learned_2d"}


def config_of(model: Any) -> ViTConfig | BiTConfig:
    """Returns the config of a model of `keras_vit.build`, also after saving and loading.

    A model without its head does not tell the head's fields: `representation_size` and
    `head_bias` are then the defaults, and `classifier` is "gap" if no learned token is there.

    Args:
        model: A functional `keras.Model`.

    Raises:
        ValueError: If the model is none of this package's.
    """
    layers = {layer.name: layer for layer in getattr(model, "layers", ())}
    for config_type, block in ((ViTConfig, "encoder_block"), (AxialConfig, "row_block")):
        if "patch_embedding" in layers and f"{block}_0" in layers:
            return _vit(config_type, model, layers, block)
    if "root_conv" in layers and "final_norm" in layers:
        return _resnet(layers)
    raise ValueError(
        "The model must be one of keras_vit.build. Received: a model with layers "
        f"{', '.join(list(layers)[:5]) or 'none'} ..."
    )


def _vit(config_type, model, layers, block_name):
    height, width = layers["patch_embedding"].kernel_size
    block = layers[f"{block_name}_0"]
    position_embedding, place = _positions(model, layers, block)
    return config_type(
        patch_size=height if height == width else (height, width),
        width=layers["patch_embedding"].filters,
        depth=_depth(layers, block_name),
        mlp_dim=block.mlp_dim,
        num_heads=block.num_heads,
        classifier=_classifier(layers),
        representation_size=layers["pre_logits"].units if "pre_logits" in layers else None,
        dropout_rate=block.dropout_rate,
        attention_dropout_rate=block.attention_dropout_rate,
        gelu=block.gelu,
        position_embedding=position_embedding,
        position_embedding_at=place,
        resnet=(
            ResNetStem(_num_blocks(layers), _width_factor(layers))
            if "root_conv" in layers
            else None
        ),
        norm_epsilon=block.norm_epsilon,
        remat=block.remat,
        num_registers=layers["registers"].num_registers if "registers" in layers else 0,
        head_bias=_head_bias(layers),
        stochastic_depth_rate=layers[
            f"{block_name}_{_depth(layers, block_name) - 1}"
        ].stochastic_depth_rate,
    )


def _depth(layers, block_name):
    return sum(bool(re.fullmatch(rf"{block_name}_\d+", name)) for name in layers)


def _resnet(layers):
    unit = layers["block_1_unit_1"]
    fields = (_num_blocks(layers), _width_factor(layers), _head_bias(layers))
    if type(unit).__name__ == "AxialUnit":
        return AxialResNetConfig(*fields, num_heads=unit.num_heads)
    return BiTConfig(*fields)


def _classifier(layers):
    if "distillation_token" in layers:
        return "token+distillation"
    if "class_token" in layers:
        return "token"
    return "map" if "map_head" in layers else "gap"


def _positions(model, layers, block):
    """The kind of position embeddings, and where they are."""
    if type(block).__name__ == "RelativeEncoderBlock":
        return "relative", "input"
    if "position_embedding_0" in layers:
        return POSITION_LAYERS[type(layers["position_embedding_0"]).__name__], "every_block"
    if "position_embedding" not in layers:
        return "none", "input"
    kind = POSITION_LAYERS[type(layers["position_embedding"]).__name__]
    calls = next(
        layer["inbound_nodes"]
        for layer in model.get_config()["layers"]
        if layer["name"] == "position_embedding"
    )
    return kind, "every_block_shared" if len(calls) > 1 else "input"


def _num_blocks(layers):
    """Units in each block of a ResNet."""
    units = [re.fullmatch(r"block_(\d+)_unit_\d+", name) for name in layers]
    blocks = [int(match[1]) for match in units if match]
    return tuple(blocks.count(block) for block in sorted(set(blocks)))


def _width_factor(layers):
    factor = layers["root_conv"].filters / 64
    return int(factor) if factor == int(factor) else factor


def _head_bias(layers):
    head = configs.classifier_layer(layers)
    return getattr(getattr(head, "bias_initializer", None), "value", 0.0)


def looks_like(shapes: Mapping[str, tuple[int, ...] | None]) -> str:
    """Returns the model that has such weights, such as "ViT-B/16"; "" if none has.

    Args:
        shapes: Shape by path; None where it is unknown.
    """
    seen = _seen(shapes)
    return " or ".join(
        name
        for name, config in configs.MODELS.items()
        if seen and all(_of_config(config).get(fact) == value for fact, value in seen.items())
    )


def _seen(shapes):
    seen: dict[str, object] = {}
    patch = shapes.get("patch_embedding/kernel")
    if patch and len(patch) == 4:
        seen["patch"], seen["width"] = tuple(patch[:2]), patch[3]
    mlp = shapes.get("encoder_block_0/mlp/dense_1/kernel")
    if mlp and len(mlp) == 2:
        seen["mlp_dim"] = mlp[1]
    query = shapes.get("encoder_block_0/attention/query/kernel")
    if query and len(query) == 3:
        seen["num_heads"] = query[1]
    root = shapes.get("root_conv/kernel")
    if root and len(root) == 4:
        seen["root_width"] = root[3]
    blocks = {int(m[1]) for path in shapes if (m := re.match(r"encoder_block_(\d+)/", path))}
    if blocks:
        seen["depth"] = len(blocks)
    if seen:
        units = {m[0] for path in shapes if (m := re.match(r"block_(\d+)_unit_\d+/", path))}
        counts: dict[int, int] = {}
        for unit in units:
            block = int(unit.split("_")[1])
            counts[block] = counts.get(block, 0) + 1
        seen["num_blocks"] = tuple(counts[block] for block in sorted(counts))
    return seen


def _of_config(config):
    if config.architecture == "bit":
        return {"root_width": config.width, "num_blocks": config.num_blocks}
    if config.architecture not in ("vit", "hybrid_vit"):
        return {}  # It has no names in any layout.
    facts = {
        "patch": config.patch_sizes,
        "width": config.width,
        "mlp_dim": config.mlp_dim,
        "num_heads": config.num_heads,
        "depth": config.depth,
        "num_blocks": config.resnet.num_blocks if config.resnet else (),
    }
    return {**facts, "root_width": config.resnet.width} if config.resnet else facts
