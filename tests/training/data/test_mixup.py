import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_vit.training.data.augmentations import AUGMENTATIONS, AUGREG, MIXUP, mixup

IMAGES = np.random.RandomState(0).randn(5, 2, 2, 3).astype("float32")
LABELS = np.eye(5, dtype="float32")


def key(number):
    return tf.constant([1, number], tf.int64)


def test_each_example_is_blended_with_the_one_before():
    images, labels = mixup(IMAGES, LABELS, key(0), 0.5)
    share = labels[0, 0]
    expected = share * IMAGES + (1 - share) * np.roll(IMAGES, 1, axis=0)
    np.testing.assert_allclose(images, expected, atol=1e-6)
    np.testing.assert_allclose(
        labels, share * LABELS + (1 - share) * np.roll(LABELS, 1, axis=0), atol=1e-6
    )
    np.testing.assert_allclose(np.sum(labels, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("parameter", [0.2, 0.8])
def test_the_share_is_the_larger_part_of_a_beta_variable(parameter):
    mix = tf.function(lambda key: mixup(IMAGES, LABELS, key, parameter)[1][0, 0])
    shares = np.array([mix(key(number)) for number in range(500)])
    assert shares.min() >= 0.5

    def cumulative(share):
        beta = stats.beta(parameter, parameter)
        return beta.cdf(share) - beta.cdf(1 - share)

    assert stats.kstest(shares, cumulative).pvalue > 1e-3


def test_a_tiny_parameter_gives_numbers():
    images, _ = mixup(IMAGES, LABELS, key(0), 1e-6)
    assert np.isfinite(images).all()


def test_augreg_settings_equal_the_papers():
    assert AUGREG == {
        "light1": (0.0, 0),
        "light2": (0.2, 10),
        "medium1": (0.2, 15),
        "medium2": (0.5, 15),
        "strong1": (0.5, 20),
        "strong2": (0.8, 20),
    }
    assert set(AUGREG) <= set(AUGMENTATIONS)
    assert set(MIXUP) == set(AUGREG) - {"light1"}
