"""KerasHub: names of weights, configs and image converters."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import (
    activation_of,
    check_sizes,
    found,
    read_json,
)
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    NUMBERED,
    QKV,
    Checkpoint,
    Layout,
    Stated,
    rules_of,
)
from keras_vit.checkpoints.code_bases.transforms import FLAT, FLAT_FROM_HEADS, POSITION_ROWS, VECTOR
from keras_vit.checkpoints.formats import StoredArray
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing, value_range
from keras_vit.utils.files import TASK

PREPROCESSOR, CONVERTER = "preprocessor.json", "image_converter.json"
HEAD = "task.weights.h5"  # In addition to the backbone's file.

# The models that are read: of ViT, image encoders, and models with an image encoder.
HUB_CLASSIFIER, HUB_BACKBONE = "ViTImageClassifier", "ViTBackbone"
_ENCODERS = ("DINOV2Backbone", "DINOV3Backbone", "SigLIPVisionEncoder", "CLIPVisionEncoder")
_TOWERS = ("SigLIPBackbone", "CLIPBackbone")


def check_family(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of another model of KerasHub."""
    kind, known = config.get("class_name"), (HUB_CLASSIFIER, HUB_BACKBONE, *_ENCODERS, *_TOWERS)
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
        preprocessor = checkpoint.config["config"].get("preprocessor") or {}
    else:
        preprocessor = read_json(checkpoint.folder / PREPROCESSOR)
    converter = (preprocessor.get("config") or {}).get("image_converter")
    # A backbone without a head has the converter alone.
    converter = converter or read_json(checkpoint.folder / CONVERTER)
    converter = converter.get("config") or {}
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


# Image encoders


def with_names(
    arrays: Mapping[str, StoredArray], config: Mapping[str, Any]
) -> dict[str, StoredArray]:
    """Returns the arrays of an image encoder by names that do not depend on its config.

    A model that was made anew of its config has its name in front of the names of its layers, and
    Keras counts the variables of an embedding, which differ by config.

    Args:
        arrays: Arrays of any model by the names of layers.
        config: The serialised model, {} without one.
    """
    container = re.compile("^(sig_lip|clip)_vision_encoder/layers/")
    arrays = {container.sub("", name): array for name, array in arrays.items()}
    encoder = _encoder_of(config)
    if not encoder:
        return arrays
    kind, fields = encoder["class_name"], encoder["config"]
    tokens = ["class_token"]
    if fields.get("use_mask_token"):
        tokens.append("mask_token")
    if fields.get("num_register_tokens"):
        tokens.append("registers")
    if kind == "DINOV2Backbone":
        # The table at the model's image size is computed from the other one at each loading.
        tokens += ["resized_positions", "position_embedding"]
    named = {}
    for name, array in arrays.items():
        name = name.removeprefix(f"{fields.get('name')}_")
        if token := re.fullmatch(r"(embeddings?|\w+_embedding)/(\d)", name):
            name = f"{tokens[int(token[2])]}/0"
        elif kind == "CLIPVisionEncoder":  # The first norm of a file without names of layers.
            name = name.replace("layer_normalization/", "pre_layer_norm/")
        named[name] = array
    return named


def _encoder_of(config):
    """The serialised image encoder in a serialised model; {} if there is none."""
    if config.get("class_name") in _TOWERS:
        config = config["config"]["vision_encoder"]
    return config if config.get("class_name") in _ENCODERS else {}


def _stated_of_encoder(checkpoint: Checkpoint) -> Stated:
    encoder, path = _encoder_of(checkpoint.config), checkpoint.path
    if not encoder:
        raise ValueError(
            "Files of KerasHub's image encoders must have their config.json in the same folder, "
            f"which shows heads, epsilon and positions. Received: {path}"
        )
    config = encoder["config"]
    stated = {"depth": config["num_layers"], "width": config["hidden_dim"]}
    check_sizes(checkpoint.shapes, path, stated)
    epsilon = config.get("layer_norm_eps", config.get("layer_norm_epsilon"))
    if encoder["class_name"] == "SigLIPVisionEncoder" and epsilon != 1e-6:
        raise ValueError(
            "layer_norm_epsilon must be 1e-6, as KerasHub's last normalisation has it. "
            f"Received: {epsilon} in {path}"
        )
    activation = config.get("hidden_activation") or config.get("intermediate_activation", "gelu")
    gate = "gated " if config.get("use_gated_mlp") else ""
    fields: dict[str, str | float] = {
        "gelu": activation_of("activation", gate + activation, path),
        "num_heads": int(config["num_heads"]),
        "norm_epsilon": float(epsilon or _EPSILONS[encoder["class_name"]]),
    }
    if "rope_theta" in config:
        fields["rotary"] = float(config["rope_theta"])
    if config.get("antialias_in_interpolation"):
        fields["position_resize"] = "bicubic"
    height, width, _ = config["image_shape"]
    patch, table = config["patch_size"], config.get("position_embedding_shape", (height, width))
    grid = (table[0] // patch, table[1] // patch)
    return fields, Description(position_grid=grid, input_shape=(height, width, 3))


# Where the config has none.
_EPSILONS = {"DINOV2Backbone": 1e-6, "CLIPVisionEncoder": 1e-5}

_LAYERS = (
    "embedding_norm",
    "encoder_norm",
    *(
        f"{BLOCK}/{layer}"
        for layer in (
            "norm_1",
            "norm_2",
            "attention/query",
            "attention/key",
            "attention/value",
            "attention/out",
            "mlp/dense_1",
            "mlp/dense_2",
        )
    ),
    *(
        f"map_head/{layer}"
        for layer in (
            *QKV,
            "out",
            "norm",
            "mlp/dense_1",
            "mlp/dense_2",
        )
    ),
)
_NAMES = {
    **{layer: layer for layer in _LAYERS},
    "patch_embedding": "patches",  # Another name than in files of this package.
    "class_token/token": "class_token/0",
    "registers/tokens": "registers/0",
    "position_embedding/embedding": "position_embedding/0",
    "map_head/probe": "map_head/0",
    **{f"{BLOCK}/layer_scale_{i}/gamma": f"{BLOCK}/layer_scale_{i}/0" for i in (1, 2)},
}
_BIASES = "^patch_embedding/|/attention/|/mlp/"  # That files may lack.


def _block(match):
    return f"encoder_block_{match[1] or 0}/"


# keras-team/keras-hub: DINOV2Backbone, by the names of our layers.
KERAS_HUB_DINOV2 = Layout(
    name="KerasHub DINOv2",
    rules=rules_of(_NAMES, NUMBERED, optional=_BIASES),
    marks=("^patches/0$", "^encoder_block_0/layer_scale_1/0$", "^position_embedding/0$"),
    aliases=(
        # With the spelling of files of Keras before it kept the names of layers.
        (r"^(?:dinov\d_)?encoder/layers/(?:layers|dinov\d_layer)(?:_(\d+))?/", _block),
        (r"^(?:sig_lip|clip)_encoder_layer(?:_(\d+))?/", _block),
        (r"^(?:embeddings|dinov\d_embedding)/patch_embeddings/projection/", "patches/"),
        (r"^(?:embedding|\w+_embedding)/patch_embedding/", "patches/"),
        (r"^(?:embedding|\w+_embedding)/position_embedding/", "position_embedding/"),
        (r"^pre_layer_norm/", "embedding_norm/"),
        (r"^(post_layer_norm|layer_?norm|layer_normalization(_1)?)/", "encoder_norm/"),
        (r"^(head|sig_lip_multi_head_attention_pooling)/", "map_head/"),
        (r"^map_head/attention/", "map_head/"),
        (r"^map_head/layer_?norm/", "map_head/norm/"),
        (r"/(?:layer_)?norm_?([12])/", r"/norm_\1/"),
        (r"/(self_attn|attention/attention)/", "/attention/"),
        (r"/(query|key|value)_dense/", r"/\1/"),
        *((f"/{part[0]}_proj/", f"/{part}/") for part in QKV),
        (r"/(attention_output|output_dense|o_proj)/", "/out/"),
        (r"/layer_scale([12])/", r"/layer_scale_\1/"),
        (r"/mlp/(fc1|weights_in|up_proj)/", "/mlp/dense_1/"),
        (r"/mlp/(fc2|weights_out|down_proj)/", "/mlp/dense_2/"),
        (r"^(encoder_block_\d+)/dense_", r"\1/mlp/dense_"),
    ),
    gates=("/mlp/gate_proj/", "/mlp/dense_1/"),
    left_out=(
        (r"^mask_token/", "the mask token"),
        (r"^resized_positions/", "the resized table of positions"),
        (r"^(sig_lip|clip)_text_encoder/|^(sig_?lip|clip)_head/", "the text tower"),
        (r"^(vision|text)_projection/|^dense(_1)?/", "the projection into the space of texts"),
    ),
    position_resize="bicubic_keras",
    stated=_stated_of_encoder,
    images=_images,
)

# The same: DINOV3Backbone.
KERAS_HUB_DINOV3 = dataclasses.replace(
    KERAS_HUB_DINOV2,
    name="KerasHub DINOv3",
    rules=rules_of(
        _NAMES,
        NUMBERED,
        {"/out/kernel$": FLAT_FROM_HEADS, r"/attention/\w+/kernel$": FLAT, "/attention/": VECTOR},
        optional=_BIASES,
    ),
    marks=("^patches/0$", "^encoder_block_0/layer_scale_1/0$"),
)

# The same: SigLIP's and CLIP's image towers, alone or with the text tower.
KERAS_HUB_TOWERS = dataclasses.replace(
    KERAS_HUB_DINOV2,
    name="KerasHub SigLIP and CLIP",
    rules=rules_of(
        _NAMES,
        NUMBERED,
        {"^position_embedding/": POSITION_ROWS, "^class_token/": VECTOR},
        optional=_BIASES,
    ),
    marks=("^patches/0$", "^position_embedding/0$"),
)
