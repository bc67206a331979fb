"""Stochastic depth: whole examples skip a part of a block, and only in training."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from by_hand import randomized, tokens
from keras_vit import configs
from keras_vit.layers import EncoderBlock
from makers import tiny_config

CONFIG = tiny_config(width=8, depth=3, stochastic_depth_rate=0.4)


def block(rate):
    return randomized(EncoderBlock(2, 8, stochastic_depth_rate=rate), (None, None, 4))


@pytest.mark.any_backend
@pytest.mark.any_backend_slow
def test_each_example_has_both_parts_or_either_or_none():
    keras.utils.set_random_seed(0)
    layer, z, rate, count = block(0.3), tokens(4000, 3, 4), 0.3, 4000
    outputs = np.array(layer(z, training=True))
    found = np.zeros((2, 2), int)
    attention = np.array(layer.attention(layer.norm_1(z))) / (1 - rate)
    for has_attention in (0, 1):
        middle = z + has_attention * attention
        mlp = np.array(layer.mlp(layer.norm_2(middle))) / (1 - rate)
        for has_mlp in (0, 1):
            same = np.abs(outputs - (middle + has_mlp * mlp)).max(axis=(1, 2)) < 1e-4
            found[has_attention, has_mlp] = same.sum()
    assert found.sum() == count
    expected = np.outer([rate, 1 - rate], [rate, 1 - rate])
    # Four standard errors of the largest share.
    np.testing.assert_allclose(found / count, expected, atol=0.032)


def test_nothing_is_skipped_in_inference_nor_drawn_at_a_rate_of_zero():
    z = tokens(4, 3, 4)
    np.testing.assert_array_equal(block(0.9)(z), block(0.0)(z))
    assert not block(0.0).non_trainable_variables
    assert len(block(0.1).non_trainable_variables) > 0


def test_the_rate_grows_linearly_from_zero():
    model = keras_vit.build(CONFIG, input_shape=(8, 8, 3), classes=2)
    rates = [model.get_layer(f"encoder_block_{index}").stochastic_depth_rate for index in range(3)]
    assert rates == pytest.approx([0.0, 0.2, 0.4])
    assert dataclasses.replace(CONFIG, depth=1).block(0).stochastic_depth_rate == 0.0


def test_a_rate_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="stochastic_depth_rate must be in"):
        dataclasses.replace(CONFIG, stochastic_depth_rate=1.0)
    with pytest.raises(ValueError, match="see lines"):
        configs.AxialConfig(4, 8, 2, 16, 2, stochastic_depth_rate=0.1)
