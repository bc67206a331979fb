"""Configuration files of Hugging Face and timm for converted weights."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from keras_vit.checkpoints.metadata import PILLOW_FILTERS
from keras_vit.configs import ViTConfig
from keras_vit.description.tasks import MULTICLASS, MULTILABEL
from keras_vit.preprocessing import PILLOW_EVALUATIONS, Preprocessing
from keras_vit.utils.files import DESCRIPTION

# Names of the nonlinearities; DINOv2's SwiGLU is another layer and ignores the name.
_HUGGING_FACE_ACTIVATIONS = {
    "exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu", "relu": "relu",
    "swiglu": "gelu",
}  # fmt: skip
_TIMM_ACTIVATIONS = {"tanh": "gelu_tanh", "quick": "quick_gelu", "relu": "relu"}

# Heads of our models as `global_pool` of timm.
_TIMM_POOLINGS = {"token": "token", "gap": "avg", "max": "max", "map": "map"}


def config_json(
    config: ViTConfig, image_size, channels: int, class_names, task: str = MULTICLASS
) -> dict:
    """Returns the content of `config.json`.

    Args:
        config: A plain Vision Transformer.
        image_size: Pixels (height, width).
        channels: Channels of the images.
        class_names: Names of the classes, or None without a head.
        task: The task of the classes.
    """

    def sides(size):
        return size[0] if size[0] == size[1] else list(size)

    model_type = hugging_face_type(config)
    body = {"vit": "ViT", "deit": "DeiT", "dinov2": "Dinov2"}.get(model_type, "Dinov2WithRegisters")
    suffix = f"ForImageClassification{'WithTeacher' if model_type == 'deit' else ''}"
    return {
        "architectures": [f"{body}{'Model' if class_names is None else suffix}"],
        "model_type": model_type,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": _HUGGING_FACE_ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "layer_norm_eps": config.norm_epsilon,
        "image_size": sides(image_size),
        "patch_size": sides(config.patch_sizes),
        "num_channels": channels,
        "qkv_bias": True,
        **(_dinov2_fields(config) if body.startswith("Dinov2") else {}),
        **({} if class_names is None else labels_json(class_names, task)),
    }


def labels_json(class_names, task: str) -> dict:
    """Returns the fields of `config.json` about classes."""
    problem_type = {"problem_type": "multi_label_classification"} if task == MULTILABEL else {}
    return {
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
        **problem_type,
    }


def hugging_face_type(config: ViTConfig) -> str:
    """Returns the `model_type` of the model in `transformers` that computes the same.

    Raises:
        ValueError: If there is none.
    """
    absent = {
        "classifier": config.classifier in ("gap", "max", "map"),
        "representation_size": config.representation_size is not None,
        "position_embedding": config.position_embedding not in ("learned_1d", "none"),
        "position_embedding_at": config.position_embedding_at != "input",
        "embedding_norm": config.embedding_norm,
        "final_norm": config.final_norm != "tokens",
        **{name: name != "layer_scale" for name in config.block(0).features},
    }
    is_dinov2 = (
        config.layer_scale
        or config.num_registers > 0
        or config.gelu == "swiglu"
        or config.classifier == "token+gap"
    )
    if is_dinov2 and config.classifier == "token+distillation":
        absent["classifier"] = True
    if any(absent.values()):
        raise ValueError(
            "A model for Hugging Face (ViT, DeiT, DINOv2) must have positions at the input and "
            "read the normalised class token with one linear layer. "
            f"Received: {_fields(config, absent)}"
        )
    if is_dinov2:
        return "dinov2_with_registers" if config.num_registers else "dinov2"
    return "deit" if config.classifier == "token+distillation" else "vit"


def _fields(config, absent):
    """The fields of a config that have no counterpart, for a message."""
    return ", ".join(
        f"{name}={getattr(config, name)!r}" for name, is_absent in absent.items() if is_absent
    )


def _dinov2_fields(config):
    """The fields of a Dinov2Config that a ViTConfig has not."""
    ratio = config.mlp_dim / config.width
    if config.gelu == "swiglu":  # The layer has two thirds of the units, rounded up to eights.
        units = {(int(config.width * n * 2 / 3) + 7) // 8 * 8: n for n in range(32, 0, -1)}
        ratio = units.get(config.mlp_dim, 0)
    if not ratio or ratio != int(ratio):
        raise ValueError(
            "DINOv2's MLP must have a whole multiple of the token size (of SwiGLU two thirds of "
            f"it, rounded up to eights). Received: mlp_dim={config.mlp_dim}, width={config.width}"
        )
    return {
        "mlp_ratio": int(ratio),
        "use_swiglu_ffn": config.gelu == "swiglu",
        "layerscale_value": 1.0,
        **({"num_register_tokens": config.num_registers} if config.num_registers else {}),
    }


def dinov2_arrays(arrays: dict, config: ViTConfig) -> dict:
    """Returns the arrays of a ViT under DINOv2's names, with the ones that only DINOv2 has.

    LayerScale is ones where a model has none, and a head that reads the class token alone has
    zeros for the mean over patches, which DINOv2's head reads, too.

    Args:
        arrays: The arrays of Hugging Face's ViT, without prefix.
        config: The model.
    """
    ones = np.ones(config.width, "float32")
    layer = "encoder.layer.{}.layer_scale{}.lambda1"
    scales = {layer.format(i, part): ones for i in range(config.depth) for part in (1, 2)}
    mask = np.zeros((1, config.width), "float32")
    arrays = {"embeddings.mask_token": mask, **scales, **arrays}
    head = arrays.get("classifier.weight")
    if head is not None and head.shape[1] == config.width:
        arrays["classifier.weight"] = np.concatenate([head, np.zeros_like(head)], axis=1)
    dense = ("weights_in", "weights_out") if config.gelu == "swiglu" else ("fc1", "fc2")
    names = {
        "layernorm_before": "norm1",
        "layernorm_after": "norm2",
        "intermediate.dense": f"mlp.{dense[0]}",
        "output.dense": f"mlp.{dense[1]}",
    }
    part = re.compile(rf"(?<=\d\.)({'|'.join(map(re.escape, names))})(?=\.)")
    return {part.sub(lambda m: names[m[0]], name): array for name, array in arrays.items()}


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
            f"Received: {_fields(config, absent)}"
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
    if config.gelu == "swiglu":
        raise ValueError(
            "timm's config.json has no place for SwiGLU; convert to a file with the suffix "
            f".safetensors. Received: gelu={config.gelu!r}"
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
            f'nearly "resize" (evaluation in {DESCRIPTION}). Received: {evaluation!r}'
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
