import numpy as np
import pytest
from scipy.special import log_softmax

from keras_vit.training.evaluation.references import expected_accuracy
from keras_vit.training.evaluation.ridge import Decomposition, one_hot
from keras_vit.training.trust import wrong_labels
from keras_vit.training.trust.wrong_labels import doubts_of_classes

CLASSES, IMAGES = 5, 500
KINDS = {  # The class of a label that is wrong.
    "symmetric": lambda true, rng: (true + rng.integers(1, CLASSES, IMAGES)) % CLASSES,
    "next": lambda true, rng: (true + 1) % CLASSES,
    "pairs": lambda true, rng: np.array([1, 0, 3, 2, 2])[true],
}


def noisy(kind, share, seed=0):
    """Left-out scores of images around a point for each class, labels, and the true classes."""
    rng = np.random.default_rng(seed)
    true = np.arange(IMAGES) % CLASSES
    features = np.eye(8)[true] + 0.3 * rng.normal(size=(IMAGES, 8))
    labels = np.where(rng.random(IMAGES) < share, KINDS[kind](true, rng), true)
    ridge = Decomposition(features).ridge(one_hot(labels), [0.1, 1.0, 10.0])
    return ridge.left_out_predictions, labels, true


def found(kind, share):
    """Sums over five seeds: estimated and real wrong labels, of all and of the first 50."""
    sums = np.zeros(4)
    for seed in range(5):
        scores, labels, true = noisy(kind, share, seed)
        doubts, wrong = doubts_of_classes(scores, labels), labels != true
        first = doubts.ranked()[:50]
        sums[:2] += doubts.noise * IMAGES, wrong.sum()
        sums[2:] += doubts.probability[first].sum(), wrong[first].sum()
    return sums


def test_wrong_labels_come_first_and_the_right_class_is_proposed():
    scores, labels, true = noisy("symmetric", 0.08)
    doubts = doubts_of_classes(scores, labels)
    first = doubts.ranked()[: int((labels != true).sum() * 0.8)]
    assert np.mean(labels[first] != true[first]) > 0.95
    found = first[labels[first] != true[first]]
    assert np.mean(doubts.proposed[found] == true[found]) > 0.95
    assert (doubts.proposed != labels).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_the_estimated_numbers_of_wrong_labels_are_near_the_real_ones(kind, share):
    estimated, real, expected, wrong = found(kind, share)
    # Labels that do not stand out are not counted: more of them among 30% of one kind.
    assert 0.75 * real < estimated < 1.1 * real
    assert expected == pytest.approx(wrong, rel=0.15)


def test_right_labels_of_classes_that_the_scores_confuse_are_not_listed():
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 4
    centres = np.array([[1, 0, 0, 0], [0.6, 0.4, 0, 0], [0, 0, 1, 0], [0, 0, 0.6, 0.4]])
    features = centres[labels] + 0.3 * rng.normal(size=(3000, 4))
    scores = Decomposition(features).ridge(one_hot(labels), 1.0).left_out_predictions
    doubts = doubts_of_classes(scores, labels)
    assert np.mean(scores.argmax(axis=1) != labels) > 0.2
    assert len(doubts.ranked()) < 9  # 0.3%; 1% if all wrong labels were by pairs.
    assert doubts.noise < 0.001


def test_features_that_hardly_tell_classes_apart_judge_no_label():
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 3
    features = 0.12 * np.eye(3)[labels] @ rng.normal(size=(3, 150)) + rng.normal(size=(240, 150))
    scores = Decomposition(features).ridge(one_hot(labels), 1.0).left_out_predictions
    doubts = doubts_of_classes(scores, labels)
    assert 0.4 < np.mean(scores.argmax(axis=1) == labels) < 0.8
    assert doubts.noise > 0.02  # Labels that are right.
    assert not doubts.is_judged


@pytest.mark.parametrize("share", [0, 0.03, 0.1, 0.3])
def test_features_that_tell_classes_apart_judge_labels_however_many_are_wrong(share):
    scores, labels, _ = noisy("symmetric", share)
    assert doubts_of_classes(scores, labels).is_judged


def test_classes_that_features_confuse_are_named():
    rng = np.random.default_rng(0)
    labels = np.arange(900) % 3
    centres = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1]])
    features = centres[labels] + 0.2 * rng.normal(size=(900, 3))
    scores = Decomposition(features).ridge(one_hot(labels), 1.0).left_out_predictions
    ((first, second, apart),) = doubts_of_classes(scores, labels).confused
    assert (first, second) == (0, 1)
    assert 0.5 < apart < 0.8


def test_right_labels_of_classes_of_few_images_are_not_listed():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [1000, 1000, 100, 100])
    features = np.eye(6)[labels] + 0.5 * rng.normal(size=(2200, 6))
    scores = Decomposition(features).ridge(one_hot(labels), 1.0).left_out_predictions
    assert len(doubts_of_classes(scores, labels).ranked()) < 5  # 231 by the highest score.


def test_an_image_is_listed_from_one_chance_in_four_and_the_share_counts_the_listed():
    scores, labels, _ = noisy("symmetric", 0.1)
    doubts = doubts_of_classes(scores, labels)
    ranked = doubts.probability[doubts.ranked()]
    assert set(doubts.ranked()) == set(np.flatnonzero(doubts.probability >= 0.25))
    assert (np.diff(ranked) <= 0).all()
    assert doubts.noise == pytest.approx(ranked.sum() / IMAGES)


def test_the_logits_are_linear_discriminant_analysis_for_many_images(monkeypatch):
    analysis = pytest.importorskip("sklearn.discriminant_analysis")
    monkeypatch.setattr(wrong_labels, "_PRIOR_IMAGES", 0)
    rng = np.random.default_rng(0)
    labels = np.arange(IMAGES) % CLASSES
    scores = np.eye(CLASSES)[labels] @ rng.normal(size=(CLASSES, CLASSES)) * 0.3
    scores += rng.normal(size=(IMAGES, CLASSES)) @ rng.normal(size=(CLASSES, CLASSES))
    model = analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(scores, labels)
    logits = wrong_labels._discriminants(scores, scores, one_hot(labels))
    np.testing.assert_allclose(
        log_softmax(logits, axis=1), model.predict_log_proba(scores), atol=1e-9
    )


@pytest.mark.parametrize("images", [99, 100])
def test_fewer_than_20_images_a_class_have_no_share(images):
    scores, labels, _ = noisy("symmetric", 0.3)
    doubts = doubts_of_classes(scores[:images], labels[:images])
    assert (doubts.noise is None) == (images < 100)
    assert len(doubts.ranked()) > 0


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
