"""The targets of masked patch prediction, against loops over bytes."""

import numpy as np
import pytest

from keras_vit.training.run.masked_patches import (
    COLORS,
    colour_classes,
    cut_patches,
    downsized,
    has_mean_color,
    whole_patch,
)


@pytest.fixture(scope="module")
def pixels():
    """Bytes of two images of 3x2 patches of 16 pixels, with a rest that is cut off."""
    return np.random.default_rng(0).integers(0, 256, (2, 53, 40, 3), "uint8")


def scaled(pixels):
    return (pixels.astype("float32") / 127.5 - 1).astype("float32")


def patches_of(pixels, size=16):
    """Yields image, number and bytes of each patch, row by row."""
    for image in range(len(pixels)):
        across = pixels.shape[2] // size
        for number in range(pixels.shape[1] // size * across):
            top, left = number // across * size, number % across * size
            yield image, number, pixels[image, top : top + size, left : left + size]


def three_bits(cell):
    """The colour of some bytes by integers: 3 bits of the mean of each channel."""
    red, green, blue = (int(cell[..., channel].astype(int).sum()) // cell[..., channel].size
                        for channel in range(3))  # fmt: skip
    return (red >> 5) << 6 | (green >> 5) << 3 | blue >> 5


def test_every_byte_has_its_colour():
    levels = np.arange(256)
    grey = np.array(colour_classes(scaled(np.stack([levels] * 3, -1))))
    np.testing.assert_array_equal(grey, (levels >> 5) * (64 + 8 + 1))
    corners = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]])
    assert np.array(colour_classes(scaled(corners))).tolist() == [448, 56, 7, COLORS - 1]


def test_a_patch_that_4_does_not_divide_is_downsized_by_area(pixels):
    classes = np.array(downsized(cut_patches(scaled(pixels), (14, 14))))
    cases = [*patches_of(pixels, 14)]
    assert cases
    for image, number, patch in cases:
        # Every pixel as 2x2 equal ones: a cell of 3.5 pixels is then 7 of them.
        fine = patch.repeat(2, 0).repeat(2, 1)
        for cell in range(16):
            top, left = cell // 4 * 7, cell % 4 * 7
            expected = three_bits(fine[top : top + 7, left : left + 7])
            assert classes[image, number, cell] == expected


def test_the_accuracy_of_a_regression_is_that_of_its_mean_colors(pixels):
    values = np.array(whole_patch(cut_patches(scaled(pixels), (16, 16))))
    assert np.array(has_mean_color(values, values)).all()
    wrong = values.copy()
    wrong[:, :3] = -1  # Black, half of the patches.
    assert np.array(has_mean_color(values, wrong)).mean() == 0.5
