import numpy as np
import pytest

from keras_vit.training.checks.splitting import grouped_split

RNG = np.random.default_rng(0)


def shares(parts, targets):
    return {
        part: targets[parts == part].sum(axis=0) / targets.sum(axis=0)
        for part in ("train", "validation", "test")
    }


def test_classes_are_in_proportion_in_every_part():
    targets = np.eye(3)[RNG.choice(3, 1000, p=[0.7, 0.2, 0.1])]
    found = shares(grouped_split(targets, np.arange(1000)), targets)
    np.testing.assert_allclose(found["test"], 0.2, atol=0.01)
    np.testing.assert_allclose(found["validation"], 0.1, atol=0.01)


def test_groups_stay_together():
    groups = RNG.integers(0, 120, 1000)
    targets = np.eye(4)[groups % 4]
    parts = grouped_split(targets, groups)
    assert all(len(set(parts[groups == group])) == 1 for group in np.unique(groups))
    found = shares(parts, targets)
    np.testing.assert_allclose(found["test"], 0.2, atol=0.06)
    np.testing.assert_allclose(found["validation"], 0.1, atol=0.06)


@pytest.mark.parametrize(
    ("count", "parts"),
    [(1, {"train"}), (2, {"train", "test"}), (3, {"train", "test", "validation"})],
)
def test_a_class_of_few_images_is_in_as_many_parts_as_it_can(count, parts):
    targets = np.eye(2)[[0] * 100 + [1] * count]
    found = grouped_split(targets, np.arange(100 + count))
    assert set(found[100:]) == parts


def test_multi_label_images_are_in_proportion_and_images_without_labels_too():
    targets = (RNG.random((2000, 5)) < 0.2).astype(int)
    parts = grouped_split(targets, np.arange(2000))
    np.testing.assert_allclose(shares(parts, targets)["test"], 0.2, atol=0.04)
    none = targets.sum(axis=1) == 0
    assert (parts[none] == "test").mean() == pytest.approx(0.2, abs=0.04)


def test_the_seed_decides():
    targets = np.eye(2)[np.arange(100) % 2]
    first, again, other = (grouped_split(targets, np.arange(100), seed=seed) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
