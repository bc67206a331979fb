"""Keras's HDF5 files and `.keras` archives.

Keras itself finds a layer by its class and a counter, so that one layer more or less
shifts all others. The names of layers are in the file as well, and they are our format.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.facts import Facts
from keras_vit.checkpoints.formats import (
    StoredArray,
    check_declared_size,
    damaged_file,
    weight_dtype,
)
from keras_vit.checkpoints.hdf5_structure import (
    Hdf5Array,
    Hdf5File,
    open_hdf5,
    open_weights_entry,
)
from keras_vit.utils.files import CONFIG, UNPACKED_MODEL, WEIGHTS
from keras_vit.utils.json_files import parse_json

_ENTRIES = set(UNPACKED_MODEL)

# Bytes that the entries of an archive may declare beyond the file's size; Keras does not
# compress.
_FREE_BYTES = 2**20
_MAX_CONFIG_BYTES = 16 * 2**20

# Layers that a config may have: some without weights in addition to the layers with weights.
_FREE_LAYERS = 1000
_LAYERS_PER_ARRAY = 4

ENTRY = "description"  # Key of a layer's variable that is a fact, not a weight.
_MAX_DESCRIPTION = 2**24  # Bytes; most of them are names of classes.

# The models that are read: functional ones, and KerasHub's classifiers and backbones.
_FUNCTIONAL = "Functional"
HUB_CLASSIFIERS = ("ViTImageClassifier", "DeiTImageClassifier")
HUB_BACKBONES = ("ViTBackbone", "DeiTBackbone")


def read_keras_h5(path, content: bytes | None = None) -> tuple[dict[str, StoredArray], Facts]:
    """Returns the arrays of a file by name, and facts about them, without reading the values.

    Args:
        path: A file of `model.save_weights`, of Keras 3 or 2.
        content: The file's bytes, where it is part of another file.

    Returns:
        The arrays by the path of layer names and the variable's number in its layer, such
        as "encoder_block_0/attention/query/0", for Keras 2 the variable's name; and facts:
        the `keras_version`, 2 or 3, and what the description in the file states.

    Raises:
        ValueError: If the file is damaged, is no weights file of Keras, or refers to other
            files.
    """

    @contextlib.contextmanager
    def reader():
        with open_hdf5(path, content) as file:
            yield lambda key: file.read(key[0]).view(key[1])

    description = None
    arrays: dict[str, StoredArray] = {}
    with open_hdf5(path, content) as file:
        version, named = _named_arrays(file)
        for name, array in named:
            if name.endswith(f"/{ENTRY}"):
                text = _fact(path, file, array).tobytes()
                description = parse_json(text, name)
            elif name in arrays:
                raise ValueError(
                    "The layers of a .weights.h5 must have different names. "
                    f"Received: {path} with two arrays {name}"
                )
            else:
                arrays[name] = _stored_array(path, name, array, reader)
    if not arrays:
        raise ValueError(
            "A .weights.h5 must be written by `save_weights` of a functional model in Keras. "
            f"Received: {path} without the group 'layers'"
        )
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays.values())
    check_declared_size(path, declared, os.path.getsize(path) if content is None else len(content))
    try:
        facts = Facts() if description is None else Facts.from_description(description)
    except ValueError as error:
        raise damaged_file("A .weights.h5", path, error) from error
    return arrays, dataclasses.replace(facts, keras_version=version)


def read_keras_archive(
    path, archive: zipfile.ZipFile
) -> tuple[dict[str, StoredArray], Facts, dict[str, Any]]:
    """Returns the arrays, facts and config of a `.keras` file; no object in it is made.

    Args:
        path: The file.
        archive: The open file.

    Returns:
        What `read_keras_h5` returns, and the content of `config.json`.

    Raises:
        ValueError: If the file is damaged, or of another model than one of `keras_vit.build`
            or of `HUB_CLASSIFIERS` and `HUB_BACKBONES`.
    """
    try:
        config = parse_json(_entry(archive, CONFIG, _MAX_CONFIG_BYTES), CONFIG)
    # zipfile raises nearly anything on a damaged archive.
    except Exception as error:
        raise damaged_file("A .keras file", path, error) from error
    kind = config.get("class_name") if isinstance(config, dict) else None
    known = (*HUB_CLASSIFIERS, *HUB_BACKBONES)
    if kind not in (*known, _FUNCTIONAL):
        raise ValueError(
            "A checkpoint must hold weights alone, or be a functional model or KerasHub's "
            f"{', '.join(known)}; another model is read by "
            f"keras.saving.load_model. Received: {path}, a {kind}"
        )
    try:
        # Keras does not compress it.
        content = _entry(archive, WEIGHTS, os.path.getsize(path))
    except Exception as error:
        raise damaged_file("A .keras file", path, error) from error
    return *read_keras_h5(path, content), config


class LayerVariables:
    """The variables of a file by the path of their layer, as Keras saves a model.

    Args:
        file: The open file.
    """

    def __init__(self, file: Hdf5File):
        self._file = file
        self._layers: dict[str, dict[str, Hdf5Array]] = {}
        for keys, array in file.arrays.items():
            if keys[-2:-1] == ("vars",):
                self._layers.setdefault("/".join(keys[:-2]), {})[keys[-1]] = array

    def values(self, path: str) -> dict[str, np.ndarray]:
        """Returns the values of a layer's variables by their names; {} if it has none."""
        return {
            name: self._file.read(array).view(_dtype_of(array))
            for name, array in self._layers.get(path, {}).items()
        }

    def has_path(self, path: str) -> bool:
        """Returns whether the file has a group of this path."""
        return tuple(path.split("/")) in self._file.groups


def check_keras_archive(path) -> tuple[dict[str, Any], int]:
    """Checks a `.keras` file, or a folder of its entries, of unknown origin before Keras opens it.

    Returns:
        The content of `config.json`, and the count of all numbers in the arrays.

    Raises:
        ValueError: If the archive is damaged, has other entries than Keras writes (such as
            paths that lead elsewhere), declares far more bytes than it holds, has far more
            layers than arrays, or its weights lie in other files.
    """
    try:
        if os.path.isdir(path):
            file_bytes = os.path.getsize(os.path.join(path, WEIGHTS))
            content = _bounded_file(os.path.join(path, CONFIG))
        else:
            file_bytes, content = _checked_entries(path)
        config = parse_json(content, CONFIG)
        with open_weights_entry(path) as file:
            arrays = file.arrays.values()
        sizes = [math.prod(array.shape or ()) for array in arrays]
        declared = sum(
            size * array.dtype.itemsize for size, array in zip(sizes, arrays, strict=True)
        )
        check_declared_size(path, declared, file_bytes)
        layers = _num_layers(config)
        if layers > _FREE_LAYERS + _LAYERS_PER_ARRAY * len(arrays):
            raise ValueError(f"it has {layers:,} layers and {len(arrays):,} arrays")
        return config, sum(sizes)
    # zipfile raises nearly anything on a damaged archive.
    except Exception as error:
        raise damaged_file("A .keras file", path, error) from error


def has_own_layers(path) -> bool:
    """Returns whether a file is a `.keras` file with layers of this package, at any depth."""
    try:
        with zipfile.ZipFile(path) as archive:
            return b'"keras_vit>' in _entry(archive, CONFIG, _MAX_CONFIG_BYTES)
    except Exception:  # zipfile raises nearly anything on other files.
        return False


def _checked_entries(path):
    """The bytes of an archive, and its config, once all of its entries have been read."""
    with zipfile.ZipFile(path) as archive:
        file_bytes = os.path.getsize(path)
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        if sorted(names) != sorted(_ENTRIES):
            raise ValueError(f"it must hold {sorted(_ENTRIES)} alone, not {sorted(names)[:5]}")
        declared = sum(entry.file_size for entry in entries)
        if declared > file_bytes + _FREE_BYTES:
            raise ValueError(f"it declares {declared:,} bytes and has {file_bytes:,}")
        for entry in entries:
            with archive.open(entry) as stream:
                while stream.read(2**24):  # To its end, where the checksum is compared.
                    pass
        return file_bytes, _entry(archive, CONFIG, _MAX_CONFIG_BYTES)


def _bounded_file(path):
    if os.path.getsize(path) > _MAX_CONFIG_BYTES:
        raise ValueError(f"{CONFIG} has {os.path.getsize(path):,} bytes")
    with open(path, "rb") as file:
        return file.read()


def _num_layers(config):
    """Layers of a model and of the models in it."""
    inner = config if isinstance(config, list) else config.values()
    count = sum(_num_layers(value) for value in inner if isinstance(value, (dict, list)))
    layers = config.get("layers") if isinstance(config, dict) else None
    return count + (len(layers) if isinstance(layers, list) else 0)


def _entry(archive, name, max_bytes):
    entry = archive.getinfo(name)
    if entry.file_size > max_bytes:
        raise ValueError(f"{name} declares {entry.file_size:,} bytes")
    return archive.read(entry)


def _named_arrays(file: Hdf5File):
    """The version of Keras that wrote a file, and its arrays with their names."""
    arrays = file.arrays.items()
    roots: list[tuple[str, ...]] = [("model_weights",), ()]
    root = next(keys for keys in roots if keys in file.groups)
    if {"layer_names", "layer_names0"} & set(file.groups[root]):
        # By the names of the layer and of the variable.
        inner = [(keys[len(root) :], array) for keys, array in arrays if keys[: len(root)] == root]
        return 2, [("/".join(keys).removesuffix(":0"), array) for keys, array in inner]
    return 3, _keras_3_arrays(file)


def _keras_3_arrays(file):
    """Yields the arrays of Keras 3 by name: names of layers and a number.

    A layer is a group whose group "vars" holds its variables by number; the group has the
    layer's name, where Keras kept it, as an attribute.
    """
    names: dict[tuple[str, ...], str] = {("layers",): ""}

    def name_of(keys):
        if keys not in names:
            name = file.groups.get((*keys, "vars"), {}).get("name") or keys[-1]
            names[keys] = f"{name_of(keys[:-1])}{name}/"
        return names[keys]

    for keys, array in file.arrays.items():
        # States of dropout's random numbers and of the optimizers of inner models are no weights.
        is_weight = keys[-2:-1] == ("vars",) and not {"seed_generator", "optimizer"} & set(keys)
        if keys[0] == "layers" and len(keys) > 2 and is_weight:
            yield f"{name_of(keys[:-2])}{keys[-1]}", array


def _stored_array(path, name, array, reader):
    dtype = weight_dtype(path, name, _dtype_of(array))
    if array.shape is None:
        raise ValueError(
            f"A .weights.h5 must hold arrays with values. Received: {path} with an empty {name}"
        )
    return StoredArray(name, array.shape, dtype, reader, (array, dtype))


def _dtype_of(array: Hdf5Array) -> np.dtype:
    is_bfloat16 = array.dtype.itemsize == 2 and array.attributes.get("dtype") == "bfloat16"
    return np.dtype(ml_dtypes.bfloat16) if is_bfloat16 else array.dtype


def _fact(path, file, array):
    """The values of an array that is a fact, whole numbers."""
    values = file.read(array) if math.prod(array.shape or ()) <= _MAX_DESCRIPTION else None
    if values is None or values.dtype.kind not in "iu":
        raise damaged_file("A .weights.h5", path, "a fact about the model is no list of numbers")
    return values
