"""Self-attention against loops in NumPy."""

import keras
import numpy as np
import pytest

from keras_vit.layers import SelfAttention

pytestmark = pytest.mark.any_backend


def random_attention(num_heads=2, dim=6, **arguments):
    layer = SelfAttention(num_heads, **arguments)
    layer.build((None, None, dim))
    rng = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(0, 0.5, variable.shape))
    return layer


def attention_by_loops(layer, tokens):
    """Equations 5 to 8 of the paper, a number at a time; float64."""
    kernels = {
        name: np.array(getattr(layer, name).kernel, "float64")
        for name in ("query", "key", "value", "out")
    }
    biases = {name: np.array(getattr(layer, name).bias, "float64") for name in kernels}
    batch, length, dim = tokens.shape
    heads, head_dim = biases["query"].shape
    attention = np.zeros((batch, heads, length, length))
    outputs = np.tile(biases["out"], (batch, length, 1))
    for image in range(batch):
        for head in range(heads):
            query, key, value = (
                tokens[image] @ kernels[name][:, head] + biases[name][head]
                for name in ("query", "key", "value")
            )
            for i in range(length):
                weights = [np.exp(query[i] @ key[j] / np.sqrt(head_dim)) for j in range(length)]
                attention[image, head, i] = weights / np.sum(weights)
                mixed = sum(attention[image, head, i, j] * value[j] for j in range(length))
                outputs[image, i] += mixed @ kernels["out"][head]
    return outputs, attention


def test_outputs_and_probabilities_are_those_of_the_equations():
    layer = random_attention()
    tokens = np.random.default_rng(1).normal(size=(2, 5, 6))
    found = layer(tokens.astype("float32"), return_attention=True)
    outputs, attention = map(keras.ops.convert_to_numpy, found)
    expected_outputs, expected_attention = attention_by_loops(layer, tokens)
    np.testing.assert_allclose(outputs, expected_outputs, atol=2e-6)  # Float32.
    np.testing.assert_allclose(attention, expected_attention, atol=1e-6)


def test_kernels_have_the_shapes_of_the_official_files():
    shapes = {
        variable.path.split("/", 1)[1]: variable.shape
        for variable in random_attention(num_heads=2, dim=6).weights
    }
    assert shapes == {
        **{f"{name}/kernel": (6, 2, 3) for name in ("query", "key", "value")},
        **{f"{name}/bias": (2, 3) for name in ("query", "key", "value")},
        "out/kernel": (2, 3, 6),
        "out/bias": (6,),
    }


def test_heads_that_do_not_divide_the_token_size_are_refused():
    with pytest.raises(ValueError, match="must divide the token size.*num_heads=4, token size=6"):
        SelfAttention(4).build((None, None, 6))


@pytest.mark.any_backend_slow
def test_dropout_falls_on_probabilities_and_keeps_their_mean():
    layer = random_attention(dropout_rate=0.5)
    tokens = np.random.default_rng(1).normal(size=(1, 5, 6)).astype("float32")
    many = np.repeat(tokens, 300, axis=0)
    seed = keras.random.SeedGenerator(3)
    runs = np.array(layer(many, training=True, seed=seed.next()))
    assert not np.array_equal(runs[0], runs[1])
    error = np.mean(runs, axis=0) - np.array(layer(tokens))
    assert np.abs(error).max() < 5 * np.std(runs, axis=0).max() / np.sqrt(len(runs))


def test_the_seed_decides_the_mask():
    layer = random_attention(dropout_rate=0.5)
    tokens = np.random.default_rng(1).normal(size=(1, 5, 6)).astype("float32")
    seed = keras.random.SeedGenerator(3)
    first, second = seed.next(), seed.next()
    outputs = [
        keras.ops.convert_to_numpy(layer(tokens, training=True, seed=drawn))
        for drawn in (first, first, second)
    ]
    np.testing.assert_array_equal(*outputs[:2])
    assert not np.array_equal(outputs[0], outputs[2])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one backend is enough")
def test_a_quantised_layer_gives_nearly_the_same_outputs():
    layer = random_attention()
    tokens = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    expected = np.array(layer(tokens))
    for projection in (layer.query, layer.key, layer.value, layer.out):
        projection.quantize("int8")
    assert layer.query.kernel.dtype == "int8"
    assert np.abs(np.array(layer(tokens)) - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one backend is enough")
def test_low_rank_adapters_change_the_outputs_once_they_are_trained():
    layer = random_attention()
    tokens = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    before = np.array(layer(tokens))
    layer.query.enable_lora(rank=1)
    np.testing.assert_allclose(layer(tokens), before, atol=1e-6)  # B starts at zero.
    layer.query.lora_kernel_b.assign(np.ones(layer.query.lora_kernel_b.shape))
    assert not np.allclose(layer(tokens), before, atol=1e-3)
