"""Hugging Face's transformers: names of weights, `config.json` and image processors."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import (
    activation_of,
    check_expressible,
    check_sizes,
    found,
    read_class_names,
    read_json,
)
from keras_vit.checkpoints.code_bases.layouts import (
    BLOCK,
    QKV,
    TORCH,
    Checkpoint,
    Layout,
    Stated,
    rules_of,
)
from keras_vit.checkpoints.code_bases.transforms import POSITION_ROWS, TORCH_TRANSFORMS, VECTOR
from keras_vit.configs import ViTConfig
from keras_vit.description import Description, Labels
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL
from keras_vit.preprocessing import PILLOW_EVALUATIONS, Preprocessing, value_range
from keras_vit.utils.files import DESCRIPTION

# Defaults of `transformers`, for configs that leave fields out, and what differs by `model_type`.
_DEFAULTS = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}
_SIGLIP: dict[str, str | float] = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
_DEFAULTS_BY_TYPE: dict[str, dict[str, str | float]] = {
    **dict.fromkeys(("vit", "deit", "vit_mae", "ijepa"), {}),
    "vit_msn": {"layer_norm_eps": 1e-6},
    "dinov2": {"layer_norm_eps": 1e-6, "patch_size": 14},
    "dinov2_with_registers": {"layer_norm_eps": 1e-6},
    "dinov3_vit": {"layer_norm_eps": 1e-5, "num_attention_heads": 6, "rope_theta": 100.0},
    "clip_vision_model": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "patch_size": 32},
    "siglip_vision_model": _SIGLIP,
    "siglip2_vision_model": {**_SIGLIP, "num_patches": 256},
}

# Models with an image tower, whose config is within theirs.
_TOWERS = {kind: f"{kind}_vision_model" for kind in ("clip", "siglip", "siglip2")}


def check_model_type(config: Mapping[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError if `config.json` is of a model of transformers that no model here equals.

    Its weights may have names that no layout has, so this comes before their names are read.
    """
    known, kind = (*_DEFAULTS_BY_TYPE, *_TOWERS), config.get("model_type")
    if kind is not None and "architecture" not in config and kind not in known:
        raise ValueError(
            f"model_type must be one of {', '.join(known)}. Received: {kind!r} next to {path}"
        )


def _stated(checkpoint: Checkpoint) -> Stated:
    config, path = checkpoint.config, checkpoint.path
    if "model_type" not in config:
        # Only DINOv2 and DINOv3 have LayerScale.
        if "encoder_block_0/layer_scale_1" in checkpoint.shapes:
            raise ValueError(
                "Files of DINOv2 and DINOv3 must have their config.json in the same folder, "
                f"which shows epsilon and positions. Received: {path}"
            )
        return {}, Description()
    kind = config["model_type"]
    if kind in _TOWERS and isinstance(config.get("vision_config"), dict):
        kind, config = _TOWERS[kind], config["vision_config"]
    check_model_type({"model_type": kind}, path)
    check_sizes(
        checkpoint.shapes,
        path,
        {
            "depth": config.get("num_hidden_layers"),
            "width": config.get("hidden_size"),
            # DINOv2 has a ratio in its place.
            "mlp_dim": None if "mlp_ratio" in config else config.get("intermediate_size"),
            "patch_size": _sides(config["patch_size"]) if "patch_size" in config else None,
        },
    )
    config = {**_DEFAULTS, **_DEFAULTS_BY_TYPE[kind], **config}
    activation = "gated " * bool(config.get("use_gated_mlp")) + config["hidden_act"]
    fields: dict[str, str | float] = {
        "gelu": activation_of("hidden_act", activation, path),
        "norm_epsilon": float(config["layer_norm_eps"]),
        "num_heads": int(config["num_attention_heads"]),
    }
    if "rope_theta" in config:
        fields["rotary"] = float(config["rope_theta"])
    if "registers" in checkpoint.shapes or kind == "dinov2_with_registers":
        fields["position_resize"] = "bicubic"
    size, patch = _sides(config["image_size"]), _sides(config["patch_size"])
    notes: tuple[str, ...] = ()
    if "num_patches" in config:
        size = tuple(math.isqrt(config["num_patches"]) * pixels for pixels in patch)
        fields["position_resize"] = "bilinear_antialias"
        notes = (
            f"NaFlex takes images of any grid; here they are of one size, {size[0]}x{size[1]}, or "
            "of --image-size",
        )
    grid = tuple(side // pixels for side, pixels in zip(size, patch, strict=True))
    return fields, Description(position_grid=grid, input_shape=(*size, 3), notes=notes)


PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
# Pillow's numbers of the filters.
PILLOW_FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}


def _images(checkpoint, image_size, classes):
    """The classes of `config.json` and the image processor; see `Layout.images`."""
    is_multilabel = checkpoint.config.get("problem_type") == "multi_label_classification"
    names, notes = read_class_names(checkpoint.config.get("id2label"), classes)
    labels = Labels(names, MULTILABEL if is_multilabel else MULTICLASS)
    # transformers 5 writes the image processor into the processor of texts and images, if any.
    wanted = read_json(checkpoint.folder / PROCESSOR).get("image_processor") or read_json(
        checkpoint.folder / PREPROCESSOR
    )
    if not wanted:
        return found(f"no {PREPROCESSOR}", labels=labels, notes=notes)
    mean, std = wanted.get("image_mean", [0.5]), wanted.get("image_std", [0.5])
    if not wanted.get("do_normalize", True):
        mean, std = [0.0], [1.0]
    scale = wanted.get("rescale_factor", 1 / 255) if wanted.get("do_rescale", True) else 1.0
    # DINOv2 and DINOv3 take images of any size, so the processor's.
    is_any_size = "encoder_block_0/layer_scale_1" in checkpoint.shapes
    if "max_num_patches" in wanted:  # NaFlex states no size.
        wanted = {"resample": 2, "size": list(image_size)} | wanted
    preprocessing, more_notes = _resize_of_processor(wanted, None if is_any_size else image_size)
    preprocessing = dataclasses.replace(preprocessing, value_range=value_range(mean, std, scale))
    return found(PREPROCESSOR, preprocessing, labels, (*notes, *more_notes))


def _resize_of_processor(wanted, image_size):
    """Returns the preprocessing of a `preprocessor_config.json` without the values, and notes."""
    kind = str(wanted.get("image_processor_type") or wanted.get("feature_extractor_type") or "ViT")
    if kind.startswith(("ViT", "Siglip")):
        wanted = {"do_center_crop": False} | wanted
    if kind.startswith("ViT"):  # Its first files leave these out.
        wanted = {"resample": 2, "size": 224} | wanted
    padding = [name for name in ("do_pad", "crop_pct") if wanted.get(name)]
    filters = {number: name for name, number in PILLOW_FILTERS.items()}
    if padding or wanted["resample"] not in filters:
        raise ValueError(
            f"An image processor must resize with a filter of {filters} and may crop the middle. "
            f"Received: { {name: wanted[name] for name in ('resample', *padding)} } of {kind}"
        )
    notes = []
    size, crop = wanted["size"], wanted.get("crop_size")
    if isinstance(size, int) and kind.startswith(("CLIP", "Bit")):
        size = {"shortest_edge": size}
    is_short = isinstance(size, dict) and "shortest_edge" in size and "longest_edge" not in size
    before = size["shortest_edge"] if is_short else _sides(size)
    if wanted["do_center_crop"]:
        size = _sides(crop)
    elif is_short:
        size = (before, before)
        notes.append(f"size={wanted['size']} without a crop: the middle is cropped")
    else:
        size, before = before, None
    preprocessing = Preprocessing(
        size, "huggingface", interpolation=filters[wanted["resample"]], resize_size=before
    )
    if image_size is None:
        return preprocessing, notes
    if preprocessing.image_size != tuple(image_size):
        notes.append(
            f"the processor's images of {size} pixels became the model's {tuple(image_size)}"
        )
    return preprocessing.with_image_size(image_size), notes


def _sides(size):
    """Returns Hugging Face's `size` as (height, width)."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, list) and len(size) == 2:
        return tuple(size)
    if isinstance(size, dict) and size.keys() >= {"height", "width"}:
        return size["height"], size["width"]
    raise ValueError(
        "A size must have height and width, or an image processor's the shortest edge. "
        f"Received: {size!r}"
    )


# What all layouts share.
_SHARED: dict[str, Any] = {
    "models_vary": True,
    "position_resize": "bicubic_torch",
    "stated": _stated,
    "images": _images,
}

_BLOCK = "encoder.layer.{block}"
_ATTENTION = f"{_BLOCK}.attention.attention"

# huggingface/transformers: ViTForImageClassification and ViTModel; DeiT's and DINOv2's too.
HUGGING_FACE = Layout(
    name="Hugging Face",
    rules=rules_of(
        {
            "patch_embedding": "embeddings.patch_embeddings.projection",
            "class_token/token": "embeddings.cls_token",
            "distillation_token/token": "embeddings.distillation_token",
            "registers/tokens": "embeddings.register_tokens",
            "position_embedding/embedding": "embeddings.position_embeddings",
            f"{BLOCK}/norm_1": f"{_BLOCK}.layernorm_before",
            **{f"{BLOCK}/attention/{part}": f"{_ATTENTION}.{part}" for part in QKV},
            f"{BLOCK}/attention/out": f"{_BLOCK}.attention.output.dense",
            f"{BLOCK}/layer_scale_1/gamma": f"{_BLOCK}.layer_scale1.lambda1",
            f"{BLOCK}/norm_2": f"{_BLOCK}.layernorm_after",
            f"{BLOCK}/mlp/dense_1": f"{_BLOCK}.intermediate.dense",
            f"{BLOCK}/mlp/dense_2": f"{_BLOCK}.output.dense",
            f"{BLOCK}/layer_scale_2/gamma": f"{_BLOCK}.layer_scale2.lambda1",
            "encoder_norm": "layernorm",
            "pre_logits": "pooler.dense",
            "predictions": "classifier",
            "class_token_head": "cls_classifier",
            "distillation_token_head": "distillation_classifier",
        },
        TORCH,
        TORCH_TRANSFORMS,
        optional="/attention/(query|key|value)/",
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
    **_SHARED,
)

_DINOV3_BLOCK = "layer.{block}"

# huggingface/transformers: DINOv3ViTModel.
HUGGING_FACE_DINOV3 = Layout(
    name="Hugging Face DINOv3",
    rules=rules_of(
        {
            "patch_embedding": "embeddings.patch_embeddings",
            "class_token/token": "embeddings.cls_token",
            "registers/tokens": "embeddings.register_tokens",
            f"{BLOCK}/norm_1": f"{_DINOV3_BLOCK}.norm1",
            **{
                f"{BLOCK}/attention/{part}": f"{_DINOV3_BLOCK}.attention.{part[0]}_proj"
                for part in (*QKV, "out")
            },
            f"{BLOCK}/layer_scale_1/gamma": f"{_DINOV3_BLOCK}.layer_scale1.lambda1",
            f"{BLOCK}/norm_2": f"{_DINOV3_BLOCK}.norm2",
            f"{BLOCK}/mlp/dense_1": f"{_DINOV3_BLOCK}.mlp.up_proj",
            f"{BLOCK}/mlp/dense_2": f"{_DINOV3_BLOCK}.mlp.down_proj",
            f"{BLOCK}/layer_scale_2/gamma": f"{_DINOV3_BLOCK}.layer_scale2.lambda1",
            "encoder_norm": "norm",
        },
        TORCH,
        TORCH_TRANSFORMS,
        optional="/attention/|/mlp/",
    ),
    marks=(
        r"^embeddings\.patch_embeddings\.weight$",
        r"^layer\.0\.attention\.q_proj\.weight$",
        r"^layer\.0\.layer_scale1\.lambda1$",
    ),
    aliases=((r"^model\.layer\.", "layer."),),
    gates=(".mlp.gate_proj.", ".mlp.up_proj."),
    left_out=((r"^embeddings\.mask_token$", "the mask token"),),
    **_SHARED,
)

_TOWER_BLOCK = "encoder.layers.{block}"

# huggingface/transformers: CLIPVisionModel and SiglipVisionModel, alone or with the text tower.
HUGGING_FACE_CLIP = Layout(
    name="Hugging Face CLIP and SigLIP",
    rules=rules_of(
        {
            "patch_embedding": "embeddings.patch_embedding",
            "class_token/token": "embeddings.class_embedding",
            "position_embedding/embedding": "embeddings.position_embedding.weight",
            "embedding_norm": "pre_layrnorm",
            f"{BLOCK}/norm_1": f"{_TOWER_BLOCK}.layer_norm1",
            **{
                f"{BLOCK}/attention/{part}": f"{_TOWER_BLOCK}.self_attn.{part[0]}_proj"
                for part in QKV
            },
            f"{BLOCK}/attention/out": f"{_TOWER_BLOCK}.self_attn.out_proj",
            f"{BLOCK}/norm_2": f"{_TOWER_BLOCK}.layer_norm2",
            f"{BLOCK}/mlp/dense_1": f"{_TOWER_BLOCK}.mlp.fc1",
            f"{BLOCK}/mlp/dense_2": f"{_TOWER_BLOCK}.mlp.fc2",
            "encoder_norm": "post_layernorm",
            # SigLIP's attention pooling.
            "map_head/probe": "head.probe",
            "map_head/qkv": "head.attention.in_proj",
            "map_head/out": "head.attention.out_proj",
            "map_head/norm": "head.layernorm",
            "map_head/mlp/dense_1": "head.mlp.fc1",
            "map_head/mlp/dense_2": "head.mlp.fc2",
        },
        TORCH,
        {"^class_token/": VECTOR, "^position_embedding/": POSITION_ROWS, **TORCH_TRANSFORMS},
        optional="^patch_embedding/",
    ),
    marks=(
        r"^embeddings\.position_embedding\.weight$",
        r"^encoder\.layers\.0\.self_attn\.q_proj\.weight$",
        r"^post_layernorm\.weight$",
    ),
    prefixes=("", "vision_model."),
    aliases=((r"\.in_proj_(weight|bias)$", r".in_proj.\1"),),
    left_out=(
        (r"^text_model\.|^text_projection\.|^logit_\w+$", "the text tower"),
        (r"^visual_projection\.", "the projection into the space of texts (visual_projection)"),
    ),
    **_SHARED,
)


def _stated_of_classifier(checkpoint: Checkpoint) -> Stated:
    fields, described = _stated(checkpoint)
    return {**fields, "classifier": "gap"}, described


# The same: SiglipForImageClassification, whose head reads the mean of the tokens.
HUGGING_FACE_SIGLIP_CLASSIFIER = dataclasses.replace(
    HUGGING_FACE_CLIP,
    name="Hugging Face SigLIP with a head",
    rules=(
        *HUGGING_FACE_CLIP.rules,
        *rules_of({"predictions": "classifier"}, TORCH, TORCH_TRANSFORMS),
    ),
    marks=(*HUGGING_FACE_CLIP.marks, r"^classifier\.weight$"),
    left_out=(
        *HUGGING_FACE_CLIP.left_out,
        (r"^head\.", "the attention pooling, which the classifier does not read,"),
    ),
    stated=_stated_of_classifier,
)

# The same: CLIPForImageClassification, whose head reads the mean of the patches in front of the
# last normalisation.
HUGGING_FACE_CLIP_CLASSIFIER = dataclasses.replace(
    HUGGING_FACE_SIGLIP_CLASSIFIER,
    name="Hugging Face CLIP with a head",
    marks=(*HUGGING_FACE_SIGLIP_CLASSIFIER.marks, r"^embeddings\.class_embedding$"),
    left_out=(
        *HUGGING_FACE_CLIP.left_out,
        (r"^post_layernorm\.", "the last normalisation, which the classifier does not read,"),
    ),
)


# Writing

_WRITTEN_ACTIVATIONS = {
    "exact": "gelu",
    "tanh": "gelu_pytorch_tanh",
    "quick": "quick_gelu",
    "relu": "relu",
}


class WrittenModel(NamedTuple):
    """A model of `transformers` that is written: its `model_type` and the names of its weights."""

    kind: str
    architecture: str
    prefix: str
    layout: Layout = HUGGING_FACE


# By what the head reads.
_WRITTEN_MODELS = {
    "token": WrittenModel("vit", "ViTForImageClassification", "vit."),
    "token+distillation": WrittenModel("deit", "DeiTForImageClassificationWithTeacher", "deit."),
    "gap": WrittenModel(
        "siglip", "SiglipForImageClassification", "vision_model.", HUGGING_FACE_SIGLIP_CLASSIFIER
    ),
}


def written_model(config: ViTConfig, description: Description) -> WrittenModel:
    """Returns the model in `transformers` that computes what a config does.

    Args:
        config: A plain Vision Transformer.
        description: The model, with the names of its classes where it has a head.

    Raises:
        ValueError: If there is none.
    """
    is_square = len(set(description.image_size or ())) == len(set(config.patch_sizes)) == 1
    has_head = description.labels.names is not None
    is_siglip = config.classifier == "gap" and has_head and is_square
    check_expressible(
        config,
        "A model for Hugging Face must be a ViT or a DeiT with its teacher's token, or a SigLIP "
        "with a head for square images and patches",
        {
            "classifier": config.classifier in ("token", "token+distillation") or is_siglip,
            "unread_class_token": not config.unread_class_token,
            "representation_size": config.representation_size is None,
            "position_embedding": config.position_embedding == "learned_1d",
            "position_embedding_at": config.position_embedding_at == "input",
            "num_registers": config.num_registers == 0,
            "gelu": config.gelu in _WRITTEN_ACTIVATIONS,
            "embedding_norm": not config.embedding_norm,
            "final_norm": config.final_norm == "tokens",
            **dict.fromkeys(config.block(0).features, False),
        },
    )
    written = _WRITTEN_MODELS[config.classifier]
    if has_head:
        return written
    body = written.architecture.partition("For")[0]  # Its weights have no prefix.
    return written._replace(architecture=f"{body}Model", prefix="")


def config_json(config: ViTConfig, description: Description) -> dict[str, Any]:
    """Returns the content of `config.json`; arguments as for `written_model`."""
    written, labels = written_model(config, description), description.labels
    body = {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": _WRITTEN_ACTIVATIONS[config.gelu],
        "layer_norm_eps": config.norm_epsilon,
        "image_size": _number_or_sides(description.image_size),
        "patch_size": _number_or_sides(config.patch_sizes),
        "num_channels": description.channels,
    }
    if written.kind == "siglip":
        tower = {"attention_dropout": config.attention_dropout_rate, "vision_use_head": False}
        body = {"vision_config": {"model_type": _TOWERS["siglip"], **body, **tower}}
    else:
        body |= {
            "hidden_dropout_prob": config.dropout_rate,
            "attention_probs_dropout_prob": config.attention_dropout_rate,
            "qkv_bias": True,
        }
    content = {"architectures": [written.architecture], "model_type": written.kind, **body}
    if labels.names is not None:
        content["id2label"] = {str(number): name for number, name in enumerate(labels.names)}
        content["label2id"] = {name: number for number, name in enumerate(labels.names)}
    if labels.is_multilabel:
        content["problem_type"] = "multi_label_classification"
    return content


def _number_or_sides(size):
    return size[0] if size[0] == size[1] else list(size)


def preprocessor_json(preprocessing: Preprocessing, channels: int) -> tuple[dict, list[str]]:
    """Returns the content of `preprocessor_config.json`, and a note for each difference.

    Raises:
        ValueError: If no image processor of Hugging Face does nearly the same.
    """
    size, before = preprocessing.image_size, preprocessing.resize_size
    if preprocessing.evaluation not in ("resize", *PILLOW_EVALUATIONS):
        raise ValueError(
            'The way of resizing must be "huggingface", "torchvision", or nearly "resize" '
            f"(evaluation in {DESCRIPTION}). Received: {preprocessing.evaluation!r}"
        )
    notes = []
    if preprocessing.evaluation == "resize":
        notes.append("the resize there is antialiased, and was not here")
    if preprocessing.evaluation == "torchvision" and before is not None:
        notes.append("the crop there may start one pixel later or earlier")
    low, high = (np.broadcast_to(value, channels) for value in preprocessing.value_range)
    # Processors whose defaults are these settings, so that all versions of the library obey them.
    kind = "ViT" if before is None else "CLIP" if isinstance(before, int) else "DeiT"
    content = {
        "image_processor_type": f"{kind}ImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": before} if kind == "CLIP" else _height_and_width(before or size),
        "resample": PILLOW_FILTERS[preprocessing.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": (-low / (high - low)).tolist(),
        "image_std": (1 / (high - low)).tolist(),
    }
    if before is not None:
        content |= {"do_center_crop": True, "crop_size": _height_and_width(size)}
    return content, notes


def _height_and_width(size):
    return {"height": size[0], "width": size[1]}
