import math

import numpy as np
import pytest

from keras_vit import inspection
from makers import tiny_config

TINY = tiny_config(depth=2)


def test_a_head_that_attends_one_patch_to_the_right_has_the_distance_of_a_patch():
    down, across, patch = 2, 4, 16
    attention = np.zeros((1, 1, 9, 9))
    attention[..., 0] = 0.5  # Half of the weight is the class token's: it must not count.
    for row in range(down):
        for column in range(across):
            # At the edge to the left.
            other = column + 1 if column < across - 1 else column - 1
            attention[0, 0, 1 + row * across + column, 1 + row * across + other] = 0.5
    found = inspection.attention_distance(attention, (down, across), (patch, patch), 1)
    assert found == pytest.approx(patch, abs=1e-12)
    taller = inspection.attention_distance(attention, (down, across), (99, 7), 1)
    assert taller == pytest.approx(7, abs=1e-12)


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


def test_mean_attention_distance_does_not_depend_on_the_batch_size(random_model, random_images):
    model, batch = random_model(TINY), random_images(count=3)
    whole = inspection.mean_attention_distance(model, batch, batch_size=3)
    assert whole.shape == (2, 2)
    parts = inspection.mean_attention_distance(model, batch, batch_size=2)
    np.testing.assert_allclose(whole, parts, rtol=1e-5)


def test_a_head_that_attends_to_no_patch_has_no_distance():
    attention = np.zeros((1, 2, 5, 5))
    attention[..., 0] = 1.0  # The class token alone.
    attention[0, 1, 1, 2] = 1.0
    found = inspection.attention_distance(attention, (2, 2), (16, 16), 1)
    assert np.isnan(found[0, 0])
    assert found[0, 1] == 16  # One query sees a patch.
