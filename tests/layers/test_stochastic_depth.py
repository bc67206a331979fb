"""Stochastic depth: whole examples skip a part of a block, and only in training."""

import keras
import numpy as np
import pytest

from by_hand import array, randomized, tokens
from keras_vit.layers import EncoderBlock


def block(rate):
    return randomized(EncoderBlock(2, 8, stochastic_depth_rate=rate), (None, None, 4))


@pytest.mark.any_backend
@pytest.mark.any_backend_slow
def test_each_example_has_both_parts_or_either_or_none():
    keras.utils.set_random_seed(0)
    layer, z, rate, count = block(0.3), tokens(4000, 3, 4), 0.3, 4000
    outputs = array(layer(z, training=True))
    found = np.zeros((2, 2), int)
    attention = array(layer.attention(layer.norm_1(z))) / (1 - rate)
    for has_attention in (0, 1):
        middle = z + has_attention * attention
        mlp = array(layer.mlp(layer.norm_2(middle))) / (1 - rate)
        for has_mlp in (0, 1):
            same = np.abs(outputs - (middle + has_mlp * mlp)).max(axis=(1, 2)) < 1e-4
            found[has_attention, has_mlp] = same.sum()
    assert found.sum() == count
    expected = np.outer([rate, 1 - rate], [rate, 1 - rate])
    # Four standard errors of the largest share.
    np.testing.assert_allclose(found / count, expected, atol=0.032)


def test_nothing_is_skipped_in_inference_nor_drawn_at_a_rate_of_zero():
    z = tokens(4, 3, 4)
    np.testing.assert_array_equal(array(block(0.9)(z)), array(block(0.0)(z)))
    assert not block(0.0).non_trainable_variables
    assert len(block(0.1).non_trainable_variables) > 0
