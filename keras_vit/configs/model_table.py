"""All models of the paper, one row of a table each, and what their names and configs give."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, TypedDict, TypeVar, get_args, get_type_hints

from keras_vit.configs.blocks import TRAINING_FIELDS, UNSEEN_BLOCK_FIELDS, BlockConfig
from keras_vit.configs.resnet_configs import AxialResNetConfig, BiTConfig, PoolingStem, ResNetStem
from keras_vit.configs.vit_configs import AxialConfig, ViTConfig
from keras_vit.utils.synonyms import ARGUMENTS, near_names, nearest_names, paper_name_of

# Layers that end in class scores. With DeiT's distillation token there are two linear layers,
# the class token's first, and "predictions" is the mean of their logits without weights.
CLASSIFIER_LAYERS = ("class_token_head", "distillation_token_head", "predictions")
# The head that transfer learning replaces: these and the hidden layer of pre-training.
HEAD_LAYERS = ("pre_logits", *CLASSIFIER_LAYERS)
LEVERAGE, ANSWERS = "leverage", "unknown_class"  # The layers of the class "unknown".

Layer = TypeVar("Layer")  # A layer of Keras, or what is known of one.

# Representations of an image. "pre_logits": the input of the head, as in the official
# few-shot evaluator. "token": the class token. "avg": the mean over the patch tokens.
FEATURES = ("pre_logits", "token", "avg")


# Fields of `ViTConfig` that weights do not show; files of this package note them.
UNSEEN_FIELDS = (*UNSEEN_BLOCK_FIELDS, "classifier", "position_embedding_at", "position_resize")


DEFAULT_IMAGE_SIZE = 224  # Pixels per side; pre-training resolution of the paper.
# Exceptions: pixels per side of models for other images.
IMAGE_SIZES = {"ViT-Mini/4": 32, "R7+ViT-Nano/8": 32, "R14+ViT-Micro/16": 96}


class Size(TypedDict):
    """The size of a Vision Transformer, as fields of its config."""

    width: int
    depth: int
    mlp_dim: int
    num_heads: int


# Paper, Table 1; Ti and S are from the official checkpoints.
SIZES: dict[str, Size] = {
    # Ours, for images of 32 pixels: Mini has a million parameters, and with a ResNet in front
    # Micro and Nano have 2.6.
    "Mini": {"width": 128, "depth": 5, "mlp_dim": 512, "num_heads": 4},
    "Micro": {"width": 192, "depth": 5, "mlp_dim": 768, "num_heads": 6},
    "Nano": {"width": 256, "depth": 1, "mlp_dim": 512, "num_heads": 4},
    "Ti": {"width": 192, "depth": 12, "mlp_dim": 768, "num_heads": 3},
    "S": {"width": 384, "depth": 12, "mlp_dim": 1536, "num_heads": 6},
    "B": {"width": 768, "depth": 12, "mlp_dim": 3072, "num_heads": 12},
    # Figure 4: B with all hidden dimensions halved, the heads' too, so there are 12 heads.
    "b": {"width": 384, "depth": 12, "mlp_dim": 1536, "num_heads": 12},
    "L": {"width": 1024, "depth": 24, "mlp_dim": 4096, "num_heads": 16},
    "H": {"width": 1280, "depth": 32, "mlp_dim": 5120, "num_heads": 16},
}

ModelConfig: TypeAlias = ViTConfig | BiTConfig

MODELS: dict[str, ModelConfig] = {
    "ViT-Mini/4": ViTConfig(4, **SIZES["Mini"]),
    "ViT-Ti/16": ViTConfig(16, **SIZES["Ti"]),
    "ViT-S/16": ViTConfig(16, **SIZES["S"]),
    "ViT-S/32": ViTConfig(32, **SIZES["S"]),
    "ViT-b/16": ViTConfig(16, **SIZES["b"]),
    "ViT-b/32": ViTConfig(32, **SIZES["b"]),
    "ViT-B/8": ViTConfig(8, **SIZES["B"]),
    "ViT-B/16": ViTConfig(16, **SIZES["B"]),
    "ViT-B/32": ViTConfig(32, **SIZES["B"]),
    "ViT-L/16": ViTConfig(16, **SIZES["L"]),
    "ViT-L/32": ViTConfig(32, **SIZES["L"]),
    "ViT-H/14": ViTConfig(14, **SIZES["H"]),
    # DINOv2 (arXiv 2304.07193), not in the paper: blocks with LayerScale and the exact GELU.
    "ViT-S/14": ViTConfig(14, **SIZES["S"], layer_scale=True, gelu="exact"),
    "ViT-B/14": ViTConfig(14, **SIZES["B"], layer_scale=True, gelu="exact"),
    "ViT-L/14": ViTConfig(14, **SIZES["L"], layer_scale=True, gelu="exact"),
    # Paper, section 4.1 and the official checkpoints. /16 has the units of the fourth block in the
    # third, option (ii) of the paper. R+ViT-Ti/16 is named for its files: its patches, 8 cells of
    # a root with stride 4, are 32 pixels wide.
    # Ours: images of 32 pixels give 4x4 tokens; and, enlarged to 96 for a root's stride of 4, 6x6.
    "R7+ViT-Nano/8": ViTConfig(
        1, **SIZES["Nano"], classifier="gap", resnet=PoolingStem((64, 256, 256))
    ),
    "R14+ViT-Micro/16": ViTConfig(2, **SIZES["Micro"], resnet=ResNetStem((2, 2), 0.5)),
    "R+ViT-Ti/16": ViTConfig(8, **SIZES["Ti"], resnet=ResNetStem(())),
    "R26+ViT-S/32": ViTConfig(1, **SIZES["S"], resnet=ResNetStem((2, 2, 2, 2))),
    "R26+ViT-B/32": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((2, 2, 2, 2))),
    "R50+ViT-B/16": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((3, 4, 9))),
    "R50+ViT-B/32": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((3, 4, 6, 3))),
    "R50+ViT-L/16": ViTConfig(1, **SIZES["L"], resnet=ResNetStem((3, 4, 9))),
    "R50+ViT-L/32": ViTConfig(1, **SIZES["L"], resnet=ResNetStem((3, 4, 6, 3))),
    "BiT-R50x1": BiTConfig((3, 4, 6, 3), 1),
    "BiT-R50x2": BiTConfig((3, 4, 6, 3), 2),
    "BiT-R50x3": BiTConfig((3, 4, 6, 3), 3),
    "BiT-R101x1": BiTConfig((3, 4, 23, 3), 1),
    "BiT-R101x3": BiTConfig((3, 4, 23, 3), 3),
    "BiT-R152x1": BiTConfig((3, 8, 36, 3), 1),
    "BiT-R152x2": BiTConfig((3, 8, 36, 3), 2),
    "BiT-R152x4": BiTConfig((3, 8, 36, 3), 4),
    "BiT-R200x3": BiTConfig((3, 24, 36, 3), 3),
    # Paper, Appendix D.6.
    "Axial-ViT-B/16": AxialConfig(16, **SIZES["B"]),
    "Axial-ViT-B/32": AxialConfig(32, **SIZES["B"]),
    "Axial-ResNet50": AxialResNetConfig((3, 4, 6, 3)),
}


def default_image_size(name_or_config: str | ModelConfig) -> int:
    """Returns the default pixels per side of a model's images."""
    name = name_or_config if isinstance(name_or_config, str) else None
    return IMAGE_SIZES.get(name or "", DEFAULT_IMAGE_SIZE)


# Arguments of `keras_vit.build` in addition to the fields of a config.
_BUILD_ARGUMENTS = {
    "name_or_config",
    "include_top",
    "weights",
    "input_tensor",
    "input_shape",
    "pooling",
    "classes",
    "name",
    "classifier_activation",
    "include_preprocessing",
}


def argument_errors(names: Iterable[str], kind: type) -> str:
    """Returns what unknown arguments of `build` may have meant; "" if none is unknown.

    Args:
        names: The arguments that are no others of `build`.
        kind: The class of the config.
    """
    fields = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(names) - fields)
    allowed = f"Only fields of {kind.__name__} can be changed: {sorted(fields)}"
    answers = [_argument_here(name, fields | _BUILD_ARGUMENTS) for name in unknown]
    reason = "; ".join(filter(None, answers)) or allowed
    return f"{reason}. Received: {', '.join(unknown)}" if unknown else ""


def _argument_here(name, known):
    """What an unknown argument is called here; "" if that is not known."""
    synonym = ARGUMENTS.get(name)
    if synonym and (" " in synonym.here or synonym.here in known):
        return synonym.answer()
    near = near_names(name, known)
    return f"{name} is called {near[0]} here" if near else ""


def resolve(name_or_config: str | ModelConfig, changes: Mapping[str, Any] | None = None) -> Any:
    """Returns the config of a name, with some fields replaced.

    Args:
        name_or_config: A name of `keras_vit.list_models()`, or a config, which passes through.
        changes: Fields of the config by name, with their new values.

    Returns:
        A `ViTConfig` or `BiTConfig`, by the name; callers that know which need no cast.

    Raises:
        ValueError: If the name is unknown (the nearest names are given), or a field.
    """
    if isinstance(name_or_config, str):
        if name_or_config not in MODELS:
            here = paper_name_of(name_or_config)
            is_known = here in MODELS
            answer = f"{name_or_config} is called {here} here" if is_known else ""
            raise ValueError(
                "The model must be one of keras_vit.list_models(). "
                f"{answer or nearest_names(name_or_config, MODELS)}. Received: {name_or_config!r}"
            )
        config = MODELS[name_or_config]
    else:
        config = name_or_config
    if wrong := argument_errors(changes or (), type(config)):
        raise ValueError(wrong)
    return dataclasses.replace(config, **changes) if changes else config


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns some fields of `ViTConfig`, such as a file states them, as the config holds them.

    Args:
        fields: Values by the names of the fields.

    Raises:
        ValueError: If the type of a value is wrong, or it is unknown or out of range.
    """
    hints = get_type_hints(ViTConfig)
    for name, value in fields.items():
        kinds = get_args(hints[name]) or (hints[name],)  # Values of a `Literal`, or types.
        types = tuple(kind for kind in kinds if isinstance(kind, type))
        types += (int,) if float in types else ()
        if not (isinstance(value, types) if types else value in kinds):
            raise ValueError(f"{name} must be one of {kinds}. Received: {name}={value!r:.80}")
    return dict(fields)


def for_inference(config: ModelConfig) -> ModelConfig:
    """Returns a config without the options that matter in training only.

    These are dropout, stochastic depth and remat: two configs that differ in nothing else
    compute the same scores from the same weights.

    Args:
        config: A `ViTConfig`, `BiTConfig` or one of their variants.
    """
    fields = {field.name for field in dataclasses.fields(config)}
    defaults: dict[str, Any] = {name: getattr(BlockConfig, name) for name in TRAINING_FIELDS}
    return dataclasses.replace(config, **{k: v for k, v in defaults.items() if k in fields})


def classifier_layer(layers: Mapping[str, Layer]) -> Layer | None:
    """Returns the linear layer that gives the class scores, or None without a head.

    With a distillation token it is the class token's.

    Args:
        layers: Layers, or anything else, by the name of a layer.
    """
    return next((layers[name] for name in CLASSIFIER_LAYERS if name in layers), None)


def layer_name(name_or_config: str | ModelConfig) -> str:
    """Returns the name of a Keras model, such as "vit_b16" for "ViT-B/16"."""
    if not isinstance(name_or_config, str):
        return name_or_config.architecture
    # ViT-b and ViT-B differ in case only.
    name_or_config = name_or_config.replace("ViT-b/", "ViT-half_b/")
    return name_or_config.lower().replace("/", "").replace("+", "_").replace("-", "_")


def paper_name(config: ModelConfig | None) -> str:
    """Returns the name in `keras_vit.list_models()` of a config; "" if it has none.

    GELU, LayerNorm's epsilon and the hidden layer of pre-training may differ.
    """
    if config is None:
        return ""
    names = {_plain(resolve(name)): name for name in MODELS}
    return names.get(_plain(config), "")


def without_hidden_layer(config: ModelConfig) -> ModelConfig:
    """Returns a config without the hidden layer of pre-training, for a new head."""
    if isinstance(config, ViTConfig):
        return dataclasses.replace(config, representation_size=None, head_bias=0.0)
    return dataclasses.replace(config, head_bias=0.0)


def check_agrees(
    model: str | ModelConfig,
    weights: str | os.PathLike,
    config: ModelConfig | None,
) -> None:
    """Raises ValueError if the config of weights is not of a given model.

    Args:
        model: The name or config that was given.
        weights: The weights, for the message.
        config: The config of the weights; None if they are of another size.
    """
    if config is None or _plain(resolve(model)) != _plain(config):
        raise ValueError(
            "The weights must be of the given model; without a model, the weights' own is used. "
            f"Received: model={model}, weights={os.fspath(weights)}, "
            f"a model of {config or 'another size'}"
        )


def _plain(config):
    """A config without what the weights of one model may differ in: numerics and head."""
    config = for_inference(without_hidden_layer(config))
    if not isinstance(config, ViTConfig):
        return config
    gelu = config.gelu if config.gelu == "swiglu" else ViTConfig.gelu  # SwiGLU has more weights.
    return dataclasses.replace(
        config,
        gelu=gelu,
        norm_epsilon=ViTConfig.norm_epsilon,
        position_resize=ViTConfig.position_resize,
    )
