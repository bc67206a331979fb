"""Files of arrays: `.npz`, `.safetensors` and PyTorch state dicts. Nothing is unpickled."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from keras_vit._installation import import_optional
from keras_vit.description import Description
from keras_vit.utils.files import atomic_write
from keras_vit.utils.json_files import parse_json
from keras_vit.utils.safe_text import first_line

if TYPE_CHECKING:
    import h5py

# The value of an array in an open file, by the array's key.
ReadValue = Callable[[Any], np.ndarray]
OpenFile = Callable[[], contextlib.AbstractContextManager[ReadValue]]


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array of a file whose name, shape and dtype are known and whose value was not read.

    A checkpoint is compared with a model by these; only reading takes memory.

    Args:
        name: Name in the file.
        shape: Shape in the file.
        dtype: Dtype of the values.
        open: Opens the file; the same function for all arrays of a file.
        key: Argument of the opened file's function for this array.
        block: Index along the first axis, where the arrays of all blocks are stacked.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    open: OpenFile
    key: Hashable
    block: int | None = None


class FileContent(NamedTuple):
    """What is in a file of weights.

    Args:
        arrays: Its arrays by name.
        note: The description that this package wrote into the file, or None.
        config: The object in its `config.json`.
        keras_version: 2 or 3 for HDF5 files of Keras; 0 for others.
        notes: Sentences for a report.
    """

    arrays: dict[str, StoredArray]
    note: Description | None = None
    config: dict[str, Any] = {}
    keras_version: int = 0
    notes: tuple[str, ...] = ()


def computed_array(
    name: str, shape: Sequence[int], compute: Callable[[], np.ndarray]
) -> StoredArray:
    """Returns an array that is in no file; its value is computed when it is read."""
    return StoredArray(
        name,
        tuple(shape),
        np.dtype("float32"),
        lambda: contextlib.nullcontext(lambda key: compute()),
        name,
    )


def joined_array(pair: Sequence[StoredArray], shape: Sequence[int], axis: int) -> StoredArray:
    """Returns the array of several ones along an axis, with the name of the first.

    Args:
        pair: The arrays.
        shape: The shape of the result.
        axis: The axis.
    """
    return computed_array(
        pair[0].name, shape, lambda: np.concatenate(list(read_values(pair)), axis)
    )


def read_values(arrays: Iterable[StoredArray]) -> Iterator[np.ndarray]:
    """Yields the value of each array. A file is opened once, a stack of blocks read once.

    Raises:
        ValueError: If a file is damaged.
    """
    stacks: dict[tuple[OpenFile, Hashable], np.ndarray] = {}
    with contextlib.ExitStack() as files:
        opened: dict[OpenFile, ReadValue] = {}
        for array in arrays:
            if array.open not in opened:
                opened[array.open] = files.enter_context(array.open())
            key = (array.open, array.key)
            value = stacks[key] if key in stacks else opened[array.open](array.key)
            if array.block is None:
                yield value
            else:
                stacks[key] = value
                yield value[array.block]


# Bytes that arrays may declare beyond a fixed multiple of the file: a head of zeros is
# compressed to a thousandth, the other weights are not.
_FREE_BYTES = 256 * 2**20
_MAX_EXPANSION = 64


# Counters and indices that PyTorch keeps in state dicts; they are no weights.
_BOOKKEEPING = re.compile(
    r"(?:^|\.)(?:num_batches_tracked|n_averaged|position_ids|relative_position_index)$"
)


def check_declared_size(
    path, arrays: Iterable[StoredArray | _Header | h5py.Dataset], file_bytes: int | None = None
) -> None:
    """Raises ValueError if arrays declare far more bytes than their file can hold."""
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    file_bytes = os.path.getsize(path) if file_bytes is None else file_bytes
    if declared > _FREE_BYTES + _MAX_EXPANSION * file_bytes:
        raise ValueError(
            "A checkpoint must hold the bytes that its arrays declare. "
            f"Received: {path} of {file_bytes:,} bytes, which declares {declared:,}"
        )


# Names of dtypes in files that are not NumPy's.
_DTYPES = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BF16": "bfloat16",
    **{f"torch.{name}": name for name in ("float16", "float32", "float64", "bfloat16")},
}


def weight_dtype(path, name: str, dtype: np.dtype | str) -> np.dtype:
    """Returns the dtype of an array's values; bfloat16 if NumPy only knows "2 bytes".

    Args:
        path: The file, for the message.
        name: The array, for the message.
        dtype: The dtype in the file: one of NumPy, or the file's name for it.

    Raises:
        ValueError: If the array does not hold real numbers of 16 bits or more.
    """
    known = _DTYPES.get(str(dtype), str(dtype))
    if known in ("bfloat16", "uint16", "|V2"):
        return np.dtype(ml_dtypes.bfloat16)
    if known.lstrip("<>") in ("float16", "float32", "float64", "f2", "f4", "f8"):
        return np.dtype(known)
    raise ValueError(
        "Weights must be float16, bfloat16, float32 or float64. "
        f"Received: {name} of dtype {dtype} in {path}"
    )


def _note(path, text: str | bytes | None) -> Description | None:
    """The description that this package wrote into a file, JSON; None for any other note."""
    if not text or _NOTE not in str(text):
        return None
    try:
        return Description.from_json(parse_json(text, "the note")[_NOTE], "the note")
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_file("The note of keras-vit in a checkpoint", path, error) from error


_NOTE = "keras_vit"


def damaged_file(kind: str, path, reason: str | Exception) -> ValueError:
    """Returns the error of a damaged file, such as of "A .weights.h5", on one short line."""
    line = " ".join(str(reason).split())[:300]  # It may quote the file.
    return ValueError(
        f"{kind} must be whole; this one is truncated or damaged: fetch or write it again. "
        f"Received: {path} ({line})"
    )


# .npz

_NPZ = "An archive of arrays"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path) -> FileContent:
    """Returns the arrays of an archive and its note, without reading values.

    Every header is read and compared with the archive's directory.

    Args:
        path: A file that `numpy.savez` or `write_npz` wrote.

    Raises:
        ValueError: If the file is no such archive, truncated or otherwise damaged, holds
            pickled objects, or declares more than it can hold.
    """

    @contextlib.contextmanager
    def reader():
        with open_zip(path) as archive:
            yield lambda key: _npz_value(path, archive, *key)

    arrays = {}
    with open_zip(path) as archive:
        for name, stored in _npz_headers(path, archive).items():
            dtype = weight_dtype(path, name, stored.dtype)
            arrays[name] = StoredArray(name, stored.shape, dtype, reader, (name, dtype))
    check_declared_size(path, arrays.values())
    return FileContent(arrays, _note(path, archive.comment))


def load_arrays(path, bytes_beside: int = 0) -> dict[str, np.ndarray]:
    """Returns all arrays of an archive, of any type but objects.

    Args:
        path: The archive.
        bytes_beside: Size of the files that it describes, which may be far larger than it.

    Raises:
        ValueError: If the file is no such archive, damaged, or declares more than it can hold.
        OSError: If it cannot be read.
    """
    with open_zip(path) as archive:
        headers = _npz_headers(path, archive)
        check_declared_size(path, headers.values(), os.path.getsize(path) + bytes_beside)
        return {
            name: _npz_value(path, archive, name, header.dtype) for name, header in headers.items()
        }


def check_npz(path) -> None:
    """Reads an archive of arrays to its end, with the checksums of the values.

    Raises:
        ValueError: If it is no archive, or a checksum differs.
    """
    with open_zip(path) as archive:
        try:
            damaged: str | Exception | None = archive.testzip()
        except Exception as error:  # zipfile raises nearly anything on a damaged archive.
            damaged = error
    if damaged is not None:
        raise damaged_file(_NPZ, path, f"another checksum: {damaged}")


def write_npz(path, arrays: dict[str, np.ndarray], note: Description | None = None) -> None:
    """Writes an archive atomically, as `numpy.savez` does except for its comment.

    Args:
        path: The file to write.
        arrays: Values by name.
        note: What the model is, as the arrays do not show all of it. It is kept in the
            archive's comment, which other readers of `.npz` ignore.
    """
    with atomic_write(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            # A ZipInfo made here has a fixed date: equal weights give equal files.
            entry = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(entry, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
        if note is not None:
            archive.comment = json.dumps({_NOTE: note.to_json()}).encode()


@contextlib.contextmanager
def open_zip(path) -> Iterator[zipfile.ZipFile]:
    """Opens an archive to read.

    Raises:
        ValueError: If its directory is damaged.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise damaged_file(_NPZ, path, error) from error
    with archive:
        yield archive


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


def _npz_headers(path, archive) -> dict[str, _Header]:
    """The shape and the dtype of each array by name."""
    headers: dict[str, _Header] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in headers:
            raise damaged_file(_NPZ, path, "two arrays have the same name")
        if name == info.filename:
            continue
        try:
            with archive.open(info) as stream:
                read_header = _HEADERS[np.lib.format.read_magic(stream)]
                # NumPy's own headers have 118 characters for a plain array.
                shape, _, dtype = read_header(stream, max_header_size=1000)
                header_bytes = stream.tell()
        except Exception as error:  # NumPy's parser of headers raises any kind.
            raise damaged_file(_NPZ, path, f"{name}: {error}") from error
        if dtype.hasobject:
            raise ValueError(
                "A checkpoint must hold plain arrays; pickled objects are never opened. "
                f"Received: {name} of dtype {dtype} in {path}"
            )
        declared = header_bytes + math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or declared != info.file_size:
            reason = f"{name} of shape {shape} in an entry of {info.file_size:,} bytes"
            raise damaged_file(_NPZ, path, reason)
        headers[name] = _Header(tuple(shape), dtype)
    if not headers:
        raise damaged_file(_NPZ, path, "it holds no array")
    return headers


def _npz_value(path, archive, name, dtype):
    try:
        with archive.open(f"{name}.npy") as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # Compares the checksum.
    except Exception as error:  # zipfile raises nearly anything on a damaged archive.
        raise damaged_file(_NPZ, path, f"{name}: {error}") from error
    return array.view(dtype)  # NumPy reads bfloat16 as "2 bytes".


# .safetensors


def read_safetensors(path) -> FileContent:
    """Returns the arrays of a file and its note, without reading the values.

    The package safetensors checks the header.

    Raises:
        ValueError: If the file is damaged, or holds other than real numbers.
        ImportError: If the package is not installed.
    """
    safetensors = import_optional("safetensors", "Reading .safetensors", "convert")

    @contextlib.contextmanager
    def reader():
        with safetensors.safe_open(path, "np") as file:
            yield file.get_tensor

    arrays = {}
    try:
        with safetensors.safe_open(path, "np") as file:
            for name in sorted(file.keys()):
                if _BOOKKEEPING.search(name):
                    continue
                view = file.get_slice(name)
                dtype = weight_dtype(path, name, view.get_dtype())
                arrays[name] = StoredArray(name, tuple(view.get_shape()), dtype, reader, name)
            note = (file.metadata() or {}).get(_NOTE)
    except safetensors.SafetensorError as error:
        raise damaged_file("A .safetensors file", path, error) from error
    check_declared_size(path, arrays.values())
    return FileContent(arrays, note and _note(path, f'{{"{_NOTE}": {note}}}'))


def write_safetensors(path, arrays: dict[str, np.ndarray], note: Description | None = None) -> None:
    """Writes a file atomically; the note, what the model is, goes into its metadata.

    Raises:
        ImportError: If the package safetensors is not installed.
    """
    safetensors = import_optional("safetensors.numpy", "Writing .safetensors", "convert")
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # Readers in transformers ask for "format".
    metadata = {"format": "pt"}
    if note is not None:
        metadata[_NOTE] = json.dumps(note.to_json())
    with atomic_write(path) as partial:
        safetensors.save_file(arrays, partial, metadata)


# PyTorch state dicts

# Training scripts wrap the state dict in one of these; averages over the training come first, as
# in timm.
_AVERAGES = ("state_dict_ema", "model_ema", "ema_state_dict", "model_ema_state_dict", "ema")
_WRAPPERS = (*_AVERAGES, "state_dict", "model", "model_state", "model_state_dict")


def _unwrapped(state):
    """The state dict within what a training script saved, and a note on the others."""
    entries = [name for name in _WRAPPERS if isinstance(state.get(name), dict) and state[name]]
    if not entries:
        return state, ()
    first, *others = entries
    return state[first], tuple(f"the weights are {first}, not {other}" for other in others)


def read_torch(path) -> FileContent:
    """Returns the arrays of a `.bin` or `.pth` file.

    PyTorch's weights-only loading runs no code of the file and maps the values into memory,
    so the file stays open as long as the arrays exist. Of several state dicts the averages over the
    training are read.

    Raises:
        ValueError: If the file is damaged, is more than weights, or holds other than real
            numbers.
        ImportError: If PyTorch is not installed.
    """
    purpose = "Reading a PyTorch file, unlike a .safetensors file of the same weights,"
    torch = import_optional("torch", purpose, extra="")
    if zipfile.is_zipfile(path):  # Not the form before PyTorch 1.6.
        with open_zip(path) as archive:
            # PyTorch compresses nothing: other entries may hold far more than the file.
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                reason = "its entries are compressed, as of a TorchScript program"
                raise damaged_file("A PyTorch file", path, reason)
    try:
        # The arguments of the program that trained, in timm's files: plain values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # Any, from unpickling a damaged or hostile file.
        raise ValueError(
            "A PyTorch file must be a whole state dict that weights-only loading takes. "
            f"Received: {path} ({first_line(error)})"
        ) from error
    state, notes = _unwrapped(state if isinstance(state, dict) else {"": state})

    def value(name):
        tensor = state[name].detach().resolve_neg()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()

    def reader():
        return contextlib.nullcontext(value)

    arrays = {}
    for name, tensor in state.items():
        if isinstance(name, str) and _BOOKKEEPING.search(name):
            continue
        is_tensor = isinstance(name, str) and isinstance(tensor, torch.Tensor)
        if not is_tensor or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise ValueError(
                "A state dict must hold dense tensors alone, by name. "
                f"Received: {name!r} of {type(tensor)} {getattr(tensor, 'layout', '')} in {path}"
            )
        dtype = weight_dtype(path, name, str(tensor.dtype))
        arrays[name] = StoredArray(name, tuple(tensor.shape), dtype, reader, name)
    check_declared_size(path, arrays.values())
    return FileContent(arrays, notes=notes)
