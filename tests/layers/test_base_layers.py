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
    "corruption": PatchCorruption(0.15, mask_rate=0.5, replace_rate=0.2),
    "patches": PatchEmbedding(5, (4, 2), kernel_regularizer="l2", name="patch_embedding"),
    "relative block": RelativeEncoderBlock(num_heads=2, mlp_dim=12, grid=(2, 3)),
}


@pytest.mark.parametrize(
    "make", [lambda: MLP(MLPConfig(5)), lambda: MLP(5), lambda: MLP(hidden_dim=5)]
)
def test_a_layer_takes_a_config_or_its_fields(make):
    assert make().config == MLPConfig(5)


def test_fields_replace_those_of_the_config():
    assert EncoderBlock(CONFIG, remat=True).config == dataclasses.replace(CONFIG, remat=True)


def test_fields_are_read_from_the_layer():
    assert LAYERS["block"].num_heads == 2


def test_an_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="'EncoderBlock' object has no attribute 'heads'"):
        LAYERS["block"].heads  # noqa: B018


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_same_from_its_serialised_config(name):
    layer = LAYERS[name]
    copy = keras.saving.deserialize_keras_object(
        json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    )
    assert (type(copy), copy.get_config()) == (type(layer), layer.get_config())


def test_a_block_saves_the_fields_of_its_config_by_name():
    fields = {"num_heads": 2, "mlp_dim": 12, "dropout_rate": 0.1, "qk_norm": True, "rotary": 50.0}
    assert fields.items() <= EncoderBlock(CONFIG).get_config().items()


def test_the_arguments_of_a_vit_config_keep_their_order():
    assert configs.ViTConfig(16, 8, 2, 12, 2, "gap", 5, 0.1, 0.2, "exact", "none") == (
        configs.ViTConfig(
            patch_size=16,
            width=8,
            depth=2,
            mlp_dim=12,
            num_heads=2,
            classifier="gap",
            representation_size=5,
            dropout_rate=0.1,
            attention_dropout_rate=0.2,
            gelu="exact",
            position_embedding="none",
        )
    )


def test_an_unknown_value_is_refused_by_the_layer():
    with pytest.raises(ValueError, match=r"gelu must be one of .*'round'"):
        EncoderBlock(num_heads=2, mlp_dim=12, gelu="round")
