"""KerasHub: names of weights, configs and image converters."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import found, read_json
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    NUMBERED,
    Checkpoint,
    Layout,
    Stated,
    rules_of,
)
from keras_vit.checkpoints.code_bases.transforms import POSITION_ROWS
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing, value_range
from keras_vit.utils.files import TASK

PREPROCESSOR = "preprocessor.json"
HEAD = "task.weights.h5"  # In addition to the backbone's file.

# The models that are read.
HUB_CLASSIFIER, HUB_BACKBONE = "ViTImageClassifier", "ViTBackbone"


def check_family(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of another model of KerasHub."""
    kind, known = config.get("class_name"), (HUB_CLASSIFIER, HUB_BACKBONE)
    if str(config.get("registered_name")).startswith("keras_hub>") and kind not in known:
        raise ValueError(
            f"A model of KerasHub must be one of {', '.join(known)}; others have the weights of "
            f"Hugging Face, which can be converted if the model fits. Received: {path} with {kind}"
        )


def _stated(checkpoint: Checkpoint) -> Stated:
    """What a serialised classifier states, or a backbone with the classifier beside it."""
    serialized, path = checkpoint.config, checkpoint.path
    if "class_name" not in serialized:
        return {}, Description()
    if serialized["class_name"] == HUB_CLASSIFIER:
        head, config = serialized["config"], serialized["config"]["backbone"]["config"]
    else:
        head = read_json(checkpoint.folder / TASK).get("config") or {}
        config = serialized["config"]
    height, width, _ = config["image_shape"]
    down, across = config["patch_size"]
    fields = {
        "norm_epsilon": float(config["layer_norm_epsilon"]),
        "num_heads": int(config["num_heads"]),
    }
    described = Description(
        position_grid=(height // down, width // across), input_shape=(height, width, 3)
    )
    pooling, has_token = head.get("pooling"), config.get("use_class_token", True)
    if pooling not in (None, "token" if has_token else "gap"):
        raise ValueError(
            "A head must read the class token, or the mean of the patches where there is none. "
            f"Received: pooling={pooling!r}, use_class_token={has_token} in {path}"
        )
    return fields, described


def _images(checkpoint, image_size, classes):
    if checkpoint.config.get("class_name") == HUB_CLASSIFIER:  # A `.keras` holds all of it.
        converter = checkpoint.config["config"].get("preprocessor") or {}
    else:
        converter = read_json(checkpoint.folder / PREPROCESSOR)
    for name in ("config", "image_converter", "config"):
        converter = converter.get(name) or {}
    if not converter:
        return found("no image converter of KerasHub")
    if converter.get("pad_to_aspect_ratio"):
        raise ValueError(
            "Images must be resized or cropped, not padded. "
            f"Received: pad_to_aspect_ratio=True in {checkpoint.path}"
        )
    crops, antialias = converter.get("crop_to_aspect_ratio", True), converter.get("antialias")
    preprocessing = Preprocessing(
        image_size,
        "keras_hub" if crops else "huggingface" if antialias else "resize",
        _affine(converter.get("scale"), converter.get("offset")),
        (converter.get("interpolation") or "bilinear").removesuffix("3"),  # "lanczos3".
    )
    note = "antialias=True was left out, as the image is cropped first"
    return found(
        "KerasHub's preprocessor", preprocessing, notes=[note] if crops and antialias else []
    )


def _affine(scale, offset):
    """`value_range` for `pixel * scale + offset`, numbers or lists by channel."""
    scale = 255 * np.asarray(1.0 if scale is None else scale, "float64")
    offset = np.asarray(0.0 if offset is None else offset, "float64")
    mean, std = np.broadcast_arrays(np.atleast_1d(-offset / scale), 1 / scale)
    return value_range(mean.tolist(), std.tolist())


_EMBEDDING = "vit_patching_and_embedding"
_BLOCK = "vit_encoder/encoder_layers/transformer_block_{block}"

# keras-team/keras-hub: ViTBackbone and ViTImageClassifier, by the names of layers.
KERAS_HUB = Layout(
    name="KerasHub",
    rules=rules_of(
        {
            "class_token/token": f"{_EMBEDDING}/0",
            "patch_embedding": f"{_EMBEDDING}/patch_embedding",
            "position_embedding/embedding": f"{_EMBEDDING}/position_embedding/0",
            f"{BLOCK}/norm_1": f"{_BLOCK}/ln_1",
            f"{BLOCK}/attention/query": f"{_BLOCK}/mha/query",
            f"{BLOCK}/attention/key": f"{_BLOCK}/mha/key",
            f"{BLOCK}/attention/value": f"{_BLOCK}/mha/value",
            f"{BLOCK}/attention/out": f"{_BLOCK}/mha/attention_output",
            f"{BLOCK}/norm_2": f"{_BLOCK}/ln_2",
            f"{BLOCK}/mlp/dense_1": f"{_BLOCK}/mlp/dense_1",
            f"{BLOCK}/mlp/dense_2": f"{_BLOCK}/mlp/dense_2",
            "encoder_norm": "vit_encoder/ln",
            "pre_logits": "pre_logits",
            "predictions": "predictions",
        },
        NUMBERED,
        {"^position_embedding/": POSITION_ROWS},
        # `use_mha_bias`, `use_mlp_bias` and `use_patch_bias` switch biases off.
        optional="^patch_embedding/|/attention/|/mlp/",
    ),
    marks=(r"^vit_patching_and_embedding/patch_embedding/0$", r"^vit_encoder/ln/0$"),
    aliases=(
        # Blocks are numbered from 1; KerasHub up to 0.29 has the other spelling.
        (r"/trans?former_block_(\d+)/", lambda match: f"/transformer_block_{int(match[1]) - 1}/"),
        # Files of Keras before it kept names have the attributes' names, or the classes' with
        # a counter.
        (r"\bvi_t_(patching_and_embedding|encoder)/", r"vit_\1/"),
        (
            r"\bencoder_layers/vi_t_encoder_block(?:_(\d+))?/",
            lambda match: f"encoder_layers/transformer_block_{int(match[1] or 0)}/",
        ),
        (r"/layer_norm_([12])/", r"/ln_\1/"),
        (r"/layer_norm/", "/ln/"),
        (r"/mha/(query|key|value)_dense/", r"/mha/\1/"),
        (r"/mha/output_dense/", "/mha/attention_output/"),
        (r"^dense/", "predictions/"),
        # A classifier holds its backbone as a model.
        (r"^\w+/layers/(?=vit_(?:patching_and_embedding|encoder)/)", ""),
    ),
    gelu="exact",
    norm_epsilon=1e-6,
    position_resize="bicubic_keras",
    stated=_stated,
    images=_images,
)
