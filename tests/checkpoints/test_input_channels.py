import numpy as np
import pytest

from keras_vit.checkpoints.resize import adapt_input_channels


def kernel(channels=3):
    return np.random.RandomState(0).standard_normal((2, 2, channels, 5)).astype("float32")


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 13])
def test_an_image_of_equal_channels_keeps_its_outputs(channels):
    adapted = adapt_input_channels(kernel(), channels)
    assert adapted.shape == (2, 2, channels, 5)
    np.testing.assert_allclose(adapted.sum(2), kernel().sum(2), atol=1e-5)


def test_one_channel_gets_the_sum():
    np.testing.assert_allclose(
        adapt_input_channels(kernel(), 1)[:, :, 0], kernel().sum(2), atol=1e-6
    )


def test_four_channels_are_half_of_red_green_blue_and_half_of_red():
    red, green, blue = np.moveaxis(kernel(), 2, 0)
    expected = np.stack([red / 2, green, blue, red / 2], axis=2)
    np.testing.assert_array_equal(adapt_input_channels(kernel(), 4), expected)


def test_the_same_number_of_channels_changes_nothing():
    np.testing.assert_array_equal(adapt_input_channels(kernel(), 3), kernel())


def test_grey_kernels_spread_over_colours():
    np.testing.assert_allclose(
        adapt_input_channels(kernel(1), 3), np.repeat(kernel(1) / 3, 3, axis=2), atol=1e-7
    )
