import keras
import numpy as np
import pytest
from scipy import ndimage

from keras_vit.layers import RelativeEncoderBlock, RelativeSelfAttention
from keras_vit.layers.attention import shift_to_pairs
from keras_vit.layers.positions import resize_offsets

HEADS, DIM = 2, 6


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def built(grid, prefix=0, seed=0, layer_class=RelativeSelfAttention, **arguments):
    """A layer with large random weights, so that every term of the attention counts."""
    layer = layer_class(HEADS, grid=grid, num_prefix_tokens=prefix, **arguments)
    layer.build((None, prefix + grid[0] * grid[1], DIM))
    rng = np.random.RandomState(seed)
    for weight in layer.weights:
        weight.assign(rng.standard_normal(weight.shape))
    return layer


def tokens_for(grid, prefix=0):
    length = prefix + grid[0] * grid[1]
    return np.random.RandomState(1).standard_normal((2, length, DIM)).astype("float32")


def numpy_attention(layer, tokens, prefix):
    """The paper's words as loops: each offset's embedding is a key for the query's content."""
    query, key, value = (
        np.einsum("bnd,dhe->bnhe", tokens, array(part.kernel)) + array(part.bias)
        for part in (layer.query, layer.key, layer.value)
    )
    table = array(layer.offset_embedding)
    batch, length, heads, dim = query.shape
    outputs, probabilities = np.zeros_like(query), np.zeros((batch, heads, length, length))
    for b in range(batch):
        for h in range(heads):
            for q in range(length):
                logits = np.zeros(length)
                for k in range(length):
                    logits[k] = query[b, q, h] @ key[b, k, h]
                    if q >= prefix and k >= prefix:
                        offset = q - k + (length - prefix) - 1
                        logits[k] += query[b, q, h] @ table[offset, h]
                weights = np.exp((logits - logits.max()) / np.sqrt(dim))
                probabilities[b, h, q] = weights / weights.sum()
                outputs[b, q, h] = probabilities[b, h, q] @ value[b, :, h]
    out = np.einsum("bnhe,hed->bnd", outputs, array(layer.out.kernel)) + array(layer.out.bias)
    return out, probabilities


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param(0, marks=pytest.mark.any_backend_slow),
        1,
        pytest.param(3, marks=pytest.mark.any_backend_slow),
    ],
)
def test_the_logits_are_of_the_key_and_of_the_offset(prefix):
    layer, tokens = built((2, 3), prefix), tokens_for((2, 3), prefix)
    outputs, attention = layer(tokens, return_attention=True)
    expected, probabilities = numpy_attention(layer, tokens, prefix)
    np.testing.assert_allclose(array(attention), probabilities, atol=1e-5)
    np.testing.assert_allclose(array(outputs), expected, atol=1e-5)


def test_each_pair_takes_the_column_of_its_offset():
    length = 5
    columns = np.arange(2 * length - 1, dtype="float32") - (length - 1)  # Key minus query.
    products = np.broadcast_to(columns, (1, 1, length, 2 * length - 1))
    pairs = array(shift_to_pairs(products))[0, 0]
    places = np.arange(length)
    np.testing.assert_array_equal(pairs, places[None] - places[:, None])


@pytest.mark.parametrize(("old", "new"), [(5, 9), (9, 4), (4, 1), (1, 3)])
def test_the_table_of_a_line_is_interpolated_between_its_ends(old, new):
    table = np.random.RandomState(0).standard_normal((2 * old - 1, 2)).astype("float32")
    resized = array(resize_offsets(table, (1, old), (1, new)))
    places = np.arange(1 - new, new) * (old - 1) / max(new - 1, 1)
    for column in range(2):
        expected = np.interp(places, np.arange(1 - old, old), table[:, column])
        np.testing.assert_allclose(resized[:, column], expected, atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [((2, 3), (4, 5)), ((4, 3), (3, 2)), ((3, 3), (1, 4))])
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


@pytest.mark.any_backend_slow
def test_a_map_of_another_size_uses_the_resized_table():
    layer, other = built((2, 3), prefix=1), built((4, 5), prefix=1)
    for mine, theirs in zip(layer.weights, other.weights, strict=True):
        same = mine.shape == theirs.shape
        theirs.assign(mine if same else resize_offsets(mine, (2, 3), (4, 5)))
    tokens = tokens_for((4, 5), prefix=1)
    resized = array(layer(tokens, patches=np.zeros((2, 4, 5, 1), "float32")))
    np.testing.assert_allclose(resized, array(other(tokens)), atol=1e-5)


def test_the_size_may_be_known_only_in_the_graph():
    layer = built((2, 3), prefix=1)
    images = keras.Input((None, None, DIM))
    tokens = keras.Input((None, DIM))
    model = keras.Model([tokens, images], layer(tokens, patches=images))
    values, patches = tokens_for((4, 5), prefix=1), np.zeros((2, 4, 5, DIM), "float32")
    outputs = model.predict([values, patches], verbose=0)
    np.testing.assert_allclose(outputs, array(layer(values, patches=patches)), atol=1e-5)


def test_a_block_is_an_encoder_block_with_this_attention():
    block = built((2, 3), layer_class=RelativeEncoderBlock, mlp_dim=5)
    tokens = tokens_for((2, 3))
    attended = tokens + array(block.attention(block.norm_1(tokens)))
    expected = attended + array(block.mlp(block.norm_2(attended)))
    np.testing.assert_allclose(array(block(tokens)), expected, atol=1e-5)
