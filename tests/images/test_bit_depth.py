"""16-bit images whose values need fewer bits: by Pillow and in TensorFlow's graphs."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.images.decoding import (
    decode_image,
    decode_or_mark,
    decode_region,
    read_header,
    verify_image,
)
from keras_vit.images.transcoding import (
    bit_depth_of,
    decode_file,
    largest_value,
    read_image,
    transcoded,
)
from keras_vit.preprocessing import Preprocessing
from makers import encode

CHANNELS = (1, 2, 3, 4)  # Grey, grey and alpha, RGB, RGB and alpha.


def values_of(channels, largest=4095):
    values = np.random.default_rng(channels).integers(0, largest + 1, (9, 7, channels))
    values[0, 0] = largest
    return values.astype("uint16")


def shown(values):
    """The colours of values, without alpha."""
    colours = values[..., :1] if values.shape[2] < 3 else values[..., :3]
    return np.broadcast_to(colours, (*values.shape[:2], 3))


def png_of(values):
    return tf.io.encode_png(values).numpy()


@pytest.mark.parametrize("bit_depth", [8, 10, 12, 13, 16])
@pytest.mark.parametrize("channels", CHANNELS)
def test_the_high_8_of_the_bits_are_a_pixel(channels, bit_depth):
    values = values_of(channels)
    expected = np.minimum(shown(values) // 2 ** (bit_depth - 8), 255)
    np.testing.assert_array_equal(decode_file(png_of(values), bit_depth), expected)


@pytest.mark.parametrize("bit_depth", [8, 12, 16])
@pytest.mark.parametrize("channels", CHANNELS)
def test_a_graph_gives_the_pixels_of_pillow(channels, bit_depth):
    encoded = png_of(values_of(channels))
    in_graph = tf.function(lambda content: decode_image(content, bit_depth=bit_depth))
    np.testing.assert_array_equal(in_graph(encoded), decode_file(encoded, bit_depth))


def test_a_region_in_a_graph_has_the_same_pixels():
    encoded = png_of(values_of(3))
    region = decode_region(encoded, read_header(encoded), tf.constant([2, 1, 5, 4]), bit_depth=12)
    np.testing.assert_array_equal(region, decode_file(encoded, 12)[2:7, 1:5])


def test_an_exported_graph_decodes_as_pillow_does():
    preprocessing = Preprocessing((9, 7), value_range=(0.0, 255.0), bit_depth=10)
    encoded = png_of(values_of(1, 1023))
    images, decoded = decode_or_mark(tf.constant([encoded]), preprocessing)
    assert decoded.numpy().all()
    np.testing.assert_array_equal(images[0], decode_file(encoded, 10))


def test_a_tiff_has_the_pixels_of_a_png(tmp_path):
    values = values_of(1)[..., 0]
    for suffix in ("png", "tif"):
        Image.fromarray(values).save(tmp_path / f"x.{suffix}")
    np.testing.assert_array_equal(
        read_image(tmp_path / "x.tif", 12), read_image(tmp_path / "x.png", 12)
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
def test_images_of_8_bits_are_as_they_are(kind):
    encoded = encode(Image.fromarray(values_of(3, 255).astype("uint8")), kind)
    np.testing.assert_array_equal(decode_file(encoded, 8), decode_file(encoded))
    graph_file = transcoded(encoded)
    np.testing.assert_array_equal(decode_image(graph_file, bit_depth=8), decode_file(encoded))


@pytest.mark.parametrize("channels", CHANNELS)
def test_the_largest_value_is_found(channels):
    values = values_of(channels, 777)
    values[..., -1 if channels in (2, 4) else 0] = 65535  # Alpha does not count.
    expected = shown(values).max()
    encoded = png_of(values)
    assert largest_value(encoded) == expected
    assert int(verify_image(tf.constant(encoded))[1]) == expected


def test_images_of_8_bits_have_no_largest_value():
    encoded = encode(Image.fromarray(values_of(3, 255).astype("uint8")), "PNG")
    assert largest_value(encoded) == 0
    assert int(verify_image(tf.constant(encoded))[1]) == 0


@pytest.mark.parametrize(
    ("largest", "bit_depth"), [(0, 8), (255, 8), (256, 10), (1024, 12), (4096, 14), (65535, 16)]
)
def test_the_bits_are_those_of_a_sensor(largest, bit_depth):
    assert bit_depth_of(largest) == bit_depth


def test_an_image_of_the_program_is_read_as_its_file():
    values = values_of(1)[..., 0]
    preprocessing = Preprocessing((9, 7), value_range=(0.0, 255.0), bit_depth=12)
    expected = np.repeat(values[..., np.newaxis] >> 4, 3, axis=2)
    np.testing.assert_array_equal(preprocessing(Image.fromarray(values)), expected)


@pytest.mark.parametrize("wrong", [7, 17, 12.0, "12", None, True])
def test_a_wrong_bit_depth_is_an_error(wrong):
    with pytest.raises(ValueError, match="bit_depth .*8 to 16"):
        Preprocessing((9, 7), bit_depth=wrong)
