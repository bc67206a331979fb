import dataclasses

import keras
import numpy as np
import pytest

import keras_vit

WIDTH, HEADS, HIDDEN, GRID = 8, 2, 12, (3, 4)
SMALL = keras_vit.AxialConfig(4, WIDTH, 1, HIDDEN, HEADS)
SIZE = (14, 17)  # The rest of the division by the patch is cut off.


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def images(seed=1):
    return np.random.RandomState(seed).standard_normal((2, *SIZE, 3)).astype("float32")


def built(**changes):
    """A model with large random weights, so that every term of every layer counts."""
    model = keras_vit.build(SMALL, input_shape=(*SIZE, 3), classes=5, **changes)
    rng = np.random.RandomState(0)
    for weight in model.weights:
        if "seed_generator" not in weight.path:
            weight.assign(0.5 * rng.standard_normal(weight.shape))
    return model


def outputs_of(model, *names):
    """The model up to some of its layers."""
    return keras.Model(model.input, [model.get_layer(name).output for name in names])


VARIANTS = {
    "gap": {},
    "token": {"classifier": "token"},
    "relative, token, registers": {
        "classifier": "token",
        "num_registers": 2,
        "position_embedding": "relative",
    },
}


@pytest.fixture(scope="module", params=list(VARIANTS))
def model_and_prefix(request):
    """A model, and the number of tokens in front of its patches."""
    changes = VARIANTS[request.param]
    return built(**changes), dataclasses.replace(SMALL, **changes).num_prefix_tokens


def test_a_pixel_changes_the_tokens_of_its_row_alone_and_then_all(model_and_prefix):
    model, prefix = model_and_prefix
    steps = outputs_of(model, "join_rows_0", "join_columns_0")
    changed = images()
    changed[:, 5, 9] += 1  # In the patch of row 1 and column 2.
    rows, columns = (
        np.abs(array(after) - array(before)).max(-1) > 0
        for after, before in zip(steps(changed), steps(images()), strict=True)
    )
    expected = np.zeros(GRID, bool)
    expected[1] = True
    np.testing.assert_array_equal(rows[0, prefix:].reshape(GRID), expected)
    assert rows[:, :prefix].all()
    assert columns.all()


def test_global_pooling_is_the_default_and_has_no_class_token():
    names = [layer.name for layer in built().layers]
    assert "class_token" not in names
    assert names[-3:] == ["avg_pool", "representation", "predictions"]


def small_resnet(**arguments):
    config = keras_vit.AxialResNetConfig((1, 1), 0.5, num_heads=4)
    return keras_vit.build(config, classes=5, **arguments)


def test_axial_resnet_has_no_3x3_convolution():
    shapes = {
        weight.shape[:2]
        for weight in small_resnet(input_shape=(33, 41, 3)).weights
        if len(weight.shape) == 4
    }
    assert shapes == {(7, 7), (1, 1)}


def test_axial_resnet_halves_where_the_convolution_had_stride_2():
    model = small_resnet(input_shape=(33, 41, 3))
    assert model.get_layer("block_1_unit_1").output.shape == (None, 9, 11, 128)
    assert model.get_layer("block_2_unit_1").output.shape == (None, 5, 6, 256)


def test_axial_resnet_takes_images_of_any_size():
    model = small_resnet(input_shape=(None, None, 3), include_top=False)
    other = small_resnet(input_shape=(224, 224, 3), include_top=False)
    other.set_weights(model.get_weights())  # The tables of a free size are made for 224 pixels.
    x = np.random.RandomState(0).standard_normal((1, 224, 224, 3)).astype("float32")
    np.testing.assert_allclose(array(model(x)), array(other(x)), rtol=1e-4, atol=1e-4)
    assert tuple(model(x[:, :33, :41]).shape) == (1, 5, 6, 256)


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="must divide the root's width"):
        keras_vit.AxialResNetConfig((1,), num_heads=7)
