"""timm: names of weights and `config.json` of Vision Transformers and DINOv3."""

from __future__ import annotations

import dataclasses
import math
import re

from keras_vit.checkpoints.code_bases.files_beside import (
    activation_of,
    check_sizes,
    found,
    read_class_names,
)
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    QKV,
    TORCH,
    Checkpoint,
    Layout,
    NameRule,
    Stated,
    rules_of,
)
from keras_vit.checkpoints.code_bases.transforms import TORCH_TRANSFORMS, VECTOR
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import num_classes, shows_swiglu
from keras_vit.description import Description, Labels
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL
from keras_vit.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, value_range

# The functions of models that are here, too, by their names; and patterns of names with the part
# that no model here has.
_KNOWN = re.compile(r"^(vit|deit3?|flexivit|eva)_")
MISSING = (
    (r"_7b_", "model of billions of numbers"),
    (r"relpos|^beit(v2)?_", "relative position biases"),
    (r"_rope_|_pe_|^eva02", "rotary positions that count patches"),
    (r"_rpn_|^beit3", "norms after or within the sublayers"),
    (r"_d?pwee_|_18x2_|_xp_", "parallel sublayers"),
    (r"_d(wee|little)_", "differential attention"),
    (r"_r(26|50)?_s\d|_resnet\d|_mci_|^fastvit|^convnext", "timm's stems of convolutions"),
    (r"sapiens|^aimv2|^gemma", "RMSNorm"),
    (r"^naflexvit", "grids that differ by image"),
    (r"^samvit", "attention in windows"),
)

# What the functions of these names set. All others have heads of 64 units, the exact GELU and an
# epsilon of 1e-6; docs/timm_models.py asks timm.
_FACTS: tuple[tuple[str, dict[str, str | float]], ...] = (
    (r"^(vit|deit3)_(huge|gigantic|giantopt|so400m)_patch", {"num_heads": 16}),
    (r"^vit_giant_patch\d+_(224|clip|gap)", {"num_heads": 16}),
    (r"^vit_base_patch16_gap_224$|^eva_giant_", {"num_heads": 16}),
    (r"^vit_.*_clip_", {"norm_epsilon": 1e-5}),
    (r"_dinov3|_lingbot", {"norm_epsilon": 1e-5, "rotary": 100.0}),
    (r"_quickgelu_", {"gelu": "quick"}),
    (r"^vit_(giantopt|so400m)_patch16_siglip_", {"gelu": "tanh"}),
    (r"^vit_base_patch32_siglip_|^vit_large_patch16_siglip_(gap_)?512$", {"gelu": "tanh"}),
)

# Our input of the head by timm's `global_pool`.
_CLASSIFIERS = {"token": "token", "avg": "gap", "max": "max", "map": "map"}

# Arguments of a model that change what it computes without a trace in the arrays' names; the
# padding at image sizes that are no multiple of the patch.
_ARGUMENTS = {
    "pool_include_prefix": False,
    "norm_layer": "layernorm",
    "attn_layer": "attn",
    "block_fn": None,
    "dynamic_img_pad": False,
}


def _stated(checkpoint: Checkpoint) -> Stated:
    """What the `config.json` of a model and its name state."""
    config, shapes, path = checkpoint.config, checkpoint.shapes, checkpoint.path
    name = str(config.get("architecture") or "")
    if not name:
        if "encoder_block_0/layer_scale_1" in shapes:  # DeiT III, or DINOv2, also of Meta's code.
            raise ValueError(
                "Weights of timm with LayerScale must have their config.json in the same folder, "
                f"which shows epsilon and positions. Received: {path}"
            )
        return {}, Description()
    arguments = config.get("model_args") or {}
    _check_is_here(name, arguments, path)
    width, ratio = checkpoint.width, arguments.get("mlp_ratio")
    check_sizes(
        shapes,
        path,
        {
            "depth": arguments.get("depth"),
            "width": arguments.get("embed_dim") or config.get("num_features"),
            "mlp_dim": int(width * ratio) if ratio and not shows_swiglu(shapes) else None,
        },
    )
    fields: dict[str, str | float | None] = {
        "gelu": "exact",
        "norm_epsilon": ViTConfig.norm_epsilon,
        "num_heads": None if width % 64 else width // 64 or None,
    }
    for pattern, more in _FACTS:
        if re.search(pattern, name):
            fields |= more
    if arguments.get("num_heads") or "embed_dim" in arguments:
        fields["num_heads"] = arguments.get("num_heads")
    if arguments.get("act_layer"):
        fields["gelu"] = activation_of("act_layer", arguments["act_layer"], path)
    # The argument that the model was made with, and the state in which it was saved.
    fields |= _classifier(checkpoint, [arguments.get("global_pool"), config.get("global_pool")])
    kernel = shapes.get("patch_embedding")
    size = arguments.get("img_size") or _pretrained_cfg(config).get("input_size")
    if size:  # A number, (height, width) or (channels, height, width).
        size = (size, size) if isinstance(size, int) else tuple(size[-2:])
    if not size or not kernel:
        return fields, Description()
    grid = tuple(side // patch for side, patch in zip(size, kernel[:2], strict=True))
    return fields, Description(position_grid=grid, input_shape=(*size, 3))


def _check_is_here(name, arguments, path):
    """Raises ValueError for a model of timm that computes what no model here does."""
    part = next((part for pattern, part in MISSING if re.search(pattern, name)), None)
    if part is not None or not _KNOWN.match(name):
        raise ValueError(
            "A model of timm must be a plain Vision Transformer (vit_, deit_, deit3_, flexivit_, "
            f"eva_); here is no {part or 'such model'}. Received: {name} in {path}"
        )
    for argument, default in _ARGUMENTS.items():
        if arguments.get(argument) not in (None, default):
            raise ValueError(
                f"A timm model must have {argument}={default!r}. "
                f"Received: {argument}={arguments[argument]!r} in the config.json of {path}"
            )


def _classifier(checkpoint, stated_pools):
    """The field `classifier` by what is stated of `global_pool`; {} if nothing is."""
    pools = {str(pool) for pool in stated_pools if pool}
    if "" in stated_pools and num_classes(checkpoint.shapes) is not None:
        pools.add("")  # No pooling in front of a head.
    if len(pools) > 1 or not pools <= _CLASSIFIERS.keys():
        raise ValueError(
            f"global_pool must be one of {tuple(_CLASSIFIERS)}. Received: global_pool="
            f"{' and '.join(map(repr, sorted(pools)))} next to {checkpoint.path}"
        )
    if pools == {"token"} and "distillation_token" in checkpoint.shapes:
        return {"classifier": "token+distillation"}
    return {"classifier": _CLASSIFIERS[pools.pop()]} if pools else {}


def _pretrained_cfg(config):
    """The settings of the images; timm's first files have them at the config's top."""
    return config.get("pretrained_cfg") or (config if "input_size" in config else {})


def _images(checkpoint, image_size, classes):
    config = checkpoint.config
    wanted = _pretrained_cfg(config)
    names, more_notes = read_class_names(
        config.get("label_names") or wanted.get("label_names") or wanted.get("labels"), classes
    )
    # A `TimmWrapper` of transformers.
    is_multilabel = config.get("problem_type") == "multi_label_classification"
    labels = Labels(names, MULTILABEL if is_multilabel else MULTICLASS)
    if not wanted:
        return found("no config.json of timm", labels=labels, notes=more_notes)
    values = value_range(wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD))
    preprocessing, notes = _resize_of_timm(wanted, image_size)
    preprocessing = dataclasses.replace(preprocessing, value_range=values)
    return found("config.json", preprocessing, labels, (*more_notes, *notes))


def _resize_of_timm(wanted, image_size):
    """Returns the preprocessing of a `pretrained_cfg` without the values, and notes.

    What it leaves open is as in timm's `resolve_data_config`.
    """
    mode, share = wanted.get("crop_mode") or "center", wanted.get("crop_pct") or 0.875
    if mode not in ("center", "squash") or not 0 < share <= 1:
        raise ValueError(
            "Images must be resized and their middle cropped, not padded. "
            f"Received: crop_mode={mode!r}, crop_pct={share!r}"
        )
    height, width = (math.floor(side / share) for side in image_size)
    notes = []
    if mode == "center" and height != width:
        notes.append(f"crop_mode='center' for images of {image_size} pixels became 'squash'")
        mode = "squash"
    return Preprocessing(
        image_size,
        "torchvision",
        interpolation=wanted.get("interpolation") or "bicubic",
        resize_size=height if mode == "center" else None if share == 1 else (height, width),
    ), notes


_BLOCK = "blocks.{block}"

_NAMES = {
    "patch_embedding": "patch_embed.proj",
    "class_token/token": "cls_token",
    "distillation_token/token": "dist_token",
    "registers/tokens": "reg_token",
    "position_embedding/embedding": "pos_embed",
    "embedding_norm": "norm_pre",
    f"{BLOCK}/norm_1": f"{_BLOCK}.norm1",
    f"{BLOCK}/attention/qkv": f"{_BLOCK}.attn.qkv",
    f"{BLOCK}/attention/query_norm": f"{_BLOCK}.attn.q_norm",
    f"{BLOCK}/attention/key_norm": f"{_BLOCK}.attn.k_norm",
    f"{BLOCK}/attention/out": f"{_BLOCK}.attn.proj",
    f"{BLOCK}/layer_scale_1/gamma": f"{_BLOCK}.ls1.gamma",
    f"{BLOCK}/norm_2": f"{_BLOCK}.norm2",
    f"{BLOCK}/mlp/dense_1": f"{_BLOCK}.mlp.fc1",
    f"{BLOCK}/mlp/dense_2": f"{_BLOCK}.mlp.fc2",
    f"{BLOCK}/layer_scale_2/gamma": f"{_BLOCK}.ls2.gamma",
    "encoder_norm": "norm",
    "pooled_norm": "fc_norm",
    "pre_logits": "pre_logits.fc",
    "predictions": "head",
    "class_token_head": "head",
    "distillation_token_head": "head_dist",
    # Attention pooling, as SigLIP's.
    "map_head/probe": "attn_pool.latent",
    "map_head/query": "attn_pool.q",
    "map_head/kv": "attn_pool.kv",
    "map_head/out": "attn_pool.proj",
    "map_head/norm": "attn_pool.norm",
    "map_head/mlp/dense_1": "attn_pool.mlp.fc1",
    "map_head/mlp/dense_2": "attn_pool.mlp.fc2",
}

# huggingface/pytorch-image-models: VisionTransformer, DeiT too.
TIMM = Layout(
    name="timm",
    rules=rules_of(_NAMES, TORCH, TORCH_TRANSFORMS, f"^patch_embedding/|^{BLOCK}/"),
    marks=(r"^patch_embed\.proj\.weight$", r"^blocks\.\d+\.attn\.qkv\.weight$"),
    left_out=((r"^mask_token$", "the mask token"),),
    gelu="exact",
    norm_epsilon=1e-6,
    # By default positions are added to all tokens; with `no_embed_class` to patches only.
    prefix_rows=("all", "class", "none"),
    models_vary=True,
    position_resize="bicubic",
    stated=_stated,
    images=_images,
)

_GAMMAS = {f"{BLOCK}/layer_scale_{part}/gamma": f"{_BLOCK}.gamma_{part}" for part in (1, 2)}

# Biases that are apart; keys have none.
_BIASES = tuple(
    NameRule(f"{_BLOCK}.attn.{part[0]}_bias", (f"{BLOCK}/attention/{part}/bias",), VECTOR, True)
    for part in QKV
)

# The same code base: Eva, which DINOv3 is, too.
TIMM_EVA = dataclasses.replace(
    TIMM,
    name="timm Eva and DINOv3",
    rules=(
        *_BIASES,
        *rules_of({**_NAMES, **_GAMMAS}, TORCH, TORCH_TRANSFORMS, f"^patch_embedding/|^{BLOCK}/"),
    ),
    marks=(*TIMM.marks, r"^blocks\.0\.(gamma_1|attn\.q_bias)$"),
    aliases=((r"\.mlp\.fc1_x\.", ".mlp.fc1."),),
    gates=(".mlp.fc1_g.", ".mlp.fc1."),
)
