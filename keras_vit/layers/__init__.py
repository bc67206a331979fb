"""The layers; importing this package registers all of them with Keras."""

from keras_vit.configs.blocks import (
    AttentionConfig as AttentionConfig,
    BlockConfig as BlockConfig,
    MLPConfig as MLPConfig,
    PoolingConfig as PoolingConfig,
)
from keras_vit.layers.attention import (
    RelativeSelfAttention as RelativeSelfAttention,
    SelfAttention as SelfAttention,
)
from keras_vit.layers.axial import (
    AxialAttention as AxialAttention,
    AxialUnit as AxialUnit,
    JoinLines as JoinLines,
    SplitLines as SplitLines,
)
from keras_vit.layers.base_layers import ModelDescription as ModelDescription
from keras_vit.layers.encoder_block import (
    MLP as MLP,
    EncoderBlock as EncoderBlock,
    LayerScale as LayerScale,
    RelativeEncoderBlock as RelativeEncoderBlock,
)
from keras_vit.layers.heads import (
    AttentionPooling as AttentionPooling,
    Leverage as Leverage,
    UnknownClass as UnknownClass,
    class_scores as class_scores,
)
from keras_vit.layers.image_preprocessing import ImagePreprocessing as ImagePreprocessing
from keras_vit.layers.norms import GroupNorm as GroupNorm, LayerNorm as LayerNorm
from keras_vit.layers.positions import (
    PositionEmbedding as PositionEmbedding,
    PositionEmbedding2D as PositionEmbedding2D,
    RotaryPositions as RotaryPositions,
)
from keras_vit.layers.random_numbers import Dropout as Dropout
from keras_vit.layers.residual_units import (
    PoolingUnit as PoolingUnit,
    PostActivationUnit as PostActivationUnit,
    PreActivationUnit as PreActivationUnit,
    StandardizedConv2D as StandardizedConv2D,
)
from keras_vit.layers.tokens import (
    ClassToken as ClassToken,
    PatchCorruption as PatchCorruption,
    PatchEmbedding as PatchEmbedding,
    Registers as Registers,
    TakeTokens as TakeTokens,
    TokensToMap as TokensToMap,
)
