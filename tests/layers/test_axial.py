import keras
import numpy as np
import pytest

from keras_vit.layers import AxialAttention, AxialUnit, PreActivationUnit

HEADS, CHANNELS = 2, 4


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def randomized(layer, shape):
    layer.build(shape)
    rng = np.random.RandomState(0)
    for weight in layer.weights:
        weight.assign(0.5 * rng.standard_normal(weight.shape))
    return layer


def image(height, width, channels=CHANNELS, seed=1):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((2, height, width, channels)).astype("float32")


def attend_along(attention, line):
    """Self-attention with relative positions of one line (n, C), as loops."""
    query, key, value = (
        np.einsum("nd,dhe->nhe", line, array(part.kernel)) + array(part.bias)
        for part in (attention.query, attention.key, attention.value)
    )
    table = array(attention.offset_embedding)
    length, heads, dim = query.shape
    mixed = np.zeros_like(query)
    for h in range(heads):
        for q in range(length):
            logits = np.array(
                [
                    query[q, h] @ key[k, h] + query[q, h] @ table[q - k + length - 1, h]
                    for k in range(length)
                ]
            ) / np.sqrt(dim)
            weights = np.exp(logits - logits.max())
            mixed[q, h] = (weights / weights.sum()) @ value[:, h]
    return np.einsum("nhe,hed->nd", mixed, array(attention.out.kernel)) + array(attention.out.bias)


def numpy_axial(layer, x):
    x = x.copy()
    for attention, axis in ((layer.row, 1), (layer.column, 2)):
        for b in range(len(x)):
            for index in range(x.shape[axis]):
                line = (b, index) if axis == 1 else (b, slice(None), index)
                x[line] = attend_along(attention, x[line])
    return x


@pytest.mark.any_backend_slow
def test_rows_then_columns_attend_with_their_offsets():
    x = image(3, 4)
    layer = randomized(AxialAttention(HEADS, grid=(3, 4)), x.shape)
    np.testing.assert_allclose(array(layer(x)), numpy_axial(layer, x), rtol=1e-5, atol=1e-5)


def test_a_stride_averages_the_positions_that_exist():
    x = image(3, 4)
    layer = randomized(AxialAttention(HEADS, grid=(3, 4), strides=2), x.shape)
    attended = numpy_axial(layer, x)
    expected = np.stack(
        [
            np.stack([attended[:, i : i + 2, j : j + 2].mean((1, 2)) for j in (0, 2)], 1)
            for i in (0, 2)
        ],
        1,
    )
    np.testing.assert_allclose(array(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_another_size_resizes_the_tables():
    layer = randomized(AxialAttention(HEADS, grid=(3, 4)), (None, None, None, CHANNELS))
    x = image(5, 7)
    other = randomized(AxialAttention(HEADS, grid=(5, 7)), x.shape)
    for mine, theirs in zip(layer.weights, other.weights, strict=True):
        values = array(mine)
        if mine.shape != theirs.shape:
            old, new = len(values), theirs.shape[0]
            places = np.linspace(0, old - 1, new)
            flat = values.reshape(old, -1)
            values = np.stack([np.interp(places, np.arange(old), c) for c in flat.T], 1)
        theirs.assign(values.reshape(theirs.shape))
    np.testing.assert_allclose(array(layer(x)), array(other(x)), atol=1e-5)


def test_a_unit_is_bits_unit_with_attention_for_the_3x3_convolution():
    x = image(3, 4, channels=32)
    unit = randomized(AxialUnit(32, num_heads=8, grid=(3, 4), strides=2), x.shape)
    assert isinstance(unit, PreActivationUnit)
    assert [weight.shape[:2] for weight in unit.weights if len(weight.shape) == 4] == [(1, 1)] * 3
    relu, activated = keras.ops.relu, keras.ops.relu(unit.norm_1(x))
    inner = unit.conv_2(relu(unit.norm_2(unit.conv_1(activated))))
    expected = unit.conv_projection(activated) + unit.conv_3(relu(unit.norm_3(inner)))
    outputs = unit(x)
    assert tuple(outputs.shape) == (2, 2, 2, 128)
    np.testing.assert_allclose(array(outputs), array(expected), rtol=1e-5)
