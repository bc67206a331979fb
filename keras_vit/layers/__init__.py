"""The layers; importing this package registers all of them with Keras."""

from keras_vit.configs.blocks import AttentionConfig, BlockConfig, MLPConfig, PoolingConfig
from keras_vit.layers.attention import RelativeSelfAttention, SelfAttention
from keras_vit.layers.axial import AxialAttention, AxialUnit, JoinLines, SplitLines
from keras_vit.layers.base_layers import ModelDescription
from keras_vit.layers.encoder_block import (
    MLP,
    EncoderBlock,
    LayerScale,
    RelativeEncoderBlock,
)
from keras_vit.layers.heads import AttentionPooling, Leverage, UnknownClass, class_scores
from keras_vit.layers.norms import GroupNorm, LayerNorm
from keras_vit.layers.positions import PositionEmbedding, PositionEmbedding2D, RotaryPositions
from keras_vit.layers.random_numbers import Dropout
from keras_vit.layers.residual_units import (
    PoolingUnit,
    PostActivationUnit,
    PreActivationUnit,
    StandardizedConv2D,
)
from keras_vit.layers.tokens import (
    ClassToken,
    PatchCorruption,
    PatchEmbedding,
    Registers,
    TokensToMap,
)

__all__ = [
    "MLP",
    "AttentionConfig",
    "AttentionPooling",
    "AxialAttention",
    "AxialUnit",
    "BlockConfig",
    "ClassToken",
    "Dropout",
    "EncoderBlock",
    "GroupNorm",
    "JoinLines",
    "LayerNorm",
    "LayerScale",
    "Leverage",
    "MLPConfig",
    "ModelDescription",
    "PatchCorruption",
    "PatchEmbedding",
    "PositionEmbedding",
    "PositionEmbedding2D",
    "PoolingConfig",
    "PoolingUnit",
    "PostActivationUnit",
    "PreActivationUnit",
    "Registers",
    "RelativeEncoderBlock",
    "RelativeSelfAttention",
    "RotaryPositions",
    "SelfAttention",
    "SplitLines",
    "StandardizedConv2D",
    "TokensToMap",
    "UnknownClass",
    "class_scores",
]
