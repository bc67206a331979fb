import sys

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
    config = tiny_config(patch_size=1, resnet=keras_vit.ResNetStem((1,), 0.5))
    model = random_model(config, (16, 16, 3))
    before = inspection.filter_components(model, 3)[0]
    assert before.shape == (3, 7, 7, 3)
    root = model.get_layer("root_conv")
    # Another scale and mean for each filter is standardised away.
    root.kernel.assign(np.array(root.kernel) * np.arange(1, 33) + 5)
    np.testing.assert_allclose(inspection.filter_components(model, 3)[0], before, atol=1e-3)


def test_filters_are_drawn_on_one_scale():
    components = np.stack([np.full((2, 2, 3), value) for value in (-1.0, 0.0, 3.0)])
    drawing = inspection.draw_filters(components)
    shown = [axes.images[0].get_array()[0, 0, 0] for axes in drawing.axes]
    assert shown == [0, 0.25, 1]


def test_without_matplotlib_numbers_remain_and_drawing_names_the_extra(random_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    components, _ = inspection.filter_components(random_model(TINY), 2)
    with pytest.raises(ImportError, match=r"needs .* matplotlib: .*\[plots\]"):
        inspection.draw_filters(components)
