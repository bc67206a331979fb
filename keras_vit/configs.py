"""Configs of all models of the paper, one row of a table each; without Keras or TensorFlow."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from keras_vit.block_configs import (
    TRAINING_FIELDS,
    UNSEEN_BLOCK_FIELDS,
    BlockConfig,
    BlockNorm,
    Gelu,
    PoolingConfig,
    Rotary,
    check_choices,
    documented_by,
    part_of,
)
from keras_vit.nearest_names import nearest_names
from keras_vit.position_resize import PositionRule

HeadInput = Literal["token", "gap", "max", "map", "token+gap", "token+distillation"]
FinalNorm = Literal["tokens", "pooled", "none"]
PositionKind = Literal["none", "learned_1d", "learned_2d", "relative", "relative_bias"]
PositionPlace = Literal["input", "every_block", "every_block_shared"]

# Layers that end in class scores. With DeiT's distillation token there are two linear layers,
# the class token's first, and "predictions" is the mean of their logits without weights.
CLASSIFIER_LAYERS = ("class_token_head", "distillation_token_head", "predictions")
# The head that transfer learning replaces: these and the hidden layer of pre-training.
HEAD_LAYERS = ("pre_logits", *CLASSIFIER_LAYERS)

# Representations of an image. "pre_logits": the input of the head, as in the official
# few-shot evaluator. "token": the class token. "avg": the mean over the patch tokens.
FEATURES = ("pre_logits", "token", "avg")


# Fields of `ViTConfig` that weights do not show; files of this package note them.
UNSEEN_FIELDS = (*UNSEEN_BLOCK_FIELDS, "classifier", "position_resize")


@dataclasses.dataclass(frozen=True)
class _ResNet:
    """The ResNets of the paper: a root with total stride 4, then blocks of units."""

    num_blocks: tuple[int, ...]
    width_factor: float = 1

    def __post_init__(self):
        object.__setattr__(self, "num_blocks", tuple(self.num_blocks))
        if any(not isinstance(units, int) or units < 1 for units in self.num_blocks):
            raise ValueError(
                "num_blocks must be the number of units in each block, 1 or more. "
                f"Received: num_blocks={self.num_blocks}"
            )
        if self.width < 32 or self.width % 32:
            raise ValueError(
                "width_factor must make the root's width, 64 * width_factor, a multiple of the "
                f"32 groups of GroupNorm. Received: width_factor={self.width_factor}"
            )

    @property
    def width(self) -> int:
        """Channels of the root, and of the bottlenecks of the first block."""
        return int(64 * self.width_factor)

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        blocks = len(self.num_blocks)
        return 4 * self.width * 2 ** (blocks - 1) if blocks else self.width

    @property
    def stride(self) -> int:
        """Pixels per cell of the feature map; a part of a cell counts as one."""
        return 4 * 2 ** max(len(self.num_blocks) - 1, 0)

    def feature_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the cells (down, across) of the feature map of an image."""
        height, width = image_size
        return (-(-height // self.stride), -(-width // self.stride))


@dataclasses.dataclass(frozen=True)
class ResNetStem(_ResNet):
    """The ResNet in front of a hybrid's patch embedding; paper, section 3.1.

    Args:
        num_blocks: Units in each block ("stage" in the paper). Empty: the root convolution
            and pool alone.
        width_factor: Multiplies every width.
        epsilon_in: How kernels are standardised: "deviation" as in the official code, or
            "variance" as in timm; see `keras_vit.layers.StandardizedConv2D`.

    Raises:
        ValueError: If a block has no unit, or a width is no multiple of 32.
    """

    num_blocks: tuple[int, ...] = (3, 4, 9)
    epsilon_in: Literal["deviation", "variance"] = "deviation"


@dataclasses.dataclass(frozen=True)
class BiTConfig(_ResNet):
    """A ResNet with GroupNorm and standardised convolutions (BiT), the paper's baseline.

    Args:
        num_blocks: Units in each block, such as (3, 4, 6, 3).
        width_factor: Multiplies every width.
        head_bias: Initial value of the head's bias.

    Raises:
        ValueError: If a block has no unit, or a width is no multiple of 32.
    """

    head_bias: float = 0.0

    architecture = "bit"
    has_class_token = False
    pooling = "avg"

    def __post_init__(self):
        super().__post_init__()
        if not self.num_blocks:
            raise ValueError(f"A ResNet needs a block. Received: num_blocks={self.num_blocks}")

    @property
    def min_image_size(self) -> tuple[int, int]:
        """Pixels (height, width) of the smallest image."""
        return (1, 1)


@documented_by(BlockConfig)
@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """A Vision Transformer; paper, Table 1 and equations 1 to 4.

    The fields of its blocks are described in `keras_vit.layers.BlockConfig`.

    Args:
        patch_size: Pixels of a patch, a number or (height, width); for a hybrid, cells of
            the ResNet's feature map.
        width: Token size, D.
        depth: Encoder blocks, L.
        classifier: Input of the head: the class "token"; the mean ("gap"), the maximum ("max")
            or an attention pooling ("map") over the patches, without a class token; the class
            token and the mean ("token+gap", DINOv2's); or the class token and DeiT's
            distillation token, each with a separate head ("token+distillation"; see
            `keras_vit.models.vit.vit_head`).
        representation_size: Units of the hidden tanh layer of the pre-training head; None
            means no such layer.
        dropout_rate: Share of units dropped after each dense layer except query, key and
            value, and after the position embeddings; in [0, 1).
        position_embedding: "learned_1d" (the paper's choice), "none", "learned_2d" or
            "relative", Appendix D.4; or "relative_bias", a number for each step of rows and
            columns that each head adds to its logits (Swin, arXiv 2103.14030).
        position_embedding_at: "input", "every_block" (a table for each block) or
            "every_block_shared" (one table, added again in front of each block); Table 8.
            Kinds that add nothing to tokens allow "input" only.
        resnet: The stem of a hybrid, or None.
        num_registers: Learned tokens behind the class token, without positions, which the
            head does not read.
        head_bias: Initial value of the head's bias. The official pre-training uses -10.0 with
            a sigmoid loss, so that all classes start out unlikely.
        stochastic_depth_rate: The rate of the last block, see `BlockConfig`; in [0, 1). It grows
            linearly from 0 in the first block, as in AugReg (arXiv 2106.10270). Not for an
            Axial-ViT, whose blocks see lines and not images.
        embedding_norm: Whether tokens are normalised in front of the first block, as in CLIP.
        final_norm: Where equation 4's normalisation stands: on all "tokens", behind the
            pooling ("pooled", as timm's `fc_norm` and MAE), or nowhere ("none").
        unread_class_token: Whether there is a class token though the head pools the patches.
        map_num_heads: Heads of the attention pooling; None means `num_heads`.
        map_mlp_dim: Hidden units of the attention pooling's MLP; None means `mlp_dim`.
        map_reads_prefix: Whether the attention pooling reads the tokens in front of the patches,
            too, as in the Perception Encoder (arXiv 2504.13181).
        position_resize: How tables of positions that are added to tokens are resized to another
            grid: the rule of the weights' code base, a key of
            `keras_vit.position_resize.RULES`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    patch_size: int | tuple[int, int]
    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    classifier: HeadInput = "token"
    representation_size: int | None = None
    dropout_rate: float = BlockConfig.dropout_rate
    attention_dropout_rate: float = BlockConfig.attention_dropout_rate
    gelu: Gelu = BlockConfig.gelu
    position_embedding: PositionKind = "learned_1d"
    position_embedding_at: PositionPlace = "input"
    resnet: ResNetStem | None = None
    norm_epsilon: float = BlockConfig.norm_epsilon
    remat: bool = BlockConfig.remat
    num_registers: int = 0
    head_bias: float = 0.0
    stochastic_depth_rate: float = BlockConfig.stochastic_depth_rate
    embedding_norm: bool = False
    final_norm: FinalNorm = "tokens"
    block_norm: BlockNorm = BlockConfig.block_norm
    layer_scale: bool = BlockConfig.layer_scale
    qk_norm: bool = BlockConfig.qk_norm
    unread_class_token: bool = False
    map_num_heads: int | None = None
    map_mlp_dim: int | None = None
    map_reads_prefix: bool = False
    rotary: Rotary | None = BlockConfig.rotary
    position_resize: PositionRule = "official"

    def __post_init__(self):
        if not isinstance(self.patch_size, int):
            object.__setattr__(self, "patch_size", tuple(self.patch_size))
        if isinstance(self.resnet, dict):
            object.__setattr__(self, "resnet", ResNetStem(**self.resnet))
        check_choices(
            self,
            classifier=HeadInput,
            position_embedding=PositionKind,
            position_embedding_at=PositionPlace,
            final_norm=FinalNorm,
            position_resize=PositionRule,
        )
        block = part_of(BlockConfig, self)  # Checks the fields of the blocks.
        object.__setattr__(self, "rotary", block.rotary)
        sizes = [*self.patch_sizes, self.width, self.depth, self.mlp_dim, self.num_heads]
        if len(self.patch_sizes) != 2 or min(sizes) < 1:
            raise ValueError(f"Every size must be positive. Received: {self}")
        if self.width % self.num_heads:
            raise ValueError(
                "The number of heads must divide the width. "
                f"Received: width={self.width}, num_heads={self.num_heads}"
            )
        if self.rotary and self.width // self.num_heads % 4:
            raise ValueError(
                "Rotary positions need heads with a multiple of 4 units. "
                f"Received: width={self.width}, num_heads={self.num_heads}"
            )
        if self.rotary and not (self.adds_positions or self.position_embedding == "none"):
            raise ValueError(
                "Rotary positions must come with positions that are added, or alone "
                f'(position_embedding="none"). Received: "{self.position_embedding}"'
            )
        if self.position_embedding_at != "input" and not self.adds_positions:
            raise ValueError(
                f'position_embedding="{self.position_embedding}" adds nothing to tokens and needs '
                'position_embedding_at="input". '
                f'Received: position_embedding_at="{self.position_embedding_at}"'
            )
        if self.position_embedding == "learned_2d" and self.width % 2:
            raise ValueError(
                'position_embedding="learned_2d" gives half of the width to each axis; it must '
                f"be even. Received: width={self.width}"
            )
        if self.num_registers < 0:
            raise ValueError(
                f"num_registers must be 0 or more. Received: num_registers={self.num_registers}"
            )
        if self.classifier == "token+distillation" and self.representation_size:
            raise ValueError(
                'classifier="token+distillation" has no representation layer. '
                f"Received: representation_size={self.representation_size}"
            )
        if self.unread_class_token and self.classifier not in ("gap", "max", "map"):
            raise ValueError(
                "unread_class_token is for a head that pools the patches. "
                f"Received: classifier={self.classifier!r}"
            )
        if self.classifier != "map" and (
            self.map_num_heads or self.map_mlp_dim or self.map_reads_prefix
        ):
            raise ValueError(
                'map_num_heads, map_mlp_dim and map_reads_prefix need classifier="map". '
                f"Received: classifier={self.classifier!r}"
            )

    @property
    def patch_sizes(self) -> tuple[int, int]:
        """Patch height and width."""
        if isinstance(self.patch_size, int):
            return (self.patch_size, self.patch_size)
        return self.patch_size

    @property
    def adds_positions(self) -> bool:
        """Whether learned position embeddings are added to tokens."""
        return self.position_embedding in ("learned_1d", "learned_2d")

    @property
    def class_tokens(self) -> tuple[str, ...]:
        """The layers whose tokens stand in front of all others, in their order."""
        if self.classifier == "token+distillation":
            return ("class_token", "distillation_token")
        reads_token = self.classifier in ("token", "token+gap")
        return ("class_token",) if reads_token or self.unread_class_token else ()

    @property
    def has_class_token(self) -> bool:
        """Whether a learned token stands in front of the patches."""
        return bool(self.class_tokens)

    @property
    def pooling(self) -> str:
        """The `pooling` of `keras_vit.build` that gives the input of the head without the head.

        "token" where the head reads more than one vector.
        """
        return {"gap": "avg", "max": "max", "map": "map"}.get(self.classifier, "token")

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches: class tokens, then registers."""
        return len(self.class_tokens) + self.num_registers

    @property
    def stochastic_depth_rates(self) -> tuple[float, ...]:
        """The rate of each block: from 0 to `stochastic_depth_rate`."""
        last = max(self.depth - 1, 1)
        return tuple(self.stochastic_depth_rate * (index / last) for index in range(self.depth))

    def block(self, index: int) -> BlockConfig:
        """Returns the config of an encoder block."""
        rate = self.stochastic_depth_rates[index]
        return part_of(BlockConfig, self, stochastic_depth_rate=rate)

    @property
    def attention_pooling(self) -> PoolingConfig:
        """The config of the attention pooling of `classifier="map"`."""
        return part_of(
            PoolingConfig,
            self,
            num_heads=self.map_num_heads or self.num_heads,
            mlp_dim=self.map_mlp_dim or self.mlp_dim,
        )

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return "hybrid_vit" if self.resnet else "vit"

    @property
    def min_image_size(self) -> tuple[int, int]:
        """Pixels (height, width) of the smallest image: one patch."""
        if self.resnet:
            down, across = ((cells - 1) * self.resnet.stride + 1 for cells in self.patch_sizes)
            return (down, across)
        return self.patch_sizes

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the patches (down, across) of an image of (height, width) pixels."""
        height, width = self.resnet.feature_size(image_size) if self.resnet else image_size
        return (height // self.patch_sizes[0], width // self.patch_sizes[1])


@dataclasses.dataclass(frozen=True)
class AxialConfig(ViTConfig):
    """An Axial-ViT; paper, Appendix D.6.

    Each block of the Vision Transformer becomes two, the first with self-attention along the
    rows of the grid of patches and an MLP, the second along the columns and an MLP. The paper
    does not define the role of the class token. Here there is none by default and the head
    reads the mean over patches, which is as good (Appendix D.3): a token that all rows read
    would connect them, which the axes are to avoid. With `classifier="token"` it is part of
    every line, as in `keras_vit.layers.SplitLines`.

    "relative" positions are relative along the line.

    Args:
        **fields: As in `ViTConfig`; `depth` counts pairs of blocks.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    classifier: HeadInput = "gap"

    def __post_init__(self):
        super().__post_init__()
        if self.stochastic_depth_rate:
            raise ValueError(
                "An Axial-ViT has no stochastic depth: its blocks see lines, not images. "
                f"Received: stochastic_depth_rate={self.stochastic_depth_rate}"
            )
        if self.position_embedding == "relative_bias" or self.rotary:
            raise ValueError(
                "An Axial-ViT has no steps of rows and columns: its blocks see lines. "
                f'Received: position_embedding="{self.position_embedding}", rotary={self.rotary}'
            )

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return "axial_vit"


@dataclasses.dataclass(frozen=True)
class AxialResNetConfig(BiTConfig):
    """A ResNet whose 3x3 convolutions are axial self-attention; paper, Appendix D.6.

    Args:
        num_blocks: Units in each block, such as (3, 4, 6, 3).
        width_factor: Multiplies every width.
        head_bias: Initial value of the head's bias.
        num_heads: Attention heads; 8, as in Axial-DeepLab (arXiv 2003.07853), on whose code
            the paper's code is based.

    Raises:
        ValueError: If a block has no unit, a width is no multiple of 32, or of `num_heads`.
    """

    num_heads: int = 8

    architecture = "axial_resnet"

    def __post_init__(self):
        super().__post_init__()
        if self.num_heads < 1 or self.width % self.num_heads:
            raise ValueError(
                "The number of heads must divide the root's width. "
                f"Received: num_heads={self.num_heads}, width={self.width}"
            )


DEFAULT_IMAGE_SIZE = 224  # Pixels per side; pre-training resolution of the paper.
# Exceptions: pixels per side of models for other images.
IMAGE_SIZES = {"ViT-Mini/4": 32, "R14+ViT-Micro/16": 96}

# Paper, Table 1; Ti and S are from the official checkpoints.
SIZES: dict[str, dict[str, Any]] = {
    # Ours, for images of 32 pixels: a million parameters, and 2.6 with a ResNet in front.
    "Mini": {"width": 128, "depth": 5, "mlp_dim": 512, "num_heads": 4},
    "Micro": {"width": 192, "depth": 5, "mlp_dim": 768, "num_heads": 6},
    "Ti": {"width": 192, "depth": 12, "mlp_dim": 768, "num_heads": 3},
    "S": {"width": 384, "depth": 12, "mlp_dim": 1536, "num_heads": 6},
    "B": {"width": 768, "depth": 12, "mlp_dim": 3072, "num_heads": 12},
    # Figure 4: B with all hidden dimensions halved, the heads' too, so there are 12 heads.
    "b": {"width": 384, "depth": 12, "mlp_dim": 1536, "num_heads": 12},
    "L": {"width": 1024, "depth": 24, "mlp_dim": 4096, "num_heads": 16},
    "H": {"width": 1280, "depth": 32, "mlp_dim": 5120, "num_heads": 16},
}

VIT = {
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
}

# Paper, section 4.1 and the official checkpoints. /16 has the units of the fourth block in the
# third, option (ii) of the paper. R+ViT-Ti/16 is named for its files: its patches, 8 cells of
# a root with stride 4, are 32 pixels wide.
HYBRID = {
    # Ours: images of 32 pixels, enlarged to 96 for the root's stride of 4, give 6x6 tokens.
    "R14+ViT-Micro/16": ViTConfig(2, **SIZES["Micro"], resnet=ResNetStem((2, 2), 0.5)),
    "R+ViT-Ti/16": ViTConfig(8, **SIZES["Ti"], resnet=ResNetStem(())),
    "R26+ViT-S/32": ViTConfig(1, **SIZES["S"], resnet=ResNetStem((2, 2, 2, 2))),
    "R26+ViT-B/32": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((2, 2, 2, 2))),
    "R50+ViT-B/16": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((3, 4, 9))),
    "R50+ViT-B/32": ViTConfig(1, **SIZES["B"], resnet=ResNetStem((3, 4, 6, 3))),
    "R50+ViT-L/16": ViTConfig(1, **SIZES["L"], resnet=ResNetStem((3, 4, 9))),
    "R50+ViT-L/32": ViTConfig(1, **SIZES["L"], resnet=ResNetStem((3, 4, 6, 3))),
}

BIT = {
    "BiT-R50x1": BiTConfig((3, 4, 6, 3), 1),
    "BiT-R50x2": BiTConfig((3, 4, 6, 3), 2),
    "BiT-R50x3": BiTConfig((3, 4, 6, 3), 3),
    "BiT-R101x1": BiTConfig((3, 4, 23, 3), 1),
    "BiT-R101x3": BiTConfig((3, 4, 23, 3), 3),
    "BiT-R152x1": BiTConfig((3, 8, 36, 3), 1),
    "BiT-R152x2": BiTConfig((3, 8, 36, 3), 2),
    "BiT-R152x4": BiTConfig((3, 8, 36, 3), 4),
    "BiT-R200x3": BiTConfig((3, 24, 36, 3), 3),
}

# Paper, Appendix D.6.
AXIAL: dict[str, ViTConfig | BiTConfig] = {
    "Axial-ViT-B/16": AxialConfig(16, **SIZES["B"]),
    "Axial-ViT-B/32": AxialConfig(32, **SIZES["B"]),
    "Axial-ResNet50": AxialResNetConfig((3, 4, 6, 3)),
}

MODELS: dict[str, ViTConfig | BiTConfig] = {**VIT, **HYBRID, **BIT, **AXIAL}

# The base of the shape study, where the lines of Figure 8 meet.
SHAPE_STUDY_BASE = ViTConfig(32, width=1024, depth=8, mlp_dim=2048, num_heads=16)


def shape_study(
    factors: Iterable[float] = (0.5, 1, 2, 4, 8),
) -> dict[str, dict[float, ViTConfig]]:
    """Returns the models of the shape study, by the scaled dimension and the factor.

    Paper, Appendix D.2 and Figure 8: the depth, the width, the MLP, the patches or all of
    them are scaled from a base of 8 blocks, D = 1024, an MLP of 2048 and patches of 32
    pixels. Heads stay 64 wide, so their number grows with the width. A factor divides the
    patch, as a smaller one makes the model larger. The paper gives the base and a
    largest depth of 64; the other factors are ours.

    Args:
        factors: Numbers by which every size stays a whole number; 1 is the base.

    Returns:
        Configs by "depth", "width", "mlp", "patch" and "all", then by factor.

    Raises:
        ValueError: If a scaled size is not a whole number.

    Example:
    >>> shape_study()["depth"][8].depth
    64
    """
    base = SHAPE_STUDY_BASE
    lines = {
        "depth": ("depth",),
        "width": ("width", "num_heads"),
        "mlp": ("mlp_dim",),
        "patch": ("patch_size",),
        "all": ("depth", "width", "num_heads", "mlp_dim", "patch_size"),
    }
    factors = tuple(factors)

    def scaled(field, factor):
        value = getattr(base, field)
        value = value / factor if field == "patch_size" else value * factor
        if value != int(value) or value < 1:
            raise ValueError(
                f"A factor must make every size a whole number. Received: factor={factor}, "
                f"which makes {field}={value}"
            )
        return int(value)

    return {
        line: {
            factor: dataclasses.replace(base, **{field: scaled(field, factor) for field in fields})
            for factor in factors
        }
        for line, fields in lines.items()
    }


def list_models() -> list[str]:
    """Returns the names for `keras_vit.build`, as printed in the paper."""
    return list(MODELS)


def default_image_size(name_or_config: str | ViTConfig | BiTConfig) -> int:
    """Returns the default pixels per side of a model's images."""
    name = name_or_config if isinstance(name_or_config, str) else None
    return IMAGE_SIZES.get(name or "", DEFAULT_IMAGE_SIZE)


def resolve(name_or_config: str | ViTConfig | BiTConfig, **changes: Any) -> Any:
    """Returns the config of a name, with some fields replaced.

    Args:
        name_or_config: A name of `list_models()`, or a config, which passes through.
        **changes: Fields of the config and their new values.

    Returns:
        A `ViTConfig` or `BiTConfig`, by the name; callers that know which need no cast.

    Raises:
        ValueError: If the name is unknown (the nearest names are given), or a field.
    """
    if isinstance(name_or_config, str):
        if name_or_config not in MODELS:
            raise ValueError(
                f"The model must be one of keras_vit.list_models(). {_nearest(name_or_config)}. "
                f"Received: {name_or_config!r}"
            )
        config = MODELS[name_or_config]
    else:
        config = name_or_config
    fields = {field.name for field in dataclasses.fields(config)}
    unknown = sorted(set(changes) - fields)
    if unknown:
        raise ValueError(
            f"Only fields of {type(config).__name__} can be changed: {sorted(fields)}. "
            f"Received: {unknown}"
        )
    return dataclasses.replace(config, **changes) if changes else config


def checked_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns some fields of `ViTConfig`, such as a file states them, as the config holds them.

    Args:
        fields: Values by the names of the fields.

    Raises:
        ValueError: If the type of a value is wrong, or it is unknown or out of range.
    """
    kinds = get_type_hints(ViTConfig)
    for name, value in fields.items():
        choices = get_args(kinds[name]) if get_origin(kinds[name]) is Literal else None
        if choices and value not in choices:
            raise ValueError(f"{name} must be one of {choices}. Received: {name}={value!r}")
    of_block = {field.name for field in dataclasses.fields(BlockConfig)} & fields.keys()
    try:
        stated = {name: fields[name] for name in of_block}
        block = BlockConfig(**{"num_heads": 1, "mlp_dim": 1, **stated})
    except TypeError as error:  # Fields of a part.
        raise ValueError(f"The fields must match a block's. Received: {error}") from error
    found = {name: getattr(block, name) for name in of_block}
    for name, value in found.items():
        kind = int | float if kinds[name] is float else kinds[name]
        if get_origin(kind) is not Literal and not isinstance(value, kind):
            raise ValueError(f"{name} must be {kind}. Received: {name}={value!r:.80}")
    return {**fields, **found}


def config_fields(config: ViTConfig | BiTConfig) -> dict[str, Any]:
    """Returns the fields of a config as files hold them.

    The official rule for positions is left out, so that settings and files of models with it are
    as earlier versions wrote them, and runs that these began go on.
    """
    fields = dataclasses.asdict(config)
    if fields.get("position_resize") == ViTConfig.position_resize:
        del fields["position_resize"]
    return fields


def for_inference(config: ViTConfig | BiTConfig) -> ViTConfig | BiTConfig:
    """Returns a config without the options that matter in training only.

    These are dropout, stochastic depth and remat: two configs that differ in nothing else
    compute the same scores from the same weights.

    Args:
        config: A `ViTConfig`, `BiTConfig` or one of their variants.
    """
    fields = {field.name for field in dataclasses.fields(config)}
    defaults: dict[str, Any] = {name: getattr(BlockConfig, name) for name in TRAINING_FIELDS}
    return dataclasses.replace(config, **{k: v for k, v in defaults.items() if k in fields})


def classifier_layer(layers: Mapping[str, Any]) -> Any:
    """Returns the linear layer that gives the class scores, or None without a head.

    With a distillation token it is the class token's.

    Args:
        layers: Layers, or anything else, by the name of a layer.
    """
    return next((layers[name] for name in CLASSIFIER_LAYERS if name in layers), None)


def layer_name(name_or_config: str | ViTConfig | BiTConfig) -> str:
    """Returns the name of a Keras model, such as "vit_b16" for "ViT-B/16"."""
    if not isinstance(name_or_config, str):
        return name_or_config.architecture
    # ViT-b and ViT-B differ in case only.
    name_or_config = name_or_config.replace("ViT-b/", "ViT-half_b/")
    return name_or_config.lower().replace("/", "").replace("+", "_").replace("-", "_")


# Names of timm, Hugging Face and KerasHub, such as vit_base_patch16_224.
_SIZES = {"tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H"}
_OTHER_NAMES = re.compile(rf".*vit[-_]({'|'.join(_SIZES)})[-_]patch(\d+).*", re.IGNORECASE)


def _nearest(name: str) -> str:
    name = _OTHER_NAMES.sub(lambda m: f"ViT-{_SIZES[m[1].lower()]}/{m[2]}", name)
    return nearest_names(name, MODELS)
