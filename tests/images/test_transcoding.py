"""Files that Pillow reads: the pixels that TensorFlow's graph gives, and all other formats."""

import concurrent.futures
import io
import multiprocessing
import struct
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_vit.images import decoding, transcoding
from keras_vit.images.decoding import decodable, decode_image
from keras_vit.images.listing import image_files
from keras_vit.images.transcoding import (
    MAX_SCANS,
    START_OF_SCAN,
    decode_file,
    kind_of,
    pixels_in_header,
    read_image,
    transcoded,
    transcoded_file,
    with_pixels,
)
from makers import encode, smooth_picture

PIXELS = np.linspace(0, 255, 20 * 30 * 3).reshape(20, 30, 3).astype("uint8")
WIDE = np.linspace(0, 65535, 20 * 30).reshape(20, 30).astype("uint16")
WIDE_COLOURS = np.stack([WIDE, WIDE.T.reshape(20, 30), WIDE[::-1]], 2)
PHOTO = Image.fromarray(PIXELS)


def tiff(pixels, *, photometric=1, sample_format=1, more=()):
    """An uncompressed TIFF of an array, written by hand in the array's byte order."""
    order = "<" if pixels.dtype.byteorder in "<|=" else ">"
    height, width, *channels = pixels.shape
    bits, count = 8 * pixels.dtype.itemsize, channels[0] if channels else 1
    data = pixels.tobytes()
    tags = [(256, width), (257, height), (258, bits), (259, 1), (262, photometric), (273, 8)]
    tags = sorted(
        [*tags, (277, count), (278, height), (279, len(data)), (339, sample_format), *more]
    )
    end = 8 + len(data) + 2 + 12 * len(tags) + 4
    entries = b"".join(
        struct.pack(f"{order}HHII", tag, 3, count, end)
        if tag == 258 and count > 1
        else struct.pack(f"{order}HHII", tag, 4, 1, value)
        for tag, value in tags
    )
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8 + len(data))
    directory = struct.pack(f"{order}H", len(tags)) + entries + bytes(4)
    return head + data + directory + struct.pack(f"{order}{count}H", *[bits] * count)


def read(encoded):
    with Image.open(io.BytesIO(transcoded(encoded))) as image:
        assert image.format == "PNG"
        return np.asarray(image)


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (encode(PHOTO, "TIFF"), PIXELS),
        (encode(PHOTO, "TIFF", compression="tiff_lzw"), PIXELS),
        (encode(PHOTO, "TIFF", tiffinfo={274: 6}), np.rot90(PIXELS, -1)),
        (encode(PHOTO.convert("RGBA"), "TIFF"), PIXELS),
        (encode(PHOTO, "TIFF", save_all=True, append_images=[Image.new("RGB", (9, 9))]), PIXELS),
        (encode(Image.fromarray(255 - PIXELS).convert("CMYK"), "TIFF"), 255 - PIXELS),
    ],
)
def test_a_tiff_of_8_bits_becomes_a_png(encoded, expected):
    np.testing.assert_array_equal(read(encoded), expected)


@pytest.mark.parametrize(
    ("encoded", "values"),
    [
        (encode(Image.fromarray(WIDE), "TIFF"), WIDE),
        (encode(Image.fromarray(WIDE), "TIFF", compression="tiff_lzw"), WIDE),
        (encode(Image.fromarray(WIDE), "TIFF", tiffinfo={274: 3}), WIDE[::-1, ::-1]),
        (tiff(WIDE.astype(">u2")), WIDE),
        (tiff(WIDE, photometric=0), 65535 - WIDE),  # White is zero.
        (tiff(WIDE_COLOURS, photometric=2), WIDE_COLOURS),
        (tiff(WIDE_COLOURS.astype(">u2"), photometric=2), WIDE_COLOURS),
    ],
)
def test_a_tiff_of_16_bits_becomes_a_png_of_its_values(encoded, values):
    expected = np.broadcast_to(values.reshape(20, 30, -1), (20, 30, 3))
    in_graph = tf.io.decode_png(transcoded(encoded), channels=3, dtype=tf.uint16)
    np.testing.assert_array_equal(in_graph, expected)


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_a_stored_png_has_the_same_pixels_in_fewer_bytes(kind):
    encoded = encode(PHOTO, kind)
    small = transcoded(encoded, small=True)
    assert len(small) < len(transcoded(encoded))
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(small))), read(encoded))


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_avif_and_heic_are_read_and_turned(kind, tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    if kind == "HEIF":
        pillow_heif = pytest.importorskip("pillow_heif")
        pillow_heif.register_heif_opener()
        encoded = encode(PHOTO, kind, quality=-1, chroma=444, exif=exif.tobytes())
    else:
        encoded = encode(PHOTO, kind, quality=100, subsampling="4:4:4", exif=exif)
    assert kind_of(encoded) == kind
    path = tmp_path / "photo.jpg"  # The suffix does not matter.
    path.write_bytes(encoded)
    assert np.abs(read_image(path).astype(int) - np.rot90(PIXELS, -1)).max() <= 3  # Lossy.


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (encode(PHOTO, "TIFF")[:900], "damaged"),
        (encode(PHOTO, "AVIF")[:300], "damaged"),
        (tiff(WIDE.astype("float32"), sample_format=3), "32 bits.*mode F"),
        (tiff(WIDE.view("int16"), sample_format=2), "without a sign.*16 bits"),
        (tiff(np.zeros((20, 30, 5), "uint8"), photometric=2), "TIFF that Pillow"),
        (tiff(PIXELS, photometric=2, more=[(254, 1)]), "raw file"),
        (tiff(WIDE_COLOURS, photometric=2, more=[(284, 2)]), "in planes"),
        (b"\0\0\0\x18ftypheic" + bytes(9), r"HEIC image needs .* pip install -e \"\.\[heif\]\""),
    ],
    ids=["cut-tiff", "cut-avif", "float", "signed", "five-bands", "raw", "planes", "heic"],
)
def test_what_cannot_be_read_has_a_reason_in_one_line(encoded, reason, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ValueError, match=reason) as caught:
        transcoded(encoded)
    assert "\n" not in str(caught.value)


def test_other_files_stay_as_they_are(tmp_path):
    for encoded in (encode(PHOTO, "JPEG"), b"text", b"", b"\0\0\0\x18ftypisom"):
        assert transcoded(encoded) is encoded
    path = tmp_path / "a.png"
    path.write_bytes(encode(PHOTO, "PNG"))
    assert transcoded_file(path, tmp_path) == str(path)


def test_images_of_a_folder_are_found_by_suffix_or_content(tmp_path):
    jpeg = encode(PHOTO, "JPEG")
    for name in ("a.JFIF", "b.heic", "c.psd", "d", "sub/e.avif", ".x.jpg", "._y.jpg", ".s/z.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(jpeg)
    for name in ("notes.txt", "BM.md", "clip.mp4"):
        (tmp_path / name).write_bytes(b"BM\0\x18ftypisom")
    found = [path.removeprefix(f"{tmp_path}/") for path in image_files(tmp_path)]
    assert found == ["a.JFIF", "b.heic", "c.psd", "d", "sub/e.avif"]


def test_a_folder_without_images_names_the_other_files(tmp_path):
    for name in ("labels.json", "notes.txt", ".DS_Store"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=r"2 other files.*labels\.json, notes\.txt"):
        image_files(tmp_path)


@pytest.mark.parametrize("kind", ["TIFF", "PNG"])
def test_more_pixels_than_allowed_are_refused_before_they_are_decoded(kind, monkeypatch):
    encoded = encode(PHOTO, kind)
    height, width = PIXELS.shape[:2]
    monkeypatch.setattr(transcoding, "MAX_PIXELS", height * width)
    assert decode_file(encoded).shape == PIXELS.shape
    limit = height * width - 1
    monkeypatch.setattr(transcoding, "MAX_PIXELS", limit)
    with pytest.raises(ValueError, match=f"{limit} pixels.*{height} {width}"):
        decode_file(encoded)


def picture(mode="RGB", size=(37, 23)):
    return smooth_picture(np.random.default_rng(0), size[::-1], (7, 9)).convert(mode)


def turned(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(picture(), kind, exif=exif.tobytes())


def png_with_late_exif():
    before, name, rest = turned("PNG", 6).partition(b"eXIf")
    size = int.from_bytes(before[-4:], "big") + 4  # Content and checksum.
    chunk, others = before[-4:] + name + rest[:size], before[:-4] + rest[size:]
    return others[:-12] + chunk + others[-12:]  # In front of IEND.


def cmyk_without_adobe_marker():
    content = encode(picture("CMYK"), "JPEG")
    start = content.index(b"\xff\xee")
    size = 2 + int.from_bytes(content[start + 2 : start + 4], "big")
    return content[:start] + content[start + size :]


FILES = {
    "JPEG": lambda: encode(picture(), "JPEG", quality=83),
    "progressive JPEG": lambda: encode(picture(), "JPEG", progressive=True),
    "grey JPEG": lambda: encode(picture("L"), "JPEG"),
    "CMYK JPEG": lambda: encode(picture("CMYK"), "JPEG"),
    "CMYK JPEG without Adobe's marker": cmyk_without_adobe_marker,
    "PNG": lambda: encode(picture(), "PNG"),
    "grey PNG": lambda: encode(picture("L"), "PNG"),
    "1-bit PNG": lambda: encode(picture("1"), "PNG"),
    "palette PNG": lambda: encode(picture("P"), "PNG"),
    "RGBA PNG": lambda: encode(picture("RGBA"), "PNG"),
    "16-bit PNG": lambda: encode(Image.fromarray(WIDE), "PNG"),
    "PNG with EXIF behind its pixels": png_with_late_exif,
    "BMP": lambda: encode(picture(), "BMP"),
    "animated GIF": lambda: encode(
        picture("P"), "GIF", save_all=True, append_images=[picture("P").rotate(180)]
    ),
    "WebP": lambda: encode(picture(), "WEBP"),
}


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def decode_in_graph(content):
    return decode_image(decodable(content))


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_has_the_pixels_of_the_graph(name):
    content = FILES[name]()
    np.testing.assert_array_equal(decode_file(content), decode_in_graph(content))
    if "CMYK" not in name and "16-bit" not in name:  # As Pillow converts them.
        expected = Image.open(io.BytesIO(content)).convert("RGBA").convert("RGB")
        np.testing.assert_array_equal(decode_file(content), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_a_file_that_is_cut_short_is_refused_in_one_line(kind):
    content = encode(picture("P" if kind == "GIF" else "RGB", (200, 150)), kind)
    with pytest.raises(ValueError, match="damaged") as raised:
        decode_file(content[: len(content) // 2])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, I am a text", "JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "JPEG, PNG"),
    ],
)
def test_what_is_no_image_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        decode_file(content)


# Memory and time


@pytest.fixture
def small_memory(monkeypatch):
    """Memory for two pictures of 20 x 30 pixels, or one that is larger."""
    memory = transcoding._Memory()
    memory._left = memory._all = 2 * 600 * transcoding._BYTES_A_PIXEL
    monkeypatch.setattr(transcoding, "_memory", memory)
    return memory


def most_at_once(encoded, count=8):
    """Returns how many of some images were decoded at the same time, by threads."""
    running, most, lock = [], [], threading.Lock()

    def use(pixels):
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.02)
        with lock:
            running.pop()
        return pixels.shape

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        shapes = list(pool.map(lambda _: with_pixels(encoded, use), range(count)))
    assert {*shapes} == {decode_file(encoded).shape}
    return max(most)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"])
@pytest.mark.parametrize(("size", "most"), [((30, 20), 2), ((31, 20), 1), ((300, 200), 1)])
def test_images_are_decoded_together_as_far_as_they_fit_into_the_memory(
    kind, size, most, small_memory
):
    assert most_at_once(encode(PHOTO.resize(size), kind)) <= most


def test_memory_is_free_again_after_a_damaged_image(small_memory):
    whole = encode(PHOTO)
    with pytest.raises(ValueError, match="damaged|truncated"):
        decode_file(whole[:-40])
    with pytest.raises(ZeroDivisionError):
        with_pixels(whole, lambda pixels: 1 // 0)
    assert small_memory._left == small_memory._all


def read_in_a_fork(encoded):
    return decode_file(encoded).shape


def test_a_fork_of_a_process_that_decodes_does_not_wait_for_it(small_memory):
    with small_memory.of(10**6), multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(read_in_a_fork, (encode(PHOTO),)).get(30) == (20, 30, 3)


@pytest.mark.parametrize("error", [MemoryError, tf.errors.ResourceExhaustedError])
def test_too_little_memory_for_an_image_is_one_line(error):
    def use(pixels):
        raise error(None, None, "no memory") if error is not MemoryError else error

    with pytest.raises(ValueError, match="memory.*height and width 20"):
        with_pixels(encode(PHOTO), use)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("1", "PNG"),
        ("P", "GIF"),
        ("I;16", "PNG"),
        ("CMYK", "JPEG"),
        ("RGBA", "WEBP"),
        ("L", "TIFF"),
    ],
)
def test_an_image_in_strips_has_the_same_pixels(mode, kind, orientation, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = orientation
    source = Image.fromarray(WIDE) if mode == "I;16" else PHOTO.convert(mode)
    encoded = encode(source, kind, **({} if kind == "GIF" else {"exif": exif}))
    expected = decode_file(encoded)
    monkeypatch.setattr(transcoding, "_STRIP", 95)  # Three rows; the last strip has fewer.
    np.testing.assert_array_equal(decode_file(encoded), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_an_image_is_turned_as_pillow_turns_it(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = encode(PHOTO, kind, exif=exif)
    with Image.open(io.BytesIO(encoded)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    found = decode_file(encoded)
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous


def progressive(scans):
    """A progressive JPEG whose last scan is repeated."""
    content = encode(PHOTO, "JPEG", progressive=True)
    end, start = content.rindex(b"\xff\xd9"), content.rindex(START_OF_SCAN)
    more = scans - content.count(START_OF_SCAN)
    return content[:end] + content[start:end] * more + content[end:]


def in_graph(encoded):
    return decode_image(encoded).numpy()


@pytest.mark.parametrize("decode", [decode_file, in_graph, decoding.verify_image])
def test_a_jpeg_of_more_scans_than_photos_have_is_refused(decode):
    assert progressive(10).count(START_OF_SCAN) == 10
    decode(progressive(10))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="100 scans"):
        decode(progressive(MAX_SCANS + 1))


@pytest.mark.parametrize("decode", [decode_file, in_graph])
def test_a_large_jpeg_may_have_fewer_scans(decode, monkeypatch):
    for module in (transcoding, decoding):
        monkeypatch.setattr(module, "MAX_SCANNED", 600 * 20)
    decode(progressive(20))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="scans"):
        decode(progressive(21))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_pipelines_decode_one_large_image_at_a_time_and_small_ones_together(kind, monkeypatch):
    monkeypatch.setattr(decoding, "LARGE", 600)
    running, most, lock = [], [], threading.Lock()

    def slow(pixels):
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.05)
        with lock:
            running.pop()
        return pixels[0, 0, 0]

    def use(encoded):
        return tf.numpy_function(slow, [decode_image(decodable(encoded))], tf.uint8)

    for size, expected in (((31, 20), {1}), ((30, 20), {2, 3, 4})):
        most.clear()
        files = [encode(PHOTO.resize(size), kind)] * 8
        files[3] = files[3][:-20]  # A damaged one does not keep the others waiting.
        images = tf.data.Dataset.from_tensor_slices(files)
        images = images.map(lambda file: decoding.in_turn(file, use), num_parallel_calls=4)
        assert len(list(images.ignore_errors())) == 7
        assert max(most) in expected


def test_the_size_in_a_header_is_read_or_zero():
    assert pixels_in_header(encode(PHOTO, "WEBP")) == 600
    assert pixels_in_header(b"RIFF    WEBP") == 0
