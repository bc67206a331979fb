"""The layers; importing this package registers all of them with Keras."""

from keras_vit.configs.blocks import (
    AttentionConfig,
    BlockConfig,
    MLPConfig,
    PoolingConfig,
)
from keras_vit.layers.attention import (
    RelativeSelfAttention,
    SelfAttention,
)
from keras_vit.layers.axial import (
    AxialAttention,
    AxialUnit,
    JoinLines,
    SplitLines,
)
from keras_vit.layers.base_layers import ModelDescription
from keras_vit.layers.encoder_block import (
    MLP,
    EncoderBlock,
    LayerScale,
    RelativeEncoderBlock,
)
from keras_vit.layers.heads import (
    AttentionPooling,
    Leverage,
    UnknownClass,
    class_scores,
)
from keras_vit.layers.image_preprocessing import ImagePreprocessing as ImagePreprocessing
from keras_vit.layers.norms import GroupNorm as GroupNorm, LayerNorm as LayerNorm
from keras_vit.layers.positions import (
    PositionEmbedding,
    PositionEmbedding2D,
    RotaryPositions,
)
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
    TakeTokens,
    TokensToMap,
)

__all__ = [
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
    "MLP",
    "MLPConfig",
    "ModelDescription",
    "PatchCorruption",
    "PatchEmbedding",
    "PoolingConfig",
    "PoolingUnit",
    "PositionEmbedding",
    "PositionEmbedding2D",
    "PostActivationUnit",
    "PreActivationUnit",
    "Registers",
    "RelativeEncoderBlock",
    "RelativeSelfAttention",
    "RotaryPositions",
    "SelfAttention",
    "SplitLines",
    "StandardizedConv2D",
    "TakeTokens",
    "TokensToMap",
    "UnknownClass",
    "class_scores",
]
