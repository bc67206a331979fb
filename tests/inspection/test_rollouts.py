import keras
import numpy as np
import pytest

from keras_vit import inspection
from keras_vit.inspection.rollout_pictures import over_pixels
from keras_vit.inspection.rollouts import rollout_model
from makers import tiny_config

TINY = tiny_config(depth=2)


def test_rollout_equals_loops():
    rng = np.random.default_rng(3)
    layers = rng.random((3, 2, 4, 5, 5))
    layers /= layers.sum(-1, keepdims=True)
    found = inspection.rollout(iter(layers))
    for image in range(2):
        product = np.eye(5)
        for attention in layers[:, image]:
            step = np.zeros((5, 5))
            for i in range(5):
                row = [sum(attention[:, i, j]) / 4 + (i == j) for j in range(5)]
                step[i] = np.array(row) / sum(row)
            product = step @ product
        np.testing.assert_allclose(found[image], product, rtol=1e-12)
    np.testing.assert_allclose(found.sum(-1), 1)
    assert not np.allclose(found, inspection.rollout(layers[::-1]))  # The order matters.


def test_the_query_of_a_rollout_is_the_class_token_or_the_mean_over_patches(
    random_model, random_images
):
    model, batch = random_model(TINY), random_images()
    product = inspection.rollout(inspection.attention_maps(model, batch))
    found = inspection.attention_rollout(model, batch, batch_size=1)
    np.testing.assert_allclose(found, product[:, 0, 1:].reshape(2, 2, 3), atol=1e-7)
    without = random_model(tiny_config(classifier="gap"))
    product = inspection.rollout(inspection.attention_maps(without, batch))
    found = inspection.attention_rollout(without, batch)
    np.testing.assert_allclose(found, product.mean(1).reshape(2, 2, 3), atol=1e-7)


def test_a_map_covers_the_region_that_the_model_received():
    found = over_pixels(np.array([[0.0, 1.0]]), (2, 12), (0, 2, 2, 10))
    assert not found[:, :2].any()
    assert not found[:, 10:].any()
    # Patch centres at 4 and 8; pixel centres at 4.5, 5.5, 6.5 and 7.5 between them.
    np.testing.assert_allclose(found[0, 4:8], [0.125, 0.375, 0.625, 0.875])
    np.testing.assert_allclose(found[1], found[0])


def test_a_model_with_relative_positions_has_the_rollout_in_its_graph(random_model, random_images):
    model = random_model(tiny_config(depth=2, position_embedding="relative"))
    model.compile("sgd", loss=lambda targets, scores: scores)  # Without a config.
    batch = random_images()
    scores, attention = rollout_model(model)(batch)
    np.testing.assert_allclose(scores, model(batch), atol=1e-6)
    np.testing.assert_allclose(attention, inspection.attention_rollout(model, batch), atol=1e-6)


def test_a_model_around_the_backbone_is_answered_with_the_layer_to_pass(random_model):
    inner = random_model(tiny_config(), (8, 8, 3))
    images = keras.Input((8, 8, 3))
    outer = keras.Model(images, keras.layers.Dense(2)(inner(images)))
    with pytest.raises(ValueError, match=rf"pass model.get_layer\('{inner.name}'\)"):
        inspection.attention_rollout(outer, np.zeros((1, 8, 8, 3)))
