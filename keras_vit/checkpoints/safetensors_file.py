"""Reads `.safetensors`; the package of that name checks the header."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.arrays import StoredArray, check_declared_size, noted_facts, weight_dtype
from keras_vit.files import atomic_write

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
