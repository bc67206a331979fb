import io

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

from keras_vit.training.data.copies import (
    ALIKE,
    EXACT,
    NEAR,
    Copy,
    find_copies,
    joined_groups,
    photo_print,
)
from makers import encode, smooth_picture

RNG = np.random.default_rng(0)
PICTURES = [smooth_picture(RNG, (48, 48), (6, 6)) for _ in range(30)]
SIDE = 120


def found(pictures):
    return find_copies([photo_print(picture) for picture in pictures]).pairs


def test_different_images_are_no_copies():
    assert found(PICTURES) == []


def test_equal_pixels_are_an_exact_copy_and_a_resized_image_a_near_one():
    pictures = [*PICTURES, PICTURES[4], PICTURES[9].resize((40, 40))]
    pairs = [(pair.first, pair.second, pair.kind) for pair in found(pictures)]
    assert pairs == [(4, 30, EXACT), (9, 31, NEAR)]


def test_shifted_crops_are_alike():
    pictures = list(PICTURES)
    whole = smooth_picture(RNG, (56, 56), (9, 9))
    pictures[3], pictures[20] = whole.crop((0, 0, 48, 48)), whole.crop((8, 6, 56, 54))
    (pair,) = found(pictures)
    assert (pair.first, pair.second, pair.kind) == (3, 20, ALIKE)


def test_groups_are_joined_by_copies_and_by_given_groups():
    pairs = [Copy(0, 1, EXACT), Copy(1, 4, NEAR)]
    groups = joined_groups(6, pairs)
    assert groups[0] == groups[1] == groups[4]
    assert len(np.unique(groups)) == 4
    given = joined_groups(6, pairs, np.array(["a", "b", "b", "c", "d", "c"]))
    assert given[0] == given[1] == given[2] == given[4]
    assert given[3] == given[5] != given[0]
    assert len(np.unique(joined_groups(3, []))) == 3


def test_each_equal_image_is_listed_with_the_first_alone():
    pictures = [*PICTURES, *[PICTURES[2]] * 5]
    pairs = found(pictures)
    assert pairs == [Copy(2, number, EXACT) for number in range(30, 35)]


@pytest.fixture(scope="module")
def camera():
    """Photos of a fixed camera: one strong frame, another faint texture in each, and noise."""
    rng = np.random.default_rng(1)
    frame = np.asarray(smooth_picture(rng, (SIDE, SIDE), (5, 5)), "float64")
    texture = [
        np.asarray(smooth_picture(rng, (SIDE, SIDE), (24, 24)), "float64") for _ in range(60)
    ]
    return [photo(0.6 * frame + 0.2 * own, rng) for own in texture]


def photo(pixels, rng):
    pixels = pixels + rng.normal(0, 2, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype("uint8"))


def find_in_camera(camera, *others):
    prints = [photo_print(picture) for picture in (*camera, *others)]
    return find_copies(prints)


def recompressed(image, quality):
    return Image.open(io.BytesIO(encode(image, "JPEG", quality=quality))).convert("RGB")


PLANTED = {
    "resized": lambda image: image.resize((70, 70)),
    "cropped": lambda image: image.crop((4, 1, 118, 115)),
    "recompressed": lambda image: recompressed(image, 85),
    "brightened": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "all": lambda image: recompressed(
        ImageEnhance.Brightness(image.crop((0, 6, 114, 120))).enhance(1.2).resize((90, 90)), 75
    ),
}


def test_photos_of_a_fixed_camera_are_no_copies(camera):
    copies = find_in_camera(camera)
    assert copies.fixed == len(camera)
    assert copies.pairs == []


@pytest.mark.parametrize("kind", PLANTED)
def test_changed_copies_are_found_among_photos_of_a_fixed_camera(camera, kind):
    copies = find_in_camera(camera, *(PLANTED[kind](picture) for picture in camera[:20]))
    assert copies.fixed == len(camera) + 20
    assert copies.pairs == [Copy(number, 60 + number, NEAR) for number in range(20)]


@pytest.mark.parametrize("turn", Image.Transpose)
def test_turned_and_mirrored_photos_are_near_copies(camera, turn):
    turned = [recompressed(picture.transpose(turn), 85) for picture in camera[:10]]
    pairs = find_in_camera(camera, *turned).pairs
    assert pairs == [Copy(number, 60 + number, NEAR) for number in range(10)]


def test_among_other_photos_those_of_a_fixed_camera_are_no_copies(camera):
    copies = find_in_camera(camera, *PICTURES)
    assert copies.fixed == len(camera)
    assert copies.pairs == []


def test_another_photo_of_the_same_thing_is_no_copy_in_a_fixed_frame(camera):
    rng = np.random.default_rng(2)
    blurred = np.asarray(camera[0].filter(ImageFilter.GaussianBlur(2)), "float64")
    texture = np.asarray(smooth_picture(rng, (SIDE, SIDE), (30, 30)), "float64")
    again = photo(blurred + 0.04 * texture, rng)
    assert find_in_camera(camera, again).pairs == []


def on_paper(rng, turn):
    """A dark shape on even paper, as a hand that makes a sign."""
    pixels = np.full((SIDE, SIDE), 200.0)
    rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    angle = np.arctan2(rows, columns)
    pixels[np.hypot(rows, columns) < 0.2 + 0.08 * np.sin(5 * angle + turn)] = 60
    return photo(pixels, rng)


def test_equal_outlines_on_even_paper_are_no_burst():
    rng = np.random.default_rng(3)
    pictures = [*PICTURES, on_paper(rng, 0.0), on_paper(rng, 0.5)]
    assert found(pictures) == []


def test_of_two_photos_of_equal_bytes_only_the_size_differs():
    row = np.arange(12 * 12 * 3, dtype="uint8")
    wide, high = (Image.fromarray(row.reshape(*shape, 3)) for shape in ((8, 18), (18, 8)))
    assert photo_print(wide).digest != photo_print(high).digest
