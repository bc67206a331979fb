"""Rotary positions against a loop over patches, heads and pairs in NumPy."""

import itertools

import keras
import numpy as np
import pytest

from keras_vit.layers import RotaryPositions, SelfAttention

KINDS = {
    "DINOv3": {},
    "by index": {"coordinates": "index", "pairs": "neighbours", "temperature": 50.0},
    "on a reference grid": {
        "coordinates": "index",
        "pairs": "neighbours",
        "reference_grid": (4, 5),
        "columns_first": True,
        "offset": 1.0,
    },
    "learned": {"coordinates": "index", "pairs": "neighbours", "learned": True},
}
GRID, PREFIX, HEADS, UNITS = (2, 3), 2, 2, 8


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def built(kind, **changes):
    layer = RotaryPositions(**{**KINDS[kind], **changes})
    layer.build((None, HEADS, None, UNITS))
    return layer


def inputs(grid=GRID):
    rng = np.random.default_rng(0)
    length = PREFIX + grid[0] * grid[1]
    query, key = rng.normal(size=(2, 3, HEADS, length, UNITS)).astype("float32")
    return query, key, np.zeros((3, *grid, 5), "float32")


def turned(layer, x, grid):
    """The rotation of `(B, k, P + N, D_h)` in float64."""

    def coordinate(number, axis):
        if layer.coordinates == "centred":
            return 2 * np.pi * (2 * (number + 0.5) / grid[axis] - 1)
        scale = layer.reference_grid[axis] / grid[axis] if layer.reference_grid else 1
        return (number + layer.offset) * scale

    result = x.astype("float64")
    for head, patch, pair in itertools.product(
        range(HEADS), range(grid[0] * grid[1]), range(UNITS // 2)
    ):
        row, column = divmod(patch, grid[1])
        x_, y_ = coordinate(column, 1), coordinate(row, 0)
        if layer.learned:
            angle = np.dot(array(layer.frequencies)[:, head, pair], (x_, y_))
        else:
            first, second = (x_, y_) if layer.columns_first else (y_, x_)
            frequency = layer.temperature ** (-4 * (pair % (UNITS // 4)) / UNITS)
            angle = frequency * (first if pair < UNITS // 4 else second)
        one, other = (pair, pair + UNITS // 2)
        if layer.pairs == "neighbours":
            one, other = 2 * pair, 2 * pair + 1
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        token = result[:, head, PREFIX + patch]
        token[:, [one, other]] = token[:, [one, other]] @ turn.T
    return result


def ordered(layer, x):
    """The order in which the layer returns units."""
    return np.concatenate([x[..., ::2], x[..., 1::2]], -1) if layer.pairs == "neighbours" else x


@pytest.mark.any_backend
@pytest.mark.parametrize("grid", [GRID, (5, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_and_keys_turn_as_in_a_loop(kind, grid):
    layer = built(kind)
    query, key, patches = inputs(grid)
    for found, x in zip(layer(query, key, patches), (query, key), strict=True):
        expected = ordered(layer, turned(layer, x, grid))
        np.testing.assert_allclose(array(found), expected, atol=2e-5)
        before = ordered(layer, x)
        np.testing.assert_array_equal(array(found)[:, :, :PREFIX], before[:, :, :PREFIX])
        assert np.abs(array(found) - before)[:, :, PREFIX:].max() > 0.1


def test_logits_of_patches_depend_on_the_step_between_them():
    layer = built("by index")
    same = np.broadcast_to(inputs()[0][:, :, :1], (3, HEADS, 16, UNITS))
    query, key = (array(x) for x in layer(same, same, np.zeros((3, 4, 4, 5))))
    logits = (query @ key.transpose(0, 1, 3, 2)).reshape(3, HEADS, 4, 4, 4, 4)
    shifted = logits[:, :, 1:, 1:, 1:, 1:]
    np.testing.assert_allclose(logits[:, :, :3, :3, :3, :3], shifted, atol=1e-4)


@pytest.mark.any_backend
def test_angles_are_float32_under_every_policy():
    query, key, patches = inputs((64, 64))
    found, _ = built("DINOv3", dtype="mixed_bfloat16")(query, key, patches)
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    expected, _ = built("DINOv3")(query, key, patches)
    # bfloat16 has 8 bits; an angle of 6 in it is off by up to 0.016, and the result by more.
    rounded = keras.ops.cast(keras.ops.cast(query, "bfloat16"), "float32")
    exact, _ = built("DINOv3")(rounded, key, patches)
    assert np.abs(array(expected) - array(exact)).max() > 0
    np.testing.assert_allclose(array(keras.ops.cast(found, "float32")), array(exact), rtol=4e-3)
    learned = built("learned", dtype="mixed_bfloat16")
    before = array(learned.frequencies)
    assert before.dtype == "float32"
    angles = learned.angles((64, 64))
    assert keras.backend.standardize_dtype(angles.dtype) == "float32"


def test_learned_frequencies_start_in_a_random_direction_for_each_head():
    x, y = array(built("learned").frequencies)
    length = np.hypot(x, y)
    np.testing.assert_allclose(length, [[1, 100**-0.5] * 2] * HEADS, rtol=1e-5)
    np.testing.assert_allclose((x[:, :2] * x[:, 2:] + y[:, :2] * y[:, 2:]), 0, atol=1e-6)
    assert abs(np.arctan2(y, x)[0, 0] - np.arctan2(y, x)[1, 0]) > 1e-3


def test_the_attention_returns_the_probabilities_of_turned_queries_and_keys():
    tokens = np.random.default_rng(0).normal(size=(2, PREFIX + 6, HEADS * UNITS)).astype("float32")
    patches = np.zeros((2, *GRID, HEADS * UNITS), "float32")
    attention = SelfAttention(HEADS, rotary=KINDS["by index"])
    _, probabilities = attention(tokens, return_attention=True, patches=patches)

    def heads(layer):
        return np.einsum("bnd,dkh->bknh", tokens, array(layer.kernel)) + array(layer.bias)[:, None]

    rotation = attention.rotation
    query, key = (
        turned(rotation, heads(layer), GRID) for layer in (attention.query, attention.key)
    )
    logits = np.exp(query @ key.transpose(0, 1, 3, 2) / np.sqrt(UNITS))
    expected = logits / logits.sum(-1, keepdims=True)
    np.testing.assert_allclose(array(probabilities), expected, atol=1e-5)


def test_what_cannot_turn_is_refused():
    with pytest.raises(ValueError, match="multiple of 4 units. Received: 6 units"):
        RotaryPositions().build((None, 2, None, 6))
    query, key, _ = inputs()
    with pytest.raises(ValueError, match="need the map of patches"):
        built("DINOv3")(query, key)
