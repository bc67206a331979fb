"""The configs of ResNets: a hybrid's stems, BiT and Axial-ResNet."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from keras_vit.configs.blocks import check_rules
from keras_vit.utils.synonyms import answers_synonyms

EpsilonIn = Literal["deviation", "variance"]


@dataclasses.dataclass(frozen=True)
class _ResNet:
    """The ResNets of the paper: a root with total stride 4, then blocks of units."""

    num_blocks: tuple[int, ...]
    width_factor: float = 1

    def __post_init__(self):
        object.__setattr__(self, "num_blocks", tuple(self.num_blocks))
        check_rules(
            self,
            (
                all(isinstance(units, int) and units > 0 for units in self.num_blocks),
                "num_blocks must be the number of units in each block, 1 or more",
            ),
            (
                self.width >= 32 and self.width % 32 == 0,
                "width_factor must make the root's width, 64 * width_factor, a multiple of the 32 "
                "groups of GroupNorm",
            ),
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
    epsilon_in: EpsilonIn = "deviation"


@dataclasses.dataclass(frozen=True)
class PoolingStem:
    """A small ResNet in front of a hybrid that keeps the resolution of small images.

    For images such as CIFAR's, of which the root of `ResNetStem`, with its stride of 4, keeps
    8x8 cells. Here the root is a 3x3 convolution without a stride or a pool, and each block
    halves the map by a pool behind its first convolution; see `keras_vit.layers.PoolingUnit`.
    Convolutions and pools in front of the tokens are as in the Compact Convolutional
    Transformer (arXiv 2104.05704), blocks of two convolutions as in airbench (arXiv 2404.00498).

    Args:
        widths: Channels of each block.
        width: Channels of the root.
        epsilon_in: As in `ResNetStem`.

    Raises:
        ValueError: If there is no block, or a width is no multiple of 8.
    """

    widths: tuple[int, ...]
    width: int = 32
    epsilon_in: EpsilonIn = "deviation"

    groups: ClassVar[int] = 8  # Each GroupNorm has so many.

    def __post_init__(self):
        object.__setattr__(self, "widths", tuple(self.widths))
        widths = (self.width, *self.widths)
        check_rules(
            self,
            (len(self.widths) > 0, "A PoolingStem needs a block"),
            (
                all(width > 0 and width % self.groups == 0 for width in widths),
                f"Every width must be a multiple of the {self.groups} groups of GroupNorm",
            ),
        )

    @property
    def channels(self) -> int:
        """Channels of the feature map."""
        return self.widths[-1]

    @property
    def stride(self) -> int:
        """Pixels per cell of the feature map; a part of a cell counts as one."""
        return int(2 ** len(self.widths))


def cells(image_size: tuple[int, int], stride: int) -> tuple[int, int]:
    """Returns the cells (down, across) of a map with a stride; a part of a cell counts as one."""
    height, width = image_size
    return (-(-height // stride), -(-width // stride))


@answers_synonyms
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
    poolings = (None, "avg", "max")
    min_image_size = (1, 1)

    def __post_init__(self):
        super().__post_init__()
        check_rules(self, (len(self.num_blocks) > 0, "A ResNet needs a block"))


@answers_synonyms
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
        divides = self.num_heads > 0 and self.width % self.num_heads == 0
        check_rules(self, (divides, "The number of heads must divide the root's width"))
