import math

import numpy as np

from keras_vit import inspection
from makers import tiny_config


def test_attention_distance_equals_loops():
    rng = np.random.default_rng(2)
    attention = rng.random((2, 3, 8, 8))
    grid, patch = (2, 3), (4, 5)
    expected = np.zeros((2, 3))
    for image in range(2):
        for head in range(3):
            means = []
            for q in range(6):
                weights = attention[image, head, 2 + q, 2:]
                distances = [
                    math.hypot(4 * (q // 3 - k // 3), 5 * (q % 3 - k % 3)) for k in range(6)
                ]
                means.append(np.dot(weights, distances) / weights.sum())
            expected[image, head] = np.mean(means)
    found = inspection.attention_distance(attention, grid, patch, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_mean_is_over_images_of_each_head(random_model, random_images):
    model, batch = random_model(tiny_config(depth=2)), random_images(count=3)
    found = inspection.mean_attention_distance(model, batch, batch_size=2)
    maps = inspection.attention_maps(model, batch)
    expected = [inspection.attention_distance(m, (2, 3), (4, 4), 1).mean(0) for m in maps]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_head_that_attends_to_no_patch_has_no_distance():
    attention = np.zeros((1, 2, 5, 5))
    attention[..., 0] = 1.0  # The class token alone.
    attention[0, 1, 1, 2] = 1.0
    found = inspection.attention_distance(attention, (2, 2), (16, 16), 1)
    assert np.isnan(found[0, 0])
    assert found[0, 1] == 16  # One query sees a patch.
