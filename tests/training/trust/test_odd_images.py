import numpy as np
import pytest
from PIL import ExifTags, Image

from keras_vit.training.evaluation.ridge import Decomposition
from keras_vit.training.trust.odd_images import (
    FAR,
    FLAT,
    TINY,
    TURNED,
    far_p_values,
    find_odd_images,
)
from keras_vit.training.trust.photo_facts import all_photo_facts, photo_facts
from makers import encode, smooth_picture

RNG = np.random.default_rng(0)


def picture(height, width):
    return smooth_picture(RNG, (height, width), (5, 5))


def turned_photo(stored, recorded, orientation=6):
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Maker"
    exif[ExifTags.Base.Model] = "One"
    exif[ExifTags.Base.Orientation] = orientation
    details = exif.get_ifd(ExifTags.IFD.Exif)
    details[ExifTags.Base.ExifImageWidth], details[ExifTags.Base.ExifImageHeight] = recorded
    return encode(picture(*stored), "JPEG", exif=exif, quality=90)


def test_tiny_flat_and_turned_images_are_found():
    images = [encode(picture(200, 150)) for _ in range(30)]
    images[3] = encode(picture(20, 300))
    images[5] = encode(Image.new("RGB", (200, 150), (90, 91, 92)))
    images[8] = turned_photo((200, 150), (200, 150))  # Stored upright, recorded as it was taken.
    facts = list(all_photo_facts(images))
    odd = find_odd_images(facts, np.full(30, 0.1))
    assert [(image.kind, image.number) for image in odd] == [(TINY, 3), (FLAT, 5), (TURNED, 8)]


def test_a_photo_that_exif_turns_once_is_not_odd():
    facts = photo_facts(turned_photo((150, 200), (200, 150)))
    assert (facts.height, facts.width) == (200, 150)
    assert not facts.turned_twice
    assert facts.camera == "Maker One"


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


def test_features_far_from_all_others_are_found_and_usual_ones_are_not():
    features = RNG.normal(size=(500, 20)) * np.geomspace(1, 0.1, 20)
    decomposition = Decomposition(features)
    ridge = decomposition.ridge(RNG.normal(size=(500, 1)), 0.1 * decomposition.mean_eigenvalue)
    assert far_p_values(ridge.leverages).min() > 0.01
    features[17] *= 8
    ridge = Decomposition(features).ridge(RNG.normal(size=(500, 1)), ridge.l2)
    assert np.flatnonzero(far_p_values(ridge.leverages) <= 0.01).tolist() == [17]
    facts = [photo_facts(encode(picture(40, 40)))] * 500
    assert [odd.kind for odd in find_odd_images(facts, ridge.leverages)] == [FAR]


def test_the_border_of_a_photo_has_as_many_facts_at_any_size():
    rings = [photo_facts(encode(picture(*size))).ring for size in ((20, 40), (64, 30))]
    assert rings[0].shape == rings[1].shape
    grey = photo_facts(encode(np.full((20, 40, 3), 128, "uint8"))).ring
    np.testing.assert_allclose(grey[-3:], 0, atol=1e-6)  # The standard deviation by channel.
