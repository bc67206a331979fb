"""Looks at a `.keras` file from a stranger before Keras opens it."""

from __future__ import annotations

import math
import os
import zipfile

from keras_vit.checkpoints.description import damaged_archive

WEIGHTS = "model.weights.h5"
_NAMES = {"metadata.json", "config.json", WEIGHTS}

# Bytes that the entries may declare beyond the file's own; Keras compresses nothing.
_FREE_BYTES = 2**20

# Bytes that arrays may declare beyond a fixed multiple of the file's: chunks may be packed.
_MAX_EXPANSION = 64
_FREE_ARRAY_BYTES = 256 * 2**20

# Groups within groups; a layer of a layer of a model is far from it.
_MAX_DEPTH = 32


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
    import h5py

    with h5py.File(stream, "r") as file:
        declared = sum(_sizes(file, 0))
    if declared > _FREE_ARRAY_BYTES + _MAX_EXPANSION * file_bytes:
        raise ValueError(f"its weights declare {declared:,} bytes and it has {file_bytes:,}")


def _sizes(group, depth):
    """The bytes that each array below a group declares."""
    import h5py

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
