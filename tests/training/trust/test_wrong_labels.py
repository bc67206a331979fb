import numpy as np
import pytest

from keras_vit.training.evaluation.ridge import Decomposition, one_hot
from keras_vit.training.trust.wrong_labels import doubts_of_classes

CLASSES, IMAGES = 4, 400


def noisy(share, seed=0, spread=0.6):
    """Left-out scores of images around a point for each class, labels, and which are wrong."""
    rng = np.random.default_rng(seed)
    true = np.arange(IMAGES) % CLASSES
    features = np.eye(8)[true] + spread / 2 * rng.normal(size=(IMAGES, 8))
    wrong = rng.random(IMAGES) < share
    labels = np.where(wrong, (true + rng.integers(1, CLASSES, IMAGES)) % CLASSES, true)
    ridge = Decomposition(features).ridge(one_hot(labels), [0.1, 1.0, 10.0])
    return ridge.left_out_predictions, labels, true


def test_wrong_labels_come_first_and_the_right_class_is_proposed():
    scores, labels, true = noisy(0.08)
    doubts = doubts_of_classes(scores, labels)
    first = doubts.ranked()[: int((labels != true).sum() * 0.8)]
    assert np.mean(labels[first] != true[first]) > 0.95
    found = first[labels[first] != true[first]]
    assert np.mean(doubts.proposed[found] == true[found]) > 0.95
    assert (doubts.proposed != labels).all()


@pytest.mark.parametrize("share", [0.0, 0.04, 0.15])
def test_the_expected_number_of_wrong_labels_is_near_the_real_one(share):
    expected, real = 0.0, 0
    for seed in range(5):
        scores, labels, true = noisy(share, seed)
        doubts = doubts_of_classes(scores, labels)
        first = doubts.ranked()[:50]
        expected += doubts.probability[first].sum()
        real += (labels[first] != true[first]).sum()
    assert expected == pytest.approx(real, abs=3 * np.sqrt(real) + 10)


def test_an_image_is_listed_by_the_thresholds_of_confident_learning():
    scores, labels, _ = noisy(0.1)
    doubts = doubts_of_classes(scores, labels)
    given = np.exp(doubts.confidence)
    thresholds = [given[labels == k].mean() for k in range(CLASSES)]
    assert doubts.listed.any()
    assert (given[doubts.listed] < np.take(thresholds, labels[doubts.listed])).all()
    assert (given[doubts.listed] < 0.5).all()
    assert set(doubts.ranked()) == set(np.flatnonzero(doubts.listed))
    assert (np.diff(doubts.confidence[doubts.ranked()]) >= 0).all()


def test_confidences_are_linear_discriminant_analysis_for_many_images(monkeypatch):
    analysis = pytest.importorskip("sklearn.discriminant_analysis")
    monkeypatch.setattr("keras_vit.training.trust.wrong_labels._PRIOR_IMAGES", 0)
    monkeypatch.setattr("keras_vit.training.trust.wrong_labels._FITS", 1)
    rng = np.random.default_rng(0)
    labels = np.arange(IMAGES) % CLASSES
    scores = np.eye(CLASSES)[labels] @ rng.normal(size=(CLASSES, CLASSES)) * 0.3
    scores += rng.normal(size=(IMAGES, CLASSES)) @ rng.normal(size=(CLASSES, CLASSES))
    model = analysis.LinearDiscriminantAnalysis(solver="lsqr").fit(scores, labels)
    expected = model.predict_log_proba(scores)[np.arange(IMAGES), labels]
    np.testing.assert_allclose(doubts_of_classes(scores, labels).confidence, expected, atol=1e-9)


def test_the_share_of_wrong_labels_counts_only_where_a_label_is_listed():
    labels = np.arange(40) % 2
    scores = one_hot(labels) + 0.02 * np.random.default_rng(0).normal(size=(40, 2))
    doubts = doubts_of_classes(scores, labels)
    assert not doubts.listed.any()
    assert doubts.noise == 0  # Not 1 / 41, as if one wrong label had been seen.
