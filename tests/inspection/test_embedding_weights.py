import numpy as np
import pytest

import keras_vit
from keras_vit import inspection
from makers import tiny_config

TINY = tiny_config(depth=2)


def test_filter_components_are_eigenvectors_of_the_covariance(random_model):
    model = random_model(tiny_config(patch_size=2), (4, 4, 3))
    components, shares = inspection.filter_components(model, count=5)
    assert components.shape == (5, 2, 2, 3)
    filters = np.array(model.get_layer("patch_embedding").kernel).reshape(12, 16)
    values, vectors = np.linalg.eigh(np.cov(filters))
    np.testing.assert_allclose(shares, values[::-1][:5] / values.sum(), rtol=1e-5)
    for component, vector in zip(components.reshape(5, 12), vectors.T[::-1], strict=False):
        assert abs(component @ vector) == pytest.approx(1, abs=1e-5)
        assert component[np.abs(component).argmax()] > 0
    assert len(inspection.filter_components(model, count=99)[0]) == 12


def test_filters_of_a_hybrid_are_its_standardised_root_kernel(random_model):
    config = tiny_config(patch_size=1, resnet=keras_vit.configs.ResNetStem((1,), 0.5))
    model = random_model(config, (16, 16, 3))
    before = inspection.filter_components(model, 3)[0]
    assert before.shape == (3, 7, 7, 3)
    root = model.get_layer("root_conv")
    # Another scale and mean for each filter is standardised away.
    root.kernel.assign(np.array(root.kernel) * np.arange(1, 33) + 5)
    np.testing.assert_allclose(inspection.filter_components(model, 3)[0], before, atol=1e-3)


def cosine(first, second):
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


def test_position_similarity_is_the_cosine_in_each_form(random_model):
    model = random_model(TINY)
    table = np.array(model.get_layer("position_embedding").embedding)[0, 1:]
    found = inspection.position_similarity(model)["position_embedding"]
    assert found.shape == (2, 3, 2, 3)
    assert found[0, 2, 1, 1] == pytest.approx(cosine(table[2], table[4]), abs=1e-6)

    model = random_model(tiny_config(position_embedding="learned_2d"))
    layer = model.get_layer("position_embedding")
    found = inspection.position_similarity(model)
    assert {name: values.shape for name, values in found.items()} == {
        "position_embedding/x": (3, 3),
        "position_embedding/y": (2, 2),
    }
    x = np.array(layer.x_embedding)
    assert found["position_embedding/x"][0, 2] == pytest.approx(cosine(x[0], x[2]), abs=1e-6)

    model = random_model(tiny_config(position_embedding="relative"))
    table = np.array(model.get_layer("encoder_block_0").attention.offset_embedding)
    found = inspection.position_similarity(model)["encoder_block_0"]
    assert found.shape == (11, 11)
    assert found[0, 7] == pytest.approx(cosine(table[0].ravel(), table[7].ravel()), abs=1e-6)


def test_an_axial_resnet_has_a_table_for_each_axis_of_a_unit(random_model):
    config = keras_vit.configs.AxialResNetConfig((1, 2), width_factor=0.5, num_heads=2)
    similarity = inspection.position_similarity(random_model(config, (32, 48, 3)))
    assert similarity["block_2_unit_2/row"].shape == (11, 11)
    assert similarity["block_2_unit_2/column"].shape == (7, 7)
