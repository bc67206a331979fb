import numpy as np
import pytest
from PIL import ExifTags, Image
from scipy import stats

from keras_vit.training.trust.shortcuts import (
    PhotoFacts,
    auroc,
    find_shortcuts,
    photo_facts,
)
from makers import encode, smooth_picture

COUNT, CLASSES = 120, 3
RNG = np.random.default_rng(0)


def facts():
    return PhotoFacts(
        None,
        {
            "height": 100,
            "width": 100,
            "bytes of the file": int(RNG.integers(1000, 9000)),
            "file format and JPEG quality": "JPEG 90",
            "brightness": float(RNG.uniform(50, 200)),
            "border": RNG.random(51).astype("float32"),
            "background": RNG.random(768).astype("float32"),
        },
        RNG.random(30).astype("float32"),
        False,
    )


LABELS = np.arange(COUNT) % CLASSES
GROUPS = np.arange(COUNT)
CLEAN = [facts() for _ in range(COUNT)]


def changed(photo, name, value):
    return photo._replace(readings={**photo.readings, name: value})


def test_clean_photos_have_no_shortcut():
    found = find_shortcuts(CLEAN, LABELS, GROUPS)
    assert [shortcut.name for shortcut in found if shortcut.is_strong] == []
    # What all photos share tells nothing apart and is not tried.
    assert {shortcut.name for shortcut in found} == {
        "bytes of the file",
        "brightness",
        "border",
        "background",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", 101),
        ("height", 64),
        ("file format and JPEG quality", "JPEG 75"),
        ("brightness", 20.0),
        ("bytes of the file", 20_000),
        ("border", np.zeros(51, "float32")),
    ],
)
def test_a_fact_that_only_one_class_has_is_a_shortcut(name, value):
    photos = [
        changed(photo, name, value) if label == 1 else photo
        for photo, label in zip(CLEAN, LABELS, strict=True)
    ]
    found = {shortcut.name: shortcut for shortcut in find_shortcuts(photos, LABELS, GROUPS)}
    assert found[name].is_strong
    assert found[name].p_value == 1 / 1000  # None of 999 permutations; never 0.
    assert found[name].class_number == 1
    assert found[name].auroc > 0.99
    assert (LABELS[found[name].images] == 1).all()
    assert [shortcut.name for shortcut in found.values() if shortcut.is_strong] == [name]


def test_one_image_of_each_group_is_used():
    # 12 bursts of ten photos in one class each have a width: chance would do for so few.
    bursts = np.arange(COUNT) // 10
    photos = [changed(photo, "width", 100 + int(b)) for photo, b in zip(CLEAN, bursts, strict=True)]
    found = {shortcut.name: shortcut for shortcut in find_shortcuts(photos, bursts % 2, bursts)}
    assert not found["width"].is_strong
    assert not any(shortcut.is_strong for shortcut in found.values())


def test_the_auroc_is_that_of_the_rank_sum_test():
    scores = np.round(RNG.normal(size=60), 1)  # With ties.
    positive = RNG.random(60) < 0.4
    expected = stats.mannwhitneyu(scores[positive], scores[~positive]).statistic
    assert auroc(scores, positive) == pytest.approx(expected / positive.sum() / (~positive).sum())


def picture(height, width):
    return smooth_picture(RNG, (height, width), (5, 5))


def test_a_photo_is_upright():
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    facts = photo_facts(encode(picture(150, 200), "JPEG", exif=exif, quality=90)).readings
    assert (facts["height"], facts["width"]) == (200, 150)


@pytest.mark.parametrize("quality", [10, 30, 50, 75, 90, 95])
def test_the_quality_of_a_jpeg_is_that_of_its_tables(quality):
    facts = photo_facts(encode(picture(64, 64), "JPEG", quality=quality)).readings
    kind, found = facts["file format and JPEG quality"].split()
    assert kind == "JPEG"
    assert int(found) == pytest.approx(quality, abs=5)
