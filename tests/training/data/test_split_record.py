"""What a run trained on and held out, recorded by the content of its images."""

import numpy as np
import PIL.Image
import pytest

from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.content import (
    UNKNOWN,
    file_fingerprints,
    file_pixel_fingerprints,
    fingerprint,
)
from keras_vit.training.data.split_record import (
    NEW,
    SplitRecord,
    read_fingerprints,
    read_pixel_fingerprints,
)
from makers import write_classes


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("split") / "data", 8)


@pytest.mark.parametrize("size", [0, 1, 10**6])
def test_a_file_has_the_fingerprint_of_its_bytes(size, tmp_path):
    content = np.random.default_rng(size).bytes(size)
    (tmp_path / "image").write_bytes(content)
    paths = [str(tmp_path / name) for name in ("image", "none")]
    assert file_fingerprints(paths).tolist() == [fingerprint(content), UNKNOWN]


def test_a_record_is_read_as_it_was_written(data, tmp_path):
    record = SplitRecord.of(read_fingerprints(open_source(DataSpec(data), 0.25).splits))
    record.write(tmp_path)
    again = SplitRecord.read(tmp_path)
    sizes = {part: len(numbers) for part, numbers in again.parts.items()}
    assert sizes == {"train": 12, "validation": 6, "calibration": 0, "test": 6}
    for part, numbers in record.parts.items():
        np.testing.assert_array_equal(again.parts[part], numbers)


def test_a_damaged_record_is_named(tmp_path):
    np.savez(tmp_path / "split.npz", train=np.zeros(3))
    with pytest.raises(ValueError, match="split.npz .*64-bit"):
        SplitRecord.read(tmp_path)


def test_files_with_equal_pixels_have_one_number(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 16, 3), dtype="uint8")
    image, exif = PIL.Image.fromarray(pixels), PIL.Image.Exif()
    exif[0x010E] = "a comment"
    image.save(tmp_path / "a.png", compress_level=0)
    image.save(tmp_path / "b.png", compress_level=9)
    image.save(tmp_path / "c.bmp")
    image.save(tmp_path / "d.tiff")
    image.save(tmp_path / "e.jpg")
    image.save(tmp_path / "f.jpg", exif=exif)
    PIL.Image.fromarray(pixels.reshape(16, 9, 3)).save(tmp_path / "g.png")
    paths = sorted(map(str, tmp_path.iterdir()))
    same, *others = np.split(file_pixel_fingerprints(paths), [4, 6])
    assert (same == same[0]).all()
    assert others[0][0] == others[0][1]
    assert len({same[0], *others[0], *others[1]}) == 3
    assert len(set(file_fingerprints(paths).tolist())) == 7


def test_damaged_files_and_images_of_one_color_have_no_number_of_pixels(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    PIL.Image.new("RGB", (4, 4), "red").save(tmp_path / "b.png")
    paths = [*sorted(map(str, tmp_path.iterdir())), str(tmp_path / "none.png")]
    assert file_pixel_fingerprints(paths).tolist() == [UNKNOWN] * 3


def test_images_of_16_bits_are_known_by_all_of_their_bits(tmp_path):
    low = np.random.default_rng(0).integers(0, 256, (4, 4)).astype("uint16")  # High bytes are 0.
    PIL.Image.fromarray(low).save(tmp_path / "a.png")
    PIL.Image.fromarray(low).save(tmp_path / "b.tif")
    PIL.Image.fromarray(low[::-1].copy()).save(tmp_path / "c.png")
    first, second, other = file_pixel_fingerprints(sorted(map(str, tmp_path.iterdir())))
    assert first == second
    assert len({first, other, UNKNOWN}) == 3


def test_a_record_with_pixels_is_read_as_it_was_written(data, tmp_path):
    splits = open_source(DataSpec(data), 0.25).splits
    record = SplitRecord.of(read_fingerprints(splits), read_pixel_fingerprints(splits))
    record.write(tmp_path)
    again = SplitRecord.read(tmp_path)
    for part, numbers in record.pixels.items():
        np.testing.assert_array_equal(again.pixels[part], numbers)
    assert [len(again.pixels[part]) for part in ("train", "test")] == [12, 6]


TRAINED, CHOSEN, CALIBRATED, TESTED, OTHER = range(1, 6)


def record_of_parts():
    parts = {"train": TRAINED, "validation": CHOSEN, "calibration": CALIBRATED, "test": TESTED}
    return SplitRecord.of({part: np.array([number], "uint64") for part, number in parts.items()})


def test_images_that_chose_the_weights_were_seen():
    numbers = np.array([TRAINED, CHOSEN, CALIBRATED, TESTED, OTHER], "uint64")
    assert record_of_parts().has_seen(numbers).tolist() == [True, True, False, False, False]


def test_an_image_that_was_not_read_is_in_no_part():
    record = SplitRecord.of({"train": np.array([UNKNOWN, TRAINED, UNKNOWN], "uint64")})
    assert record.parts["train"].tolist() == [TRAINED]
    assert record.part_of(np.array([UNKNOWN], "uint64")).tolist() == [NEW]


def test_images_of_which_none_was_read_have_no_record():
    assert SplitRecord.of({"train": np.array([UNKNOWN], "uint64"), "test": None}) is None
