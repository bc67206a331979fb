"""Keras's HDF5 files and `.keras` archives.

Keras itself finds a layer by its class and a counter, so that one layer more or less
shifts all others. The names are in the file as well, and they are our format.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from keras_vit.checkpoints.description import describe_keras_hub
from keras_vit.checkpoints.formats import StoredArray, check_declared_size, weight_dtype

_MAX_CONFIG_BYTES = 16 * 2**20

# Keys of a layer's store that are facts, not weights.
GRID = "grid"

# Groups within groups; a layer of a layer of a model is far from it.
_MAX_DEPTH = 32


def read_keras_h5(path, content: bytes | None = None) -> tuple[dict[str, StoredArray], dict]:
    """Returns what a file holds, without reading the values.

    Args:
        path: A file of `model.save_weights`, of Keras 3 or 2.
        content: The file's bytes, where it is part of another file.

    Returns:
        The arrays by the path of layer names and the variable's number in its layer, such
        as "encoder_block_0/attention/query/0", for Keras 2 the variable's name; and facts:
        the `format`, and the `position_grid` if the layer kept it.

    Raises:
        ValueError: If the file is damaged, is no weights file of Keras, or refers to other
            files.
    """
    source = _Source(path, content)
    facts: dict = {"format": "keras"}
    arrays: dict[str, StoredArray] = {}
    try:
        with source.open() as file:
            old = file.get("model_weights", file)
            if "layer_names" in old.attrs or "layer_names0" in old.attrs:
                facts["format"] = "keras 2"
                source.collect_old(old, (), arrays)
            elif isinstance(layers := file.get("layers"), h5py.Group):
                source.collect(layers, (), arrays, facts)
    # Of a damaged file any part may be what it should not.
    except (OSError, RuntimeError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise _damaged(path, error) from error
    if not arrays:
        raise ValueError(
            "A .weights.h5 must be written by `save_weights` of a functional model in Keras. "
            f"Received: {path} without the group 'layers'"
        )
    file_bytes = os.path.getsize(path) if content is None else len(content)
    check_declared_size(path, arrays.values(), file_bytes)
    return arrays, facts


class _Source:
    """An HDF5 file, on disk or in memory.

    Args:
        path: Its name.
        content: Its bytes, if it is in memory.
    """

    def __init__(self, path, content):
        self._path = path
        self._content = content

    def open(self):
        """Opens the file, to read."""
        return h5py.File(self._path if self._content is None else io.BytesIO(self._content), "r")

    def collect(self, group, names, arrays, facts):
        """Adds the arrays below a group of layers, as Keras 3 writes them."""
        for key, child in self._children(group, names):
            if key == "seed_generator":
                continue  # The state of the dropout's random numbers is no weight.
            if key != "vars":
                variables = child.get("vars") if isinstance(child, h5py.Group) else None
                name = key if variables is None else str(variables.attrs.get("name", key))
                if isinstance(child, h5py.Group):
                    self.collect(child, (*names, name), arrays, facts)
                continue
            for number, dataset in self._children(child, names):
                self._check_dataset(dataset, child, number)
                if number == GRID:
                    facts["position_grid"] = [int(side) for side in dataset[:2]]
                    continue
                self._add("/".join((*names, number)), dataset, arrays)

    def collect_old(self, group, names, arrays):
        """Adds the arrays below a group, as Keras 2 writes them: "layer/variable:0"."""
        for key, child in self._children(group, names):
            if isinstance(child, h5py.Group):
                self.collect_old(child, (*names, key), arrays)
            else:
                self._check_dataset(child, group, key)
                self._add("/".join((*names, key.removesuffix(":0"))), child, arrays)

    def _children(self, group, names) -> Iterator[tuple[str, Any]]:
        # A group may hold itself.
        if len(names) > _MAX_DEPTH:
            raise ValueError(
                f"A .weights.h5 must hold groups no deeper than {_MAX_DEPTH}. "
                f"Received: {self._path} with {group.name[:100]}..."
            )
        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise ValueError(
                    "A .weights.h5 must hold its arrays itself. "
                    f"Received: {self._path} with a link at {group.name}/{key}"
                )
            yield key, group[key]

    def _check_dataset(self, dataset, group, key):
        if not isinstance(dataset, h5py.Dataset):
            raise ValueError(
                "A .weights.h5 must hold arrays where it says so. "
                f"Received: {self._path} with a group at {group.name}/{key}"
            )
        if dataset.external or dataset.is_virtual:
            raise ValueError(
                "A .weights.h5 must hold its arrays itself. "
                f"Received: {self._path}, which refers to another file at {dataset.name}"
            )

    def _add(self, name, dataset, arrays):
        if name in arrays:
            raise ValueError(
                "Every layer of a .weights.h5 must have a name of its own. "
                f"Received: {self._path} with two arrays {name}"
            )
        bfloat16 = dataset.attrs.get("dtype") == "bfloat16"
        dtype = np.dtype(ml_dtypes.bfloat16) if bfloat16 else dataset.dtype
        location = dataset.name

        def read():
            try:
                with self.open() as file:
                    return np.asarray(file[location]).view(dtype)
            except (OSError, RuntimeError, KeyError, ValueError) as error:
                raise _damaged(self._path, error) from error

        values = weight_dtype(self._path, name, dtype)
        shape = dataset.shape
        if shape is None:
            raise ValueError(
                "A .weights.h5 must hold arrays with values. "
                f"Received: {self._path} with an empty {name}"
            )
        arrays[name] = StoredArray(name, tuple(shape), values, read)


def _damaged(path, error):
    return ValueError(
        "A .weights.h5 must be whole; this one is truncated or damaged: write or fetch it "
        f"again. Received: {path} ({' '.join(str(error).split())})"
    )


def read_archived_json(path) -> dict[str, Any]:
    """Returns the object in the `config.json` of a `.keras` file.

    Raises:
        ValueError: If there is none, or it is absurdly large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo("config.json")
            if entry.file_size > _MAX_CONFIG_BYTES:
                raise ValueError(f"config.json declares {entry.file_size:,} bytes")
            content = json.loads(archive.read(entry))
    # zipfile raises nearly anything on a damaged archive.
    except Exception as error:
        raise damaged_archive(path, error) from error
    return content if isinstance(content, dict) else {}


def damaged_archive(path, error) -> ValueError:
    """Returns the error to raise for a `.keras` file."""
    return ValueError(
        "A .keras file must be whole; this one is truncated or damaged: write or fetch it "
        f"again. Received: {path} ({' '.join(str(error).split())})"
    )


WEIGHTS = "model.weights.h5"
_NAMES = {"metadata.json", "config.json", WEIGHTS}

# Bytes that the entries may declare beyond the file's own; Keras compresses nothing.
_FREE_BYTES = 2**20

# Bytes that arrays may declare beyond a fixed multiple of the file's: chunks may be packed.
_MAX_EXPANSION = 64
_FREE_ARRAY_BYTES = 256 * 2**20


def check_keras_archive(path) -> None:
    """Raises unless a `.keras` file holds what Keras writes, of the size that it declares.

    Raises:
        ValueError: If the archive is damaged, has other entries (such as paths that lead
            elsewhere), declares far more bytes than it holds, or its weights lie in other files.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            file_bytes = os.path.getsize(path)
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            if sorted(names) != sorted(_NAMES):
                raise ValueError(f"it must hold {sorted(_NAMES)} alone, not {sorted(names)[:5]}")
            declared = sum(entry.file_size for entry in entries)
            if declared > file_bytes + _FREE_BYTES:
                raise ValueError(f"it declares {declared:,} bytes and has {file_bytes:,}")
            for entry in entries:
                with archive.open(entry) as stream:
                    while stream.read(2**24):  # To its end, where the checksum is compared.
                        pass
            with archive.open(WEIGHTS) as stream:
                _check_weights(stream, file_bytes)
    # zipfile and h5py raise nearly anything on a damaged file.
    except Exception as error:
        raise damaged_archive(path, error) from error


def _check_weights(stream, file_bytes):
    with h5py.File(stream, "r") as file:
        declared = sum(_sizes(file, 0))
    if declared > _FREE_ARRAY_BYTES + _MAX_EXPANSION * file_bytes:
        raise ValueError(f"its weights declare {declared:,} bytes and it has {file_bytes:,}")


def _sizes(group, depth):
    """The bytes that each array below a group declares."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"its weights have groups deeper than {_MAX_DEPTH}")
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"its weights hold a link at {group.name}/{key}")
        child = group[key]
        if isinstance(child, h5py.Group):
            yield from _sizes(child, depth + 1)
        elif child.external or child.is_virtual:
            raise ValueError(f"its weights refer to another file at {child.name}")
        else:
            yield math.prod(child.shape or ()) * child.dtype.itemsize


_FUNCTIONAL = "Functional"  # What `keras_vit.build` gives.
_HUB_CLASSES = ("ViTImageClassifier", "ViTBackbone")


def read_keras_archive(path) -> tuple[dict[str, StoredArray], dict]:
    """Returns what a `.keras` file of ours or KerasHub's holds; no object in it is made.

    Raises:
        ValueError: If the file is damaged, or of another model.
    """
    described = read_archived_json(path)
    kind = described.get("class_name")
    if kind not in (*_HUB_CLASSES, _FUNCTIONAL):
        raise ValueError(
            "A checkpoint must hold weights alone, or be a functional model or KerasHub's "
            f"{' or '.join(_HUB_CLASSES)}; another model is read by keras.saving.load_model. "
            f"Received: {path}, a {kind}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            entry = archive.getinfo(WEIGHTS)
            # Keras stores it as it is.
            if entry.file_size > os.path.getsize(path):
                raise ValueError(f"{WEIGHTS} declares {entry.file_size:,} bytes")
            content = archive.read(entry)
    except Exception as error:
        raise damaged_archive(path, error) from error
    if kind == _FUNCTIONAL:
        return read_keras_h5(path, content)
    task = described if kind == _HUB_CLASSES[0] else {}
    backbone = task.get("config", {}).get("backbone") if task else described
    if not isinstance(backbone, dict):
        raise damaged_archive(path, "a classifier without its backbone")
    arrays, facts = read_keras_h5(path, content)
    return arrays, {**facts, "config": describe_keras_hub(backbone, task, path)}
