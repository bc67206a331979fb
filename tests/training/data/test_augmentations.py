import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from keras_vit.images.decoding import apply_preprocessing
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data.augmentations import AUGMENTATIONS, AUGREG, MIXUP, View, augment, mixup
from keras_vit.training.settings import FLIPS, FineTuning
from keras_vit.utils.fields import field_info
from makers import encode

SIZE = (20, 30)


def coordinates(height, width):
    """An image whose pixels hold their place: row, column, 128."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, np.full_like(rows, 128)], -1).astype("uint8")


def augmented(name, encoded, count, value_range=(0, 255), size=SIZE, flip=None):
    view = View(size, value_range)
    function = tf.function(
        lambda encoded, key: augment(name, encoded, key, view, flip), autograph=False
    )
    keys = [tf.constant([0, number], tf.int64) for number in range(count)]
    return np.stack([function(tf.constant(encoded), key) for key in keys])


# AugReg's settings differ only in numbers.
NAMES = [*(name for name in AUGMENTATIONS if name not in AUGREG), "medium1"]


@pytest.fixture(scope="module")
def crops():
    """Inception crops of an image whose pixels hold their place."""
    return augmented("inception_crop", encode(coordinates(200, 200)), 400)


def test_the_setting_names_each_augmentation():
    (field,) = (field for field in dataclasses.fields(FineTuning) if field.name == "augmentation")
    words = re.findall(r"\w+", field_info(field).help.partition(":")[2])
    assert set(words) - {"or", "AugReg", "s"} == set(AUGMENTATIONS)


@pytest.mark.parametrize("name", NAMES)
def test_every_augmentation_gives_the_size_and_the_range(name):
    pixels = np.random.RandomState(0).randint(0, 256, (60, 50, 3), dtype="uint8")
    images = augmented(name, encode(pixels, "JPEG"), 5, (-1.0, 1.0))
    assert images.shape == (5, *SIZE, 3)
    assert images.dtype == np.float32
    assert images.min() >= -1
    assert images.max() <= 1
    assert images.std() > 0.2


@pytest.mark.parametrize("name", ["inception_crop", "resize_small_random_crop", "flip"])
def test_half_of_the_images_are_flipped(name, crops):
    if name == "inception_crop":
        images = crops[:300]
    else:
        images = augmented(name, encode(coordinates(200, 200)), 300)
    flipped = images[:, 10, 0, 1] > images[:, 10, -1, 1]
    assert 0.4 < flipped.mean() < 0.6


@pytest.mark.parametrize("name", NAMES)
def test_flips_are_a_setting_apart_from_the_augmentation(name):
    """The same key without flips gives the image before it is reversed."""
    pixels = encode(coordinates(80, 120))
    usual = "never" if name in ("jitter", "none") else "horizontal"
    images = {usual: augmented(name, pixels, 24, flip=usual)}
    np.testing.assert_array_equal(augmented(name, pixels, 24), images[usual])
    if name in AUGREG:  # RandAugment turns the flipped image.
        return
    images |= {flip: augmented(name, pixels, 24, flip=flip) for flip in {*FLIPS} - {usual}}
    for flip, every in {"horizontal": {(), (1,)}, "both": {(), (0,), (1,), (0, 1)}}.items():
        found = set()
        for never, image in zip(images["never"], images[flip], strict=True):
            same = [s for s in every if np.allclose(image, np.flip(never, s), atol=0.01)]
            found.add(*same)  # Exactly one.
        assert found == every


def test_an_image_without_augmentation_is_as_in_evaluation():
    pixels = np.random.RandomState(0).randint(0, 256, (60, 50, 3), dtype="uint8")
    (image,) = augmented("none", encode(pixels), 1, (-1.0, 1.0))
    np.testing.assert_array_equal(image, apply_preprocessing(pixels, Preprocessing(SIZE)))


def test_a_padded_crop_moves_the_image_by_up_to_an_eighth():
    images = augmented("padded_crop", encode(np.full((*SIZE, 3), 255, "uint8")), 300, (-1.0, 1.0))
    rows = (images[:, :, SIZE[1] // 2, 0] == 0).sum(axis=1)  # Grey ones, above or below.
    columns = (images[:, SIZE[0] // 2, :, 0] == 0).sum(axis=1)
    assert set(np.unique(rows)) == set(range(SIZE[0] // 8 + 1))
    assert set(np.unique(columns)) == set(range(SIZE[1] // 8 + 1))
    assert set(np.unique(images)) == {0.0, 1.0}


def test_inception_crops_have_the_areas_and_shapes_of_the_paper(crops):
    heights = np.abs(crops[:, -1, 0, 0] - crops[:, 0, 0, 0]) * SIZE[0] / (SIZE[0] - 1)
    widths = np.abs(crops[:, 0, -1, 1] - crops[:, 0, 0, 1]) * SIZE[1] / (SIZE[1] - 1)
    area, aspect = heights * widths / 200**2, widths / heights
    # A pixel of rounding on each side of the smallest crop, of about 40 pixels.
    assert 0.045 < area.min() < 0.15
    assert 0.85 < area.max() <= 1.01
    assert 0.71 < aspect.min() < 0.80
    assert 1.25 < aspect.max() < 1.40
    assert 0.3 < area.mean() < 0.5  # Large ones of a shape that does not fit are drawn anew.


def test_an_inception_crop_is_a_bilinear_resize_of_one_rectangle(crops):
    for image in crops[:20]:
        rows, columns = np.diff(image[..., 0], axis=0), np.diff(image[..., 1], axis=1)
        assert rows.std() < 0.01  # Float32; even steps of a linear image stay even.
        assert columns.std() < 0.01
        assert (image[..., 2] == 128).all()


@pytest.mark.parametrize("side", [60, 700])
def test_rectangles_that_are_resized_as_floats_or_bytes_have_the_pixels_of_bytes(side):
    region = np.random.RandomState(0).randint(0, 256, (side, side + 9, 3), dtype="uint8")
    crop = AUGMENTATIONS["inception_crop"](region, None, View((31, 40), (0.0, 255.0)))
    np.testing.assert_array_equal(crop, tf.image.resize(region, (31, 40)))


def test_a_small_random_crop_moves_over_the_resized_image():
    images = augmented("resize_small_random_crop", encode(coordinates(100, 200)), 100)
    # 20 x 30 is resized to 23 x 46, to a scale of 200 / 46.
    tops, lefts = images[:, 0, 0, 0], images[..., 1].min(axis=(1, 2))
    assert len(np.unique(tops)) == 4
    assert len(np.unique(lefts)) > 12
    rows = np.abs(images[:, -1, 0, 0] - images[:, 0, 0, 0])
    np.testing.assert_allclose(rows, 19 * 100 / 23, atol=1.1)


def test_jitter_scales_and_moves_the_whole_image_and_never_flips_it():
    images = augmented("jitter", encode(coordinates(100, 200)), 200)
    height, width = SIZE
    middle = images[:, height // 2 - 4 : height // 2 + 4, width // 2 - 4 : width // 2 + 4]
    for axis, side, size in ((0, 100, height), (1, 200, width)):
        steps = np.diff(middle[..., axis], axis=1 + axis)
        assert steps.std(axis=(1, 2)).max() < 0.01  # Float32; a linear image stays linear.
        scaling = steps.mean(axis=(1, 2)) * size / side
        assert 0.85 <= scaling.min() < 0.88
        assert 1.12 < scaling.max() <= 1.1501
        # The middle of the result lies between two pixels, the image's middle at half a side.
        moved = (middle[..., axis].mean(axis=(1, 2)) - (side - 1) / 2) / side
        assert -0.1001 <= moved.min() < -0.08
        assert 0.08 < moved.max() <= 0.1001


BATCH = np.random.RandomState(0).randn(5, 2, 2, 3).astype("float32")
LABELS = np.eye(5, dtype="float32")


def mixup_key(number):
    return tf.constant([1, number], tf.int64)


def test_each_example_is_blended_with_the_one_before():
    images, labels = mixup(BATCH, LABELS, mixup_key(0), 0.5)
    share = labels[0, 0]
    expected = share * BATCH + (1 - share) * np.roll(BATCH, 1, axis=0)
    np.testing.assert_allclose(images, expected, atol=1e-6)
    np.testing.assert_allclose(
        labels, share * LABELS + (1 - share) * np.roll(LABELS, 1, axis=0), atol=1e-6
    )
    np.testing.assert_allclose(np.sum(labels, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("parameter", [0.2, 0.8])
def test_the_share_is_the_larger_part_of_a_beta_variable(parameter):
    mix = tf.function(lambda key: mixup(BATCH, LABELS, key, parameter)[1][0, 0])
    shares = np.array([mix(mixup_key(number)) for number in range(500)])
    assert shares.min() >= 0.5

    def cumulative(share):
        beta = stats.beta(parameter, parameter)
        return beta.cdf(share) - beta.cdf(1 - share)

    assert stats.kstest(shares, cumulative).pvalue > 1e-3


def test_augreg_settings_equal_the_papers():
    assert AUGREG == {
        "light1": (0.0, 0),
        "light2": (0.2, 10),
        "medium1": (0.2, 15),
        "medium2": (0.5, 15),
        "strong1": (0.5, 20),
        "strong2": (0.8, 20),
    }
    assert set(AUGREG) <= set(AUGMENTATIONS)
    assert set(MIXUP) == set(AUGREG) - {"light1"}
