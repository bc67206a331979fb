"""Keras's HDF5 files and `.keras` archives.

h5py reads them behind Keras's guards, which refuse links, arrays in other files and arrays that
declare far more than is stored. Keras itself finds a layer by its class and a counter, so that one
layer more or less shifts all others. The names of layers are in the file as well, and they are our
format.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from keras_vit.checkpoints.code_bases.keras_hub import check_family
from keras_vit.checkpoints.formats import (
    FileContent,
    StoredArray,
    check_declared_size,
    damaged_file,
    weight_dtype,
)
from keras_vit.description import Description
from keras_vit.keras_private import safe_get_h5_dataset
from keras_vit.utils.files import CONFIG, UNPACKED_MODEL, WEIGHTS
from keras_vit.utils.json_files import parse_json, read_json

# Bytes that an entry of an archive may declare beyond the file's size; Keras does not compress.
_FREE_BYTES = 2**20

ENTRY = "description"  # Key of a layer's variable that is a fact, not a weight.


def read_keras_h5(path, content: bytes | None = None) -> FileContent:
    """Returns the arrays of a file and what it notes, without reading the values.

    Args:
        path: A file of `model.save_weights`, of Keras 3 or 2.
        content: The file's bytes, where it is part of another file.

    Returns:
        The arrays by the path of layer names and the variable's number in its layer, such
        as "encoder_block_0/attention/query/0", for Keras 2 the variable's name; the version,
        and the description that our models write.

    Raises:
        ValueError: If the file is damaged, is no weights file of Keras, or refers to other
            files.
    """

    @contextlib.contextmanager
    def reader():
        with _opened(path, content) as file:
            yield lambda key: file[key[0]][...].view(key[1])

    note, stored, counts = None, {}, {}
    with _opened(path, content) as file:
        version, named = _named_arrays(file, _arrays(path, file, content))
        for name, array in named.items():
            if name.endswith(f"/{ENTRY}"):
                note = Description.from_json(parse_json(array[...].tobytes(), name), name)
            elif array.dtype.name in ("int32", "int64") and array.shape[:-1] == (1,):
                counts[name] = array[0]  # KerasHub's towers hold the numbers of the positions.
            else:
                dtype = array.attrs.get("dtype", array.dtype)  # "bfloat16", of two bytes.
                stored[name] = array.name, array.shape, dtype
    for name, numbers in counts.items():  # All 0 in a CLIP that KerasHub made without a preset.
        if (numbers != np.arange(len(numbers))).any():
            raise ValueError(
                "The numbers of positions in a file must be 0, 1, 2 ... "
                f"Received: {name} with {numbers[:5].tolist()} in {path}"
            )
    arrays = {}
    for name, (place, shape, dtype) in stored.items():
        dtype = weight_dtype(path, name, dtype)
        arrays[name] = StoredArray(name, shape, dtype, reader, (place, dtype))
    if not arrays:
        raise ValueError(
            "A .weights.h5 must be written by `save_weights` of a functional model in Keras. "
            f"Received: {path} without the group 'layers'"
        )
    return FileContent(arrays, note, keras_version=version)


def read_keras_archive(path) -> FileContent:
    """Returns the arrays, note and config of a `.keras` file; no object in it is made.

    Raises:
        ValueError: If the file is damaged, or of another model of KerasHub than its ViT.
    """
    config, content = _entries(path)
    check_family(config, path)
    return read_keras_h5(path, content)._replace(config=config)


def is_whole_model(path) -> bool:
    """Returns whether an HDF5 file of Keras holds a model and not its weights alone."""
    with _opened(path, None) as file:
        return "model_config" in file.attrs


def has_own_layers(path) -> bool:
    """Returns whether a file is a `.keras` file with layers of this package, at any depth."""
    try:
        with zipfile.ZipFile(path) as archive:
            return b'"keras_vit>' in _entry(path, archive, CONFIG)
    except Exception:  # zipfile raises nearly anything on other files.
        return False


def read_keras_config(path) -> dict[str, Any]:
    """Returns the config of the model in a `.keras` file, or in a folder of its entries.

    Raises:
        ValueError: If the file is damaged.
    """
    if os.path.isdir(path):
        return read_json(os.path.join(path, CONFIG))
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(parse_json(_entry(path, archive, CONFIG), CONFIG))
    except Exception as error:  # zipfile raises nearly anything on a damaged archive.
        raise damaged_file("A .keras file", path, error) from error


def check_keras_archive(path) -> tuple[dict[str, Any], str | io.BytesIO, int]:
    """Checks a `.keras` file, or a folder of its entries, of unknown origin before Keras opens it.

    Returns:
        The content of `config.json`, the file of the weights, and the count of all numbers in
        its arrays.

    Raises:
        ValueError: If the archive is damaged, has other entries than Keras writes (such as
            paths that lead elsewhere), declares far more bytes than it holds, or its weights lie
            in other files.
    """
    config, content = _entries(path, UNPACKED_MODEL)
    weights = os.path.join(path, WEIGHTS) if content is None else path
    with _opened(weights, content) as file:
        numbers = sum(array.size for array in _arrays(weights, file, content).values())
    return config, weights if content is None else io.BytesIO(content), numbers


def _entries(path, names=()) -> tuple[dict[str, Any], bytes | None]:
    """The config of a `.keras` file, and its weights; None for those in a folder.

    The entries must have the names, if there are any.
    """
    if os.path.isdir(path):
        return read_json(os.path.join(path, CONFIG)), None
    try:
        with zipfile.ZipFile(path) as archive:
            if names and sorted(archive.namelist()) != sorted(names):
                raise ValueError(f"it must hold {names} alone, not {archive.namelist()[:5]}")
            config = dict(parse_json(_entry(path, archive, CONFIG), CONFIG))
            return config, _entry(path, archive, WEIGHTS)
    except Exception as error:  # zipfile raises nearly anything on a damaged archive.
        raise damaged_file("A .keras file", path, error) from error


def _entry(path, archive, name):
    entry = archive.getinfo(name)
    if entry.file_size > os.path.getsize(path) + _FREE_BYTES:
        raise ValueError(f"{name} declares {entry.file_size:,} bytes")
    return archive.read(entry)


@contextlib.contextmanager
def _opened(path, content: bytes | None) -> Iterator[h5py.File]:
    """Opens a file; turns the errors of h5py within, which may be of any kind, into one."""
    try:
        with h5py.File(path if content is None else io.BytesIO(content), "r") as file:
            yield file
    except Exception as error:
        raise damaged_file("A .weights.h5", path, error) from error


def _arrays(path, file: h5py.File, content: bytes | None) -> dict[str, h5py.Dataset]:
    """The arrays of a file by their names, once each is known to lie in the file."""
    links: dict[str, h5py.HardLink | h5py.SoftLink | h5py.ExternalLink] = {}
    file.visititems_links(links.__setitem__)  # Visits a group once, whatever leads to it.
    arrays = {
        name: safe_get_h5_dataset(file, name)
        for name, link in links.items()
        if not isinstance(link, h5py.HardLink) or not isinstance(file[name], h5py.Group)
    }
    check_declared_size(path, arrays.values(), None if content is None else len(content))
    return arrays


def _named_arrays(file, arrays):
    """The version of Keras that wrote a file, and its arrays with their names.

    In Keras 3 a layer is a group whose group "vars" holds its variables by number; the group has
    the layer's name, where Keras kept it, as an attribute. In Keras 2 an array has the names of
    the layer and of the variable.
    """
    start = "model_weights/" if "model_weights" in file else ""
    if {"layer_names", "layer_names0"} & set(file[start or "/"].attrs):
        inside = {name: array for name, array in arrays.items() if name.startswith(start)}
        return 2, {n.removeprefix(start).removesuffix(":0"): a for n, a in inside.items()}

    def name_of(keys):
        if len(keys) == 1:
            return ""
        inside = file["/".join(keys)].get("vars")
        name = keys[-1] if inside is None else inside.attrs.get("name", keys[-1])
        return f"{name_of(keys[:-1])}{name}/"

    named = {}
    for path, array in arrays.items():
        keys = path.split("/")
        # States of dropout's random numbers and of the optimizers of inner models are no weights.
        is_weight = keys[-2:-1] == ["vars"] and not {"seed_generator", "optimizer"} & set(keys)
        if keys[0] == "layers" and len(keys) > 2 and is_weight:
            named[name_of(keys[:-2]) + keys[-1]] = array
    return 3, named
