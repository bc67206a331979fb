"""Files of arrays: `.npz`, `.safetensors` and PyTorch state dicts. Nothing is unpickled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable

import ml_dtypes
import numpy as np

from keras_vit.files import atomic_write


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """Name, shape and dtype of an array in a file, and how to read it.

    Files are compared with the model by these; memory is taken by `read` alone.

    Args:
        name: Name in the file.
        shape: Shape in the file.
        dtype: Dtype of the values.
        read: Returns the array.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], np.ndarray]


# Bytes that arrays may declare beyond a fixed multiple of the file: a head of zeros packs to
# a thousandth, the weights beside it do not.
_FREE_BYTES = 256 * 2**20
_MAX_EXPANSION = 64


def check_declared_size(path, arrays, file_bytes: int) -> None:
    """Raises ValueError if the arrays declare far more bytes than the file can hold."""
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
    if declared > _FREE_BYTES + _MAX_EXPANSION * file_bytes:
        raise ValueError(
            "A checkpoint must hold the bytes that its arrays declare. "
            f"Received: {path} of {file_bytes:,} bytes, which declares {declared:,}"
        )


def weight_dtype(path, name: str, dtype: np.dtype | str) -> np.dtype:
    """Returns the dtype of an array's values: bfloat16 where NumPy could only say "2 bytes".

    Args:
        path: The file, for the message.
        name: The array, for the message.
        dtype: What the file says: a dtype of NumPy, or the word for another one.

    Raises:
        ValueError: If the array holds no real numbers of 16 bits or more.
    """
    if isinstance(dtype, np.dtype):
        if (dtype.kind == "V" and dtype.itemsize == 2 and not dtype.names) or dtype == "uint16":
            return np.dtype(ml_dtypes.bfloat16)
        if dtype.kind == "f" or dtype == ml_dtypes.bfloat16:
            return dtype
    raise ValueError(
        "Weights must be float16, bfloat16, float32 or float64. "
        f"Received: {name} of dtype {dtype} in {path}"
    )


def noted_facts(text: str | bytes, key: str | None = None) -> dict:
    """Returns the facts that we noted in a file, as JSON; of others' notes nothing.

    Args:
        text: The note.
        key: Where in the note they are, or None for all of it.
    """
    try:
        facts = json.loads(text)
        facts = facts if key is None else facts[key]
        noted = {}
        if facts.get("gelu") in ("tanh", "exact"):
            noted["gelu"] = facts["gelu"]
        if isinstance(facts.get("norm_epsilon"), float):
            noted["norm_epsilon"] = facts["norm_epsilon"]
        if facts.get("position_grid"):
            down, across = facts["position_grid"]
            noted["position_grid"] = [int(down), int(across)]
        return noted
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


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


_DTYPES = {
    "F16": np.dtype("float16"),
    "F32": np.dtype("float32"),
    "F64": np.dtype("float64"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def read_safetensors(path) -> tuple[dict[str, StoredArray], dict]:
    """Returns what a file holds, by name, without reading the values; and noted facts.

    Raises:
        ValueError: If the file is damaged, or holds other than real numbers.
        ImportError: If the package is not installed.
    """
    try:
        import safetensors
    except ImportError as error:
        raise ImportError(
            "Reading .safetensors needs the package safetensors: "
            f"pip install 'keras-vit[convert]'. Received: {path}"
        ) from error

    arrays = {}
    try:
        with safetensors.safe_open(path, "np") as file:
            for name in sorted(file.keys()):
                view = file.get_slice(name)
                arrays[name] = (tuple(view.get_shape()), view.get_dtype())
            notes = (file.metadata() or {}).get("keras_vit", "{}")
    except safetensors.SafetensorError as error:
        raise ValueError(
            "A .safetensors file must be whole; this one is truncated or damaged: fetch it "
            f"again. Received: {path} ({error})"
        ) from error

    def reader(name):
        def read():
            with safetensors.safe_open(path, "np") as file:
                return file.get_tensor(name)

        return read

    stored = {
        name: StoredArray(
            name, shape, weight_dtype(path, name, _DTYPES.get(dtype, dtype)), reader(name)
        )
        for name, (shape, dtype) in arrays.items()
    }
    check_declared_size(path, stored.values(), os.path.getsize(path))
    return stored, noted_facts(notes)


def write_safetensors(path, arrays: dict[str, np.ndarray], facts: dict) -> None:
    """Writes a file whole or not at all; the facts go into its metadata.

    Raises:
        ImportError: If the package is not installed.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError(
            "Writing .safetensors needs the package safetensors: "
            f"pip install 'keras-vit[convert]'. Received: {path}"
        ) from error

    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # "format" is asked for by readers in transformers.
    metadata = {"format": "pt", "keras_vit": json.dumps(facts)}
    with atomic_write(path) as partial:
        save_file(arrays, partial, metadata)


# Training scripts wrap the state dict in one of these.
_WRAPPERS = ("state_dict", "model", "model_state", "state_dict_ema", "model_ema")


def read_torch(path) -> tuple[dict[str, StoredArray], dict]:
    """Returns what a `.bin` or `.pth` file holds, by name; and no facts.

    Raises:
        ValueError: If the file is damaged, is more than weights, or holds other than real
            numbers.
        ImportError: If PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "Reading a PyTorch file needs the package torch (pip install torch); a "
            f".safetensors file of the same weights does not. Received: {path}"
        ) from error

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # Any, from unpickling a damaged or hostile file.
        raise ValueError(
            "A PyTorch file must be a whole state dict that weights-only loading takes. "
            f"Received: {path} ({str(error).splitlines()[0] if str(error) else error!r})"
        ) from error
    for wrapper in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
            break
    if not isinstance(state, dict):
        raise ValueError(
            f"A PyTorch file must hold a state dict. Received: {path} with {type(state)}"
        )
    dtypes = {
        torch.float16: np.dtype("float16"),
        torch.float32: np.dtype("float32"),
        torch.float64: np.dtype("float64"),
        torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    }
    arrays = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                "A state dict must hold tensors alone. "
                f"Received: {name} of {type(tensor)} in {path}"
            )
        dtype = weight_dtype(path, name, dtypes.get(tensor.dtype, str(tensor.dtype)))
        arrays[name] = StoredArray(name, tuple(tensor.shape), dtype, _tensor_reader(tensor, dtype))
    check_declared_size(path, arrays.values(), os.path.getsize(path))
    return arrays, {}


def _tensor_reader(tensor, dtype):
    def read():
        values = tensor.detach().contiguous()
        if dtype == ml_dtypes.bfloat16:  # NumPy does not know it; the bytes are the same.
            import torch

            return values.view(torch.int16).numpy().view(dtype)
        return values.numpy()

    return read
