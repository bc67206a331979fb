import io

import numpy as np
import perceptual_hashes as fingerprints
import pytest
from perceptual_hashes import DuplicateIndex, fingerprint
from PIL import Image, ImageEnhance, ImageOps

from keras_vit.training.data.copies import find_copies, photo_print
from makers import encode

SIDE = 61  # Pixels: 7 x 10 images of each photograph of 427 x 640.


@pytest.fixture(scope="module")
def photographs():
    """Returns 92 real images that share no pixels, by name; sky without contrast is left out."""
    datasets = pytest.importorskip("sklearn.datasets")
    images = {
        f"{name}_{y}_{x}": Image.fromarray(photograph[y : y + SIDE, x : x + SIDE])
        for name, photograph in zip(
            ("china", "flower"), datasets.load_sample_images().images, strict=True
        )
        for y in range(0, 427 - SIDE + 1, SIDE)
        for x in range(0, 640 - SIDE + 1, SIDE)
    }
    return {name: im for name, im in images.items() if np.std(im.convert("L")) > 10}


def cropped(image, rng):
    cut = round(0.05 * SIDE)
    x, y = rng.integers(0, cut, 2, endpoint=True)
    return image.crop((x, y, x + SIDE - cut, y + SIDE - cut))


def shifted(image, rng):
    image = ImageEnhance.Color(image).enhance(rng.choice([0.5, 1.5]))
    image = ImageEnhance.Brightness(image).enhance(rng.choice([0.85, 1.15]))
    red, green, blue = image.split()
    return Image.merge("RGB", (red.point(lambda v: v * 0.9), green, blue))


PLANTED = {
    "re-encoded": lambda image, rng: encode(image, "JPEG", quality=50),
    "half the size": lambda image, rng: encode(image.resize((SIDE // 2, SIDE // 2))),
    "twice the size": lambda image, rng: encode(image.resize((2 * SIDE, 2 * SIDE))),
    "mirrored": lambda image, rng: encode(ImageOps.mirror(image)),
    "cropped": lambda image, rng: encode(cropped(image, rng)),
    "colours shifted": lambda image, rng: encode(shifted(image, rng)),
    "mirrored, cropped, re-encoded": lambda image, rng: encode(
        ImageOps.mirror(cropped(image, rng)), "JPEG", quality=75
    ),
}


@pytest.fixture(scope="module")
def index(photographs):
    return index_of({name: encode(im) for name, im in photographs.items()})


def index_of(images, **limits):
    prints = [fingerprint(encoded, mirrored=True) for encoded in images.values()]
    return DuplicateIndex(list(images), prints, **limits)


def find(images, index):
    return index.find([name for name, _ in images], [fingerprint(found) for _, found in images])


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_copies_are_found(kind, photographs, index):
    rng = np.random.default_rng(0)
    copies = [(name, PLANTED[kind](image, rng)) for name, image in photographs.items()]
    pairs = find(copies, index)
    found = {pair.train for pair in pairs if pair.train == pair.test}
    assert found == set(photographs)
    mirrored = {pair.mirrored for pair in pairs if pair.train == pair.test}
    assert mirrored == {kind.startswith("mirrored")}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_copies_are_found_by_check(kind, photographs):
    rng = np.random.default_rng(0)
    copies = [PLANTED[kind](image, rng) for image in photographs.values()]
    copies = [Image.open(io.BytesIO(copy)).convert("RGB") for copy in copies]
    prints = [photo_print(image) for image in (*photographs.values(), *copies)]
    pairs = find_copies(prints).pairs
    count = len(photographs)
    found = {pair.first for pair in pairs if pair.second == pair.first + count}
    assert found == set(range(count))
    assert len([pair for pair in pairs if (pair.second - pair.first) % count]) <= 4  # One lawn.


def test_different_images_are_not_duplicates(photographs, index):
    originals = [(name, encode(image)) for name, image in photographs.items()]
    pairs = find(originals, index)
    false = [pair for pair in pairs if pair.train != pair.test]
    assert len(photographs) == 92
    assert len(false) <= 2  # Among 8372 pairs: two parts of one lawn.


def test_equal_pixels_are_exact_whatever_the_file(photographs, index):
    name, image = next(iter(photographs.items()))
    copy = encode(image, "BMP")
    (pair,) = (found for found in find([("copy", copy)], index) if found.test == name)
    assert pair == ("copy", name, "exact", 0, 1.0, False)


def test_an_image_that_cannot_be_read_is_an_error():
    with pytest.raises(ValueError, match="UnidentifiedImage"):
        fingerprint(b"no image")


@pytest.mark.parametrize("distance", [0, 3, 10, 20])
def test_all_hashes_within_the_distance_are_found(distance, monkeypatch):
    monkeypatch.setattr(fingerprints, "_AT_ONCE", 1000)  # A few images at once.
    rng = np.random.default_rng(distance)
    drawn = rng.integers(0, 2**64, (30, 10), dtype=np.uint64)
    near = drawn[:20, :5].copy()
    for hashes in near:
        for bit in rng.choice(64, rng.integers(0, 24), replace=False):
            hashes ^= np.uint64(1 << int(bit))
    picture = np.repeat(rng.integers(0, 256, (32, 1), dtype=np.uint8), 32, axis=1)
    entries = [fingerprints.Fingerprint(b"%d" % k, row, picture) for k, row in enumerate(drawn)]
    index = DuplicateIndex(range(30), entries, distance)
    images = [fingerprints.Fingerprint(b"", row, picture) for row in near]
    found = {(pair.train, pair.test): pair.distance for pair in index.find(range(20), images)}
    bits = [[min((int(a) ^ int(b)).bit_count() for a in q for b in e) for e in drawn] for q in near]
    expected = {(k, j): n for k, row in enumerate(bits) for j, n in enumerate(row) if n <= distance}
    assert found == expected


def test_the_perceptual_hash_is_that_of_imagehash(photographs):
    imagehash = pytest.importorskip("imagehash")
    cases = [*photographs.values()]
    assert cases
    for image in cases:
        small = image.convert("L").resize((64, 64), Image.Resampling.LANCZOS)
        small = small.resize((32, 32), Image.Resampling.BILINEAR)
        bits = imagehash.phash(small).hash.ravel()
        assert fingerprint(encode(image)).hashes[0] == np.packbits(bits).view(np.uint64)[0]
