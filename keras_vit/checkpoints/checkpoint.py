"""Opening a checkpoint: from a file or folder to a layout and its arrays by name."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import pathlib
import re

import numpy as np

from keras_vit.checkpoints import formats
from keras_vit.checkpoints.code_bases import (
    hugging_face,
    keras_hub,
    official,
    timm,
    torchvision,
    vit_keras,
)  # fmt: skip
from keras_vit.checkpoints.code_bases.files_beside import read_json
from keras_vit.checkpoints.code_bases.layouts import REGISTERS, Checkpoint, readable_files
from keras_vit.checkpoints.hdf5 import read_keras_archive, read_keras_h5
from keras_vit.configs import UNSEEN_FIELDS, checked_fields
from keras_vit.configs.recognition import shows_swiglu
from keras_vit.utils.files import CONFIG, MODEL, SAFETENSORS, WEIGHTS

# In the order in which a file is compared with them.
LAYOUTS = (
    official.OFFICIAL, official.BIT, hugging_face.HUGGING_FACE_DINOV2, hugging_face.HUGGING_FACE,
    hugging_face.HUGGING_FACE_CLIP, hugging_face.HUGGING_FACE_DINOV3,
    timm.TIMM_DINOV3, timm.TIMM, timm.TIMM_BIT,
    torchvision.TORCHVISION, keras_hub.KERAS_HUB, vit_keras.VIT_KERAS,
)  # fmt: skip

# The same for HDF5 files of Keras 3; in Keras 2 only vit-keras has any.
_KERAS_3 = (keras_hub.KERAS_HUB, vit_keras.VIT_KERAS, official.KERAS)

# Axes of arrays that show the sizes of a model.
_RANKS = {
    "patch_embedding": 4, "root_conv": 4, "registers": 3, "pre_logits": 2, "predictions": 2,
    "encoder_block_0/mlp/dense_1": 2, "encoder_block_0/mlp/dense_2": 2,
}  # fmt: skip

# A folder holds one of these: Hugging Face's and timm's, KerasHub's, which has the head in another
# file, or a classifier's.
_FOLDER_FILES = (SAFETENSORS, "pytorch_model.bin", WEIGHTS, MODEL)

# Names of the weights of adapters.
_ADAPTED = re.compile(r"\.(?:lora|ia3|hada|lokr|oft|vera)_|\.base_layer\.")

# Names that torch.compile and FSDP put in front of the names of a module's weights.
_WRAPPERS = re.compile(
    r"(?:(?<=[./])|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Returns a checkpoint of any known format and layout, without reading its values.

    Args:
        path: An `.npz`, an HDF5 file of Keras, a `.safetensors`, a PyTorch state dict (opened
            with weights-only loading), a `.keras` file of ours or KerasHub's, or a folder of
            Hugging Face, timm or KerasHub; weights may be in several files with an index. The
            content decides, not the suffix.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the format or the names are unknown, or the file is damaged.
        ImportError: If reading it needs a package that is not installed.
    """
    path = pathlib.Path(path)
    beside = read_json((path if path.is_dir() else path.parent) / CONFIG)
    hugging_face.check_model_type(beside, path)
    keras_hub.check_family(beside, path)
    content = _read(path)
    stored, config = content.arrays, content.config or beside
    if any(_ADAPTED.search(name) for name in stored):
        raise ValueError(
            "An adapter (LoRA) has no weights of a model: merge it first, with PEFT's "
            f"merge_and_unload(), and save the merged model. Received: {path}"
        )
    layouts = {2: (vit_keras.VIT_KERAS,), 3: _KERAS_3}.get(content.keras_version, LAYOUTS)
    for (arrays, taken), layout in itertools.product(_without_prefixes(stored), layouts):
        names = layout.canonical_names(arrays)
        if names is None:
            continue
        notes = []
        if taken:
            notes.append(f"{' and '.join(taken)} was taken off the names of the arrays")
        if outside := len(arrays) - len(names):
            notes.append(f"{outside} arrays other than the weights were not read")
        for pattern, what in layout.left_out:
            left_out = {name for name, canonical in names.items() if re.search(pattern, canonical)}
            if left_out:
                notes.append(f"{what} was left out")
                names = {name: names[name] for name in names.keys() - left_out}
        renamed = _joined(path, layout, _unstacked(path, layout, _renamed(path, arrays, names)))
        checkpoint = Checkpoint(
            path=path,
            layout=layout,
            arrays=_with_unread_tokens(layout, renamed),
            config=config,
            # big_vision adds positions before it adds the class token, and has this name then.
            class_token_has_row=not any(f"{p}pos_embedding" in names for p in layout.prefixes),
            notes=tuple(notes),
        )
        _check_ranks(path, checkpoint.shapes)
        return _with_facts(checkpoint, content.note)
    some = ", ".join(sorted(stored)[:3])
    raise ValueError(
        f"A checkpoint must have the names of {', '.join(layout.name for layout in LAYOUTS)} or "
        f"Keras. Received: {path} with {len(stored)} arrays such as {some}"
    )


def _without_prefixes(arrays):
    """Yields the arrays by name, and the prefixes that were taken off the names.

    Frameworks for training put names in front of all others, such as "model.module.", and the
    words of `_WRAPPERS` also within them. The names themselves come first, then the names without
    the shortest prefix that most of them have, and so on.
    """
    bare = {_WRAPPERS.sub("", name): name for name in arrays}
    if len(bare) < len(arrays):
        bare = {name: name for name in arrays}
    counts = collections.Counter(
        name[: sign.end()] for name in bare for sign in re.finditer(r"[./]", name)
    )
    common = sorted((text for text, count in counts.items() if 2 * count > len(bare)), key=len)
    for number in range(len(common) + 1):
        found, taken = {}, set()
        for name, original in bare.items():
            # A head beside the backbone has only the first part of the backbone's prefix.
            prefix = max(filter(name.startswith, common[:number]), key=len, default="")
            found[name.removeprefix(prefix)] = arrays[original]
            rest = original.removesuffix(name.removeprefix(prefix))
            taken.add(rest if rest != original else "".join(_WRAPPERS.findall(original)))
        if len(found) == len(arrays):
            yield found, sorted(taken - {""})


def _with_facts(checkpoint, note):
    """The checkpoint with what its code base, the files beside it and our note state."""
    layout = checkpoint.layout
    with readable_files(checkpoint):
        fields, stated = layout.stated(checkpoint)
    if shows_swiglu(checkpoint.shapes):
        fields["gelu"] = "swiglu"
    if note is not None:
        known = vars(note.config) if note.config else {}
        fields |= {name: known[name] for name in UNSEEN_FIELDS if name in known}
        stated = note
    usual = {"gelu": layout.gelu, "norm_epsilon": layout.norm_epsilon}
    assumed = tuple(usual.keys() - fields.keys()) if layout.models_vary else ()
    fields = {**usual, "position_resize": layout.position_resize, **fields}
    try:
        fields = checked_fields({k: v for k, v in fields.items() if v is not None})
        epsilon, heads = fields.get("norm_epsilon"), fields.get("num_heads")
        if not (epsilon is None or 0 < epsilon < 1):
            raise ValueError(f"norm_epsilon must be between 0 and 1. Received: {epsilon}")
        if not (heads is None or 0 < heads < 2**31):
            raise ValueError(f"num_heads must be positive. Received: num_heads={heads}")
    except ValueError as error:
        raise ValueError(f"{error} in {checkpoint.path}") from error
    if layout.needed and layout.needed not in fields:
        raise ValueError(
            f"Files of {layout.name} must have their config.json beside them, which shows "
            f"{layout.needed}. Received: {checkpoint.path}"
        )
    return dataclasses.replace(
        checkpoint, fields=fields, stated=stated, is_noted=note is not None, assumed=assumed
    )


def _check_ranks(path, shapes):
    """Sizes of the model are read from these arrays."""
    for layer, rank in _RANKS.items():
        shape = shapes.get(layer)
        if shape is not None and (len(shape) != rank or min(shape) < 1):
            raise ValueError(
                f"The weights of {layer} must have {rank} axes, none of them empty. "
                f"Received: {path} with {shape}"
            )


def _read(path):
    """The content of a file, or of the files of a folder."""
    if not path.exists():
        raise FileNotFoundError(f"A checkpoint must be a file that exists. Received: {path}")
    if not path.is_dir():
        return _read_file(path)
    held = sorted(entry.name for entry in path.iterdir() if entry.is_file())
    files = [name for name in _FOLDER_FILES if name in held][:1]
    if files != [SAFETENSORS]:
        files = hugging_face.weight_parts(held) or files
    if files == [WEIGHTS] and keras_hub.HEAD in held:
        files.append(keras_hub.HEAD)
    if not files:
        raise ValueError(
            f"A folder must hold one of {_FOLDER_FILES}, or all its parts. Received: {path}"
        )
    content, *others = (_read_file(path / file) for file in files)
    for file, other in zip(files[1:], others, strict=True):
        if twice := sorted(content.arrays.keys() & other.arrays.keys()):
            raise ValueError(
                "The files of a checkpoint must hold every array once. "
                f"Received: {twice[0]} in {path / file} and in {files[0]}"
            )
        content = content._replace(arrays=content.arrays | other.arrays)
    return content


def _read_file(path) -> formats.FileContent:
    """The content of one file; its first bytes and entries give the format."""
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return read_keras_h5(path)
    if start.startswith(b"PK\x03\x04"):
        with formats.open_zip(path) as archive:
            names = archive.namelist()
            if WEIGHTS in names:
                return read_keras_archive(path)
            if not any(name.endswith("data.pkl") for name in names):
                return formats.read_npz(path)
        return formats.read_torch(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
        return formats.read_safetensors(path)
    is_pickle = start.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
    reason = "a pickle is never opened, as it can run any code" if is_pickle else f"{start[:8]!r}"
    raise ValueError(
        "A checkpoint must be an .npz archive, a .weights.h5, a .safetensors or a PyTorch "
        f"state dict. Received: {path} ({reason})"
    )


def _renamed(path, arrays, names):
    renamed: dict[str, formats.StoredArray] = {}
    for name, canonical in names.items():
        if canonical in renamed:
            raise ValueError(
                "A checkpoint must hold every weight once. "
                f"Received: {path} with {name} and {renamed[canonical].name}"
            )
        renamed[canonical] = arrays[name]
    return renamed


def _with_unread_tokens(layout, arrays):
    """A distillation token is a register if there is a head, but none that reads the token."""
    stored = layout.stored_name
    token, head = stored("distillation_token/token"), stored("predictions/kernel")
    others = {stored(REGISTERS), stored("distillation_token_head/kernel")}
    if {token, head} <= arrays.keys() and not others & arrays.keys():
        arrays[stored(REGISTERS)] = arrays.pop(token)
    return arrays


def _joined(path, layout, arrays):
    """Joins arrays that a file holds in two parts; empty arrays are left out."""
    arrays = {name: array for name, array in arrays.items() if 0 not in array.shape}
    for first, second in layout.parts_of_arrays(arrays):
        parts = [arrays.pop(first), arrays.pop(second, None)]
        if parts[1] is None or parts[0].shape != parts[1].shape:
            raise ValueError(
                f"The parts {first} and {second} of an array must be in the file and of one "
                f"shape. Received: {path}"
            )
        rows, *rest = parts[0].shape

        def join(parts=parts):
            return np.concatenate(list(formats.read_values(parts)))

        arrays[second] = formats.computed_array(second, (2 * rows, *rest), join)
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
