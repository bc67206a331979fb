import numpy as np
import pytest

from keras_vit.training.trust.photo_check import expected_accuracy


def test_the_interval_of_independent_images_is_wilsons():
    right = np.array([1.0] * 90 + [0.0] * 10)
    assert expected_accuracy(right, np.arange(100)) == pytest.approx(
        (0.9, 0.8256, 0.9448), abs=1e-4
    )


def test_an_image_in_ten_copies_counts_once():
    right = np.repeat([1.0] * 9 + [0.0], 10)
    found = expected_accuracy(right, np.repeat(np.arange(10), 10))
    expected = expected_accuracy(np.array([1.0] * 9 + [0.0]), np.arange(10))
    assert found == pytest.approx(expected)
