"""Facts about weights in the `config.json` of Hugging Face, timm and KerasHub."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.hdf5 import HUB_BACKBONE, HUB_CLASSIFIER
from keras_vit.checkpoints.keras_names import KERAS_HUB
from keras_vit.checkpoints.layouts import Layout
from keras_vit.checkpoints.timm_models import ACTIVATIONS, facts_of_timm
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TIMM_BIT
from keras_vit.json_files import Fields, read_json as read_any_json

# Defaults of `transformers` by `model_type`, for configs that leave fields out.
_VIT_DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
_HUGGING_FACE_DEFAULTS: dict[str, dict[str, Any]] = {
    "vit": _VIT_DEFAULTS,
    "deit": _VIT_DEFAULTS,
    "vit_mae": _VIT_DEFAULTS,
    "vit_msn": {**_VIT_DEFAULTS, "layer_norm_eps": 1e-6},
    "ijepa": _VIT_DEFAULTS,
}


# What the fields of these files hold that are read here or in `metadata`; of Hugging Face's
# `config.json`, timm's, the index of a checkpoint in parts, and `preprocessor_config.json`.
_MODEL_FIELDS = {
    "model_type": str,
    "hidden_act": str,
    "layer_norm_eps": float,
    "num_attention_heads": int,
    "image_size": (int, list),
    "patch_size": (int, list),
}
_FIELDS: Fields = {
    **_MODEL_FIELDS,
    "vision_config": _MODEL_FIELDS,
    "architecture": str,
    "id2label": dict,
    "label_names": list,
    "global_pool": str,
    "model_args": {
        "act_layer": str,
        "embed_dim": int,
        "global_pool": str,
        "img_size": (int, list),
        "num_heads": int,
    },
    "pretrained_cfg": {
        "input_size": list,
        "mean": list,
        "std": list,
        "crop_pct": float,
        "crop_mode": str,
        "interpolation": str,
        "label_names": list,
    },
    "weight_map": dict,
    "image_mean": list,
    "image_std": list,
    "rescale_factor": float,
    "resample": int,
    "size": (int, dict),
    "crop_size": (int, dict),
    "class_name": str,
    "registered_name": str,
    "config": dict,
}


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file beside weights; {} if there is no such file.

    Raises:
        ValueError: If it holds no JSON object, or a field that is read has another type.
    """
    return read_any_json(path, _FIELDS) if path.is_file() else {}


def facts_of_config(
    layout: Layout,
    config: dict[str, Any],
    path: pathlib.Path,
    shapes: Mapping[str, tuple[int, ...] | None],
) -> dict[str, Any]:
    """Returns facts about the weights of a layout from the `config.json` beside them.

    Args:
        layout: The layout of the weights.
        config: The content of `config.json`.
        path: The file or folder of the weights.
        shapes: Shapes of the weights by layer.

    Returns:
        `gelu`, `norm_epsilon`, `num_heads`, `position_grid` and `classifier`, where the config
        has them; {} if the config is not of the layout's code base.

    Raises:
        ValueError: If the config is of a model that no model here equals.
    """
    if layout is HUGGING_FACE and config.get("model_type") in _HUGGING_FACE_DEFAULTS:
        return _hugging_face(config, path)
    if layout in (TIMM, TIMM_BIT) and "architecture" in config:
        return _timm(config, path, shapes)
    if layout is KERAS_HUB and config.get("class_name") in (HUB_CLASSIFIER, HUB_BACKBONE):
        return _keras_hub(config, path)
    return {}


def _hugging_face(config, path):
    config = {**_HUGGING_FACE_DEFAULTS[config["model_type"]], **config}
    activation = config["hidden_act"]
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"hidden_act must be one of {tuple(ACTIVATIONS)}. "
            f"Received: hidden_act={activation!r} beside {path}"
        )
    try:
        sides = [
            (size, size) if isinstance(size, int) else tuple(size)
            for size in (config["image_size"], config["patch_size"])
        ]
        return {
            "gelu": ACTIVATIONS[activation],
            "norm_epsilon": float(config["layer_norm_eps"]),
            "num_heads": int(config["num_attention_heads"]),
            "position_grid": [image // patch for image, patch in zip(*sides, strict=True)],
        }
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"config.json must hold numbers of a model. Received: {path} ({error})"
        ) from error


def _timm(config, path, shapes):
    facts = facts_of_timm(config, shapes, path)
    size, kernel = facts.pop("image_size", None), shapes.get("patch_embedding")
    if size and kernel and "root_conv" not in shapes:
        sides = zip(size, kernel[:2], strict=True)
        facts["position_grid"] = [side // patch for side, patch in sides]
    return facts


def _keras_hub(serialized, path):
    """Facts in a serialised classifier, or in a backbone with the classifier beside it."""
    try:
        if serialized["class_name"] == HUB_CLASSIFIER:
            head, config = serialized["config"], serialized["config"]["backbone"]["config"]
        else:
            task = read_json((path if path.is_dir() else path.parent) / "task.json")
            head, config = task.get("config", {}), serialized["config"]
        height, width, _ = config["image_shape"]
        down, across = config["patch_size"]
        facts = {
            "norm_epsilon": float(config["layer_norm_epsilon"]),
            "num_heads": int(config["num_heads"]),
            "position_grid": [height // down, width // across],
        }
        pooling, has_token = head.get("pooling"), config.get("use_class_token", True)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"KerasHub's config must describe a ViTBackbone. Received: {path} ({error!r})"
        ) from error
    if pooling not in (None, "token" if has_token else "gap"):
        raise ValueError(
            "A head must read the class token, or the mean of the patches where there is none. "
            f"Received: pooling={pooling!r}, use_class_token={has_token} in {path}"
        )
    return facts
