import itertools
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.configs import BiTConfig

TINY = BiTConfig((1, 2), width_factor=0.5)


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


@pytest.fixture(scope="module")
def official(golden, tmp_path_factory):
    """The fixture of the official code, its checkpoint file, and our model with its weights."""
    fixture = golden("bit_r14x1")
    config = BiTConfig(fixture.config["block_units"], fixture.config["width_factor"])
    model = keras_vit.build(config, classes=10, input_shape=(64, 64, 3), classifier_activation=None)
    path = tmp_path_factory.mktemp("official") / "checkpoint.npz"
    np.savez(path, **fixture.checkpoint())
    keras_vit.load_checkpoint(model, path)
    return fixture, path, model


@pytest.fixture(scope="module")
def tiny():
    """A small model with random weights everywhere."""
    model = keras_vit.build(TINY, classes=7, input_shape=(97, 65, 3), classifier_activation=None)
    rng = np.random.RandomState(1)
    for weight in model.weights:
        mean = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(mean + 0.3 * rng.standard_normal(weight.shape))
    return model


@pytest.mark.any_backend_slow
def test_logits_and_features_are_those_of_the_official_code(official):
    fixture, _, model = official
    expected = fixture.load()
    both = keras.Model(model.input, [model.output, model.get_layer("avg_pool").output])
    logits, features = both.predict(expected["images"], verbose=0)
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-4)
    np.testing.assert_allclose(features, expected["features"], atol=1e-4)


def convolution(x, kernel, stride=1, padding=0):
    """A standardised convolution as a sum over the kernel's places."""
    kernel = kernel - kernel.mean((0, 1, 2))
    kernel = kernel / np.sqrt((kernel**2).mean((0, 1, 2)) + 1e-10)
    x = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    size = len(kernel)
    down, across = ((side - size) // stride + 1 for side in x.shape[1:3])
    return sum(
        x[:, i : i + stride * down : stride, j : j + stride * across : stride] @ kernel[i, j]
        for i in range(size)
        for j in range(size)
    )


def norm_relu(x, gamma, beta):
    batch, down, across, channels = x.shape
    groups = x.reshape(batch, down, across, 32, channels // 32)
    mean = groups.mean((1, 2, 4), keepdims=True)
    variance = groups.var((1, 2, 4), keepdims=True)
    x = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    return np.maximum(x * gamma + beta, 0)


def zero_padded_pool(x):
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    return windows[:, ::2, ::2].max((-2, -1))


def numpy_bit(weights, images, num_blocks):
    """BiT from its paper's equations, in float64, with the published names."""
    get = {name: values.astype("float64") for name, values in weights.items()}
    x = convolution(images, get["resnet/root_block/standardized_conv2d/kernel"], 2, 3)
    x = zero_padded_pool(x)
    for block, units in enumerate(num_blocks, start=1):
        for unit in range(1, units + 1):
            name = f"resnet/block{block}/unit{unit:02d}"

            def norm(part, y, name=name):
                scope = f"{name}/{part}/group_norm"
                return norm_relu(y, get[f"{scope}/gamma"], get[f"{scope}/beta"])

            def conv(part, y, *args, name=name):
                return convolution(y, get[f"{name}/{part}/standardized_conv2d/kernel"], *args)

            stride = 2 if block > 1 and unit == 1 else 1
            activated = norm("a", x)
            shortcut = conv("a/proj", activated, stride) if unit == 1 else x
            y = conv("a", activated)
            y = conv("b", norm("b", y), stride, 1)
            x = shortcut + conv("c", norm("c", y))
    x = norm_relu(x, get["resnet/group_norm/gamma"], get["resnet/group_norm/beta"])
    return x.mean((1, 2)) @ get["resnet/head/conv2d/kernel"][0, 0] + get["resnet/head/conv2d/bias"]


@pytest.mark.any_backend_slow
def test_odd_sizes_agree_with_numpy(tiny, tmp_path):
    images = np.random.RandomState(2).standard_normal((2, 97, 65, 3))
    keras_vit.save_checkpoint(tiny, tmp_path / "tiny.npz")
    with np.load(tmp_path / "tiny.npz") as weights:
        expected = numpy_bit(dict(weights), images, TINY.num_blocks)
    np.testing.assert_allclose(tiny.predict(images, verbose=0), expected, atol=1e-4)


def test_the_numpy_reference_agrees_with_the_official_code(official):
    fixture, _, _ = official
    expected = fixture.load()
    logits = numpy_bit(fixture.checkpoint(), expected["images"], (1, 1, 1, 1))
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)


def test_a_published_file_loads_and_saves_as_it_was(official, tmp_path):
    fixture, _, model = official
    keras_vit.save_checkpoint(model, tmp_path / "saved.npz")
    published = fixture.checkpoint()
    with np.load(tmp_path / "saved.npz") as saved:
        assert set(saved.files) == set(published)
        for name, values in published.items():
            np.testing.assert_array_equal(saved[name], values, err_msg=name)


def test_counters_behind_the_names_are_understood(tiny, tmp_path):
    keras_vit.save_checkpoint(tiny, tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as plain:
        plain = dict(plain)
    number = itertools.count(1)
    counted = {
        re.sub("standardized_conv2d", lambda match: f"{match[0]}_{next(number)}", name): values
        for name, values in plain.items()
    }
    assert any("standardized_conv2d_12/" in name for name in counted)
    np.savez(tmp_path / "counted.npz", **counted)
    again = keras_vit.build(TINY, classes=7, input_shape=(97, 65, 3))
    keras_vit.load_checkpoint(again, tmp_path / "counted.npz")
    for before, after in zip(tiny.weights, again.weights, strict=True):
        np.testing.assert_array_equal(array(before), array(after), err_msg=before.path)


def test_a_head_of_21843_classes_loads_or_is_left_out(tiny, tmp_path):
    large = keras_vit.build(TINY, classes=21843, input_shape=(64, 64, 3))
    large.get_layer("predictions").kernel.assign(np.ones((256, 21843)))
    keras_vit.save_checkpoint(large, tmp_path / "large.npz")
    with np.load(tmp_path / "large.npz") as saved:
        assert saved["resnet/head/conv2d/kernel"].shape == (1, 1, 256, 21843)
    same = keras_vit.build(TINY, classes=21843, input_shape=(64, 64, 3))
    keras_vit.load_checkpoint(same, tmp_path / "large.npz")
    assert array(same.get_layer("predictions").kernel).min() == 1
    small = keras_vit.build(TINY, classes=7, input_shape=(64, 64, 3))
    with pytest.raises(ValueError, match="head/conv2d/kernel"):
        keras_vit.load_checkpoint(small, tmp_path / "large.npz")
    keras_vit.load_checkpoint(small, tmp_path / "large.npz", skip=("resnet/head/*",))
    assert not array(small.get_layer("predictions").kernel).any()


@pytest.mark.any_backend
def test_a_zero_counts_at_the_border_of_the_pool():
    model = keras_vit.build(TINY, input_shape=(8, 8, 3), include_top=False)
    pooled = keras.Model(model.input, model.get_layer("root_pool").output)
    # Where all of a border window is negative, the greatest value is the zero outside.
    images = np.random.RandomState(0).standard_normal((4, 8, 8, 3)).astype("float32")
    corner = array(pooled(images))[:, 0, 0]
    assert corner.min() == 0 < corner.max()


def test_bit_models_have_the_units_of_their_names():
    depth = {50: 16, 101: 33, 152: 50, 200: 66}
    for name, config in keras_vit.configs.BIT.items():
        layers, width = re.fullmatch(r"BiT-R(\d+)x(\d)", name).groups()
        assert sum(config.num_blocks) == depth[int(layers)], name
        assert 3 * sum(config.num_blocks) + 2 == int(layers), name
        assert config.width_factor == int(width), name
