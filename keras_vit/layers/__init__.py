"""The layers; importing this package registers all of them with Keras."""

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.attention_pooling import AttentionPooling
from keras_vit.layers.axial_attention import AxialAttention, AxialUnit
from keras_vit.layers.class_token import ClassToken
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.lines import JoinLines, SplitLines
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_corruption import PatchCorruption
from keras_vit.layers.patch_embedding import PatchEmbedding
from keras_vit.layers.position_embedding import PositionEmbedding
from keras_vit.layers.position_embedding_2d import PositionEmbedding2D
from keras_vit.layers.post_activation_unit import PostActivationUnit
from keras_vit.layers.pre_activation_unit import PreActivationUnit
from keras_vit.layers.registers import Registers
from keras_vit.layers.relative_attention import RelativeEncoderBlock, RelativeSelfAttention
from keras_vit.layers.standardized_conv import StandardizedConv2D
from keras_vit.layers.tokens_to_map import TokensToMap

__all__ = [
    "MLP",
    "AttentionPooling",
    "AxialAttention",
    "AxialUnit",
    "ClassToken",
    "Dropout",
    "EncoderBlock",
    "GroupNorm",
    "JoinLines",
    "LayerNorm",
    "PatchCorruption",
    "PatchEmbedding",
    "PositionEmbedding",
    "PositionEmbedding2D",
    "PostActivationUnit",
    "PreActivationUnit",
    "Registers",
    "RelativeEncoderBlock",
    "RelativeSelfAttention",
    "SelfAttention",
    "SplitLines",
    "StandardizedConv2D",
    "TokensToMap",
]
