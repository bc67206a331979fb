"""Table 8 of the paper: four kinds of position embeddings at three places."""

import numpy as np
import pytest

import keras_vit
from by_hand import array

PATCH, GRID, WIDTH, DEPTH = 4, (2, 3), 8, 3
SIZE = (GRID[0] * PATCH, GRID[1] * PATCH)


def built(kind, at="input", **arguments):
    fields = {"position_embedding": kind, "position_embedding_at": at}
    config = keras_vit.ViTConfig(PATCH, WIDTH, DEPTH, 12, 2, **fields)
    model = keras_vit.build(config, input_shape=(*SIZE, 3), include_top=False, **arguments)
    rng = np.random.RandomState(0)
    for weight in model.weights:
        weight.assign(0.5 * rng.standard_normal(weight.shape))
    return model


def images():
    return np.random.RandomState(1).standard_normal((2, *SIZE, 3)).astype("float32")


def permuted(x, order):
    """The images with their patches in another order."""
    patches = x.reshape(2, GRID[0], PATCH, GRID[1], PATCH, 3).swapaxes(2, 3)
    patches = patches.reshape(2, 6, PATCH, PATCH, 3)[:, order]
    return patches.reshape(2, *GRID, PATCH, PATCH, 3).swapaxes(2, 3).reshape(x.shape)


ORDER = [4, 0, 5, 2, 1, 3]


def difference_of_permutation(model):
    """How far the tokens of permuted patches are from the permuted tokens."""
    outputs = array(model(images())).reshape(2, 6, WIDTH)
    others = array(model(permuted(images(), ORDER))).reshape(2, 6, WIDTH)
    return np.abs(others - outputs[:, ORDER]).max()


def test_without_positions_the_tokens_follow_a_permutation_of_the_patches():
    model = built("none")
    assert not any("position" in layer.name for layer in model.layers)
    assert difference_of_permutation(model) < 1e-5
    pooled = built("none", pooling="token")
    there, back = array(pooled(images())), array(pooled(permuted(images(), ORDER)))
    np.testing.assert_allclose(there, back, atol=1e-5)


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d", "relative"])
def test_with_positions_they_do_not(kind):
    assert difference_of_permutation(built(kind)) > 0.1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position_embedding": "none", "position_embedding_at": "every_block"}, "'every_block'"),
        ({"position_embedding": "relative", "position_embedding_at": "every_block_shared"}, "add"),
        ({"position_embedding": "learned_2d", "width": 9, "num_heads": 3}, "must be even .*=9"),
    ],
)
def test_places_and_widths_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.ViTConfig(
            **{"patch_size": 4, "width": 8, "depth": 2, "mlp_dim": 12, "num_heads": 2, **fields}
        )


def positions(layer):
    """What the layer adds to a class token and the patches."""
    return array(layer(np.zeros((1, 7, WIDTH), "float32")))


@pytest.mark.parametrize("kind", ["learned_1d", "learned_2d"])
@pytest.mark.parametrize(
    ("at", "names"),
    [
        ("input", ["position_embedding", None, None]),
        ("every_block", [f"position_embedding_{index}" for index in range(DEPTH)]),
        ("every_block_shared", ["position_embedding"] * DEPTH),
    ],
)
def test_positions_are_added_where_the_config_says(kind, at, names):
    model = built(kind, at)
    assert {layer.name for layer in model.layers if "position" in layer.name} == {
        name for name in names if name
    }
    z = array(model.get_layer("patch_embedding")(images())).reshape(2, 6, WIDTH)
    z = np.concatenate([np.repeat(array(model.get_layer("class_token").token), 2, 0), z], 1)
    for index, name in enumerate(names):
        if name:
            z = z + positions(model.get_layer(name))
        z = array(model.get_layer(f"encoder_block_{index}")(z))
    expected = array(model.get_layer("encoder_norm")(z))[:, 1:].reshape(2, *GRID, WIDTH)
    np.testing.assert_allclose(array(model(images())), expected, atol=1e-5)
