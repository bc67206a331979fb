"""What the JSON files beside foreign weights say of the model."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

# As `transformers` and timm name them.
_GELUS = {
    "gelu": "exact",
    "gelu_python": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_tanh": "tanh",
}


def describe(path: pathlib.Path) -> dict[str, Any]:
    """Returns what the files in a folder say of the weights there.

    Args:
        path: A folder, or a file in it.

    Returns:
        Facts, and under `layout` the name of the layout that they are about; nothing if there
        is no description that is understood.

    Raises:
        ValueError: If the description is of a model that no model here equals.
    """
    folder = path if path.is_dir() else path.parent
    config = read_json(folder / "config.json")
    if config.get("model_type") in ("vit", "deit"):
        return _hugging_face(config, folder)
    if "pretrained_cfg" in config:
        return _timm(config, folder)
    if config.get("class_name") == "ViTBackbone":
        return describe_keras_hub(config, read_json(folder / "task.json"), folder)
    return {}


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file; nothing if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def describe_keras_hub(backbone: Mapping, task: Mapping, path) -> dict[str, Any]:
    """Returns the facts in KerasHub's configs of a backbone and of the task around it.

    Args:
        backbone: The serialised `ViTBackbone`.
        task: The serialised `ViTImageClassifier`, or nothing.
        path: Where they are from, for messages.

    Raises:
        ValueError: If no model here computes the same.
    """
    config, head = backbone.get("config", {}), task.get("config", {})
    try:
        height, width, _ = config["image_shape"]
        down, across = config["patch_size"]
        facts = {
            "layout": "KerasHub",
            "norm_epsilon": float(config["layer_norm_epsilon"]),
            "num_heads": int(config["num_heads"]),
            "position_grid": [height // down, width // across],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"KerasHub's config must describe a ViTBackbone. Received: {path} ({error!r})"
        ) from error
    pooling, has_token = head.get("pooling"), config.get("use_class_token", True)
    if pooling not in (None, "token" if has_token else "gap"):
        raise ValueError(
            "A head must read the class token, or the mean of the patches where there is none. "
            f"Received: pooling={pooling!r}, use_class_token={has_token} in {path}"
        )
    return facts


def _hugging_face(config, folder):
    # Defaults of `transformers`, for configs that leave them out.
    activation = config.get("hidden_act", "gelu")
    if activation not in _GELUS:
        raise ValueError(
            f"hidden_act must be one of {tuple(_GELUS)}. "
            f"Received: hidden_act={activation!r} in {folder}"
        )
    try:
        sides = [
            (size, size) if isinstance(size, int) else tuple(size)
            for size in (config.get("image_size", 224), config.get("patch_size", 16))
        ]
        return {
            "layout": "Hugging Face",
            "gelu": _GELUS[activation],
            "norm_epsilon": float(config.get("layer_norm_eps", 1e-12)),
            "num_heads": int(config.get("num_attention_heads", 12)),
            "position_grid": [image // patch for image, patch in zip(*sides, strict=True)],
        }
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"config.json must hold numbers of a model. Received: {folder} ({error})"
        ) from error


def _timm(config, folder):
    arguments = config.get("model_args") or {}
    activation = arguments.get("act_layer", "gelu")
    if activation not in _GELUS:
        raise ValueError(
            f"act_layer must be one of {tuple(_GELUS)}. "
            f"Received: act_layer={activation!r} in {folder}"
        )
    facts: dict[str, Any] = {"layout": "timm", "gelu": _GELUS[activation]}
    if isinstance(arguments.get("num_heads"), int):
        facts["num_heads"] = arguments["num_heads"]
    return facts
