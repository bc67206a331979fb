"""The config of a Vision Transformer: what its fields mean, allow and give."""

from __future__ import annotations

import dataclasses
from typing import Literal

from keras_vit.configs.blocks import (
    BlockConfig,
    Gelu,
    PoolingConfig,
    check_choices,
    check_rules,
    part_of,
)
from keras_vit.configs.position_resize import PositionRule
from keras_vit.configs.resnet_configs import PoolingStem, ResNetStem, cells
from keras_vit.utils.synonyms import answers_synonyms

HeadInput = Literal["token", "gap", "max", "map", "token+gap", "token+distillation"]
FinalNorm = Literal["tokens", "pooled", "none"]
PositionKind = Literal["none", "learned_1d", "learned_2d", "relative"]
PositionPlace = Literal["input", "every_block", "every_block_shared"]


@answers_synonyms
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
            distillation token, each with a separate head ("token+distillation"; see `vit_head`
            in keras_vit/models/vit.py).
        representation_size: Units of the hidden tanh layer of the pre-training head; None
            means no such layer.
        dropout_rate: Share of units dropped after each dense layer except query, key and
            value, and after the position embeddings; in [0, 1).
        position_embedding: "learned_1d" (the paper's choice), "none", "learned_2d" or
            "relative", Appendix D.4.
        position_embedding_at: "input", "every_block" (a table for each block) or
            "every_block_shared" (one table, added again in front of each block); Table 8.
            Kinds that add nothing to tokens allow "input" only.
        resnet: The stem of a hybrid, a `ResNetStem` or a `PoolingStem`, or None.
        num_registers: Learned tokens after the class token, without positions, which the
            head does not read.
        head_bias: Initial value of the head's bias. The official pre-training uses -10.0 with
            a sigmoid loss, so that all classes start out unlikely.
        stochastic_depth_rate: The rate of the last block, see `BlockConfig`; in [0, 1). It grows
            linearly from 0 in the first block, as in AugReg (arXiv 2106.10270). Not for an
            Axial-ViT, whose blocks see lines and not images.
        embedding_norm: Whether tokens are normalised in front of the first block, as in CLIP.
        final_norm: Where equation 4's normalisation stands: on all "tokens", after the
            pooling ("pooled", as timm's `fc_norm` and MAE), or nowhere ("none").
        unread_class_token: Whether there is a class token though the head pools the patches.
        map_num_heads: Heads of the attention pooling; None means `num_heads`.
        map_mlp_dim: Hidden units of the attention pooling's MLP; None means `mlp_dim`.
        position_resize: How tables of positions that are added to tokens are resized to another
            grid: the rule of the weights' code base, a key of `RULES` in
            keras_vit/configs/position_resize.py.

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
    resnet: ResNetStem | PoolingStem | None = None
    norm_epsilon: float = BlockConfig.norm_epsilon
    remat: bool = BlockConfig.remat
    num_registers: int = 0
    head_bias: float = 0.0
    stochastic_depth_rate: float = BlockConfig.stochastic_depth_rate
    embedding_norm: bool = False
    final_norm: FinalNorm = "tokens"
    layer_scale: bool = BlockConfig.layer_scale
    qk_norm: bool = BlockConfig.qk_norm
    unread_class_token: bool = False
    map_num_heads: int | None = None
    map_mlp_dim: int | None = None
    rotary: float | None = BlockConfig.rotary
    position_resize: PositionRule = "official"

    def __post_init__(self):
        if not isinstance(self.patch_size, int):
            object.__setattr__(self, "patch_size", tuple(self.patch_size))
        if isinstance(self.resnet, dict):
            stem = PoolingStem if "widths" in self.resnet else ResNetStem
            object.__setattr__(self, "resnet", stem(**self.resnet))
        check_choices(self)
        part_of(BlockConfig, self)  # Checks the fields of the blocks.
        sizes = [*self.patch_sizes, self.width, self.depth, self.mlp_dim, self.num_heads]
        is_sized = len(self.patch_sizes) == 2 and min(sizes) > 0
        check_rules(self, (is_sized, "Every size must be positive"))
        kind, added, head = self.position_embedding, self.adds_positions, self.classifier
        check_rules(
            self,
            (self.width % self.num_heads == 0, "The number of heads must divide the width"),
            (
                not self.rotary or self.width // self.num_heads % 4 == 0,
                "Rotary positions need heads with a multiple of 4 units",
            ),
            (
                not self.rotary or added or kind == "none",
                "Rotary positions must come with positions that are added, or alone "
                '(position_embedding="none")',
            ),
            (
                added or self.position_embedding_at == "input",
                f'position_embedding="{kind}" adds nothing to tokens and needs '
                'position_embedding_at="input"',
            ),
            (
                kind != "learned_2d" or self.width % 2 == 0,
                'The width must be even for position_embedding="learned_2d", half for each axis',
            ),
            (self.num_registers >= 0, "num_registers must be 0 or more"),
            (
                head != "token+distillation" or not self.representation_size,
                'classifier="token+distillation" has no representation layer',
            ),
            (
                not self.unread_class_token or head in ("gap", "max", "map"),
                "unread_class_token is for a head that pools the patches",
            ),
            (
                head == "map" or not (self.map_num_heads or self.map_mlp_dim),
                'map_num_heads and map_mlp_dim need classifier="map"',
            ),
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
    def poolings(self) -> tuple[str | None, ...]:
        """The values of `pooling` that `keras_vit.build` takes."""
        token = ("token",) if self.has_class_token else ()
        return (None, "avg", "max", *token, *(("map",) if self.classifier == "map" else ()))

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the patches: class tokens, then registers."""
        return len(self.class_tokens) + self.num_registers

    def block(self, index: int) -> BlockConfig:
        """Returns the config of an encoder block; stochastic depth grows from 0 to its rate."""
        rate = self.stochastic_depth_rate * (index / max(self.depth - 1, 1))
        return dataclasses.replace(part_of(BlockConfig, self), stochastic_depth_rate=rate)

    def __repr__(self) -> str:
        """Returns the fields that differ from the defaults, as messages quote configs."""
        changed = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def attention_pooling(self) -> PoolingConfig:
        """The config of the attention pooling of `classifier="map"`."""
        return dataclasses.replace(
            part_of(PoolingConfig, self),
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
            down, across = ((patch - 1) * self.resnet.stride + 1 for patch in self.patch_sizes)
            return (down, across)
        return self.patch_sizes

    def grid(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Returns the patches (down, across) of an image of (height, width) pixels."""
        height, width = cells(image_size, self.resnet.stride) if self.resnet else image_size
        return (height // self.patch_sizes[0], width // self.patch_sizes[1])


@answers_synonyms
@dataclasses.dataclass(frozen=True, repr=False)
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
        check_rules(
            self,
            (
                not self.stochastic_depth_rate and not self.rotary,
                "An Axial-ViT has no stochastic depth and no rotary positions: its blocks see "
                "lines, not images",
            ),
        )

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return "axial_vit"
