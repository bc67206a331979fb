"""Facts about timm's models that neither their arrays nor their `config.json` hold, by name."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.facts import Facts
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import num_classes

# Names of activations in `transformers` and timm.
ACTIVATIONS = {
    "gelu": "exact",
    "gelu_python": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_tanh": "tanh",
    "quick_gelu": "quick",
    "quickgelu": "quick",
    "relu": "relu",
    "gated silu": "swiglu",
}

# Names of the models, and what their functions in timm set. Every other name has heads of 64
# units, exact GELU and an epsilon of 1e-6; tests/checkpoints/test_timm.py asks timm.
_FACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"^(vit|deit3)_(huge|gigantic|giantopt|so400m)_patch", {"num_heads": 16}),
    (r"^vit_giant_patch\d+_(224|clip|gap)", {"num_heads": 16}),
    (r"^vit_base_patch16_gap_224$", {"num_heads": 16}),
    (r"^vit_small_resnet", {"num_heads": 8}),
    (r"_clip_", {"norm_epsilon": 1e-5}),
    (r"_dinov3|_lingbot", {"norm_epsilon": 1e-5}),
    (r"^vit_7b_patch16_dinov3", {"num_heads": 32}),
    (r"_quickgelu_", {"gelu": "quick"}),
    (r"^vit_(giantopt|so400m)_patch16_siglip_", {"gelu": "tanh"}),
    (r"^vit_base_patch32_siglip_|^vit_large_patch16_siglip_(gap_)?512$", {"gelu": "tanh"}),
)
_HEAD_DIM = 64

# What models have that no model here equals, by their names.
REFUSALS = (
    (r"^eva|^beit", "the attention of BEiT and EVA"),
    (r"^aimv2", "RMSNorm"),
    (r"^cait", "talking heads and class attention"),
    (r"relpos", "relative position biases"),
    (r"_rpn_", "normalisation behind attention and MLP"),
    (r"_rope_", "the rotary positions of RoPE-ViT"),
    (r"_pe_(core|lang|spatial)_", "the rotary positions of the Perception Encoder"),
)

# Names of arrays in files of timm's Eva, whose rotary positions the arrays do not show.
EVA_NAMES = re.compile(r"\.gamma_1$|\.attn\.q_bias$|\.mlp\.fc1_g\.weight$")

# Our input of the head by timm's `global_pool`.
_CLASSIFIERS = {"token": "token", "avg": "gap", "max": "max", "map": "map"}

# Arguments of a model that change what it computes without a trace in the arrays' names.
_ARGUMENTS = {
    "pool_include_prefix": False,
    "norm_layer": "layernorm",
    "attn_layer": "attn",
    "block_fn": None,
}


_ROTARY_ARGUMENTS = ("rope_", "use_rot_pos_emb", "ref_feat_shape")


def facts_of_timm(
    config: Mapping[str, Any], shapes: Mapping[str, Any], path: pathlib.Path
) -> Facts:
    """Returns facts about the weights of a timm model from its `config.json` and its name.

    Args:
        config: The content of `config.json`.
        shapes: Shapes by layer; see `keras_vit.configs.recognition.layer_shapes`.
        path: The file or folder, for messages.

    Raises:
        ValueError: If no model here equals it.
    """
    name = str(config.get("architecture") or "")
    for pattern, feature in REFUSALS:
        if re.search(pattern, name):
            raise ValueError(
                f"timm's {name} has {feature}, which no model here has. Received: {path}"
            )
    arguments = config.get("model_args") or {}
    for argument, default in _ARGUMENTS.items():
        if arguments.get(argument) not in (None, default):
            raise ValueError(
                f"A timm model must have {argument}={default!r}. "
                f"Received: {argument}={arguments[argument]!r} in the config.json of {path}"
            )
    changed = [argument for argument in arguments if argument.startswith(_ROTARY_ARGUMENTS)]
    if changed:
        raise ValueError(
            "A timm model must have the rotary positions of its name. "
            f"Received: {', '.join(changed)} in the config.json of {path}"
        )
    fields = _of_name(name, arguments, shapes)
    if activation := arguments.get("act_layer"):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"act_layer must be one of {tuple(ACTIVATIONS)}. "
                f"Received: act_layer={activation!r} beside {path}"
            )
        fields["gelu"] = ACTIVATIONS[activation]
    if isinstance(arguments.get("num_heads"), int):
        fields["num_heads"] = arguments["num_heads"]
    # The argument that the model was made with, and the state in which it was saved.
    given = [place.get("global_pool") for place in (arguments, config)]
    if "" in given and num_classes(shapes) is not None:
        raise ValueError(
            "A timm model with a head must pool its tokens. "
            f"Received: global_pool='' in the config.json of {path}"
        )
    pools = {str(pool) for pool in given if pool}
    if len(pools) > 1 or not pools <= _CLASSIFIERS.keys():
        raise ValueError(
            f"global_pool must be one of {tuple(_CLASSIFIERS)}. "
            f"Received: global_pool={' and '.join(map(repr, sorted(pools)))} beside {path}"
        )
    for pool in pools:
        is_distilled = pool == "token" and "distillation_token" in shapes
        fields["classifier"] = "token+distillation" if is_distilled else _CLASSIFIERS[pool]
    if arguments.get("pos_embed") == "none" and "position_embedding" not in shapes:
        fields["position_embedding"] = "none"
    size, kernel = _image_size(config, arguments), shapes.get("patch_embedding")
    grid = None
    if size and kernel and "root_conv" not in shapes:
        grid = tuple(side // patch for side, patch in zip(size, kernel[:2], strict=True))
    try:
        return Facts(fields, grid, size)
    except ValueError as error:
        raise ValueError(f"{error} in {path}") from error


def _of_name(name, arguments, shapes):
    """Fields of the config by the name of timm's function; none of functions unknown here."""
    if not re.match(r"(vit|deit3?|flexivit)_", name):
        return {}
    fields: dict[str, Any] = {"gelu": "exact", "norm_epsilon": ViTConfig.norm_epsilon}
    width = (shapes.get("patch_embedding") or (0,))[-1]
    if "embed_dim" not in arguments and width % _HEAD_DIM == 0:
        fields["num_heads"] = width // _HEAD_DIM
    for pattern, more in _FACTS:
        if re.search(pattern, name):
            fields.update({k: v for k, v in more.items() if k != "num_heads" or k in fields})
    if re.search(r"_dinov3|_lingbot$", name):
        fields["rotary"] = 100.0
    return fields


def _image_size(config, arguments):
    """Pixels (height, width) of the images, or None."""
    size = arguments.get("img_size") or (config.get("pretrained_cfg") or {}).get("input_size")
    if isinstance(size, int):
        return (size, size)
    if isinstance(size, list) and len(size) > 1 and all(isinstance(side, int) for side in size):
        return tuple(size[-2:])  # Also from (channels, height, width).
    return None
