"""Hugging Face's transformers: names of weights, `config.json` and image processors."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

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
    read_json,
)
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    CONVOLUTION,
    MATRIX_FROM_HEADS,
    POSITION_ROWS,
    QKV,
    VECTOR,
    Layout,
    Rule,
    joined_gates,
    torch_dense,
    torch_norm,
    torch_qkv,
)
from keras_vit.checkpoints.code_bases.timm import ACTIVATIONS
from keras_vit.configs import ViTConfig
from keras_vit.description import Description, Labels
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL
from keras_vit.preprocessing import Preprocessing, value_range

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


def check_family(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of a model that no model here equals.

    Its weights may have names that no layout has, so this comes before their names are read.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _HUGGING_FACE_REFUSED:
        raise ValueError(
            f"The model_type {kind} has {_HUGGING_FACE_REFUSED[kind]}, which no model here has. "
            f"Received: {path}"
        )


def check_model_type(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of a model of transformers that is not known here."""
    known = (*_HUGGING_FACE_DEFAULTS, *_HUGGING_FACE_TOWERS)
    kind = config.get("model_type")
    if kind is not None and "architecture" not in config and kind not in known:
        raise ValueError(
            f"model_type must be one of {', '.join(known)}. Received: {kind!r} beside {path}"
        )


def _stated(files: WeightFiles) -> Stated:
    config, path = files.config, files.path
    if "model_type" not in config:
        return {}, Description()
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
        if "registers" in files.shapes or kind == "dinov2_with_registers":
            fields["position_resize"] = "bicubic"
        return fields, Description(position_grid=grid, input_shape=(*size, 3))
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise ValueError(
            f"config.json must hold numbers of a model. Received: {path} ({error})"
        ) from error


PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"
# Pillow's numbers of the filters.
PILLOW_FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}

# Defaults of Hugging Face's image processors, for fields missing in a file, by the start of their
# names; all others do as "ViT".
_CLIP_CROP: dict[str, Any] = {
    "resample": 3,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "do_center_crop": True,
}
_PROCESSOR_DEFAULTS: dict[str, dict[str, Any]] = {
    "DeiT": {"resample": 3, "size": 256, "crop_size": 224, "do_center_crop": True},
    "CLIP": _CLIP_CROP,
    "Bit": _CLIP_CROP,
    "Siglip": {"resample": 3, "size": 224},
    "ViT": {"resample": 2, "size": 224},
}


def _images(files, image_size, classes, keeps_size=False):
    is_multilabel = files.config.get("problem_type") == "multi_label_classification"
    names, notes = read_class_names(files.config.get("id2label"), classes)
    labels = Labels(names, MULTILABEL if is_multilabel else MULTICLASS)
    described = _of_processor(files.folder, image_size, keeps_size)
    return dataclasses.replace(described, labels=labels, notes=(*notes, *described.notes))


def _of_processor(folder, image_size, keeps_size=False):
    """Returns the description of a folder's image processor.

    Args:
        folder: The folder.
        image_size: Pixels (height, width) of the model.
        keeps_size: Whether the model takes images of any size, so that the processor's is kept.
    """
    # transformers 5 writes the image processor into the processor of texts and images, if any.
    wanted = read_json(folder / PROCESSOR).get("image_processor") or read_json(
        folder / PREPROCESSOR
    )
    if not wanted:
        return found(f"no {PREPROCESSOR}")
    mean, std = wanted.get("image_mean", [0.5]), wanted.get("image_std", [0.5])
    if not wanted.get("do_normalize", True):
        mean, std = [0.0], [1.0]
    scale = wanted.get("rescale_factor", 1 / 255) if wanted.get("do_rescale", True) else 1.0
    values = checked(value_range, mean, std, scale)
    preprocessing, notes = _resize_of_processor(wanted, image_size, keeps_size)
    preprocessing = dataclasses.replace(preprocessing, value_range=values)
    return found(PREPROCESSOR, preprocessing, notes=notes)


def _resize_of_processor(wanted, image_size, keeps_size=False):
    """Returns the preprocessing of a `preprocessor_config.json` without the values, and notes."""
    kind = str(wanted.get("image_processor_type") or wanted.get("feature_extractor_type") or "ViT")
    default = next((d for k, d in _PROCESSOR_DEFAULTS.items() if kind.startswith(k)), {})
    wanted = _PROCESSOR_DEFAULTS["ViT"] | default | wanted
    padding = [name for name in ("do_pad", "crop_pct") if wanted.get(name)]
    filters = {number: name for name, number in PILLOW_FILTERS.items()}
    if padding or wanted["resample"] not in filters:
        raise ValueError(
            f"An image processor must resize with a filter of {filters} and may crop the middle. "
            f"Received: { {name: wanted[name] for name in ('resample', *padding)} } of {kind}"
        )
    notes = []
    if not wanted.get("do_resize", True):
        notes.append("do_resize=False: images of another size are resized nevertheless")
    size, crop = wanted["size"], wanted.get("crop_size")
    if isinstance(size, int) and default is _CLIP_CROP:
        size = {"shortest_edge": size}
    is_short = isinstance(size, dict) and "shortest_edge" in size and "longest_edge" not in size
    before = size["shortest_edge"] if is_short else _sides(size)
    if wanted.get("do_center_crop"):
        size = _sides(crop)
    elif is_short:
        size = (before, before)
        notes.append(f"size={wanted['size']} without a crop: the middle is cropped")
    else:
        size, before = before, None
    preprocessing = Preprocessing(
        size, "huggingface", interpolation=filters[wanted["resample"]], resize_size=before
    )
    if keeps_size:
        return preprocessing, notes
    if preprocessing.image_size != tuple(image_size):
        notes.append(
            f"the processor's images of {by(size)} pixels became the model's {by(image_size)}"
        )
    return preprocessing.with_image_size(image_size), notes


def _sides(size):
    """Returns Hugging Face's `size` as (height, width)."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and size.keys() >= {"height", "width"}:
        return size["height"], size["width"]
    raise ValueError(
        "The size of an image processor must have height and width, or the shortest edge. "
        f"Received: {size!r}"
    )


_HF_BLOCK = "encoder.layer.{block}"

# huggingface/transformers: ViTForImageClassification and ViTModel; DeiT's too.
HUGGING_FACE = Layout(
    name="Hugging Face",
    rules=(
        *torch_dense("embeddings.patch_embeddings.projection", "patch_embedding", CONVOLUTION),
        Rule("embeddings.cls_token", "class_token/token"),
        Rule("embeddings.distillation_token", "distillation_token/token"),
        Rule("embeddings.register_tokens", "registers/tokens"),
        Rule("embeddings.position_embeddings", "position_embedding/embedding"),
        *torch_norm(f"{_HF_BLOCK}.layernorm_before", f"{BLOCK}/norm_1"),
        *(
            row
            for part in QKV
            for row in torch_dense(
                f"{_HF_BLOCK}.attention.attention.{part}",
                f"{BLOCK}/attention/{part}",
                optional_bias=True,
            )
        ),
        *torch_dense(
            f"{_HF_BLOCK}.attention.output.dense",
            f"{BLOCK}/attention/out",
            MATRIX_FROM_HEADS,
        ),
        Rule(f"{_HF_BLOCK}.layer_scale1.lambda1", f"{BLOCK}/layer_scale_1/gamma"),
        *torch_norm(f"{_HF_BLOCK}.layernorm_after", f"{BLOCK}/norm_2"),
        *torch_dense(f"{_HF_BLOCK}.intermediate.dense", f"{BLOCK}/mlp/dense_1"),
        *torch_dense(f"{_HF_BLOCK}.output.dense", f"{BLOCK}/mlp/dense_2"),
        Rule(f"{_HF_BLOCK}.layer_scale2.lambda1", f"{BLOCK}/layer_scale_2/gamma"),
        *torch_norm("layernorm", "encoder_norm"),
        *torch_dense("pooler.dense", "pre_logits"),
        *torch_dense("classifier", "predictions"),
        *torch_dense("cls_classifier", "class_token_head"),
        *torch_dense("distillation_classifier", "distillation_token_head"),
    ),
    marks=(r"^embeddings\.patch_embeddings\.projection\.weight$", r"^layernorm\.weight$"),
    prefixes=("", "vit.", "deit.", "ijepa.", "dinov2.", "dinov2_with_registers."),
    left_out=(
        (r"^decoder\.", "the decoder"),
        (r"^embeddings\.mask_token$", "the mask token"),
    ),
    aliases=(
        # Names since version 5.
        (r"^layers\.(\d+)\.", r"encoder.layer.\1."),
        (r"\.attention\.q_proj\.", ".attention.attention.query."),
        (r"\.attention\.k_proj\.", ".attention.attention.key."),
        (r"\.attention\.v_proj\.", ".attention.attention.value."),
        (r"\.attention\.o_proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
        # DINOv2's.
        (r"\.norm1\.", ".layernorm_before."),
        (r"\.norm2\.", ".layernorm_after."),
        (r"\.mlp\.weights_in\.", ".intermediate.dense."),
        (r"\.mlp\.weights_out\.", ".output.dense."),
    ),
    prefix_rows=("class", "all"),
    gelu="exact",
    norm_epsilon=1e-12,
    models_vary=True,
    position_resize="bicubic_torch",
    stated=_stated,
    images=_images,
    usual_resize=lambda image_size: _resize_of_processor({}, image_size)[0],
)

# huggingface/transformers: Dinov2Model, Dinov2WithRegistersModel and their classifiers.
HUGGING_FACE_DINOV2 = dataclasses.replace(
    HUGGING_FACE,
    name="Hugging Face DINOv2",
    marks=(*HUGGING_FACE.marks, r"\.layer_scale1\.lambda1$"),
    norm_epsilon=1e-6,
    images=functools.partial(_images, keeps_size=True),
)

_DINOV3_BLOCK = "layer.{block}"

# huggingface/transformers: DINOv3ViTModel.
HUGGING_FACE_DINOV3 = Layout(
    name="Hugging Face DINOv3",
    rules=(
        *torch_dense("embeddings.patch_embeddings", "patch_embedding", CONVOLUTION),
        Rule("embeddings.cls_token", "class_token/token"),
        Rule("embeddings.register_tokens", "registers/tokens"),
        *torch_norm(f"{_DINOV3_BLOCK}.norm1", f"{BLOCK}/norm_1"),
        *(
            row
            for part, projection in zip("qkv", QKV, strict=True)
            for row in torch_dense(
                f"{_DINOV3_BLOCK}.attention.{part}_proj",
                f"{BLOCK}/attention/{projection}",
                optional_bias=True,
            )
        ),
        *torch_dense(
            f"{_DINOV3_BLOCK}.attention.o_proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS, True
        ),
        Rule(f"{_DINOV3_BLOCK}.layer_scale1.lambda1", f"{BLOCK}/layer_scale_1/gamma"),
        *torch_norm(f"{_DINOV3_BLOCK}.norm2", f"{BLOCK}/norm_2"),
        *torch_dense(f"{_DINOV3_BLOCK}.mlp.up_proj", f"{BLOCK}/mlp/dense_1", optional_bias=True),
        *torch_dense(f"{_DINOV3_BLOCK}.mlp.down_proj", f"{BLOCK}/mlp/dense_2", optional_bias=True),
        Rule(f"{_DINOV3_BLOCK}.layer_scale2.lambda1", f"{BLOCK}/layer_scale_2/gamma"),
        *torch_norm("norm", "encoder_norm"),
    ),
    marks=(
        r"^embeddings\.patch_embeddings\.weight$",
        r"^layer\.0\.attention\.q_proj\.weight$",
        r"^layer\.0\.layer_scale1\.lambda1$",
    ),
    joined=joined_gates(f"{_DINOV3_BLOCK}.mlp", "up_proj", "gate_proj", "up_proj"),
    aliases=((r"^model\.layer\.", "layer."),),
    left_out=((r"^embeddings\.mask_token$", "the mask token"),),
    models_vary=True,
    needed=("", "rotary"),
    stated=_stated,
    images=_images,
    usual_resize=HUGGING_FACE.usual_resize,
)

_TOWER_BLOCK = "encoder.layers.{block}"

# huggingface/transformers: CLIPVisionModel and SiglipVisionModel, alone or with the text tower.
HUGGING_FACE_CLIP = Layout(
    name="Hugging Face CLIP and SigLIP",
    rules=(
        *torch_dense(
            "embeddings.patch_embedding", "patch_embedding", CONVOLUTION, optional_bias=True
        ),
        Rule("embeddings.class_embedding", "class_token/token", VECTOR),
        Rule("embeddings.position_embedding.weight", "position_embedding/embedding", POSITION_ROWS),
        *torch_norm("pre_layrnorm", "embedding_norm"),
        *torch_norm(f"{_TOWER_BLOCK}.layer_norm1", f"{BLOCK}/norm_1"),
        *(
            row
            for part, projection in zip("qkv", QKV, strict=True)
            for row in torch_dense(
                f"{_TOWER_BLOCK}.self_attn.{part}_proj", f"{BLOCK}/attention/{projection}"
            )
        ),
        *torch_dense(
            f"{_TOWER_BLOCK}.self_attn.out_proj", f"{BLOCK}/attention/out", MATRIX_FROM_HEADS
        ),
        *torch_norm(f"{_TOWER_BLOCK}.layer_norm2", f"{BLOCK}/norm_2"),
        *torch_dense(f"{_TOWER_BLOCK}.mlp.fc1", f"{BLOCK}/mlp/dense_1"),
        *torch_dense(f"{_TOWER_BLOCK}.mlp.fc2", f"{BLOCK}/mlp/dense_2"),
        *torch_norm("post_layernorm", "encoder_norm"),
        # SigLIP's attention pooling.
        Rule("head.probe", "map_head/probe"),
        *torch_qkv("head.attention.in_proj_weight", "head.attention.in_proj_bias", "map_head"),
        *torch_dense("head.attention.out_proj", "map_head/out", MATRIX_FROM_HEADS),
        *torch_norm("head.layernorm", "map_head/norm"),
        *torch_dense("head.mlp.fc1", "map_head/mlp/dense_1"),
        *torch_dense("head.mlp.fc2", "map_head/mlp/dense_2"),
    ),
    marks=(
        r"^embeddings\.position_embedding\.weight$",
        r"^encoder\.layers\.0\.self_attn\.q_proj\.weight$",
        r"^post_layernorm\.weight$",
    ),
    prefixes=("", "vision_model."),
    left_out=(
        (r"^text_model\.|^text_projection\.|^logit_\w+$", "the text tower"),
        (r"^visual_projection\.", "the projection into the space of texts (visual_projection)"),
    ),
    refusals=(
        (
            r"^classifier\.weight$",
            "a classifier on the mean of the tokens instead of the image tower's features",
        ),
    ),
    models_vary=True,
    position_resize="bicubic_torch",
    stated=_stated,
    images=_images,
    usual_resize=HUGGING_FACE.usual_resize,
)


# Writing

# Names of the nonlinearities; DINOv2's SwiGLU is another layer and ignores the name.
_HUGGING_FACE_ACTIVATIONS = {
    "exact": "gelu", "tanh": "gelu_pytorch_tanh", "quick": "quick_gelu", "relu": "relu",
    "swiglu": "gelu",
}  # fmt: skip


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
            f"Received: {differing_fields(config, absent)}"
        )
    if is_dinov2:
        return "dinov2_with_registers" if config.num_registers else "dinov2"
    return "deit" if config.classifier == "token+distillation" else "vit"


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
    notes = differences(preprocessing, "huggingface")
    size, before = preprocessing.image_size, preprocessing.resize_size
    mean, std = mean_and_std(preprocessing, channels)
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


def _height_and_width(size):
    return {"height": size[0], "width": size[1]}
