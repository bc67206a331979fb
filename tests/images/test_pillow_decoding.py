"""Decoding with Pillow gives the pixels that TensorFlow's graph gives."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vit.images.decoding import decodable, decode_image
from keras_vit.images.transcoding import decode_file, read_image


def picture(mode="RGB", size=(37, 23)):
    values = np.random.RandomState(0).randint(0, 256, (size[1], size[0], 3), dtype="uint8")
    smooth = Image.fromarray(values).resize((9, 7)).resize(size, Image.Resampling.BICUBIC)
    return smooth.convert(mode)


def encoded(image, kind, **options):
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def turned(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(picture(), kind, exif=exif.tobytes())


def sixteen_bits():
    values = np.arange(37 * 23, dtype="uint16").reshape(23, 37) * 70
    return encoded(Image.fromarray(values), "PNG")


def animated_gif():
    frames = [picture("P"), picture("P").transpose(Image.Transpose.ROTATE_180)]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


def animated_webp():
    more = [picture().transpose(Image.Transpose.ROTATE_180)]
    return encoded(picture(), "WEBP", save_all=True, append_images=more, lossless=True)


def transparent_gif():
    colours = picture("P")
    return encoded(colours, "GIF", transparency=colours.getpixel((0, 0)))


def gif_of_a_part_of_its_screen():
    content = bytearray(encoded(picture("P"), "GIF"))
    content[6:10] = bytes([50, 0, 40, 0])  # Width and height of the screen.
    return bytes(content)


def png_with_late_exif():
    before, name, rest = turned("PNG", 6).partition(b"eXIf")
    size = int.from_bytes(before[-4:], "big") + 4  # Content and checksum.
    chunk, others = before[-4:] + name + rest[:size], before[:-4] + rest[size:]
    return others[:-12] + chunk + others[-12:]  # In front of IEND.


def cmyk_without_adobe_marker():
    content = encoded(picture("CMYK"), "JPEG")
    start = content.index(b"\xff\xee")
    size = 2 + int.from_bytes(content[start + 2 : start + 4], "big")
    return content[:start] + content[start + size :]


FILES = {
    "JPEG": lambda: encoded(picture(), "JPEG", quality=83),
    "JPEG 4:4:4": lambda: encoded(picture(), "JPEG", subsampling=0),
    "progressive JPEG": lambda: encoded(picture(), "JPEG", progressive=True),
    "grey JPEG": lambda: encoded(picture("L"), "JPEG"),
    "CMYK JPEG": lambda: encoded(picture("CMYK"), "JPEG"),
    "CMYK JPEG without Adobe's marker": cmyk_without_adobe_marker,
    "PNG": lambda: encoded(picture(), "PNG"),
    "grey PNG": lambda: encoded(picture("L"), "PNG"),
    "1-bit PNG": lambda: encoded(picture("1"), "PNG"),
    "palette PNG": lambda: encoded(picture("P"), "PNG"),
    "RGBA PNG": lambda: encoded(picture("RGBA"), "PNG"),
    "grey and alpha PNG": lambda: encoded(picture("LA"), "PNG"),
    "16-bit PNG": sixteen_bits,
    "PNG with EXIF behind its pixels": png_with_late_exif,
    "BMP": lambda: encoded(picture(), "BMP"),
    "palette BMP": lambda: encoded(picture("P"), "BMP"),
    "GIF": lambda: encoded(picture("P"), "GIF"),
    "animated GIF": animated_gif,
    "GIF of a part of its screen": gif_of_a_part_of_its_screen,
    "transparent GIF": transparent_gif,
    "WebP": lambda: encoded(picture(), "WEBP"),
    "animated WebP": animated_webp,
    "TIFF": lambda: encoded(picture(), "TIFF"),
}


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decode_in_graph(content):
    return decode_image(decodable(content))


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_has_the_pixels_of_the_graph(name):
    content = FILES[name]()
    np.testing.assert_array_equal(decode_file(content), decode_in_graph(content))


@pytest.mark.parametrize(
    "name", [name for name in FILES if "CMYK" not in name and "16-bit" not in name]
)
def test_files_have_the_pixels_of_pillow(name):
    content = FILES[name]()
    expected = Image.open(io.BytesIO(content)).convert("RGBA").convert("RGB")
    np.testing.assert_array_equal(decode_file(content), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(10))
def test_every_orientation_is_turned_as_by_the_graph(kind, orientation):
    content = turned(kind, orientation)
    np.testing.assert_array_equal(decode_file(content), decode_in_graph(content))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_a_file_that_is_cut_short_is_refused_in_one_line(kind):
    content = encoded(picture("P" if kind == "GIF" else "RGB", (200, 150)), kind)
    with pytest.raises(ValueError, match="^The file is damaged") as raised:
        decode_file(content[: len(content) // 2])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "The file is empty"),
        (b"hello, I am a text", "An image must be JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "An image must be JPEG, PNG"),
    ],
)
def test_what_is_no_image_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        decode_file(content)


def test_a_file_is_read_or_the_reason_is_one_line(tmp_path):
    path = tmp_path / "photo.JPG"
    path.write_bytes(encoded(picture(), "PNG"))
    np.testing.assert_array_equal(read_image(path), picture())
    with pytest.raises(OSError):
        read_image(tmp_path / "missing.jpg")
