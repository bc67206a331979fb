"""Keras's HDF5 files and `.keras` archives.

Keras itself finds a layer by its class and a counter, so that one layer more or less
shifts all others. The names of layers are in the file as well, and they are our format.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from keras_vit.checkpoints.formats import (
    StoredArray,
    check_declared_size,
    damaged_file,
    weight_dtype,
)
from keras_vit.checkpoints.hdf5_structure import (
    WEIGHTS,
    check_survives,
    datasets_of,
    open_weights_entry,
)
from keras_vit.json_files import parse_json

# Entries of a `.keras` archive.
CONFIG = "config.json"
_ENTRIES = {"metadata.json", CONFIG, WEIGHTS}

# Bytes that the entries of an archive may declare beyond those of the file; Keras does not
# compress.
_FREE_BYTES = 2**20
_MAX_CONFIG_BYTES = 16 * 2**20

# Layers that a config may have: layers without weights beside those with some.
_FREE_LAYERS = 1000
_LAYERS_PER_ARRAY = 4

# Keys of a layer's variables that are facts, not weights: the grid of its positions, and the
# arguments of rotary positions as JSON.
_GRID, _ROTARY = "grid", "rotary"
_MAX_ROTARY_BYTES = 1000

# The models that are read: those of `keras_vit.build`, and KerasHub's classifiers and backbones.
_FUNCTIONAL = "Functional"
HUB_CLASSIFIERS = ("ViTImageClassifier", "DeiTImageClassifier")
HUB_BACKBONES = ("ViTBackbone", "DeiTBackbone")


def read_keras_h5(path, content: bytes | None = None) -> tuple[dict[str, StoredArray], dict]:
    """Returns the arrays of a file by name, and facts about them, without reading the values.

    Args:
        path: A file of `model.save_weights`, of Keras 3 or 2.
        content: The file's bytes, where it is part of another file.

    Returns:
        The arrays by the path of layer names and the variable's number in its layer, such
        as "encoder_block_0/attention/query/0", for Keras 2 the variable's name; and facts:
        the `keras_version`, 2 or 3, and `position_grid` and `rotary` if layers kept them.

    Raises:
        ValueError: If the file is damaged, is no weights file of Keras, or refers to other
            files.
    """

    def open_file():
        return h5py.File(path if content is None else io.BytesIO(content), "r")

    @contextlib.contextmanager
    def reader():
        with open_file() as file:
            yield lambda key: _value(path, file, *key)

    check_survives(path)
    facts: dict = {}
    arrays: dict[str, StoredArray] = {}
    try:
        with open_file() as file:
            facts["keras_version"], datasets = _named_datasets(path, file)
            for name, dataset in datasets:
                if name.endswith(f"/{_GRID}"):
                    facts["position_grid"] = [int(side) for side in dataset[:2]]
                elif name.endswith(f"/{_ROTARY}"):
                    content_of_fact = np.asarray(dataset[:_MAX_ROTARY_BYTES], "uint8").tobytes()
                    facts["rotary"] = parse_json(content_of_fact, name)
                elif name in arrays:
                    raise ValueError(
                        "The layers of a .weights.h5 must have different names. "
                        f"Received: {path} with two arrays {name}"
                    )
                else:
                    arrays[name] = _stored_array(path, name, dataset, reader)
    # Any part of a damaged file may have another type than expected.
    except (OSError, RuntimeError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise damaged_file("A .weights.h5", path, error) from error
    if not arrays:
        raise ValueError(
            "A .weights.h5 must be written by `save_weights` of a functional model in Keras. "
            f"Received: {path} without the group 'layers'"
        )
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays.values())
    check_declared_size(path, declared, os.path.getsize(path) if content is None else len(content))
    return arrays, facts


def read_keras_archive(
    path, archive: zipfile.ZipFile
) -> tuple[dict[str, StoredArray], dict, dict[str, Any]]:
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


def check_keras_archive(path) -> tuple[dict[str, Any], int]:
    """Checks a `.keras` file of unknown origin before Keras opens it.

    Returns:
        The content of `config.json`, and the count of all numbers in the arrays.

    Raises:
        ValueError: If the archive is damaged, has other entries than Keras writes (such as
            paths that lead elsewhere), declares far more bytes than it holds, has far more
            layers than arrays, or its weights lie in other files.
    """
    try:
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
            config = parse_json(_entry(archive, CONFIG, _MAX_CONFIG_BYTES), CONFIG)
            check_survives(path)
            with open_weights_entry(path) as file:
                datasets = [dataset for _, dataset in datasets_of(path, file)]
                declared = sum(math.prod(d.shape or ()) * d.dtype.itemsize for d in datasets)
                values = sum(math.prod(d.shape or ()) for d in datasets)
            check_declared_size(path, declared, file_bytes)
            layers = _num_layers(config)
            if layers > _FREE_LAYERS + _LAYERS_PER_ARRAY * len(datasets):
                raise ValueError(f"it has {layers:,} layers and {len(datasets):,} arrays")
            return config, values
    # zipfile and h5py raise nearly anything on a damaged file.
    except Exception as error:
        raise damaged_file("A .keras file", path, error) from error


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


def _named_datasets(path, file):
    """The version of Keras that wrote a file, and its datasets with their names."""
    datasets = datasets_of(path, file)
    root = file.get("model_weights", file)
    if "layer_names" in root.attrs or "layer_names0" in root.attrs:
        # By the names of the layer and of the variable.
        if root != file:
            datasets = [(keys[1:], data) for keys, data in datasets if keys[0] == "model_weights"]
        return 2, [("/".join(keys).removesuffix(":0"), dataset) for keys, dataset in datasets]
    return 3, _keras_3_datasets(file, datasets)


def _keras_3_datasets(file, datasets):
    """Yields the datasets of Keras 3 by name: names of layers and a number.

    A layer is a group whose group "vars" holds its variables by number; the group has the
    layer's name, where Keras kept it, as an attribute.
    """
    names: dict[tuple[str, ...], str] = {("layers",): ""}

    def name_of(keys):
        if keys not in names:
            variables = file["/".join(keys)].get("vars")
            name = keys[-1] if variables is None else str(variables.attrs.get("name", keys[-1]))
            names[keys] = f"{name_of(keys[:-1])}{name}/"
        return names[keys]

    for keys, dataset in datasets:
        # The state of dropout's random numbers is no weight.
        is_weight = keys[-2:-1] == ("vars",) and "seed_generator" not in keys
        if keys[0] == "layers" and len(keys) > 2 and is_weight:
            yield f"{name_of(keys[:-2])}{keys[-1]}", dataset


def _stored_array(path, name, dataset, reader):
    bfloat16 = dataset.attrs.get("dtype") == "bfloat16"
    dtype = np.dtype(ml_dtypes.bfloat16) if bfloat16 else dataset.dtype
    values = weight_dtype(path, name, dtype)
    if dataset.shape is None:
        raise ValueError(
            f"A .weights.h5 must hold arrays with values. Received: {path} with an empty {name}"
        )
    return StoredArray(name, tuple(dataset.shape), values, reader, (dataset.name, dtype))


def _value(path, file, location, dtype):
    try:
        return np.asarray(file[location]).view(dtype)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise damaged_file("A .weights.h5", path, error) from error
