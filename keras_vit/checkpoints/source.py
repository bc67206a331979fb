"""Opening a checkpoint: its format, its layout and its arrays by name."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import zipfile
from typing import Any

from keras_vit.checkpoints.description import describe, read_json
from keras_vit.checkpoints.formats import StoredArray, read_npz, read_safetensors, read_torch
from keras_vit.checkpoints.hdf5 import WEIGHTS, read_keras_archive, read_keras_h5
from keras_vit.checkpoints.keras_names import KERAS_HUB, VIT_KERAS
from keras_vit.checkpoints.layouts import Layout, keras_layout
from keras_vit.checkpoints.official_names import BIT, OFFICIAL
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TORCHVISION

# In the order in which a file is compared with them.
LAYOUTS = (OFFICIAL, BIT, HUGGING_FACE, TIMM, TORCHVISION, KERAS_HUB, VIT_KERAS)

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
    if WEIGHTS in names:
        return read_keras_archive
    return read_npz


# Layouts that a format of files can have; the others can have any.
_OF_FORMAT = {"keras": (KERAS_HUB, VIT_KERAS), "keras 2": (VIT_KERAS,)}


@dataclasses.dataclass(frozen=True)
class Source:
    """A checkpoint whose layout is known.

    Args:
        path: The file.
        layout: Whose names it has.
        arrays: What it holds, by canonical name.
        facts: What is known besides: `position_grid`, `gelu`, `norm_epsilon`, each perhaps
            None, and `positions_apart`: whether the class token has no row in the table.
        notes: What a report should say.
    """

    path: str
    layout: Layout
    arrays: dict[str, StoredArray]
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Our paths in the file, with the shapes where they are known."""
        shapes: dict[str, tuple[int, ...] | None] = {}
        for name, array in self.arrays.items():
            paths = self.layout.our_paths(name)
            shapes.update(dict.fromkeys(paths, self.layout.our_shape(name, array.shape)))
            if not paths and not self.layout.marks:
                # A .weights.h5 counts variables; the first is the one that tells most.
                shapes[re.sub("/0$", "/kernel", name)] = array.shape
        return shapes

    @property
    def class_tokens(self) -> int:
        """How many tokens stand in front of the patches."""
        layers = {path.partition("/")[0] for path in self.shapes}
        return len(layers & {"class_token", "distillation_token"})


def open_source(path, model_paths) -> Source:
    """Returns a checkpoint with its layout recognised, without reading its values.

    Args:
        path: The file.
        model_paths: Paths of the model's variables, which a `.weights.h5` counts.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format or the names are unknown, or the file is damaged.
    """
    arrays, facts = open_checkpoint(path)
    for layout in _OF_FORMAT.get(facts.get("format", ""), LAYOUTS):
        names = layout.recognised(arrays)
        if names is not None:
            return _named(path, layout, arrays, facts, names)
    if facts.get("format") == "keras":
        return Source(str(path), keras_layout(model_paths), arrays, facts)
    some = ", ".join(sorted(arrays)[:3])
    raise ValueError(
        f"A checkpoint must have the names of {', '.join(layout.name for layout in LAYOUTS)} or "
        f"Keras. Received: {path} with {len(arrays)} arrays such as {some}"
    )


def _named(path, layout, arrays, facts, names):
    named: dict[str, StoredArray] = {}
    for name, canonical in names.items():
        if canonical in named:
            raise ValueError(
                "A checkpoint must hold every weight once. "
                f"Received: {path} with {name} and {named[canonical].name}"
            )
        named[canonical] = arrays[name]
    config = facts.pop("config", {})
    config = config if config.pop("layout", None) == layout.name else {}
    facts = {"gelu": layout.gelu, "norm_epsilon": layout.norm_epsilon, **config, **facts}
    # big_vision adds positions before the class token is there, and names the table so.
    facts["positions_apart"] = any(f"{prefix}pos_embedding" in names for prefix in layout.prefixes)
    outside = len(arrays) - len(names)
    notes = (f"{outside} arrays beside the weights were not read",) if outside else ()
    return Source(str(path), layout, _unstacked(path, layout, named), facts, notes)


def _unstacked(path, layout, arrays):
    """Gives blocks whose arrays are stacked along a first axis an array each."""
    if layout.stacked is None:
        return arrays
    together, apart = layout.stacked
    expanded = {}
    for name, array in arrays.items():
        if not name.startswith(together):
            expanded[name] = array
            continue
        if not array.shape or array.shape[0] > 1000:
            raise ValueError(
                "Stacked blocks must have the block as first axis. "
                f"Received: {name} of shape {array.shape} in {path}"
            )
        whole = functools.cache(array.read)
        for block in range(array.shape[0]):
            expanded[apart.format(block=block) + name.removeprefix(together)] = dataclasses.replace(
                array,
                shape=array.shape[1:],
                read=lambda whole=whole, block=block: whole()[block],
            )
    return expanded
