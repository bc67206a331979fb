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
