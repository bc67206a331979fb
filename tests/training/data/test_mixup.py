import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_vit.training.data.augmentations import AUGMENTATIONS, AUGREG, MIXUP
from keras_vit.training.data.batches import mixed, mixup

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


def test_batches_are_mixed_by_their_step():
    labels = np.arange(5, dtype="int32")
    batches = tf.data.Dataset.from_tensors((IMAGES, labels)).repeat()
    options = {"parameter": 0.5, "num_classes": 7, "seed": 3}
    whole = list(mixed(batches, **options).take(4).as_numpy_iterator())
    rest = list(mixed(batches, **options, start_step=2).take(2).as_numpy_iterator())
    assert whole[0][1].shape == (5, 7)
    assert whole[0][1][0, 0] != whole[1][1][0, 0]
    for (images, labels), (again, labels_again) in zip(whole[2:], rest, strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(labels, labels_again)


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
