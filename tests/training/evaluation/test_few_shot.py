import types

import numpy as np
import pytest

from keras_vit.training.evaluation import few_shot


@pytest.fixture(scope="module")
def official(golden):
    return golden("few_shot").load()


def test_the_accuracies_are_the_official_ones_exactly(official):
    names = [name for name in official if name.startswith("accuracy/")]
    parts = ("train_features", "train_labels", "test_features", "test_labels")
    arrays = [official[part] for part in parts]
    ours = []
    for name in names:
        shots, seed, l2 = (int(part.split("_")[1]) for part in name.split("/")[1:])
        ours.append(few_shot.accuracy(*arrays, shots=shots, seed=seed, l2=l2))
    theirs = np.array([official[name] for name in names])
    assert len(ours) == 24
    np.testing.assert_allclose(ours, theirs, atol=1e-6)  # One test example is 4e-3.


@pytest.mark.parametrize(("num_examples", "dim"), [(60, 7), (7, 60), (30, 29), (29, 30)])
def test_both_forms_solve_the_normal_equations(num_examples, dim):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((num_examples, dim)) * 3 + 1
    labels = np.arange(num_examples) % 3
    linear = few_shot.LinearMap(features, labels, l2=10.0)
    x = np.hstack(
        [
            (features - features.mean(0)) / (features.std(0) + 1e-5),
            np.full((num_examples, 1), 100.0),
        ]
    )
    y = 2 * np.eye(3)[labels] - 1
    residual = x.T @ (x @ linear._weights - y) + 10.0 * linear._weights
    np.testing.assert_allclose(residual, 0, atol=1e-8)


def test_all_images_of_a_class_with_fewer_than_shots_are_taken():
    labels = np.array([0] * 9 + [1] * 2 + [4] * 5)
    chosen = few_shot.choose(labels, shots=5, seed=3)
    # big_vision's loop, in NumPy.
    rng = np.random.default_rng(3)
    expected = [rng.permutation(np.flatnonzero(labels == k))[:5] for k in range(5)]
    assert set(chosen) == set(np.concatenate(expected))
    assert np.bincount(labels[chosen]).tolist() == [5, 2, 0, 0, 5]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 0], [0, 1], "training image.*none of dog"),
        ([(1, 0), (1, 1)], [(1, 0)], "one class .*multi-label"),
        ([0, 1], [], "needs test images"),
    ],
)
def test_data_without_what_is_needed_are_refused(train, test, message):
    splits = {"train": _Labelled(train), "test": _Labelled(test)}
    source = types.SimpleNamespace(class_names=("cat", "dog"), splits=splits)
    with pytest.raises(ValueError, match=message):
        few_shot.evaluate(None, source, shots=[1])


class _Labelled(list):
    @property
    def labels(self):
        return np.array(self)
