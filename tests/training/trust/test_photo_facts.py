import numpy as np
import pytest
from PIL import ExifTags, Image

from keras_vit.training.trust.photo_facts import all_photo_facts, photo_facts
from makers import encode, smooth_picture

RNG = np.random.default_rng(0)


def picture(height, width):
    return smooth_picture(RNG, (height, width), (5, 5))


def test_a_photo_is_upright_and_has_its_camera():
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Maker"
    exif[ExifTags.Base.Model] = "One"
    exif[ExifTags.Base.Orientation] = 6
    facts = photo_facts(encode(picture(150, 200), "JPEG", exif=exif, quality=90))
    assert (facts.height, facts.width) == (200, 150)
    assert facts.camera == "Maker One"


def test_facts_of_many_files_are_in_their_order():
    images = [encode(picture(10 + number, 12)) for number in range(40)]
    assert [photo.height for photo in all_photo_facts(images)] == list(range(10, 50))


@pytest.mark.parametrize("quality", [10, 30, 50, 75, 90, 95])
def test_the_quality_of_a_jpeg_is_that_of_its_tables(quality):
    facts = photo_facts(encode(picture(64, 64), "JPEG", quality=quality))
    assert facts.quality == pytest.approx(quality, abs=5)
    assert facts.file_format == "JPEG"


def test_the_border_ring_has_the_colours_of_the_border():
    image = np.full((64, 96, 3), 128, "uint8")
    image[:2] = (255, 0, 0)
    ring = photo_facts(encode(Image.fromarray(image))).ring
    np.testing.assert_allclose(ring[:12].reshape(4, 3), [[1, 0, 0]] * 4, atol=1e-6)
    np.testing.assert_allclose(ring[12:24], 128 / 255, atol=1e-6)


def test_the_surroundings_do_not_depend_on_the_centre():
    first, second = (np.full((64, 64, 3), 200, "uint8") for _ in range(2))
    second[24:40, 24:40] = 0
    np.testing.assert_array_equal(
        *(photo_facts(encode(Image.fromarray(image))).surroundings for image in (first, second))
    )
