"""What a run trained on and held out, recorded by the content of its images."""

import pathlib

import numpy as np
import pytest

from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.split_record import (
    NEW,
    UNKNOWN,
    SplitRecord,
    file_fingerprints,
    fingerprint,
    read_fingerprints,
)
from keras_vit.training.data.tfrecords import write_records
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
    record = SplitRecord.of(read_fingerprints(DataSpec(data).open(0.25).splits))
    record.write(tmp_path)
    again = SplitRecord.read(tmp_path)
    sizes = {part: len(numbers) for part, numbers in again.parts.items()}
    assert sizes == {"train": 12, "validation": 6, "calibration": 0, "test": 6}
    for part, numbers in record.parts.items():
        np.testing.assert_array_equal(again.parts[part], numbers)


def test_an_image_is_known_by_its_content_whatever_its_name(data, tmp_path):
    source = DataSpec(data).open()
    record = SplitRecord.of(read_fingerprints(source.splits))
    moved = []
    for number, name in enumerate(source.splits["test"].names):
        path = tmp_path / f"{number}.png"
        path.write_bytes(pathlib.Path(name).read_bytes())
        moved.append(str(path))
    assert set(record.part_of(file_fingerprints(moved))) == {"test"}
    assert record.part_of(np.array([fingerprint(b"other")], "uint64")).tolist() == [NEW]


def test_a_copy_of_a_held_out_image_is_in_both_parts():
    record = SplitRecord(
        {part: np.array([5], "uint64") for part in ("train", "validation", "test")}
    )
    numbers = np.array([5], "uint64")
    assert record.part_of(numbers).tolist() == ["test"]
    assert record.has("train", numbers).tolist() == [True]


def test_what_chose_the_weights_was_seen_like_what_trained_them():
    parts = {"train": [1], "validation": [2], "calibration": [3], "test": [4]}
    record = SplitRecord({part: np.array(numbers, "uint64") for part, numbers in parts.items()})
    seen = record.has_seen(np.array([1, 2, 3, 4, 5], "uint64"))
    assert seen.tolist() == [True, True, False, False, False]


def test_record_files_have_none(data, tmp_path):
    write_records(open_source(data), tmp_path / "records")
    assert SplitRecord.of(read_fingerprints(open_source(tmp_path / "records").splits)) is None


def test_a_damaged_record_is_named(tmp_path):
    np.savez(tmp_path / "split.npz", train=np.zeros(3))
    with pytest.raises(ValueError, match=r"split.npz must have 64-bit numbers"):
        SplitRecord.read(tmp_path)
