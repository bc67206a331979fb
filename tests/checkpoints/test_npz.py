"""Files from strangers: one clear error, and no memory for what a header claims."""

import io
import pickle
import struct
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.formats import read_npz, read_values, write_npz
from keras_vit.description import Description


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.npz"


@pytest.fixture
def whole(write_npz):
    rng = np.random.default_rng(0)
    return write_npz({f"layer_{i}/kernel": rng.normal(size=(40, 40)) for i in range(4)}, "a.npz")


def _npy(header, values=b""):
    header = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


def _archive(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)


def test_a_truncated_archive_says_so(whole, path):
    content = whole.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(ValueError, match="truncated or damaged"):
            open_checkpoint(path)


def test_a_flipped_bit_is_found_by_the_checksum(whole, path):
    content = bytearray(whole.read_bytes())
    content[len(content) * 2 // 5] ^= 1  # Among the values of the second array.
    path.write_bytes(content)
    arrays = read_npz(path)[0]
    with pytest.raises(ValueError, match="damaged.*CRC"):
        list(read_values(arrays.values()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r".npz archive, .*\(b''\)"),
        (b"<html>404 Not Found</html>", r".npz archive, .*\(b'<html>40'\)"),
        (pickle.dumps({"weights": 1}), "a pickle"),
    ],
)
def test_other_files_are_refused_with_the_reason(content, message, path):
    with pytest.raises(FileNotFoundError, match="weights.npz"):
        open_checkpoint(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,) ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 300 + "), }",
        "__import__('os').system('true')",
    ],
)
def test_wrong_headers_are_refused_before_memory_is_taken(header, path):
    _archive(path, weights=_npy(header, b"\x00" * 8))
    with pytest.raises(ValueError, match="truncated or damaged"):
        read_npz(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        *((np.zeros(3, dtype), "float16, bfloat16, float32") for dtype in ("i8", "c8", "<U3")),
        (np.array([{"a": 1}], dtype=object), "pickled objects"),
    ],
)
def test_other_than_real_numbers_are_refused(array, message, path):
    np.savez(path, weights=array)
    with pytest.raises(ValueError, match=message):
        read_npz(path)


def test_a_zip_bomb_is_refused_unread(path):
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(2**26, "float32"))  # 256 MiB, 256 kB when packed.
    _archive(path, a=zeros.getvalue(), b=zeros.getvalue())
    with pytest.raises(ValueError, match="arrays declare"):
        read_npz(path)


def test_nothing_is_half_written(path):
    write_npz(path, {"a": np.ones(3, "float32")})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(path, {"a": np.ones(3, "float32"), "b": np.array([{}])})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_equal_weights_give_equal_files(path, tmp_path):
    for file in (path, tmp_path / "again.npz"):
        write_npz(file, {"a": np.ones(3, "float32")}, Description(position_grid=(1, 2)))
    assert path.read_bytes() == (tmp_path / "again.npz").read_bytes()


def test_the_weights_of_a_whole_model_of_ours_are_read(model_of, tmp_path):
    model = model_of("vit_gap")
    model.save(tmp_path / "model.keras")
    twin = keras.models.clone_model(model)
    keras_vit.load_checkpoint(twin, tmp_path / "model.keras")
    assert len(twin.weights)
    for weight, original in zip(twin.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight, original)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", "<f4"])
def test_values_are_read_in_the_byte_order_of_the_file(dtype, path):
    values = np.array([1.0, -2.5, 1e-3])
    np.savez(path, weights=values.astype(dtype))
    (read,) = read_values(read_npz(path).arrays.values())
    np.testing.assert_allclose(np.asarray(read, "float64"), values, rtol=1e-3)  # float16
