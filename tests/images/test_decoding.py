import contextlib
import pathlib
import re
import struct
import zlib

import keras
import numpy as np
import PIL
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.images.decoding import (
    MAX_PIXELS,
    apply_preprocessing,
    decode_image,
    decode_or_mark,
    decode_region,
    read_header,
    upright_size,
)
from keras_vit.preprocessing import EVALUATIONS, Preprocessing
from makers import encode, smooth_picture

STRING = [tf.TensorSpec([], tf.string)]
decode = tf.function(decode_image, STRING)
header_of = tf.function(read_header, STRING)
region_of = tf.function(
    lambda encoded, region: decode_region(encoded, read_header(encoded), region),
    [*STRING, tf.TensorSpec([4], tf.int32)],
)


def photo(height=37, width=50, seed=0):
    """Smooth colours with some noise, so that a JPEG's half-size colours matter."""
    rng = np.random.default_rng(seed)
    smooth = np.asarray(smooth_picture(rng, (height, width), (6, 6)), "int32")
    noisy = smooth + rng.integers(-20, 21, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype("uint8"))


def exif(orientation, order):
    """An EXIF block with two entries before the orientation."""
    order, mark = {"little": ("<", b"II"), "big": (">", b"MM")}[order]
    entry = struct.Struct(f"{order}HHIHH")
    entries = [(0x0100, 3, 1, 640, 0), (0x0101, 3, 1, 480, 0), (0x0112, 3, 1, orientation, 0)]
    head = mark + struct.pack(f"{order}HIH", 42, 8, len(entries))
    return b"Exif\0\0" + head + b"".join(entry.pack(*each) for each in entries) + bytes(4)


def png_claiming(height, width):
    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def changed(encoded, at, form, *values):
    content = bytearray(encoded)
    struct.pack_into(form, content, at, *values)
    return bytes(content)


def refuses(encoded, match=None):
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        decode(encoded)


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_all_orientations_equal_pillows(kind, order):
    stored = np.asarray(decode(encode(photo(), kind)))
    for orientation in range(1, 9):
        upright = Image.fromarray(stored)
        upright.getexif()[0x0112] = orientation
        expected = np.asarray(ImageOps.exif_transpose(upright))
        encoded = encode(photo(), kind, exif=exif(orientation, order))
        np.testing.assert_array_equal(decode(encoded), expected)
        assert tuple(upright_size(header_of(encoded)).numpy()) == expected.shape[:2]


@pytest.mark.parametrize("cut", range(0, 50, 4))
def test_a_damaged_exif_block_is_ignored(cut):
    encoded = encode(photo(), "PNG", exif=exif(6, "little")[:cut] or b"Exif\0\0")
    assert decode(encoded).shape in ((37, 50, 3), (50, 37, 3))
    encoded = encode(photo(), "PNG", exif=exif((0, 9, 65535)[cut % 3], "big"))
    np.testing.assert_array_equal(decode(encoded), photo())


def test_exif_is_found_behind_other_segments():
    plain = encode(photo(), "JPEG", comment=b"before", icc_profile=bytes(70_000))
    block = exif(8, "big")
    segment = b"\xff\xff\xe1" + struct.pack(">H", 2 + len(block)) + block  # Padded with FF.
    at = plain.index(b"\xff\xdb")
    np.testing.assert_array_equal(
        decode(plain[:at] + segment + plain[at:]), np.rot90(decode(plain))
    )


REGIONS = {
    **{
        f"JPEG {subsampling}, progressive {progressive}": (
            "JPEG",
            {"subsampling": subsampling, "progressive": progressive},
        )
        for subsampling in (0, 1, 2)
        for progressive in (False, True)
    },
    **{f"JPEG turned {n}": ("JPEG", {"exif": exif(n, "big")}) for n in range(1, 9)},
    "PNG": ("PNG", {}),
}


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_is_the_same_pixels_of_the_upright_image(name):
    kind, options = REGIONS[name]
    encoded = encode(photo(), kind, **options)
    whole = np.asarray(decode(encoded))
    rng = np.random.RandomState(0)
    for _ in range(20):
        height, width = (rng.randint(1, side + 1) for side in whole.shape[:2])
        y, x = rng.randint(whole.shape[0] - height + 1), rng.randint(whole.shape[1] - width + 1)
        expected = whole[y : y + height, x : x + width]
        np.testing.assert_array_equal(region_of(encoded, [y, x, height, width]), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.5, 0.9])
def test_a_truncated_file_is_refused(kind, share):
    encoded = encode(photo(200, 150), kind)
    refuses(encoded[: int(share * len(encoded))])


def test_a_graph_refuses_other_formats_by_name():
    for content in (encode(photo(), "TIFF"), encode(photo(), "GIF"), b""):
        refuses(content, "JPEG or PNG")


HUGE = {
    "png": lambda: png_claiming(100_000, 100_000),
    "png line": lambda: png_claiming(1, 2**31 - 1),
    "jpeg": lambda: changed(
        encode(photo(), "JPEG"),
        encode(photo(), "JPEG").index(b"\xff\xc0") + 5,
        ">HH",
        65_000,
        65_000,
    ),
}


def peak_memory():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) // 1024


@contextlib.contextmanager
def memory_growth_below(limit):
    """Checks that the block takes at most so many MiB at any time."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak is counted from here.
    before = peak_memory()
    yield
    assert peak_memory() - before < limit


@pytest.mark.parametrize("kind", HUGE)
def test_an_image_that_claims_too_many_pixels_is_refused(kind):
    content = HUGE[kind]()
    with memory_growth_below(100):
        refuses(content, f"{MAX_PIXELS} pixels")


GOLDEN = {
    "vision_transformer_eval_224": Preprocessing((224, 224)),
    "resize_small_256_central_crop_224": Preprocessing((224, 224), "resize_small_central_crop"),
    "resize_small_448_central_crop_384": Preprocessing((384, 384), "resize_small_central_crop"),
    "resize_256_central_crop_224": Preprocessing((224, 224), "resize_central_crop"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_preprocessing_is_the_official_one(golden, name):
    arrays = golden("preprocessing").load()
    ours = apply_preprocessing(arrays["image"], GOLDEN[name])
    assert ours.dtype == tf.float32
    np.testing.assert_allclose(ours[::8, ::8], arrays[name], atol=1e-5)


@pytest.fixture(scope="module")
def pictures():
    """Photographs and noise, upright and wide, larger and smaller than the model's input."""
    photographs = pytest.importorskip("sklearn.datasets").load_sample_images().images
    first, second = (np.asarray(photograph) for photograph in photographs)
    grey = np.asarray(Image.fromarray(second).convert("L").convert("RGB"))
    patch = first[100:151, 200:261]
    noise = np.random.RandomState(0)
    shapes = [(1, 1), (1, 9), (3, 200), (500, 375), (1001, 333), (265, 244), (264, 244)]
    return [
        first,
        second.transpose(1, 0, 2),
        grey,
        patch,
        patch.transpose(1, 0, 2),
        *(noise.randint(0, 256, (*shape, 3)).astype("uint8") for shape in shapes),
    ]


def resized_by_pillow(picture, size, resample):
    """An array resized to (width, height) in two steps, as their order changed in Pillow 13."""
    height, width = picture.shape[:2]
    loses_rows = height - size[1] > max(0, 2 * (width - size[0]))
    step = (width, size[1]) if loses_rows else (size[0], height)
    return Image.fromarray(picture).resize(step, resample).resize(size, resample)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_an_antialiased_resize_is_pillows_to_the_bit(interpolation, pictures):
    resample = Image.Resampling[interpolation.upper()]
    for size in ((224, 224), (96, 340)):
        preprocessing = Preprocessing(size, "huggingface", (0, 255), interpolation)
        compiled = tf.function(
            lambda image, preprocessing=preprocessing: apply_preprocessing(image, preprocessing),
            [tf.TensorSpec([None, None, 3], tf.uint8)],
        )
        for picture in pictures:
            expected = resized_by_pillow(picture, size[::-1], resample)
            np.testing.assert_array_equal(compiled(picture), expected)


@pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="The order of sides changed.")
def test_the_order_of_the_sides_is_pillows(pictures):
    preprocessing = Preprocessing((256, 341), "huggingface", (0, 255), "bicubic")
    for picture in pictures:
        expected = Image.fromarray(picture).resize((341, 256), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(apply_preprocessing(picture, preprocessing), expected)


@pytest.mark.parametrize(
    ("evaluation", "start"),
    [("huggingface", lambda rest: rest // 2), ("torchvision", lambda rest: round(rest / 2))],
)
def test_the_short_side_is_resized_and_the_middle_cropped(evaluation, start, pictures):
    # What the libraries do by their documentation, with Pillow.
    preprocessing = Preprocessing((64, 48), evaluation, (0, 255), "bicubic", 71)
    for picture in pictures:
        image = Image.fromarray(picture)
        sides = [71 * side // min(image.size) for side in image.size]
        resized = np.asarray(image.resize(sides, Image.Resampling.BICUBIC))
        top, left = start(len(resized) - 64), start(resized.shape[1] - 48)
        np.testing.assert_array_equal(
            apply_preprocessing(picture, preprocessing),
            resized[top : top + 64, left : left + 48],
        )


def test_floats_are_resized_without_rounding():
    image = np.random.RandomState(0).uniform(0, 255, (40, 50, 1)).astype("float32")
    expected = Image.fromarray(image[..., 0]).resize((16, 24), Image.Resampling.BICUBIC)
    preprocessing = Preprocessing((24, 16), "huggingface", (0, 255), "bicubic")
    np.testing.assert_allclose(
        apply_preprocessing(image, preprocessing)[..., 0], expected, atol=1e-3
    )


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("shape", "size"), [((50, 81), (24, 32)), ((81, 50), (32, 24))])
@pytest.mark.parametrize("evaluation", ["keras_hub", "resize"])
def test_keras_hub_crops_and_resizes_as_keras(evaluation, shape, size, interpolation):
    image = np.random.RandomState(0).randint(0, 256, (*shape, 3)).astype("uint8")
    crops = evaluation == "keras_hub"
    layer = keras.layers.Resizing(*size, interpolation, crop_to_aspect_ratio=crops)
    ours = apply_preprocessing(image, Preprocessing(size, evaluation, (0, 255), interpolation))
    # Without a crop the official resize, which is not rounded to bytes.
    np.testing.assert_allclose(ours, layer(image), atol=0 if crops else 0.5)


@pytest.mark.parametrize("evaluation", EVALUATIONS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (100, 7), (1, 20_000)])
def test_every_shape_of_image_gets_the_size(evaluation, shape):
    preprocessing = Preprocessing((24, 32), evaluation, (-1, 0))  # White around a padded image.
    values = apply_preprocessing(np.full((*shape, 3), 255, "uint8"), preprocessing)
    assert values.shape == (24, 32, 3)
    np.testing.assert_allclose(values, 0, atol=1.001 / 255)  # Towards zero, as officially.


def test_a_damaged_image_does_not_affect_its_batch():
    good = encode(photo(), "JPEG")
    batch = [good[:200], good, b"", encode(photo(seed=1), "PNG"), png_claiming(9**6, 9**6)]
    preprocessing = Preprocessing((16, 8))
    images, ok = tf.function(lambda batch: decode_or_mark(batch, preprocessing))(batch)
    assert ok.numpy().tolist() == [False, True, False, True, False]
    for index in range(5):
        expected = np.zeros((16, 8, 3))
        if ok[index]:
            expected = apply_preprocessing(decode(batch[index]), preprocessing)
        np.testing.assert_array_equal(images[index], expected)


def test_a_batch_may_be_empty_or_all_damaged():
    for batch in ([], [b""], [b"", b"?"]):
        images, ok = decode_or_mark(tf.constant(batch, tf.string), Preprocessing((4, 4)))
        assert images.shape == (len(batch), 4, 4, 3)
        assert ok.numpy().tolist() == [False] * len(batch)
