import dataclasses

import numpy as np
import pytest
from scipy import stats

from keras_vit.training.trust.photo_facts import PhotoFacts
from keras_vit.training.trust.shortcuts import auroc, find_shortcuts

COUNT, CLASSES = 120, 3
RNG = np.random.default_rng(0)
FINGERPRINT = None


def facts(**changes):
    values = {
        "height": 100,
        "width": 100,
        "size": int(RNG.integers(1000, 9000)),
        "file_format": "JPEG",
        "quality": 90.0,
        "camera": "",
        "brightness": float(RNG.uniform(50, 200)),
        "ring": RNG.random(51).astype("float32"),
        "surroundings": RNG.random(768).astype("float32"),
        "fingerprint": FINGERPRINT,
    }
    return PhotoFacts(**{**values, **changes})


LABELS = np.arange(COUNT) % CLASSES
TARGETS = np.eye(CLASSES)[LABELS]
GROUPS = np.arange(COUNT)
CLEAN = [facts() for _ in range(COUNT)]


def with_class(**changes):
    """The clean photos, with other facts in the class 1."""
    return [
        dataclasses.replace(photo, **changes) if label == 1 else photo
        for photo, label in zip(CLEAN, LABELS, strict=True)
    ]


def test_clean_photos_have_no_shortcut():
    found = find_shortcuts(CLEAN, TARGETS, GROUPS)
    assert [shortcut.name for shortcut in found if shortcut.found] == []
    # What all photos share tells nothing apart and is not tried.
    assert {shortcut.name for shortcut in found} == {
        "bytes of the file",
        "brightness",
        "border",
        "surroundings",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("width", {"width": 101}),
        ("height", {"height": 64}),
        ("camera", {"camera": "Maker Model"}),
        ("file format and JPEG quality", {"quality": 75.0}),
        ("file format and JPEG quality", {"file_format": "PNG", "quality": float("nan")}),
        ("brightness", {"brightness": 20.0}),
        ("bytes of the file", {"size": 20_000}),
        ("border", {"ring": np.zeros(51, "float32")}),
    ],
)
def test_a_fact_that_only_one_class_has_is_a_shortcut(name, changes):
    found = {
        shortcut.name: shortcut
        for shortcut in find_shortcuts(with_class(**changes), TARGETS, GROUPS)
    }
    assert found[name].found
    assert found[name].p_value == 1 / 1000  # None of 999 permutations; never 0.
    assert found[name].class_number == 1
    assert found[name].auroc > 0.99
    assert (LABELS[found[name].images] == 1).all()
    assert [shortcut.name for shortcut in found.values() if shortcut.found] == [name]


def test_one_image_of_each_group_is_used():
    # 12 bursts of ten photos in one class each have a width: chance would do for so few.
    bursts = np.arange(COUNT) // 10
    photos = [
        dataclasses.replace(photo, width=100 + int(b))
        for photo, b in zip(CLEAN, bursts, strict=True)
    ]
    targets = np.eye(2)[bursts % 2]
    found = {shortcut.name: shortcut for shortcut in find_shortcuts(photos, targets, bursts)}
    assert not found["width"].found
    assert not any(shortcut.found for shortcut in found.values())


def test_the_auroc_is_that_of_the_rank_sum_test():
    scores = np.round(RNG.normal(size=60), 1)  # With ties.
    positive = RNG.random(60) < 0.4
    expected = stats.mannwhitneyu(scores[positive], scores[~positive]).statistic
    assert auroc(scores, positive) == pytest.approx(expected / positive.sum() / (~positive).sum())
