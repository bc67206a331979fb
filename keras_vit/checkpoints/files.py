"""Opens a checkpoint of any format; the content says which, never the suffix."""

from __future__ import annotations

import os
import pathlib
import zipfile

from keras_vit.checkpoints.arrays import StoredArray
from keras_vit.checkpoints.description import (
    damaged_archive,
    describe,
    describe_keras_hub,
    read_archived_json,
    read_json,
)
from keras_vit.checkpoints.keras_h5 import read_keras_h5
from keras_vit.checkpoints.npz import read_npz
from keras_vit.checkpoints.safetensors_file import read_safetensors
from keras_vit.checkpoints.torch_file import read_torch

# A folder holds one of these: Hugging Face's and timm's, whole or in parts, or KerasHub's,
# which has the head in a file of its own.
FOLDER_FILES = ("model.safetensors", "pytorch_model.bin", "model.weights.h5")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_KERAS_HUB_HEAD = "task.weights.h5"

# More than any model has parts.
_MAX_PARTS = 1000


def open_checkpoint(path) -> tuple[dict[str, StoredArray], dict]:
    """Returns what a checkpoint holds, by name, without reading the values.

    Args:
        path: An `.npz`, an HDF5 file of Keras, a `.safetensors`, a PyTorch state dict (opened
            with weights-only loading), a `.keras` file of ours or KerasHub's, or a folder of
            Hugging Face, timm or KerasHub; weights may be in several files that an index
            names.

    Returns:
        The arrays, and facts about them: `position_grid`, `gelu`, `norm_epsilon`, where
        the file knows them; `config`, the same from a `config.json` beside it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is of no such format, or damaged.
        ImportError: If reading it needs a package that is not installed.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"A checkpoint must be a file that exists. Received: {path}")
    files = _files(path) if path.is_dir() else [path]
    arrays: dict[str, StoredArray] = {}
    facts: dict = {}
    for file in files:
        more, facts_of_file = _reader(file)(file)
        twice = arrays.keys() & more.keys()
        if twice:
            raise ValueError(
                "The files of a checkpoint must hold every array once. "
                f"Received: {sorted(twice)[0]} in {file} and in another one"
            )
        arrays.update(more)
        facts.update(facts_of_file)
    config = describe(path)
    return arrays, {"config": config, **facts} if config else facts


def _files(folder):
    for name in FOLDER_FILES:
        if (folder / name).is_file():
            head = folder / _KERAS_HUB_HEAD
            has_head = name == "model.weights.h5" and head.is_file()
            return [folder / name, head] if has_head else [folder / name]
    for name in INDEXES:
        if (folder / name).is_file():
            return _parts(folder / name)
    raise ValueError(
        f"A folder must hold one of {(*FOLDER_FILES, *INDEXES)}. Received: {folder} without any"
    )


def _parts(index):
    """The files that an index names; they must lie beside it."""
    parts = read_json(index).get("weight_map")
    names = set(parts.values()) if isinstance(parts, dict) else set()
    if not names or len(names) > _MAX_PARTS or not all(map(_is_plain, names)):
        raise ValueError(
            "An index must name the files beside it that hold the arrays. "
            f"Received: {index} with {sorted(map(str, names))[:3]}"
        )
    files = [index.parent / name for name in sorted(names)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ValueError(
            f"A checkpoint must be whole. Received: {index.parent} without {', '.join(missing)}"
        )
    return files


def _is_plain(name):
    return isinstance(name, str) and name == pathlib.PurePath(name).name and "\\" not in name


def _reader(path):
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return read_keras_h5
    if start.startswith(b"PK\x03\x04"):
        return _archive_reader(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
        return read_safetensors
    what = "it is none of them"
    if not start:
        what = "it is empty"
    elif start.startswith(b"\x93NUMPY"):
        what = "it is one .npy array, not an archive"
    elif start.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        what = "it is a pickle, which is never opened, as it can run any code"
    elif start.lstrip().startswith((b"<", b"{")):
        what = "it is text, perhaps a server's error page"
    raise ValueError(
        "A checkpoint must be an .npz archive, a .weights.h5, a .safetensors or a PyTorch "
        f"state dict. Received: {path} ({what})"
    )


def _archive_reader(path):
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:
        return read_npz  # It says what is wrong.
    if any(name.endswith("data.pkl") for name in names):
        return read_torch
    if _WEIGHTS in names:
        return read_keras_archive
    return read_npz


_WEIGHTS = "model.weights.h5"
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
            entry = archive.getinfo(_WEIGHTS)
            # Keras stores it as it is.
            if entry.file_size > os.path.getsize(path):
                raise ValueError(f"{_WEIGHTS} declares {entry.file_size:,} bytes")
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
