"""Opening a checkpoint: from a file or folder to a layout and its arrays by name."""

from __future__ import annotations

import dataclasses
import itertools
import mimetypes
import os
import pathlib
import re
from typing import Any

from keras_vit.checkpoints.code_bases import LAYOUTS, check_config, keras_hub, layouts_of
from keras_vit.checkpoints.code_bases.files_beside import check_sizes, read_json
from keras_vit.checkpoints.code_bases.layouts import TORCH, Checkpoint, readable_files
from keras_vit.checkpoints.formats import (
    FileContent,
    StoredArray,
    joined_array,
    open_zip,
    read_npz,
    read_safetensors,
    read_torch,
)
from keras_vit.checkpoints.hdf5 import is_whole_model, read_keras_archive, read_keras_h5
from keras_vit.configs import UNSEEN_FIELDS, ViTConfig, checked_fields
from keras_vit.configs.recognition import shows_swiglu
from keras_vit.utils.files import CONFIG, MODEL, SAFETENSORS, TABLE_SUFFIXES, WEIGHTS

# A folder holds one of these: Hugging Face's and timm's, KerasHub's, which has the head in another
# file, or a classifier's.
_FOLDER_FILES = (SAFETENSORS, "pytorch_model.bin", WEIGHTS, MODEL)

# Names that frameworks for training put in front of the names of a module's weights; torch.compile
# and FSDP also within them.
_PREFIX = re.compile(r"^(?:(?:module|model|backbone|net|network|vit|timm_model)[./])+")
_WRAPPERS = re.compile(
    r"(?:(?<=[./])|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Returns a checkpoint of any known format and layout, without reading its values.

    Args:
        path: An `.npz`, an HDF5 file of Keras, a `.safetensors`, a PyTorch state dict (opened
            with weights-only loading), a `.keras` file of ours or KerasHub's, or a folder of
            Hugging Face, timm or KerasHub. The content decides, not the suffix.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format or the names are unknown, or the file is damaged.
        ImportError: If reading it needs a package that is not installed.
    """
    path = pathlib.Path(path)
    beside = read_config(path if path.is_dir() else path.parent)
    content = _read(path)
    config = content.config or beside
    stored = keras_hub.with_names(content.arrays, config)
    layouts = layouts_of(content.keras_version)
    for (arrays, notes), layout in itertools.product(_without_prefixes(stored), layouts):
        names = layout.canonical_names(arrays)
        if names is None:
            continue
        notes = (*content.notes, *notes)
        if outside := len(arrays) - len(names):
            notes += (f"{outside} arrays other than the weights were not read",)
        for pattern, what in layout.left_out:
            left_out = {name for name, canonical in names.items() if re.search(pattern, canonical)}
            if left_out:
                notes += (f"{what} was left out",)
                names = {name: names[name] for name in names.keys() - left_out}
        renamed = _unstacked(path, layout, _renamed(path, arrays, names))
        checkpoint = Checkpoint(
            path=path,
            layout=layout,
            arrays=layout.with_unread_tokens(_with_gates(path, layout, renamed)),
            config=config,
            # big_vision adds positions before it adds the class token, and has this name then.
            class_token_has_row=not any(f"{p}pos_embedding" in names for p in layout.prefixes),
            notes=notes,
        )
        return _with_facts(checkpoint, content.note)
    if content.keras_version == 2 and is_whole_model(path):
        raise ValueError(
            "A whole model in an .h5 file is no file of weights here: save it as .keras by "
            'keras.saving.load_model("model.h5").save("model.keras"), which all commands take. '
            f"Received: {path}"
        )
    raise ValueError(
        f"A checkpoint must have the names of {', '.join(layout.name for layout in LAYOUTS)} or "
        f"Keras. Received: {path} with {len(stored)} arrays such as {sorted(stored)[:3]}"
    )


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the `config.json` of a folder, {} without one.

    Raises:
        ValueError: If it is of a model that no model here equals.
    """
    config = read_json(folder / CONFIG)
    check_config(config, folder)
    return config


def _without_prefixes(arrays):
    """Yields the arrays by name, then without names of training; and sentences for a report."""
    yield arrays, ()
    bare = {_PREFIX.sub("", _WRAPPERS.sub("", name)): array for name, array in arrays.items()}
    if len(bare) == len(arrays) and bare.keys() != arrays.keys():
        yield bare, ("prefixes of training were taken off the names of the arrays",)


def _with_facts(checkpoint, note):
    """The checkpoint with what its code base, the files beside it and our note state."""
    layout = checkpoint.layout
    with readable_files(checkpoint):
        fields, stated = layout.stated(checkpoint) if note is None else ({}, note)
        if shows_swiglu(checkpoint.shapes):
            fields["gelu"] = "swiglu"
    known = vars(stated.config) if stated.config else {}
    if isinstance(stated.config, ViTConfig):
        sizes = ("depth", "width", "mlp_dim", "num_heads")
        check_sizes(checkpoint.shapes, checkpoint.path, {name: known[name] for name in sizes})
    fields |= {name: known[name] for name in UNSEEN_FIELDS if name in known}
    usual = {"gelu": layout.gelu, "norm_epsilon": layout.norm_epsilon}
    assumed = tuple(usual.keys() - fields.keys()) if layout.models_vary else ()
    fields = {**usual, "position_resize": layout.position_resize, **fields}
    try:
        fields = checked_fields({k: v for k, v in fields.items() if v is not None})
        epsilon, heads = fields.get("norm_epsilon", 0.5), fields.get("num_heads", 1)
        if not (0 < epsilon < 1 and 0 < heads < 2**31):
            raise ValueError(
                "norm_epsilon must be between 0 and 1, and num_heads must be positive. "
                f"Received: {epsilon}, {heads}"
            )
    except ValueError as error:
        raise ValueError(f"{error} in {checkpoint.path}") from error
    return dataclasses.replace(checkpoint, fields=fields, stated=stated, assumed=assumed)


_EXPORTS = (
    "keras_vit.load_classifier opens an export; its weights are in the folder of the classifier "
    "that was exported."
)


def _is_photo(name):
    """Whether a file has the name of an image."""
    return (mimetypes.guess_type(name)[0] or "").startswith("image/")


def _has_photos(folder):
    """Whether an image file is in a folder or below it."""
    return any(_is_photo(name) for _, _, names in os.walk(folder) for name in names)


def _read(path):
    """The content of a file, or of the files of a folder."""
    if not path.exists():
        raise FileNotFoundError(f"A checkpoint must be a file that exists. Received: {path}")
    if not path.is_dir():
        if _is_photo(path.name):
            raise ValueError(
                "A photo is no model: keras_vit.load_classifier(name)(photo), or keras-vit "
                f"predict, answers what is on it. Received: {path}"
            )
        if path.name.lower().endswith(TABLE_SUFFIXES):
            raise ValueError(
                f"A table of photos holds no model: keras_vit.finetune({str(path)!r}, output), or "
                f"keras-vit finetune, trains one on them. Received: {path}"
            )
        return _read_file(path)
    file = next((name for name in _FOLDER_FILES if (path / name).is_file()), None)
    if file is None:
        if _has_photos(path):
            raise ValueError(
                f"A folder of photos holds no model: keras_vit.finetune({str(path)!r}, output), or "
                f"keras-vit finetune, trains one on them. Received: {path}"
            )
        raise ValueError(
            f"A folder must hold one of {_FOLDER_FILES}; weights in parts are not read. "
            f"{_EXPORTS} Received: {path}"
        )
    content = _read_file(path / file)
    if file == WEIGHTS and (path / keras_hub.HEAD).is_file():
        head = _read_file(path / keras_hub.HEAD)
        content = content._replace(arrays=head.arrays | content.arrays)
    return content


def _read_file(path) -> FileContent:
    """The content of one file; its first bytes and entries give the format."""
    with open(path, "rb") as file:
        start = file.read(16)
    names: list[str] = []
    if start.startswith(b"PK\x03\x04"):
        with open_zip(path) as archive:
            names = archive.namelist()
    if any(name.endswith("data.pkl") for name in names):
        return read_torch(path)
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return read_keras_h5(path)
    if names:
        return read_keras_archive(path) if WEIGHTS in names else read_npz(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
        return read_safetensors(path)
    is_pickle = start.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
    reason = "a pickle is never opened, as it can run any code" if is_pickle else f"{start[:8]!r}"
    raise ValueError(
        "A checkpoint must be an .npz archive, a .weights.h5, a .safetensors or a PyTorch "
        f"state dict. {_EXPORTS} Received: {path} ({reason})"
    )


def _renamed(path, arrays, names):
    """The arrays by canonical name; empty ones are left out, as of no registers."""
    renamed: dict[str, StoredArray] = {}
    for name, canonical in names.items():
        if canonical in renamed:
            raise ValueError(
                "A checkpoint must hold every weight once. "
                f"Received: {path} with {name} and {renamed[canonical].name}"
            )
        if 0 not in arrays[name].shape:
            renamed[canonical] = arrays[name]
    return renamed


def _with_gates(path, layout, arrays):
    """Joins the gate of each MLP with the layer that it gates, along the units."""
    if layout.gates is None:
        return arrays
    for name in [name for name in arrays if layout.gates[0] in name]:
        joined_name = name.replace(*layout.gates)
        pair = [arrays.pop(name), arrays.get(joined_name)]
        if pair[1] is None or pair[0].shape != pair[1].shape or not pair[0].shape:
            raise ValueError(
                "A gate must have the shape of the layer that it gates. "
                f"Received: {name} of shape {pair[0].shape} in {path}"
            )
        axis = 0 if name.endswith(tuple(TORCH.values())) else -1
        shape = list(pair[0].shape)
        shape[axis] *= 2
        arrays[joined_name] = joined_array(pair, shape, axis)
    return arrays


def _unstacked(path, layout, arrays):
    """Splits arrays that hold all blocks along their first axis into one for each block."""
    if layout.stacked is None:
        return arrays
    all_blocks, one_block = layout.stacked
    expanded = {}
    for name, array in arrays.items():
        if not name.startswith(all_blocks):
            expanded[name] = array
            continue
        if not array.shape or array.shape[0] > 1000:  # More than any model has.
            raise ValueError(
                "Stacked blocks must have the block as first axis. "
                f"Received: {name} of shape {array.shape} in {path}"
            )
        for block in range(array.shape[0]):
            canonical = one_block.format(block=block) + name.removeprefix(all_blocks)
            expanded[canonical] = dataclasses.replace(array, shape=array.shape[1:], block=block)
    return expanded
