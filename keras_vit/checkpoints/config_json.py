"""Facts about weights in the `config.json` of Hugging Face, timm and KerasHub."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from keras_vit.checkpoints.facts import Facts
from keras_vit.checkpoints.hdf5 import HUB_BACKBONES, HUB_CLASSIFIERS
from keras_vit.checkpoints.keras_names import KERAS_HUB, KERAS_HUB_DEIT
from keras_vit.checkpoints.layouts import Layout
from keras_vit.checkpoints.timm_models import ACTIVATIONS, EVA_NAMES, facts_of_timm
from keras_vit.checkpoints.torch_names import HUGGING_FACE, HUGGING_FACE_DINOV3, TIMM, TIMM_BIT
from keras_vit.utils.files import TASK
from keras_vit.utils.json_files import Fields, read_json as read_any_json

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
    "dinov2": {**_VIT_DEFAULTS, "layer_norm_eps": 1e-6, "patch_size": 14},
    "dinov2_with_registers": {**_VIT_DEFAULTS, "layer_norm_eps": 1e-6},
    "dinov3_vit": {
        **_VIT_DEFAULTS,
        "layer_norm_eps": 1e-5,
        "num_attention_heads": 6,
        "rope_theta": 100.0,
    },
    "clip_vision_model": {
        **_VIT_DEFAULTS,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "patch_size": 32,
    },
    "siglip_vision_model": {
        **_VIT_DEFAULTS,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    },
}

# Models with an image tower, whose config is within theirs.
_HUGGING_FACE_TOWERS = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}

# `model_type` of models that no model here equals, and the feature that none here has.
_HUGGING_FACE_REFUSED = {
    "beit": "relative position biases",
    "data2vec-vision": "relative position biases",
    "siglip2": "patches of a variable number (NaFlex)",
    "siglip2_vision_model": "patches of a variable number (NaFlex)",
    "vit-hybrid": "the stem of BiT",
    "vivit": "patches of several frames",
    "videomae": "patches of several frames",
    "yolos": "detection tokens",
}


# Types of the fields that are read here or in `metadata`, in Hugging Face's `config.json`, timm's,
# the index of a checkpoint in parts, and `preprocessor_config.json`.
_MODEL_FIELDS = {
    "model_type": str,
    "hidden_act": str,
    "layer_norm_eps": float,
    "num_attention_heads": int,
    "image_size": (int, list),
    "patch_size": (int, list),
    "rope_theta": float,
    "use_gated_mlp": bool,
}
_FIELDS: Fields = {
    **_MODEL_FIELDS,
    "vision_config": _MODEL_FIELDS,
    "architecture": str,
    "id2label": (dict, list),
    "problem_type": str,
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
) -> Facts:
    """Returns facts about the weights of a layout from the `config.json` beside them.

    Args:
        layout: The layout of the weights.
        config: The content of `config.json`.
        path: The file or folder of the weights.
        shapes: Shapes of the weights by layer.

    Returns:
        What the config states; nothing if it is not of the layout's code base.

    Raises:
        ValueError: If the config is of a model that no model here equals.
    """
    if layout.name.startswith(HUGGING_FACE.name) and "model_type" in config:
        return _hugging_face(config, path)
    if layout in (TIMM, TIMM_BIT) and "architecture" in config:
        return facts_of_timm(config, shapes, path)
    if layout in (KERAS_HUB, KERAS_HUB_DEIT) and "class_name" in config:
        return _keras_hub(config, path)
    return Facts()


def check_stated(layout: Layout, names: Iterable[str], facts: Facts, path: pathlib.Path) -> None:
    """Raises ValueError if neither the arrays of a layout nor a config show the architecture.

    Args:
        layout: The layout of the weights.
        names: The names of all arrays.
        facts: What the files state.
        path: The file or folder of the weights.
    """
    is_eva = layout is TIMM and any(map(EVA_NAMES.search, names))
    if (is_eva or layout is HUGGING_FACE_DINOV3) and "rotary" not in facts.fields:
        raise ValueError(
            "Files of DINOv3 and timm's Eva must have their config.json beside them, which "
            f"shows the rotary positions. Received: {path}"
        )


def check_family(config: dict[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of a model that no model here equals.

    Its weights may have names that no layout has, so this comes before their names are read.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _HUGGING_FACE_REFUSED:
        raise ValueError(
            f"The model_type {kind} has {_HUGGING_FACE_REFUSED[kind]}, which no model here has. "
            f"Received: {path}"
        )
    kind, known = config.get("class_name"), (*HUB_CLASSIFIERS, *HUB_BACKBONES)
    if str(config.get("registered_name")).startswith("keras_hub>") and kind not in known:
        raise ValueError(
            f"A model of KerasHub must be one of {', '.join(known)}; others have the weights of "
            f"Hugging Face, which can be converted if the model fits. Received: {path} with {kind}"
        )


def check_model_type(config: dict[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of a model of transformers that is not known here."""
    known = (*_HUGGING_FACE_DEFAULTS, *_HUGGING_FACE_TOWERS)
    kind = config.get("model_type")
    if kind is not None and "architecture" not in config and kind not in known:
        raise ValueError(
            f"model_type must be one of {', '.join(known)}. Received: {kind!r} beside {path}"
        )


def _hugging_face(config, path):
    kind = config["model_type"]
    if kind in _HUGGING_FACE_TOWERS and isinstance(config.get("vision_config"), dict):
        kind = _HUGGING_FACE_TOWERS[kind]
        config = config["vision_config"]
    check_model_type({"model_type": kind}, path)
    config = {**_HUGGING_FACE_DEFAULTS[kind], **config}
    activation = config["hidden_act"]
    if config.get("use_gated_mlp"):  # DINOv3's.
        activation = f"gated {activation}"
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
        fields = {
            "gelu": ACTIVATIONS[activation],
            "norm_epsilon": float(config["layer_norm_eps"]),
            "num_heads": int(config["num_attention_heads"]),
        }
        if "rope_theta" in config:
            fields["rotary"] = float(config["rope_theta"])
        size, patch = sides
        grid = tuple(side // pixels for side, pixels in zip(size, patch, strict=True))
        return Facts(fields, grid, size)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"config.json must hold numbers of a model. Received: {path} ({error})"
        ) from error


def _keras_hub(serialized, path):
    """Facts in a serialised classifier, or in a backbone with the classifier beside it."""
    try:
        if serialized["class_name"] in HUB_CLASSIFIERS:
            head, config = serialized["config"], serialized["config"]["backbone"]["config"]
        else:
            task = read_json((path if path.is_dir() else path.parent) / TASK)
            head, config = task.get("config", {}), serialized["config"]
        height, width, _ = config["image_shape"]
        down, across = config["patch_size"]
        fields = {
            "norm_epsilon": float(config["layer_norm_epsilon"]),
            "num_heads": int(config["num_heads"]),
        }
        facts = Facts(fields, (height // down, width // across), (height, width))
        pooling, has_token = head.get("pooling"), config.get("use_class_token", True)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            "KerasHub's config must describe a ViTBackbone or DeiTBackbone. "
            f"Received: {path} ({error!r})"
        ) from error
    if pooling not in (None, "token" if has_token else "gap"):
        raise ValueError(
            "A head must read the class token, or the mean of the patches where there is none. "
            f"Received: pooling={pooling!r}, use_class_token={has_token} in {path}"
        )
    return facts
