import tracemalloc

import numpy as np
import pytest

from keras_vit.training.evaluation.references import expected_accuracy
from keras_vit.training.evaluation.ridge import L2_SHARES, Decomposition, one_hot
from keras_vit.training.trust.wrong_labels import doubts_of_classes

CLASSES, IMAGES = 5, 500
KINDS = {  # The class of a label that is wrong.
    "symmetric": lambda true, rng: (true + rng.integers(1, CLASSES, IMAGES)) % CLASSES,
    "next": lambda true, rng: (true + 1) % CLASSES,
    "pairs": lambda true, rng: np.array([1, 0, 3, 2, 2])[true],
}


def doubts_of(features, labels, l2=1.0):
    decomposition = Decomposition(features)
    return doubts_of_classes(lambda: decomposition.left_out_scores(labels, l2), labels)


def noisy(kind, share, seed=0):
    """Features around a point for each class, labels of which a share is wrong, and the truth."""
    rng = np.random.default_rng(seed)
    true = np.arange(IMAGES) % CLASSES
    features = np.eye(8)[true] + 0.3 * rng.normal(size=(IMAGES, 8))
    labels = np.where(rng.random(IMAGES) < share, KINDS[kind](true, rng), true)
    return features, labels, true


def test_wrong_labels_come_first_and_the_right_class_is_proposed():
    features, labels, true = noisy("symmetric", 0.08)
    doubts = doubts_of(features, labels)
    first = doubts.ranked()[: int((labels != true).sum() * 0.8)]
    assert np.mean(labels[first] != true[first]) > 0.95
    found = first[labels[first] != true[first]]
    assert np.mean(doubts.proposed[found] == true[found]) > 0.95
    assert (doubts.proposed != labels).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.03, 0.1])
def test_most_wrong_labels_are_listed_and_few_right_ones(kind, share):
    features, labels, true = noisy(kind, share)
    listed = doubts_of(features, labels).ranked()
    wrong = labels != true
    assert wrong[listed].sum() > 0.7 * wrong.sum()
    assert (~wrong[listed]).sum() < 0.03 * IMAGES


def test_the_order_is_by_how_far_the_other_class_is_ahead():
    doubts = doubts_of(*noisy("symmetric", 0.1)[:2])
    ranked = doubts.score[doubts.ranked()]
    assert (np.diff(ranked) <= 0).all()
    assert set(doubts.ranked()) == set(np.flatnonzero(doubts.score >= doubts.least))


def test_a_label_is_listed_if_it_is_doubted_as_clearly_as_three_of_four_are_agreed_with():
    doubts = doubts_of(*noisy("symmetric", 0.1)[:2])
    agreed = -doubts.score[doubts.score < 0]
    assert (agreed >= doubts.least).mean() == pytest.approx(0.75, abs=0.01)


def test_the_class_of_the_highest_score_is_that_of_the_ridge_regression():
    features, labels, _ = noisy("next", 0.1)
    ridge = Decomposition(features).ridge(one_hot(labels), 1.0)
    named = doubts_of(features, labels).named
    np.testing.assert_array_equal(named, ridge.left_out_predictions.argmax(axis=1))


def test_of_right_labels_that_the_scores_confuse_the_unclear_ones_are_not_listed():
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 4
    centres = np.array([[1, 0, 0, 0], [0.6, 0.4, 0, 0], [0, 0, 1, 0], [0, 0, 0.6, 0.4]])
    doubts = doubts_of(centres[labels] + 0.3 * rng.normal(size=(3000, 4)), labels)
    others = np.sum(doubts.named != labels)
    assert others > 0.2 * 3000
    assert len(doubts.ranked()) < others / 2


def test_classes_that_features_confuse_are_named():
    rng = np.random.default_rng(0)
    labels = np.arange(900) % 3
    centres = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1]])
    assert doubts_of(centres[labels] + 0.2 * rng.normal(size=(900, 3)), labels).confused == [(0, 1)]


def test_right_labels_of_classes_of_few_images_are_not_listed():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [1000, 1000, 100, 100])
    features = np.eye(6)[labels] + 0.5 * rng.normal(size=(2200, 6))
    assert (
        doubts_of(features, labels).ranked() >= 2000
    ).sum() < 20  # 200 images have a wrong label.


def test_memory_does_not_grow_with_the_square_of_classes():
    rng, peaks = np.random.default_rng(0), []
    for classes in (2000, 4000):
        labels = np.arange(2 * classes) % classes
        features = rng.normal(size=(2 * classes, 8)).astype("float32")
        tracemalloc.start()
        doubts_of(features, labels)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
    assert peaks[1] < 4000 * 8000 * 8  # One score of each image and class: 256 MB.


def test_the_scores_a_few_rows_at_a_time_are_those_of_ridge_regression():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 20)), rng.integers(0, 4, 60)
    groups = np.repeat(np.arange(45), [2] * 15 + [1] * 30)
    decomposition = Decomposition(features)
    choices = decomposition.l2_of(L2_SHARES)
    ridge = decomposition.ridge(one_hot(labels), choices, groups=groups)
    assert decomposition.chosen_l2(labels, choices, groups=groups) == ridge.l2
    scores = np.zeros((60, 4))
    for places, rows in decomposition.left_out_scores(labels, ridge.l2, groups=groups):
        scores[places] = rows
    np.testing.assert_allclose(scores, ridge.left_out_predictions, atol=1e-12)


def test_the_scores_are_those_of_a_loop_that_leaves_each_row_out():
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(30, 6)), np.arange(30) % 3
    found = dict(
        (int(place), row)
        for places, rows in Decomposition(features).left_out_scores(labels, 2.0)
        for place, row in zip(places, rows, strict=True)
    )
    for place in range(30):
        others = np.arange(30) != place
        model = linear_model.Ridge(alpha=2.0).fit(features[others], one_hot(labels)[others])
        # The map is centred with all rows; scikit-learn's with the others.
        np.testing.assert_allclose(found[place], model.predict(features[[place]])[0], atol=1e-9)


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
