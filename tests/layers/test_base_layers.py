"""Layers and their configs."""

import dataclasses
import json

import keras
import pytest

from keras_vit import configs
from keras_vit.layers import (
    MLP,
    AttentionConfig,
    AttentionPooling,
    BlockConfig,
    EncoderBlock,
    MLPConfig,
    PatchCorruption,
    PatchEmbedding,
    PoolingUnit,
    PostActivationUnit,
    PreActivationUnit,
    RelativeEncoderBlock,
    RelativeSelfAttention,
    RotaryPositions,
    SelfAttention,
    StandardizedConv2D,
)

CONFIG = BlockConfig(2, 12, dropout_rate=0.1, qk_norm=True, rotary=50.0)
LAYERS = {
    "attention": SelfAttention(AttentionConfig(2, rotary=100.0)),
    "relative attention": RelativeSelfAttention(2, grid=(2, 3), num_prefix_tokens=1),
    "MLP": MLP(MLPConfig(12, gelu="swiglu")),
    "pooling": AttentionPooling(num_heads=2, mlp_dim=12, gelu="exact"),
    "rotary": RotaryPositions(50.0),
    "block": EncoderBlock(CONFIG),
    "kernel standardised": StandardizedConv2D(4, 7, 2, 3, "variance"),
    "post-activation unit": PostActivationUnit(32, strides=2),
    "pooling unit": PoolingUnit(32, "variance"),
    "pre-activation unit": PreActivationUnit(32, strides=2),
    "corruption": PatchCorruption(0.15),
    "patches": PatchEmbedding(5, (4, 2), kernel_regularizer="l2", name="patch_embedding"),
    "relative block": RelativeEncoderBlock(num_heads=2, mlp_dim=12, grid=(2, 3)),
}


@pytest.mark.parametrize(
    "make", [lambda: MLP(MLPConfig(5)), lambda: MLP(5), lambda: MLP(hidden_dim=5)]
)
def test_a_layer_takes_a_config_or_its_fields(make):
    assert make().config == MLPConfig(5)
    assert make().hidden_dim == 5
    assert EncoderBlock(CONFIG, remat=True).config == dataclasses.replace(CONFIG, remat=True)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_same_from_its_serialised_config(name):
    layer = LAYERS[name]
    copy = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    )
    assert (type(copy), copy.get_config()) == (type(layer), layer.get_config())


def test_the_arguments_of_a_vit_config_keep_their_order():
    names = [field.name for field in dataclasses.fields(configs.ViTConfig)]
    assert names[:11] == [
        "patch_size", "width", "depth", "mlp_dim", "num_heads", "classifier",
        "representation_size", "dropout_rate", "attention_dropout_rate", "gelu",
        "position_embedding",
    ]  # fmt: skip
