"""Rotary positions against a loop over patches, heads and pairs in NumPy."""

import itertools

import keras
import numpy as np
import pytest

from by_hand import array
from keras_vit.layers import RotaryPositions, SelfAttention

GRID, PREFIX, HEADS, UNITS = (2, 3), 2, 2, 8
TEMPERATURE = 50.0


def built(**options):
    layer = RotaryPositions(TEMPERATURE, **options)
    layer.build((None, HEADS, None, UNITS))
    return layer


def inputs(grid=GRID):
    rng = np.random.default_rng(0)
    length = PREFIX + grid[0] * grid[1]
    query, key = rng.normal(size=(2, 3, HEADS, length, UNITS)).astype("float32")
    return query, key, np.zeros((3, *grid, 5), "float32")


def turned(x, grid):
    """The rotation of `(B, k, P + N, D_h)` in float64."""
    result = x.astype("float64")
    for head, patch, pair in itertools.product(
        range(HEADS), range(grid[0] * grid[1]), range(UNITS // 2)
    ):
        axis = 0 if pair < UNITS // 4 else 1
        place = 2 * (divmod(patch, grid[1])[axis] + 0.5) / grid[axis] - 1
        angle = 2 * np.pi * place * TEMPERATURE ** (-4 * (pair % (UNITS // 4)) / UNITS)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        token = result[:, head, PREFIX + patch]
        units = [pair, pair + UNITS // 2]
        token[:, units] = token[:, units] @ turn.T
    return result


@pytest.mark.any_backend
@pytest.mark.parametrize("grid", [GRID, (5, 2)])
def test_queries_and_keys_turn_as_in_a_loop(grid):
    query, key, patches = inputs(grid)
    for found, x in zip(built()(query, key, patches), (query, key), strict=True):
        np.testing.assert_allclose(array(found), turned(x, grid), atol=2e-5)
        np.testing.assert_array_equal(array(found)[:, :, :PREFIX], x[:, :, :PREFIX])
        assert np.abs(array(found) - x)[:, :, PREFIX:].max() > 0.1


@pytest.mark.any_backend
def test_angles_are_float32_under_every_policy():
    query, key, patches = inputs((64, 64))
    layer = built(dtype="mixed_bfloat16")
    found, _ = layer(query, key, patches)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(layer.angles((64, 64)).dtype) == "float32"
    # bfloat16 has 8 bits; an angle of 6 in it is off by up to 0.016, and the result by more.
    rounded = keras.ops.cast(keras.ops.cast(query, "bfloat16"), "float32")
    exact, _ = built()(rounded, key, patches)
    np.testing.assert_allclose(array(keras.ops.cast(found, "float32")), array(exact), rtol=4e-3)


def test_the_attention_returns_the_probabilities_of_turned_queries_and_keys():
    tokens = np.random.default_rng(0).normal(size=(2, PREFIX + 6, HEADS * UNITS)).astype("float32")
    patches = np.zeros((2, *GRID, HEADS * UNITS), "float32")
    attention = SelfAttention(HEADS, rotary=TEMPERATURE)
    _, probabilities = attention(tokens, return_attention=True, patches=patches)

    def heads(layer):
        return np.einsum("bnd,dkh->bknh", tokens, array(layer.kernel)) + array(layer.bias)[:, None]

    query, key = (turned(heads(layer), GRID) for layer in (attention.query, attention.key))
    logits = np.exp(query @ key.transpose(0, 1, 3, 2) / np.sqrt(UNITS))
    expected = logits / logits.sum(-1, keepdims=True)
    np.testing.assert_allclose(array(probabilities), expected, atol=1e-5)
