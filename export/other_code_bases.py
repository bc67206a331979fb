"""The configuration files of Hugging Face and timm beside converted weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from keras_vit.checkpoints.metadata import PILLOW_FILTERS
from keras_vit.configs import ViTConfig
from keras_vit.files import PREPROCESSING
from keras_vit.preprocessing import PILLOW_EVALUATIONS, Preprocessing

WEIGHTS = "model.safetensors"
CONFIG = "config.json"

_ACTIVATIONS = {"exact": "gelu", "tanh": "gelu_pytorch_tanh"}


def config_json(config: ViTConfig, image_size, channels: int, class_names) -> dict:
    """Returns the content of `config.json`.

    Args:
        config: A plain Vision Transformer.
        image_size: Pixels (height, width).
        channels: Channels of the images.
        class_names: Names of the classes, or None without a head.
    """

    def sides(size):
        return size[0] if size[0] == size[1] else list(size)

    is_distilled = config.classifier == "token+distillation"
    body = "DeiT" if is_distilled else "ViT"
    suffix = "ForImageClassificationWithTeacher" if is_distilled else "ForImageClassification"
    labels = {} if class_names is None else {
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
    }  # fmt: skip
    return {
        "architectures": [f"{body}{'Model' if class_names is None else suffix}"],
        "model_type": body.lower(),
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": _ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "layer_norm_eps": config.norm_epsilon,
        "image_size": sides(image_size),
        "patch_size": sides(config.patch_sizes),
        "num_channels": channels,
        "qkv_bias": True,
        **labels,
    }


def preprocessor_json(preprocessing: Preprocessing, channels: int) -> tuple[dict, list[str]]:
    """Returns the content of `preprocessor_config.json`, and a note for each difference.

    Raises:
        ValueError: If no image processor of Hugging Face does nearly the same.
    """
    notes = _differences(preprocessing, "huggingface")
    size, before = preprocessing.image_size, preprocessing.resize_size
    mean, std = _mean_and_std(preprocessing, channels)
    crop = {"do_center_crop": True, "crop_size": _height_and_width(size)}
    is_short = isinstance(before, int)
    # Processors whose defaults are these settings, so that all versions of the library obey them.
    kind = "ViT" if before is None else "CLIP" if is_short else "DeiT"
    return {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": before} if is_short else _height_and_width(before or size),
        "resample": PILLOW_FILTERS[preprocessing.interpolation],
        **({} if before is None else crop),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }, notes


def timm_arguments(config: ViTConfig) -> dict[str, Any]:
    """Returns the arguments of timm's `create_model` that depend on more than the size."""
    arguments: dict[str, Any] = {}
    if config.classifier == "gap":
        arguments |= {"global_pool": "avg", "class_token": False, "fc_norm": False}
    if config.num_registers:
        arguments |= {"reg_tokens": config.num_registers, "no_embed_class": True}
    if config.gelu == "tanh":
        arguments["act_layer"] = "gelu_tanh"
    return arguments


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
    notes = _differences(preprocessing, "torchvision")
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
    mean, std = _mean_and_std(preprocessing, channels)
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


def _differences(preprocessing, library):
    """Returns notes of how a library's antialiased resize and crop differ.

    Raises:
        ValueError: If they differ in more than a filter or a pixel.
    """
    evaluation, before = preprocessing.evaluation, preprocessing.resize_size
    if evaluation == "resize":
        return ["the resize there is antialiased, and was not here"]
    if evaluation not in PILLOW_EVALUATIONS:
        raise ValueError(
            'The way of resizing must be one of that library: "huggingface", "torchvision", or '
            f'nearly "resize" (evaluation in {PREPROCESSING}). Received: {evaluation!r}'
        )
    rests = {1, 3} if isinstance(before, int) else set()
    if isinstance(before, tuple):
        rests = {b - side for b, side in zip(before, preprocessing.image_size, strict=True)}
    if evaluation != library and any(rest // 2 != round(rest / 2) for rest in rests):
        return ["the crop there may start one pixel later or earlier"]
    return []


def _crop_pct(pairs):
    """Returns the roundest share with `floor(side / share) == before` for all pairs, or None."""
    for digits in range(17):
        unit = 10**digits
        share = min(math.floor(unit * side / before) for side, before in pairs) / unit
        if share and all(math.floor(side / share) == before for side, before in pairs):
            return share
    return None


def _mean_and_std(preprocessing, channels):
    """Returns the values of `(pixel / 255 - mean) / std`, by channel."""
    least, most = (np.broadcast_to(value, channels).tolist() for value in preprocessing.value_range)
    pairs = list(zip(least, most, strict=True))
    return [-low / (high - low) for low, high in pairs], [1 / (high - low) for low, high in pairs]


def _height_and_width(size):
    return {"height": size[0], "width": size[1]}
