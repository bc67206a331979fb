import numpy as np
import pytest

from keras_vit.training.evaluation.ridge import Ridge, one_hot
from keras_vit.training.trust.learning_curve import learning_curve, right_answers
from keras_vit.training.trust.photo_check import expected_accuracy

SHARES = (1e-3, 1e-2, 1e-1, 1.0)


def blobs(count, rng):
    labels = rng.integers(0, 4, count)
    return np.eye(4, 40)[labels] * 2 + rng.normal(size=(count, 40)), labels


def left_out(features, labels):
    l2 = [len(labels) * share for share in SHARES]
    predictions = Ridge.fit(features, one_hot(labels, 4), l2).left_out_predictions
    return (predictions.argmax(axis=1) == labels).astype(float)


def test_twice_as_many_images_give_about_the_predicted_accuracy():
    inside = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        features, labels = blobs(1600, rng)
        half = left_out(features[:800], labels[:800])
        curve = learning_curve(
            features[:800], one_hot(labels[:800]), half, np.arange(800), SHARES, seed=seed
        )
        assert curve.sizes == (100, 200, 400, 800)
        assert curve.accuracies[-1] == pytest.approx(half.mean())
        assert curve.interval[0] <= curve.doubled <= curve.interval[1]
        low, high = curve.interval
        real = left_out(features, labels).mean()
        inside += low - 0.01 <= real <= high + 0.01
    assert inside >= 5


def test_more_images_are_never_predicted_to_be_worse():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    features = rng.normal(size=(400, 5))  # Nothing to learn.
    right = np.full(400, 0.6)  # By chance.
    curve = learning_curve(features, one_hot(labels), right, np.arange(400), SHARES)
    assert curve.doubled >= curve.accuracies[-1]


def test_images_without_an_error_are_not_predicted_to_have_any():
    labels = np.arange(40) % 2
    features = one_hot(labels) + 0.01 * np.random.default_rng(0).normal(size=(40, 2))
    curve = learning_curve(features, one_hot(labels), np.ones(40), np.arange(40), SHARES)
    assert curve.accuracies == (1, 1, 1, 1)
    assert curve.doubled == curve.interval[1] == 1
    assert 0.9 < curve.interval[0] < 1


def test_a_class_of_few_images_has_no_learning_curve():
    labels = np.array([0] * 50 + [1] * 10)
    features = np.random.default_rng(0).normal(size=(60, 3))
    assert learning_curve(features, one_hot(labels), labels * 1.0, np.arange(60), SHARES) is None


def test_right_answers_of_multi_label_images_are_shares_of_decisions():
    targets = np.array([[1, 0], [1, 1]])
    predictions = np.array([[0.9, 0.1], [0.6, 0.2]])
    assert right_answers(predictions, targets, True).tolist() == [1.0, 0.5]
    assert right_answers(np.array([[0.9, 0.1], [0.2, 0.6]]), np.eye(2)[[0, 0]], False).tolist() == [
        1,
        0,
    ]


def test_multi_label_images_of_one_label_each_are_judged_by_all_decisions():
    rng = np.random.default_rng(0)
    features, labels = blobs(320, rng)
    targets, alike = one_hot(labels, 4), np.full(320, 0.97)
    several = learning_curve(features, targets, alike, np.arange(320), SHARES, multilabel=True)
    one = learning_curve(features, targets, alike, np.arange(320), SHARES)
    assert several.accuracies[0] > one.accuracies[0]  # A wrong class is two of four decisions.


def test_the_interval_of_independent_images_is_wilsons():
    right = np.array([1.0] * 90 + [0.0] * 10)
    found = expected_accuracy(right, np.arange(100))
    assert found.accuracy == pytest.approx(0.9)
    assert (found.low, found.high) == pytest.approx((0.8256, 0.9448), abs=1e-4)


def test_an_image_in_ten_copies_counts_once():
    right = np.repeat([1.0] * 9 + [0.0], 10)
    found = expected_accuracy(right, np.repeat(np.arange(10), 10))
    expected = expected_accuracy(np.array([1.0] * 9 + [0.0]), np.arange(10))
    assert found == pytest.approx(expected)
