"""The encoder block: its residuals, its start, and recomputing in the backward pass."""

import keras
import numpy as np
import pytest

from by_hand import array, randomized, tokens
from keras_vit.layers import EncoderBlock, LayerNorm


def block(**arguments):
    return randomized(EncoderBlock(num_heads=2, mlp_dim=16, **arguments), (None, None, 8))


def test_layer_norm_keeps_its_digits_where_the_mean_is_large():
    x = tokens(4, 64) + 1000
    exact = x.astype("float64")
    expected = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(
        exact.var(-1, keepdims=True) + 1e-6
    )
    ours = np.abs(array(LayerNorm()(x)) - expected).max()
    theirs = np.abs(array(keras.layers.LayerNormalization(epsilon=1e-6)(x)) - expected).max()
    assert ours < 1.5e-4  # Numbers near 1000 are rounded to 6e-5.
    assert ours <= theirs or keras.backend.backend() == "torch"


@pytest.mark.any_backend
def test_layer_norm_equals_that_of_keras():
    x = tokens(4, 64)
    for arguments in ({}, {"center": False}, {"scale": False}):
        theirs = keras.layers.LayerNormalization(epsilon=1e-6, **arguments)
        np.testing.assert_allclose(array(LayerNorm(**arguments)(x)), array(theirs(x)), atol=1e-6)


def test_weights_start_with_the_official_spread():
    layer = EncoderBlock(num_heads=4, mlp_dim=256)
    layer.build((None, None, 128))
    # Glorot: variance 2 / (inputs + outputs) of the flattened matrix. The samples are so
    # many that 3% is more than five standard errors; fans of a convolution are 6 times off.
    for kernel, fans in (
        (layer.attention.query.kernel, 128 + 128),
        (layer.attention.key.kernel, 128 + 128),
        (layer.attention.value.kernel, 128 + 128),
        (layer.attention.out.kernel, 128 + 128),
        (layer.mlp.dense_1.kernel, 128 + 256),
        (layer.mlp.dense_2.kernel, 128 + 256),
    ):
        values = np.array(kernel)
        assert values.std() == pytest.approx(np.sqrt(2 / fans), rel=0.03)
        assert np.abs(values).max() <= np.sqrt(6 / fans)  # Uniform, not normal.
    for bias in (layer.mlp.dense_1.bias, layer.mlp.dense_2.bias):
        assert 0.5e-6 < np.array(bias).std() < 2e-6
    for bias in (layer.attention.query.bias, layer.attention.out.bias):
        assert not np.array(bias).any()


@pytest.mark.any_backend_slow
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_recomputing_gives_the_gradients_of_keeping(rate, loss_and_gradients):
    results = []
    for remat in (False, True):
        inputs = keras.Input((5, 8))
        layer = block(
            remat=remat,
            dropout_rate=rate,
            attention_dropout_rate=rate,
            stochastic_depth_rate=rate,
        )
        if rate:
            layer.seed_generator.state.assign([1, 2])
        scores = keras.layers.GlobalAveragePooling1D()(layer(inputs, training=True))
        model = keras.Model(inputs, scores)
        results.append(loss_and_gradients(model, tokens(4, 5, 8), np.array([0, 1, 2, 3])))
    (kept_loss, kept), (loss, recomputed) = results
    assert loss == pytest.approx(kept_loss, abs=1e-6)
    assert len(kept) == len(recomputed) == 16
    for one, other in zip(kept.values(), recomputed.values(), strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)
