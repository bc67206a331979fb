import numpy as np
import pytest

from keras_vit.training.evaluation.nearest import nearest, neighbour_accuracy

RNG = np.random.default_rng(0)
TRAIN, TEST = RNG.normal(size=(40, 6)), RNG.normal(size=(25, 6))
TRAIN_LABELS, TEST_LABELS = RNG.integers(0, 4, 40), RNG.integers(0, 4, 25)


@pytest.mark.parametrize("count", [1, 4, 20])
def test_the_vote_is_that_of_scikit_learn(count):
    neighbors = pytest.importorskip("sklearn.neighbors")
    classifier = neighbors.KNeighborsClassifier(count, metric="cosine", algorithm="brute")
    expected = classifier.fit(TRAIN, TRAIN_LABELS).score(TEST, TEST_LABELS)
    found = neighbour_accuracy(TRAIN, TRAIN_LABELS, TEST, TEST_LABELS, count=count)
    assert found == pytest.approx(expected)


def test_neighbours_are_in_the_order_of_the_cosine():
    numbers, cosines = nearest(TRAIN, TEST, 40)
    for query, row, values in zip(TEST, numbers, cosines, strict=True):
        angles = [query @ t / np.linalg.norm(query) / np.linalg.norm(t) for t in TRAIN]
        np.testing.assert_allclose(values, sorted(angles, reverse=True), atol=1e-6)
        np.testing.assert_allclose(np.array(angles)[row], values, atol=1e-6)


def test_an_image_is_nearest_to_itself_and_the_first_of_equals_wins():
    numbers, cosines = nearest([[1, 0], [0, 2], [0, 1]], [[0, 5.0]], 2)
    assert numbers.tolist() == [[1, 2]]
    assert cosines.tolist() == [[1.0, 1.0]]


def test_wrong_features_are_refused():
    with pytest.raises(ValueError, match="same size. Received: 6 and 5"):
        nearest(TRAIN, TEST[:, :5], 1)
    with pytest.raises(ValueError, match="count must be from 1 to 40"):
        nearest(TRAIN, TEST, 41)
    with pytest.raises(ValueError, match="shape"):
        nearest(TRAIN[0], TEST, 1)


def test_many_classes_and_rows_give_the_same_vote(monkeypatch):
    votes = np.random.default_rng(1).integers(0, 10, 40) * 10_000  # Most numbers have no image.
    numbers, _ = nearest(TRAIN, TEST, 7)
    counts = [np.bincount(votes[row]) for row in numbers]
    expected = np.mean([count.argmax() == 30_000 for count in counts])
    monkeypatch.setattr("keras_vit.training.evaluation.nearest._SIMILARITIES", 3 * len(TRAIN))
    found = neighbour_accuracy(TRAIN, votes, TEST, np.full(len(TEST), 30_000), count=7)
    assert 0 < found == pytest.approx(expected)
