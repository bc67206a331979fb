"""Self-attention, also with relative positions and along axes, against loops in NumPy."""

import keras
import numpy as np
import pytest
from scipy import ndimage

from by_hand import array, attention_by_loops, randomized, tokens
from keras_vit.layers import (
    AxialAttention,
    AxialUnit,
    JoinLines,
    PreActivationUnit,
    RelativeSelfAttention,
    SelfAttention,
    SplitLines,
)
from keras_vit.layers.positions import resize_offsets

LAYERS = {
    "self": lambda: SelfAttention(2),
    "relative": lambda: RelativeSelfAttention(2, grid=(2, 3)),
    "relative, a class token": lambda: RelativeSelfAttention(2, grid=(2, 2), num_prefix_tokens=2),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_probabilities_are_those_of_the_equations(name):
    layer, z = randomized(LAYERS[name](), (None, 6, 6)), tokens(2, 6, 6)
    found = layer(z, return_attention=True)
    for ours, expected in zip(found, attention_by_loops(layer, z), strict=True):
        np.testing.assert_allclose(array(ours), expected, atol=1e-5)  # float32


@pytest.mark.any_backend
def test_kernels_have_the_shapes_of_the_official_files():
    layer = randomized(SelfAttention(2), (None, None, 6))
    assert {weight.path.split("/", 1)[1]: weight.shape for weight in layer.weights} == {
        **{f"{name}/kernel": (6, 2, 3) for name in ("query", "key", "value")},
        **{f"{name}/bias": (2, 3) for name in ("query", "key", "value")},
        "out/kernel": (2, 3, 6),
        "out/bias": (6,),
    }
    with pytest.raises(ValueError, match="num_heads=4, token size=6"):
        SelfAttention(4).build((None, None, 6))


@pytest.mark.parametrize(
    ("old", "new"), [((2, 3), (4, 5)), ((4, 3), (3, 2)), ((3, 3), (1, 4)), ((1, 5), (1, 9))]
)
def test_the_table_of_a_grid_is_the_mean_over_all_pairs_of_patches(old, new):
    table = np.random.RandomState(0).standard_normal(2 * old[0] * old[1] - 1).astype("float32")
    rows, columns = np.mgrid[1 - old[0] : old[0], 1 - old[1] : old[1]]
    by_step = table[rows * old[1] + columns + old[0] * old[1] - 1]
    patches = [divmod(p, new[1]) for p in range(new[0] * new[1])]
    values = {}
    for q, (q_row, q_column) in enumerate(patches):
        for k, (k_row, k_column) in enumerate(patches):
            place = [
                step * (before - 1) / max(after - 1, 1) + before - 1
                for step, before, after in zip(
                    (q_row - k_row, q_column - k_column), old, new, strict=True
                )
            ]
            value = ndimage.map_coordinates(by_step, np.reshape(place, (2, 1)), order=1)[0]
            values.setdefault(q - k, []).append(value)
    expected = [np.mean(values[offset]) for offset in sorted(values)]
    np.testing.assert_allclose(array(resize_offsets(table, old, new)), expected, atol=1e-6)


@pytest.mark.any_backend
@pytest.mark.any_backend_slow
def test_a_map_of_another_size_uses_the_resized_table_also_in_the_graph():
    layer, other = (
        randomized(
            RelativeSelfAttention(2, grid=grid, num_prefix_tokens=1), (None, 1 + np.prod(grid), 6)
        )
        for grid in ((2, 3), (4, 5))
    )
    for mine, theirs in zip(layer.weights, other.weights, strict=True):
        same = mine.shape == theirs.shape
        theirs.assign(mine if same else resize_offsets(mine, (2, 3), (4, 5)))
    z, patches = tokens(2, 21, 6), np.zeros((2, 4, 5, 6), "float32")
    resized = array(layer(z, patches=patches))
    np.testing.assert_allclose(resized, array(other(z)), atol=1e-5)
    inputs, images = keras.Input((None, 6)), keras.Input((None, None, 6))
    model = keras.Model([inputs, images], layer(inputs, patches=images))
    np.testing.assert_allclose(model.predict([z, patches], verbose=0), resized, atol=1e-5)


def axial_by_loops(layer, x):
    """Rows, then columns."""
    for attention in (layer.row, layer.column):
        x = np.stack([attention_by_loops(attention, image)[0] for image in x])
        x = x.transpose(0, 2, 1, 3)
    return x


@pytest.mark.any_backend
@pytest.mark.any_backend_slow
@pytest.mark.parametrize("strides", [1, 2])
def test_rows_then_columns_attend_and_a_stride_averages_the_positions_that_exist(strides):
    x = tokens(2, 3, 4, 4)
    layer = randomized(AxialAttention(2, grid=(3, 4), strides=strides), x.shape)
    expected = axial_by_loops(layer, x)
    if strides == 2:
        rows = [expected[:, i : i + 2] for i in (0, 2)]
        expected = np.stack(
            [np.stack([row[:, :, j : j + 2].mean((1, 2)) for j in (0, 2)], axis=1) for row in rows],
            axis=1,
        )
    np.testing.assert_allclose(array(layer(x)), expected, rtol=1e-5, atol=1e-5)


def test_a_map_of_another_size_resizes_the_tables_of_both_axes():
    x = tokens(2, 5, 7, 4)
    layer = randomized(AxialAttention(2, grid=(3, 4)), (None, None, None, 4))
    other = randomized(AxialAttention(2, grid=(5, 7)), x.shape)
    for mine, theirs in zip(layer.weights, other.weights, strict=True):
        values = array(mine)
        if mine.shape != theirs.shape:
            old, new = (1, (len(values) + 1) // 2), (1, (theirs.shape[0] + 1) // 2)
            values = array(resize_offsets(values, old, new))
        theirs.assign(values)
    np.testing.assert_allclose(array(layer(x)), array(other(x)), atol=1e-5)


def test_a_unit_is_bits_unit_with_attention_for_the_3x3_convolution():
    x = tokens(2, 3, 4, 32)
    unit = randomized(AxialUnit(32, num_heads=8, grid=(3, 4), strides=2), x.shape)
    assert isinstance(unit, PreActivationUnit)
    assert [weight.shape[:2] for weight in unit.weights if len(weight.shape) == 4] == [(1, 1)] * 3
    relu, activated = keras.ops.relu, keras.ops.relu(unit.norm_1(x))
    inner = unit.conv_2(relu(unit.norm_2(unit.conv_1(activated))))
    expected = unit.conv_projection(activated) + unit.conv_3(relu(unit.norm_3(inner)))
    outputs = unit(x)
    assert tuple(outputs.shape) == (2, 2, 2, 128)
    np.testing.assert_allclose(array(outputs), array(expected), rtol=1e-5)


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("prefix", [0, 2])
def test_a_line_is_the_prefix_and_the_patches_of_a_row_or_column(axis, prefix):
    z, grid = tokens(2, prefix + 6, 4), np.zeros((2, 2, 3, 4), "float32")
    lines = SplitLines(axis, prefix)(z, grid)
    patches = prefix + np.arange(6).reshape(2, 3)
    patches = patches if axis == "row" else patches.T
    for image in range(2):
        for number, line in enumerate(patches):
            expected = z[image, [*range(prefix), *line]]
            np.testing.assert_array_equal(array(lines)[image * len(patches) + number], expected)
    joined = JoinLines(axis, prefix)(lines, grid)
    np.testing.assert_allclose(array(joined), z, atol=1e-6)


def test_the_class_token_is_the_mean_over_lines():
    lines = tokens(6, 3, 4)
    joined = array(JoinLines("column", 1)(lines, np.zeros((2, 2, 3, 4), "float32")))
    np.testing.assert_allclose(joined[:, 0], lines[:, 0].reshape(2, 3, 4).mean(axis=1), atol=1e-6)
