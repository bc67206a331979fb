import numpy as np
import pytest
from PIL import ExifTags, Image
from scipy import stats

from keras_vit.training.trust.copies import Fingerprint
from keras_vit.training.trust.shortcuts import (
    PhotoFacts,
    auroc,
    find_shortcuts,
    photo_facts,
    simple_numbers,
    simple_reference,
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
            "surroundings": RNG.random(768).astype("float32"),
        },
        RNG.random(30).astype("float32"),
    )


LABELS = np.arange(COUNT) % CLASSES
TARGETS = np.eye(CLASSES)[LABELS]
GROUPS = np.arange(COUNT)
CLEAN = [facts() for _ in range(COUNT)]


def changed(photo, name, value):
    return photo._replace(readings={**photo.readings, name: value})


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
    found = {shortcut.name: shortcut for shortcut in find_shortcuts(photos, TARGETS, GROUPS)}
    assert found[name].found
    assert found[name].p_value == 1 / 1000  # None of 999 permutations; never 0.
    assert found[name].class_number == 1
    assert found[name].auroc > 0.99
    assert (LABELS[found[name].images] == 1).all()
    assert [shortcut.name for shortcut in found.values() if shortcut.found] == [name]


def test_one_image_of_each_group_is_used():
    # 12 bursts of ten photos in one class each have a width: chance would do for so few.
    bursts = np.arange(COUNT) // 10
    photos = [changed(photo, "width", 100 + int(b)) for photo, b in zip(CLEAN, bursts, strict=True)]
    targets = np.eye(2)[bursts % 2]
    found = {shortcut.name: shortcut for shortcut in find_shortcuts(photos, targets, bursts)}
    assert not found["width"].found
    assert not any(shortcut.found for shortcut in found.values())


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


def blocks_of(values):
    edges = [np.linspace(0, size, 17).astype(int) for size in values.shape]
    return [
        values[top:bottom, left:right]
        for top, bottom in zip(edges[0][:-1], edges[0][1:], strict=True)
        for left, right in zip(edges[1][:-1], edges[1][1:], strict=True)
    ]


def test_simple_numbers_are_quantiles_of_the_contrast_by_block():
    image = Image.fromarray(RNG.integers(0, 256, (70, 90, 3), "uint8"))
    grey = np.asarray(image, "float64") @ [0.299, 0.587, 0.114]
    right = np.abs(np.diff(np.pad(grey, ((0, 0), (0, 1)), "reflect"), axis=1))
    found = simple_numbers(image)
    deviations = [block.std() for block in blocks_of(grey)]
    differences = [block.mean() for block in blocks_of(right)]
    # float32, and squares of 255.
    np.testing.assert_allclose(
        np.expm1(found[:8]), np.quantile(deviations, np.linspace(0, 1, 8)), rtol=1e-3
    )
    np.testing.assert_allclose(
        np.expm1(found[8:16]), np.quantile(differences, np.linspace(0, 1, 8)), rtol=1e-4
    )
    np.testing.assert_allclose(np.exp(found[-2:]), [90, 70], rtol=1e-5)
    assert found.shape == (30,)


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (40, 5)])
def test_simple_numbers_are_finite_of_small_photos(size):
    assert np.isfinite(simple_numbers(Image.new("L", size, 7))).all()


def test_simple_numbers_show_a_small_spot_wherever_it_is():
    pixels = RNG.integers(100, 110, (250, 250), "uint8")
    spotted = pixels.copy()
    spotted[31:36, 200:204] = 255
    plain, found = (simple_numbers(Image.fromarray(each)) for each in (pixels, spotted))
    moved = simple_numbers(Image.fromarray(np.roll(spotted, (125, 125), (0, 1))))
    assert found[23] > plain[23] + 0.2
    np.testing.assert_allclose(moved[23], found[23], atol=0.1)


OF_SIXTY = RNG.integers(0, 3, 60)


def facts_of(numbers, greys):
    """Facts about photos with these simple numbers and grey pixels."""
    return [
        PhotoFacts(Fingerprint(b"", None, grey.astype("uint8"), 96), {}, row)
        for row, grey in zip(numbers, greys, strict=True)
    ]


def left_out_accuracies(numbers):
    """Accuracies of scikit-learn's ridge regressions of numbers, by their regularisation."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    model_selection = pytest.importorskip("sklearn.model_selection")
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    return [
        (
            model_selection.cross_val_predict(
                linear_model.Ridge(alpha=share * 60), scaled, np.eye(3)[OF_SIXTY], cv=60
            ).argmax(axis=1)
            == OF_SIXTY
        ).mean()
        for share in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    ]


def test_the_simple_reference_is_that_of_scikit_learn_with_each_photo_left_out():
    numbers = RNG.normal(size=(60, 30)) + 0.5 * OF_SIXTY[:, np.newaxis]
    photos = facts_of(numbers, RNG.integers(0, 255, (60, 96, 96)))
    name, accuracy = simple_reference(photos, OF_SIXTY, np.arange(60))
    accuracies = left_out_accuracies(numbers)
    assert name == "thirty simple numbers of each photo"
    assert accuracy in accuracies
    assert accuracy >= min(accuracies[3:])


def test_where_pixels_are_better_they_are_the_simple_reference():
    small = RNG.integers(100, 130, (60, 24, 24))
    small[np.arange(60), 10 + OF_SIXTY] += 60  # A row of pixels by class.
    greys = np.kron(small, np.ones((4, 4)))
    photos = facts_of(RNG.normal(size=(60, 30)), greys)
    name, accuracy = simple_reference(photos, OF_SIXTY, np.arange(60))
    assert name == "24 x 24 grey pixels"
    assert accuracy in left_out_accuracies(small.reshape(60, -1))
