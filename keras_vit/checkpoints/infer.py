"""Which model a checkpoint is of, from the names and shapes in it."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Literal

from keras_vit.checkpoints.source import Source
from keras_vit.checkpoints.torch_names import TIMM
from keras_vit.configs import (
    DEFAULT_IMAGE_SIZE,
    SIZES,
    BiTConfig,
    ResNetStem,
    ViTConfig,
    classifier_layer,
)

# Kernels of PyTorch do not show the heads; these are the paper's, by width.
_HEADS = {size["width"]: size["num_heads"] for name, size in SIZES.items() if name != "b"}


@dataclasses.dataclass(frozen=True)
class Inferred:
    """What `keras_vit.build` must be given for a checkpoint.

    Args:
        config: The architecture.
        image_size: Pixels (height, width).
        channels: Channels of the images.
        classes: Classes of the head, or None without one.
        notes: What was assumed, a sentence each.
    """

    config: ViTConfig | BiTConfig
    image_size: tuple[int, int]
    channels: int
    classes: int | None
    notes: tuple[str, ...] = ()


def infer(source: Source, num_heads: int | None = None) -> Inferred:
    """Returns the model of a checkpoint.

    Args:
        source: The checkpoint.
        num_heads: Attention heads, for files that do not show them and are of no size of the
            paper.

    Raises:
        ValueError: If it is no model of this package, or more must be known.
    """
    shapes: dict[str, tuple[int, ...]] = {k: v for k, v in source.shapes.items() if v}
    layers = {path.partition("/")[0] for path in source.shapes}
    head = classifier_layer(shapes, "/kernel")
    classes = head and head[-1]
    if "final_norm" in layers and "root_conv/kernel" in shapes:
        root = shapes["root_conv/kernel"]
        config = BiTConfig(_units(layers), root[3] / 64)
        return Inferred(config, (DEFAULT_IMAGE_SIZE,) * 2, root[2], classes)
    try:
        return _vit(source, shapes, layers, num_heads, classes)
    except KeyError as error:
        raise ValueError(
            f"A checkpoint must be of a model of this package. Received: {source.path} without "
            f"{error.args[0]}"
        ) from error


def _vit(source, shapes, layers, num_heads, classes):
    facts, notes = source.facts, []
    height, width, channels, dim = shapes["patch_embedding/kernel"]
    resnet = None
    if "root_conv/kernel" in shapes:
        root = shapes["root_conv/kernel"]
        channels, resnet = root[2], ResNetStem(_units(layers), root[3] / 64)
    query = shapes.get("encoder_block_0/attention/query/kernel", ())
    heads = query[1] if len(query) == 3 else facts.get("num_heads") or num_heads
    if heads is None:
        if dim not in _HEADS:
            raise ValueError(
                "The number of heads must be given (num_heads, --num-heads): the file does not "
                f"show it. Received: {source.path} with a token size of {dim}"
            )
        heads = _HEADS[dim]
        notes.append(f"{heads} heads were assumed, the paper's for a token size of {dim}")
    classifier: Literal["token", "gap", "map", "token+distillation"]
    classifier = "map" if "map_head" in layers else "gap"
    if "class_token" in layers:
        classifier = "token+distillation" if "distillation_token" in layers else "token"
    if classifier == "token+distillation" and classes and "distillation_token_head" not in layers:
        raise ValueError(
            "A distillation token must have a head of its own, as in "
            "DeiTForImageClassificationWithTeacher; DeiTForImageClassification has it among the "
            f"tokens, but no head, which no model here equals. Received: {source.path}"
        )
    known = {fact: facts[fact] for fact in ("gelu", "norm_epsilon") if facts.get(fact)}
    if "gelu" not in known:
        notes.append(
            'the file does not say the form of GELU and LayerNorm\'s epsilon: "tanh" and 1e-6, '
            "the official ones, were assumed"
        )
    representation = shapes.get("pre_logits/kernel") if classes else None
    config = ViTConfig(
        patch_size=(height, width),
        width=dim,
        depth=len({layer for layer in layers if layer.startswith("encoder_block_")}),
        mlp_dim=shapes["encoder_block_0/mlp/dense_1/kernel"][1],
        num_heads=heads,
        classifier=classifier,
        representation_size=representation[1] if representation else None,
        resnet=resnet,
        num_registers=shapes["registers/tokens"][1] if "registers/tokens" in shapes else 0,
        **known,
    )
    down, across = _grid(source, shapes)
    stride = resnet.stride if resnet else 1
    size = (down * height * stride, across * width * stride)
    return Inferred(config, size, channels, classes, tuple(notes))


def _grid(source, shapes):
    if source.facts.get("position_grid"):
        return tuple(source.facts["position_grid"])
    table = shapes.get("position_embedding/embedding") or shapes["position_embedding/kernel"]
    counts = [0] if source.facts.get("positions_apart") else [source.class_tokens]
    if source.layout is TIMM:
        counts.append(0)  # Some of its models have no row for the class token.
    for rows in (table[1] - count for count in counts):
        side = math.isqrt(max(rows, 0))
        if side and side * side == rows:
            return side, side
    raise ValueError(
        "The grid of the position embeddings must be square, or said by the file. "
        f"Received: {source.path} with {table[1]} rows"
    )


def _units(layers: Any) -> tuple[int, ...]:
    counts: dict[int, int] = {}
    for layer in layers:
        match = re.fullmatch(r"block_(\d+)_unit_\d+", layer)
        if match:
            counts[int(match[1])] = counts.get(int(match[1]), 0) + 1
    return tuple(counts[block] for block in sorted(counts))
