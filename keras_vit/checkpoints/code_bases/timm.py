"""timm: names of weights and `config.json`."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from keras_vit.checkpoints.code_bases.files_beside import (
    Stated,
    WeightFiles,
    by,
    checked,
    differences,
    differing_fields,
    found,
    mean_and_std,
    read_class_names,
)
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    CONVOLUTION,
    CONVOLUTION_OF_POOLED,
    MATRIX,
    MATRIX_FROM_HEADS,
    STACKED_MATRICES,
    STACKED_VECTORS,
    UNIT,
    VECTOR,
    Layout,
    Rule,
    joined_gates,
    torch_dense,
    torch_norm,
    torch_qkv,
)
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import num_classes
from keras_vit.description import Description, Labels
from keras_vit.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, value_range

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


def _stated(files: WeightFiles) -> Stated:
    """What the `config.json` of a model and its name state."""
    config, shapes, path = files.config, files.shapes, files.path
    name = str(config.get("architecture") or "")
    if not name:
        return _stated_by_names(files), Description()
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
        shape = (*size, 3) if size else None
        return fields, Description(position_grid=grid, input_shape=shape)
    except ValueError as error:
        raise ValueError(f"{error} in {path}") from error


def _stated_by_names(files):
    """The rule for positions of code bases with timm's names and no `config.json`."""
    if any(name.endswith("mask_token") for name in files.names):  # Meta's DINOv2.
        return {"position_resize": "bicubic" if "registers" in files.shapes else "bicubic_dinov2"}
    return {"position_resize": "bicubic_torch"} if files.wrapper == "model" else {}  # DeiT, MAE.


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


def _images(files, image_size, classes):
    config = files.config
    wanted = config.get("pretrained_cfg")
    if not isinstance(wanted, dict):
        wanted = {}
    names, more_notes = read_class_names(
        config.get("label_names") or wanted.get("label_names"), classes
    )
    if not wanted:
        return found("no config.json of timm", labels=Labels(names), notes=more_notes)
    mean, std = wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD)
    preprocessing, notes = _resize_of_timm(wanted, image_size)
    return found(
        "config.json",
        dataclasses.replace(preprocessing, value_range=checked(value_range, mean, std)),
        Labels(names),
        (*more_notes, *notes),
    )


def _resize_of_timm(wanted, image_size):
    """Returns the preprocessing of a `pretrained_cfg` without the values, and notes.

    What it leaves open is as in timm's `resolve_data_config`.
    """
    mode, share = wanted.get("crop_mode") or "center", wanted.get("crop_pct") or 0.875
    if (
        mode not in ("center", "squash")
        or not isinstance(share, (int, float))
        or not 0 < share <= 1
    ):
        raise ValueError(
            "Images must be resized and their middle cropped, not padded. "
            f"Received: crop_mode={mode!r}, crop_pct={share!r}"
        )
    height, width = (math.floor(side / share) for side in image_size)
    notes = []
    if mode == "center" and height != width:
        notes.append(f"crop_mode='center' for images of {by(image_size)} pixels became 'squash'")
        mode = "squash"
    return Preprocessing(
        image_size,
        "torchvision",
        interpolation=wanted.get("interpolation") or "bicubic",
        resize_size=height if mode == "center" else None if share == 1 else (height, width),
    ), notes


def _usual_resize(image_size):
    share = 0.9 if max(image_size) < 384 else 1.0
    return _resize_of_timm({"crop_pct": share}, image_size)[0]


_TIMM_BLOCK = "blocks.{block}"
_TIMM_STEM = "patch_embed.backbone"
_TIMM_UNIT = "stages.{block}.units.{unit}"
_TIMM_KV = ("map_head/key", "map_head/value")

# Blocks and units of timm's ResNets count from 0; a unit is called a block too.
_TIMM_UNITS = (
    r"\bstages\.(\d+)\.blocks\.(\d+)\.",
    lambda match: f"stages.{int(match[1]) + 1}.units.{int(match[2]) + 1}.",
)

# By the names of their arrays.
_TIMM_REFUSALS = (
    (r"\.attn\.[qkv]_proj\.", "grouped queries, or normalisation in the MLP (timm's Eva)"),
    (r"\.lambda_\w+$", "differential attention"),
    (r"^blocks\.\d+\.in_proj\.", "attention and MLP in parallel"),
    (r"^blocks\.\d+\.attns\.", "parallel attentions in a block"),
    (r"rel_pos\.mlp\.", "relative position biases"),
    (r"^rope\.freqs$", "learned rotary positions"),
    (r"^patch_embed\..*running_mean$", "a stem with BatchNorm"),
    (r"^patch_embed\.norm\.", "normalisation in the patch embedding (embed_norm_layer)"),
    (r"^blocks\.\d+\.(attn|mlp)\.norm\.", "normalisation within attention or MLP"),
)


def _timm_units(prefix, rest):
    """The residual units of a ResNet: convolutions and norms."""
    unit = f"{prefix}{_TIMM_UNIT}"
    parts = (1, 2, 3)
    return (
        *(
            Rule(f"{unit}.conv{part}.weight", f"{UNIT}/conv_{part}/kernel", CONVOLUTION)
            for part in parts
        ),
        *(row for part in parts for row in torch_norm(f"{unit}.norm{part}", f"{UNIT}/norm_{part}")),
        Rule(f"{unit}.downsample.conv.weight", f"{UNIT}/conv_projection/kernel", CONVOLUTION),
        *rest,
    )


# huggingface/pytorch-image-models: VisionTransformer, its hybrids, DeiT and Eva too.
TIMM = Layout(
    name="timm",
    rules=(
        *torch_dense("patch_embed.proj", "patch_embedding", CONVOLUTION, optional_bias=True),
        Rule("cls_token", "class_token/token"),
        Rule("dist_token", "distillation_token/token"),
        Rule("reg_token", "registers/tokens"),
        Rule("pos_embed", "position_embedding/embedding"),
        *torch_norm("norm_pre", "embedding_norm"),
        *torch_norm(f"{_TIMM_BLOCK}.norm1", f"{BLOCK}/norm_1"),
        *torch_qkv(f"{_TIMM_BLOCK}.attn.qkv.weight", f"{_TIMM_BLOCK}.attn.qkv.bias"),
        *torch_norm(f"{_TIMM_BLOCK}.attn.q_norm", f"{BLOCK}/attention/query_norm"),
        *torch_norm(f"{_TIMM_BLOCK}.attn.k_norm", f"{BLOCK}/attention/key_norm"),
        *torch_dense(f"{_TIMM_BLOCK}.attn.proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS, True),
        Rule(f"{_TIMM_BLOCK}.ls1.gamma", f"{BLOCK}/layer_scale_1/gamma"),
        *torch_norm(f"{_TIMM_BLOCK}.norm2", f"{BLOCK}/norm_2"),
        *torch_dense(f"{_TIMM_BLOCK}.mlp.fc1", f"{BLOCK}/mlp/dense_1", optional_bias=True),
        *torch_dense(f"{_TIMM_BLOCK}.mlp.fc2", f"{BLOCK}/mlp/dense_2", optional_bias=True),
        Rule(f"{_TIMM_BLOCK}.ls2.gamma", f"{BLOCK}/layer_scale_2/gamma"),
        *torch_norm("norm", "encoder_norm"),
        *torch_norm("fc_norm", "pooled_norm"),
        *torch_dense("pre_logits.fc", "pre_logits"),
        *torch_dense("head", "predictions"),
        *torch_dense("head", "class_token_head"),
        *torch_dense("head_dist", "distillation_token_head"),
        # Attention pooling, as SigLIP's.
        Rule("attn_pool.latent", "map_head/probe"),
        Rule("attn_pool.q.weight", "map_head/query/kernel", MATRIX),
        Rule("attn_pool.q.bias", "map_head/query/bias", VECTOR),
        Rule("attn_pool.kv.weight", tuple(f"{p}/kernel" for p in _TIMM_KV), STACKED_MATRICES),
        Rule("attn_pool.kv.bias", tuple(f"{p}/bias" for p in _TIMM_KV), STACKED_VECTORS),
        *torch_dense("attn_pool.proj", "map_head/out", MATRIX_FROM_HEADS),
        *torch_norm("attn_pool.norm", "map_head/norm"),
        *torch_dense("attn_pool.mlp.fc1", "map_head/mlp/dense_1"),
        *torch_dense("attn_pool.mlp.fc2", "map_head/mlp/dense_2"),
        # The ResNet of a hybrid.
        Rule(f"{_TIMM_STEM}.stem.conv.weight", "root_conv/kernel", CONVOLUTION),
        *torch_norm(f"{_TIMM_STEM}.stem.norm", "root_norm"),
        *_timm_units(
            f"{_TIMM_STEM}.",
            torch_norm(f"{_TIMM_STEM}.{_TIMM_UNIT}.downsample.norm", f"{UNIT}/norm_projection"),
        ),
    ),
    marks=(r"^patch_embed\.proj\.weight$", r"^blocks\.\d+\.attn\.qkv\.weight$"),
    left_out=((r"^mask_token$", "the mask token"),),
    aliases=(
        _TIMM_UNITS,
        # Eva's.
        (r"\.gamma_([12])$", r".ls\1.gamma"),
        # Names of Meta's DINOv2; with `block_chunks` the block's number follows its chunk's.
        (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),
        (r"^register_tokens$", "reg_token"),
        (r"\.mlp\.w12\.", ".mlp.fc1."),
        (r"\.mlp\.w3\.", ".mlp.fc2."),
        # A stem without blocks is not in a separate module.
        (r"^patch_embed\.backbone\.(conv|norm)\.", r"patch_embed.backbone.stem.\1."),
    ),
    joined=(
        (
            f"{_TIMM_BLOCK}.attn.qkv.bias",
            (f"{_TIMM_BLOCK}.attn.q_bias", None, f"{_TIMM_BLOCK}.attn.v_bias"),
        ),
        *joined_gates(f"{_TIMM_BLOCK}.mlp", "fc1", "fc1_g", "fc1_x"),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
    epsilon_in="variance",
    # By default positions are added to all tokens; with `no_embed_class` to patches only.
    prefix_rows=("all", "class", "none"),
    models_vary=True,
    refusals=_TIMM_REFUSALS,
    position_resize="bicubic",
    # Names of Eva, whose rotary positions the arrays do not show.
    needed=(r"\.gamma_1$|\.attn\.q_bias$|\.mlp\.fc1_g\.weight$", "rotary"),
    stated=_stated,
    images=_images,
    usual_resize=_usual_resize,
)

# The same code base: ResNetV2 of the BiT paper.
TIMM_BIT = Layout(
    name="timm (BiT)",
    rules=(
        Rule("stem.conv.weight", "root_conv/kernel", CONVOLUTION),
        *_timm_units("", ()),
        *torch_norm("norm", "final_norm"),
        Rule("head.fc.weight", "predictions/kernel", CONVOLUTION_OF_POOLED),
        Rule("head.fc.bias", "predictions/bias"),
    ),
    marks=(r"^stem\.conv\.weight$", r"^stages\.1\.units\.1\.norm1\.weight$"),
    aliases=(_TIMM_UNITS,),
    stated=_stated,
    images=_images,
    usual_resize=_usual_resize,
)


# Writing

_TIMM_ACTIVATIONS = {"tanh": "gelu_tanh", "quick": "quick_gelu", "relu": "relu"}

# Heads of our models as `global_pool` of timm.
_TIMM_POOLINGS = {"token": "token", "gap": "avg", "max": "max", "map": "map"}


def timm_arguments(config: ViTConfig) -> dict[str, Any]:
    """Returns the arguments, other than sizes, by which timm's `create_model` gives the model.

    Raises:
        ValueError: If none give it.
    """
    absent = {
        "classifier": config.classifier == "token+gap",
        "representation_size": config.representation_size is not None,
        "position_embedding": config.position_embedding not in ("learned_1d", "none"),
        "position_embedding_at": config.position_embedding_at != "input",
        **{name: name not in ("layer_scale", "qk_norm") for name in config.block(0).features},
        "map_num_heads": config.map_num_heads is not None,
        "map_mlp_dim": config.map_mlp_dim is not None,
    }
    if any(absent.values()):
        raise ValueError(
            "A model for timm must have positions at the input, and one linear layer behind one "
            "token or pooling. "
            f"Received: {differing_fields(config, absent)}"
        )
    pooling = _TIMM_POOLINGS.get(config.classifier, "token")
    wanted = {
        "global_pool": (pooling, "token"),
        "class_token": (config.has_class_token, True),
        "fc_norm": (config.final_norm == "pooled", pooling in ("avg", "max")),
        "final_norm": (config.final_norm != "none", True),
        "pre_norm": (config.embedding_norm, False),
        "init_values": (1.0 if config.layer_scale else None, None),
        "qk_norm": (config.qk_norm, False),
        "reg_tokens": (config.num_registers, 0),
        "no_embed_class": (config.num_registers > 0, False),
        "act_layer": (_TIMM_ACTIVATIONS.get(config.gelu), None),
    }
    return {name: value for name, (value, default) in wanted.items() if value != default}


def timm_json(
    config: ViTConfig, preprocessing: Preprocessing, channels: int, class_names
) -> tuple[dict, list[str]]:
    """Returns the content of timm's `config.json`, and a note for each difference.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` reads it.

    Args:
        config: A plain Vision Transformer.
        preprocessing: How an image becomes the model's input.
        channels: Channels of the images.
        class_names: Names of the classes, or None without a head.

    Raises:
        ValueError: If timm has no evaluation that is nearly the same.
    """
    notes = differences(preprocessing, "torchvision")
    size, before = preprocessing.image_size, preprocessing.resize_size
    if isinstance(before, int):
        pairs = [(side, before) for side in set(size)]
    else:
        pairs = list(zip(size, before or size, strict=True))
    share = _crop_pct(pairs)
    if share is None or (isinstance(before, int) and len(pairs) > 1):
        raise ValueError(
            "timm crops one share of both sides, and the short side only of square images; "
            "convert to a file with the suffix .safetensors. "
            f"Received: image_size={size}, resize_size={before}"
        )
    if config.gelu == "swiglu":
        raise ValueError(
            "timm's config.json has no place for SwiGLU; convert to a file with the suffix "
            f".safetensors. Received: gelu={config.gelu!r}"
        )
    mean, std = mean_and_std(preprocessing, channels)
    is_distilled = config.classifier == "token+distillation"
    classes = 0 if class_names is None else len(class_names)
    # The last half unit is for timm, which multiplies and rounds down.
    ratio = config.mlp_dim / config.width
    if int(config.width * ratio) != config.mlp_dim:
        ratio = (config.mlp_dim + 0.5) / config.width
    return {
        "architecture": f"{'deit_base_distilled' if is_distilled else 'vit_base'}_patch16_224",
        "num_classes": classes,
        "num_features": config.width,
        **({} if class_names is None else {"label_names": list(class_names)}),
        "model_args": {
            "img_size": list(size),
            "patch_size": list(config.patch_sizes),
            "in_chans": channels,
            "embed_dim": config.width,
            "depth": config.depth,
            "num_heads": config.num_heads,
            "mlp_ratio": ratio,
            **timm_arguments(config),
        },
        "pretrained_cfg": {
            "custom_load": False,
            "input_size": [channels, *size],
            "fixed_input_size": True,
            "interpolation": preprocessing.interpolation,
            "crop_pct": share,
            "crop_mode": "center" if isinstance(before, int) else "squash",
            "mean": mean,
            "std": std,
            "num_classes": classes,
            "pool_size": None,
            "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"] if is_distilled else "head",
        },
    }, notes


def _crop_pct(pairs):
    """Returns the roundest share with `floor(side / share) == before` for all pairs, or None."""
    for digits in range(17):
        unit = 10**digits
        share = min(math.floor(unit * side / before) for side, before in pairs) / unit
        if share and all(math.floor(side / share) == before for side, before in pairs):
            return share
    return None
