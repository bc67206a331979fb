"""KerasHub: names of weights, configs and image converters."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.code_bases.files_beside import (
    Stated,
    WeightFiles,
    checked,
    found,
    read_json,
)
from keras_vit.checkpoints.code_bases.layouts import BLOCK, POSITION_ROWS, QKV, Layout, Rule, rows
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing, value_range
from keras_vit.utils.files import TASK
from keras_vit.utils.json_files import check_fields

KERAS_HUB_PREPROCESSOR = "preprocessor.json"

# The models that are read.
HUB_CLASSIFIERS = ("ViTImageClassifier", "DeiTImageClassifier")
HUB_BACKBONES = ("ViTBackbone", "DeiTBackbone")


def check_family(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of another model of KerasHub."""
    kind, known = config.get("class_name"), (*HUB_CLASSIFIERS, *HUB_BACKBONES)
    if str(config.get("registered_name")).startswith("keras_hub>") and kind not in known:
        raise ValueError(
            f"A model of KerasHub must be one of {', '.join(known)}; others have the weights of "
            f"Hugging Face, which can be converted if the model fits. Received: {path} with {kind}"
        )


def _stated(files: WeightFiles) -> Stated:
    """What a serialised classifier states, or a backbone with the classifier beside it."""
    serialized, path = files.config, files.path
    if "class_name" not in serialized:
        return {}, Description()
    try:
        if serialized["class_name"] in HUB_CLASSIFIERS:
            head, config = serialized["config"], serialized["config"]["backbone"]["config"]
        else:
            task = read_json(files.folder / TASK)
            head, config = task.get("config", {}), serialized["config"]
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
    return fields, described


# Fields of KerasHub's image converter.
_CONVERTER = {
    "pad_to_aspect_ratio": bool,
    "crop_to_aspect_ratio": bool,
    "antialias": bool,
    "interpolation": str,
    "scale": (float, list),
    "offset": (float, list),
}


def _images(files, image_size, classes):
    if files.config.get("class_name") in HUB_CLASSIFIERS:  # A `.keras` holds all of it.
        file, preprocessor = "config.json", files.config["config"].get("preprocessor")
    else:
        file = KERAS_HUB_PREPROCESSOR
        preprocessor = read_json(files.folder / file)
    converter: dict[str, Any] = {}
    if isinstance(preprocessor, dict):
        check_fields(preprocessor, {"config": {"image_converter": {"config": _CONVERTER}}}, file)
        for name in ("config", "image_converter", "config"):
            preprocessor = preprocessor.get(name) or {}
        converter = preprocessor
    if not converter:
        return found("no image converter of KerasHub")
    if converter.get("pad_to_aspect_ratio"):
        raise ValueError(
            "Images must be resized or cropped, not padded. "
            f"Received: pad_to_aspect_ratio=True in {files.path}"
        )
    crops, antialias = converter.get("crop_to_aspect_ratio", True), converter.get("antialias")
    preprocessing = Preprocessing(
        image_size,
        "keras_hub" if crops else "huggingface" if antialias else "resize",
        checked(_affine, converter.get("scale"), converter.get("offset")),
        (converter.get("interpolation") or "bilinear").removesuffix("3"),  # "lanczos3".
    )
    note = "antialias=True was left out, as the image is cropped first"
    return found(file, preprocessing, notes=[note] if crops and antialias else [])


def _affine(scale, offset):
    """`value_range` for `pixel * scale + offset`, numbers or lists by channel."""
    scale, offset = 1.0 if scale is None else scale, 0.0 if offset is None else offset
    count = max(len(value) if isinstance(value, list) else 1 for value in (scale, offset))
    scales, offsets = (
        value if isinstance(value, list) else [value] * count for value in (scale, offset)
    )
    mean = [-o / (255 * s) for s, o in zip(scales, offsets, strict=True)]
    return value_range(mean, [1 / (255 * s) for s in scales])


_NUMBERED_DENSE = (("0", "kernel"), ("1", "bias"))
_NUMBERED_NORM = (("0", "gamma"), ("1", "beta"))

_HUB_EMBEDDING = "vit_patching_and_embedding"
_HUB_BLOCK = "vit_encoder/encoder_layers/transformer_block_{block}"


def _hub_dense(stored, ours):
    """A dense layer whose bias `use_mha_bias`, `use_mlp_bias` or `use_patch_bias` switches off."""
    return rows(stored, ours, _NUMBERED_DENSE, optional_bias=True)


# keras-team/keras-hub: ViTBackbone and ViTImageClassifier, by the names of layers.
KERAS_HUB = Layout(
    name="KerasHub",
    rules=(
        Rule(f"{_HUB_EMBEDDING}/0", "class_token/token"),
        *_hub_dense(f"{_HUB_EMBEDDING}/patch_embedding", "patch_embedding"),
        Rule(
            f"{_HUB_EMBEDDING}/position_embedding/0",
            "position_embedding/embedding",
            POSITION_ROWS,
        ),
        *rows(f"{_HUB_BLOCK}/ln_1", f"{BLOCK}/norm_1", _NUMBERED_NORM),
        *(
            row
            for stored, ours in (*((part, part) for part in QKV), ("attention_output", "out"))
            for row in _hub_dense(f"{_HUB_BLOCK}/mha/{stored}", f"{BLOCK}/attention/{ours}")
        ),
        *rows(f"{_HUB_BLOCK}/ln_2", f"{BLOCK}/norm_2", _NUMBERED_NORM),
        *_hub_dense(f"{_HUB_BLOCK}/mlp/dense_1", f"{BLOCK}/mlp/dense_1"),
        *_hub_dense(f"{_HUB_BLOCK}/mlp/dense_2", f"{BLOCK}/mlp/dense_2"),
        *rows("vit_encoder/ln", "encoder_norm", _NUMBERED_NORM),
        *rows("pre_logits", "pre_logits", _NUMBERED_DENSE),
        *rows("predictions", "predictions", _NUMBERED_DENSE),
    ),
    marks=(r"^vit_patching_and_embedding/patch_embedding/0$", r"^vit_encoder/ln/0$"),
    aliases=(
        # Files of Keras before it kept names have the attributes' names, or the classes' with
        # a counter.
        (r"\bvi_t_(patching_and_embedding|encoder)/", r"vit_\1/"),
        (
            r"\bencoder_layers/vi_t_encoder_block(?:_(\d+))?/",
            lambda match: f"encoder_layers/transformer_block_{int(match[1] or 0) + 1}/",
        ),
        (r"/tranformer_block_(?=\d)", "/transformer_block_"),  # KerasHub's spelling up to 0.29.
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
    first_block=1,
    position_resize="bicubic_keras",
    stated=_stated,
    images=_images,
)

# keras-team/keras-hub: DeiTBackbone and DeiTImageClassifier. No head reads the distillation
# token, so it is a register.
KERAS_HUB_DEIT = dataclasses.replace(
    KERAS_HUB,
    name="KerasHub DeiT",
    rules=(
        Rule(f"{_HUB_EMBEDDING}/1", "registers/tokens"),
        Rule(f"{_HUB_EMBEDDING}/2", "position_embedding/embedding"),
        *KERAS_HUB.rules,
    ),
    aliases=(
        (r"^(?:\w+/layers/)?deit_(patching_and_embedding|encoder)/", r"vit_\1/"),
        (r"/mlp/dense/", "/mlp/dense_1/"),
        (r"/output_layer/output/", "/mlp/dense_2/"),
    ),
    marks=(*KERAS_HUB.marks, f"^{_HUB_EMBEDDING}/2$"),
    prefix_rows=("all", "class"),
)
