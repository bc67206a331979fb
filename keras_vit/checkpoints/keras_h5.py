"""Reads Keras's HDF5 files by the layers' names.

Keras itself finds a layer by its class and a counter, so that one layer more or less
shifts all others. The names are in the file as well, and they are our format.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.arrays import StoredArray, check_declared_size, weight_dtype

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
    import h5py

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
        import h5py

        return h5py.File(self._path if self._content is None else io.BytesIO(self._content), "r")

    def collect(self, group, names, arrays, facts):
        """Adds the arrays below a group of layers, as Keras 3 writes them."""
        import h5py

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
        import h5py

        for key, child in self._children(group, names):
            if isinstance(child, h5py.Group):
                self.collect_old(child, (*names, key), arrays)
            else:
                self._check_dataset(child, group, key)
                self._add("/".join((*names, key.removesuffix(":0"))), child, arrays)

    def _children(self, group, names) -> Iterator[tuple[str, Any]]:
        import h5py

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
        import h5py

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
