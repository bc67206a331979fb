"""Layers and their configs."""

import dataclasses

import keras
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.layers import MLP, BlockConfig, EncoderBlock, MLPConfig
from makers import tiny_config

CONFIG = BlockConfig(2, 12, dropout_rate=0.1, qk_norm=True, rotary=50.0)


@pytest.mark.parametrize(
    "make", [lambda: MLP(MLPConfig(5)), lambda: MLP(5), lambda: MLP(hidden_dim=5)]
)
def test_a_layer_takes_a_config_or_its_fields(make):
    assert make().config == MLPConfig(5)
    assert make().hidden_dim == 5
    assert EncoderBlock(CONFIG, remat=True).config == dataclasses.replace(CONFIG, remat=True)


def test_the_arguments_of_a_vit_config_keep_their_order():
    names = [field.name for field in dataclasses.fields(configs.ViTConfig)]
    assert names[:11] == [
        "patch_size", "width", "depth", "mlp_dim", "num_heads", "classifier",
        "representation_size", "dropout_rate", "attention_dropout_rate", "gelu",
        "position_embedding",
    ]  # fmt: skip


def test_a_file_keeps_what_is_frozen(tmp_path):
    model = keras_vit.build(tiny_config(depth=2), input_shape=(8, 8, 3), classes=3)
    for layer in model.layers[:-1]:
        layer.trainable = False
    model.get_layer("encoder_block_1").mlp.trainable = True
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    trained = [[each.path for each in m.trainable_variables] for m in (model, again)]
    assert trained[0] == trained[1]
    assert len(trained[1]) == 4 + 2  # The MLP's and the head's.
