import keras
import numpy as np
import pytest
from scipy import ndimage

from by_hand import array
from keras_vit.checkpoints.resize import resize_positions
from keras_vit.configs.position_resize import RULES
from keras_vit.layers import PositionEmbedding, PositionEmbedding2D

GRID, PREFIX, DIM = (3, 4), 2, 6


def built(layer_class, registers=0, seed=0):
    """A layer for GRID with large random values, and a batch of zero tokens for it."""
    layer = layer_class(GRID, PREFIX, registers)
    tokens = np.zeros((2, PREFIX + registers + 12, DIM), "float32")
    layer.build(tokens.shape)
    rng = np.random.RandomState(seed)
    for weight in layer.weights:
        weight.assign(rng.standard_normal(weight.shape))
    return layer, tokens


def zoomed(table, down, across):
    """What the official loader does with a map (down, across, D)."""
    factors = (down / table.shape[0], across / table.shape[1], 1)
    return ndimage.zoom(table, factors, order=1)


@pytest.fixture(params=[PositionEmbedding, PositionEmbedding2D])
def layer_class(request):
    return request.param


def test_a_patch_gets_the_embeddings_of_its_column_and_its_row():
    layer, tokens = built(PositionEmbedding2D)
    x, y = array(layer.x_embedding), array(layer.y_embedding)
    outputs = array(layer(tokens))[0, PREFIX:]
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            expected = np.concatenate([x[column], y[row]])
            np.testing.assert_array_equal(outputs[row * GRID[1] + column], expected)
    np.testing.assert_array_equal(array(layer(tokens))[1, :PREFIX], array(layer.prefix_embedding))


def test_registers_get_no_position(layer_class):
    plain, plain_tokens = built(layer_class)
    layer, tokens = built(layer_class, registers=3)
    added, expected = array(layer(tokens)), array(plain(plain_tokens))
    np.testing.assert_array_equal(added[:, PREFIX : PREFIX + 3], 0)
    np.testing.assert_array_equal(np.delete(added, range(PREFIX, PREFIX + 3), axis=1), expected)


@pytest.mark.parametrize("grid", [(3, 4), (5, 9), (2, 3), (1, 1)])
def test_another_grid_is_interpolated_as_in_the_official_loader(layer_class, grid):
    layer, tokens = built(layer_class)
    table = array(layer(tokens))[:1, PREFIX:].reshape(*GRID, DIM)
    tokens = np.zeros((2, PREFIX + grid[0] * grid[1], DIM), "float32")
    outputs = array(layer(tokens, np.zeros((2, *grid, 1), "float32")))
    # Where one point is left, zoom has no corner to align; ours keeps the first.
    expected = zoomed(table, *grid) if min(grid) > 1 else table[: grid[0], : grid[1]]
    np.testing.assert_allclose(outputs[0, PREFIX:], expected.reshape(-1, DIM), atol=1e-6)
    assert np.ptp(outputs, axis=0).max() == 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("grid", [(3, 4), (5, 9), (2, 3), (3, 2)])
def test_the_graph_resizes_by_every_rule_as_files_are_resized(rule, grid):
    layer, _ = built(PositionEmbedding)
    layer = PositionEmbedding.from_config({**layer.get_config(), "resize": rule})
    layer.build((2, PREFIX + 12, DIM))
    table = np.random.default_rng(0).normal(size=(12, DIM)).astype("float32")
    layer.embedding.assign(np.concatenate([np.ones((PREFIX, DIM)), table])[None])
    images = keras.Input((None, None, DIM))
    tokens = keras.Input((None, DIM))
    model = keras.Model([tokens, images], layer(tokens, patches=images))
    zeros = np.zeros((1, PREFIX + grid[0] * grid[1], DIM), "float32")
    outputs = model.predict([zeros, np.zeros((1, *grid, DIM), "float32")], verbose=0)
    expected = resize_positions(table, GRID, grid, rule)
    np.testing.assert_allclose(outputs[0, PREFIX:], expected, atol=5e-6)  # float32, up to 3


def test_values_start_normal_with_the_official_deviation(layer_class):
    keras.utils.set_random_seed(0)
    layer = layer_class((40, 40), 1)
    layer.build((None, 1601, 64))
    assert len(layer.weights)
    for weight in layer.weights:
        values = array(weight)
        # 64 values are the fewest: their deviation is within a third of the truth.
        assert abs(values.std() / 0.02 - 1) < 0.34
        assert abs(values.mean()) < 0.01
