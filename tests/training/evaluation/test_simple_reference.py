"""Simple numbers of photos, and what a ridge regression of them reaches."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.evaluation.references import (
    SimplePhoto,
    edge_numbers,
    grey_photo,
    simple_numbers,
    simple_reference,
)

RNG = np.random.default_rng(0)


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
    greys = RNG.integers(0, 255, (60, 96, 96), "uint8")
    photos = [
        SimplePhoto(*photo, RNG.normal(size=704)) for photo in zip(numbers, greys, strict=True)
    ]
    name, accuracy, images = simple_reference(photos, OF_SIXTY, np.arange(60))
    accuracies = left_out_accuracies(numbers)
    assert name == "thirty simple numbers of each photo"
    assert accuracy in accuracies
    assert accuracy >= min(accuracies[3:])
    assert images == 60


def test_where_pixels_are_better_they_are_the_simple_reference():
    small = RNG.integers(100, 130, (60, 24, 24))
    small[np.arange(60), 10 + OF_SIXTY] += 60  # A row of pixels by class.
    greys = np.kron(small, np.ones((4, 4))).astype("uint8")
    numbers = RNG.normal(size=(60, 30))
    photos = [
        SimplePhoto(*photo, RNG.normal(size=704)) for photo in zip(numbers, greys, strict=True)
    ]
    name, accuracy, _ = simple_reference(photos, OF_SIXTY, np.arange(60))
    assert name == "24 x 24 grey pixels"
    assert accuracy in left_out_accuracies(small.reshape(60, -1))


def lines(direction, rng):
    """A photo of parallel lines of any color and place, across or down."""
    place = np.arange(96) * rng.uniform(0.5, 0.9) + rng.uniform(0, 6)
    wave = np.broadcast_to(np.sin(place), (96, 96))
    wave = wave.T if direction else wave
    color = rng.uniform(60, 190, 3)
    return Image.fromarray(np.clip(color + 60 * wave[..., np.newaxis], 0, 255).astype("uint8"))


def test_edges_are_the_simple_reference_where_their_direction_is_the_class():
    rng, labels = np.random.default_rng(1), np.arange(60) % 2
    photos = []
    for label in labels:
        image = lines(label, rng)
        grey = np.asarray(grey_photo(image))
        photos.append(SimplePhoto(rng.normal(size=30), grey, edge_numbers(image, grey)))
    name, accuracy, _ = simple_reference(photos, labels, np.arange(60))
    assert name == "edge directions, colors and grey pixels"
    assert accuracy == 1


def test_edge_directions_are_those_of_a_loop():
    image = Image.fromarray(RNG.integers(0, 256, (96, 96, 3), "uint8"))
    grey = np.asarray(grey_photo(image)).astype("float32")
    expected = np.zeros((8, 8, 9))
    down, right = np.gradient(grey)
    for row in range(96):
        for column in range(96):
            strength = np.hypot(down[row, column], right[row, column])
            angle = np.arctan2(down[row, column], right[row, column]) % np.pi
            expected[row // 12, column // 12, min(int(angle / np.pi * 9), 8)] += strength
    expected /= np.linalg.norm(expected, axis=2, keepdims=True) + 96
    found = edge_numbers(image, grey)
    assert found.shape == (704,)
    np.testing.assert_allclose(found[:576], expected.ravel(), rtol=1e-4)
