import keras
import numpy as np
import pytest

from keras_vit.layers import JoinLines, SplitLines

DOWN, ACROSS, DIM = 2, 3, 4


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def tokens(prefix):
    length = prefix + DOWN * ACROSS
    return np.random.RandomState(0).standard_normal((2, length, DIM)).astype("float32")


MAP = np.zeros((2, DOWN, ACROSS, DIM), "float32")


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("prefix", [0, 2])
def test_a_line_is_the_prefix_and_the_patches_of_a_row_or_column(axis, prefix):
    z = tokens(prefix)
    lines = array(SplitLines(axis, prefix)(z, MAP))
    patches = prefix + np.arange(DOWN * ACROSS).reshape(DOWN, ACROSS)
    patches = patches if axis == "row" else patches.T
    for image in range(2):
        for number, line in enumerate(patches):
            expected = z[image, [*range(prefix), *line]]
            np.testing.assert_array_equal(lines[image * len(patches) + number], expected)


@pytest.mark.parametrize("axis", ["row", "column"])
@pytest.mark.parametrize("prefix", [0, 2])
def test_joined_lines_are_the_tokens_again(axis, prefix):
    z = tokens(prefix)
    joined = JoinLines(axis, prefix)(SplitLines(axis, prefix)(z, MAP), MAP)
    np.testing.assert_allclose(array(joined), z, atol=1e-6)


def test_the_class_token_is_the_mean_over_lines():
    lines = np.random.RandomState(0).standard_normal((2 * ACROSS, 1 + DOWN, DIM))
    joined = array(JoinLines("column", 1)(lines.astype("float32"), MAP))
    expected = lines[:, 0].reshape(2, ACROSS, DIM).mean(axis=1)
    np.testing.assert_allclose(joined[:, 0], expected, atol=1e-6)


def test_an_unknown_axis_is_refused():
    with pytest.raises(ValueError, match="axis must be one of .*Received: axis='diagonal'"):
        SplitLines("diagonal")
