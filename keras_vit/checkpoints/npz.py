"""Reads and writes `.npz` archives of arrays, from strangers too: nothing is unpickled."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import zipfile
import zlib

import numpy as np

from keras_vit.checkpoints.arrays import StoredArray, check_declared_size, noted_facts, weight_dtype
from keras_vit.files import atomic_write

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What zipfile raises for damaged, encrypted or unknown entries.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)


def read_npz(path) -> tuple[dict[str, StoredArray], dict]:
    """Returns what an archive holds, by name, without reading the values.

    Every header is read and compared with the archive's directory.

    Args:
        path: A file that `numpy.savez` or `write_npz` wrote.

    Returns:
        The arrays, and what `write_npz` noted about them (empty for other writers).

    Raises:
        ValueError: If the file is no such archive, truncated or otherwise damaged, holds
            pickled objects, or declares more than it can hold.
    """
    with _open(path) as archive:
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(set(names)) < len(names):
            raise _damaged(path, "two arrays have the same name")
        arrays = [
            _stored_array(path, archive, info)
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        ]
        comment = archive.comment
    if not arrays:
        raise _damaged(path, "there is no array in it")
    check_declared_size(path, arrays, os.path.getsize(path))
    return {array.name: array for array in arrays}, noted_facts(comment, "keras_vit")


def write_npz(path, arrays: dict[str, np.ndarray], notes: dict) -> None:
    """Writes an archive whole or not at all, as `numpy.savez` does but for its comment.

    Args:
        path: Where to.
        arrays: Values by name.
        notes: Facts that the layout has no array for, JSON; kept in the archive's comment,
            which other readers of `.npz` pass over.
    """
    with atomic_write(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            # A ZipInfo of one's own has a fixed date: equal weights give equal files.
            entry = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
        archive.comment = json.dumps({"keras_vit": notes}).encode()


def _stored_array(path, archive, info):
    name = info.filename.removesuffix(".npy")
    try:
        with archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in _HEADERS:
                raise ValueError(f"format version {version} is unknown")
            shape, fortran_order, dtype = _HEADERS[version](stream)
            header_bytes = stream.tell()
    except Exception as error:  # NumPy's parser of headers lets any kind through.
        raise _damaged(path, f"{name}: {error}") from error
    if dtype.hasobject:
        raise ValueError(
            "A checkpoint must hold plain arrays; pickled objects are never opened. "
            f"Received: {name} of dtype {dtype} in {path}"
        )
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or header_bytes + declared != info.file_size:
        raise _damaged(
            path, f"{name} declares shape {shape}, {declared:,} bytes, in an entry of "
            f"{info.file_size:,} bytes"
        )  # fmt: skip
    values = weight_dtype(path, name, dtype)
    shape = tuple(shape)
    return StoredArray(
        name, shape, values, lambda: _read(path, info, header_bytes, shape, values, fortran_order)
    )


def _read(path, info, header_bytes, shape, dtype, fortran_order):
    array = np.empty(shape[::-1] if fortran_order else shape, dtype)
    buffer = array.reshape(-1).view(np.uint8).data
    try:
        with _open(path) as archive, archive.open(info.filename) as stream:
            stream.read(header_bytes)
            filled = 0
            while filled < len(buffer):
                count = stream.readinto(buffer[filled:])
                if not count:
                    raise EOFError("the values end early")
                filled += count
            stream.read(1)  # Compares the checksum.
    except _DAMAGE as error:
        raise _damaged(path, f"{info.filename.removesuffix('.npy')}: {error}") from error
    return array.T if fortran_order else array


@contextlib.contextmanager
def _open(path):
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise _damaged(path, str(error)) from error
    with archive:
        yield archive


def _damaged(path, what):
    return ValueError(
        "A checkpoint must be a whole archive of arrays; this one is truncated or damaged: "
        f"fetch or write it again. Received: {path} ({' '.join(what.split())})"
    )
