"""Opening a checkpoint: from a file or folder to a layout and its arrays by name."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.code_bases import hugging_face, keras_hub
from keras_vit.checkpoints.code_bases.files_beside import WeightFiles, read_json
from keras_vit.checkpoints.code_bases.hugging_face import (
    HUGGING_FACE,
    HUGGING_FACE_CLIP,
    HUGGING_FACE_DINOV2,
    HUGGING_FACE_DINOV3,
)
from keras_vit.checkpoints.code_bases.keras_hub import KERAS_HUB, KERAS_HUB_DEIT
from keras_vit.checkpoints.code_bases.layouts import Layout
from keras_vit.checkpoints.code_bases.official import BIT, OFFICIAL
from keras_vit.checkpoints.code_bases.own import KERAS
from keras_vit.checkpoints.code_bases.timm import TIMM, TIMM_BIT
from keras_vit.checkpoints.code_bases.torchvision import TORCHVISION
from keras_vit.checkpoints.code_bases.vit_keras import VIT_KERAS
from keras_vit.checkpoints.formats import (
    FileContent,
    StoredArray,
    computed_array,
    open_zip,
    read_npz,
    read_safetensors,
    read_torch,
    read_values,
)
from keras_vit.checkpoints.hdf5 import read_keras_archive, read_keras_h5
from keras_vit.configs import UNSEEN_FIELDS, ViTConfig, checked_fields
from keras_vit.configs.recognition import layer_shapes, shows_swiglu
from keras_vit.configs.resnet_configs import EpsilonIn
from keras_vit.description import Description
from keras_vit.utils.files import CONFIG, MODEL, WEIGHTS, path_inside

# In the order in which a file is compared with them.
LAYOUTS = (
    OFFICIAL, BIT, HUGGING_FACE_DINOV2, HUGGING_FACE, HUGGING_FACE_CLIP, HUGGING_FACE_DINOV3,
    TIMM, TIMM_BIT, TORCHVISION, KERAS_HUB_DEIT, KERAS_HUB, VIT_KERAS,
)  # fmt: skip

# The same for HDF5 files, by the version of Keras.
_LAYOUTS_OF_KERAS = {2: (VIT_KERAS,), 3: (KERAS_HUB_DEIT, KERAS_HUB, VIT_KERAS, KERAS)}

# Axes of arrays that show the sizes of a model.
_RANKS = {
    "patch_embedding": 4,
    "root_conv": 4,
    "registers": 3,
    "pre_logits": 2,
    "predictions": 2,
    "encoder_block_0/mlp/dense_1": 2,
    "encoder_block_0/mlp/dense_2": 2,
}

# A folder holds one of these: Hugging Face's and timm's, whole or in parts, KerasHub's, which
# has the head in another file, or a classifier's.
SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
_FOLDER_FILES = (SAFETENSORS, "pytorch_model.bin", WEIGHTS, MODEL)
_INDEXES = (INDEX, "pytorch_model.bin.index.json")
KERAS_HUB_HEAD = "task.weights.h5"

# Files of PEFT's folders, and names of its weights.
ADAPTER = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_ADAPTED = re.compile(r"\.(?:lora|ia3|hada|lokr|oft|vera)_|\.base_layer\.")

# Names that torch.compile and FSDP put in front of the names of a module's weights.
_WRAPPERS = re.compile(
    r"(?:(?<=[./])|^)(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)

POSITIONS, REGISTERS = "position_embedding/embedding", "registers/tokens"

# More than any model has.
_MAX_PARTS = 1000
_MAX_BLOCKS = 1000


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A file of weights whose layout is known; no value has been read.

    Args:
        path: The file or folder.
        layout: The layout of its names.
        arrays: Its arrays by canonical name.
        fields: Fields of `ViTConfig` that the file, its config and its code base state.
        stated: What else they state: the description that this package noted in the file, or
            the grid and the image size in the config.
        is_noted: Whether this package wrote a description into the file.
        config: The object in the `config.json` in the file or beside it; {} without one.
        assumed: Names of the fields that the code base's models usually have, while the file
            does not state it.
        class_token_has_row: Whether the class token has a row in the position table.
        notes: Sentences for a report.
    """

    path: pathlib.Path
    layout: Layout
    arrays: dict[str, StoredArray]
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stated: Description = Description()
    is_noted: bool = False
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    class_token_has_row: bool = True
    notes: tuple[str, ...] = ()

    def states(self, field: str) -> bool:
        """Returns whether the file or its code base determines a field of the config."""
        return field in self.fields and field not in self.assumed

    def position_rule(self, given: str | None = None) -> str:
        """Returns the rule by which positions are resized, a key of `RULES`.

        Args:
            given: None for the rule of the file's code base, or the name of a rule. "bicubic"
                is Hugging Face's own bicubic rule for its files.
        """
        own = self.fields.get("position_resize") or ViTConfig.position_resize
        is_own = given == "bicubic" and self.layout.position_resize == "bicubic_torch"
        return own if given is None or is_own else given

    @property
    def files(self) -> WeightFiles:
        """What its code base reads."""
        return WeightFiles(self.path, self.config, self.shapes)

    @property
    def epsilon_in(self) -> EpsilonIn:
        """How the kernels of a hybrid's ResNet are standardised."""
        stem = getattr(self.stated.config, "resnet", None)
        return self.layout.epsilon_in if stem is None else stem.epsilon_in

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Shape of the first variable of each of our layers in the file; None if unknown."""
        if self.layout.numbered:
            return layer_shapes({name: array.shape for name, array in self.arrays.items()})
        shapes: dict[str, tuple[int, ...] | None] = {}
        for name, array in self.arrays.items():
            if rule := self.layout.rule_of_array(name):
                shapes.update(dict.fromkeys(rule.paths, rule.transform.our_shape(array.shape)))
        return layer_shapes(shapes)

    @property
    def width(self) -> int:
        """The token size, D; 0 if the file does not show it."""
        return (self.shapes.get("patch_embedding") or (0,))[-1]

    @property
    def has_fixed_positions(self) -> bool:
        """Whether positions are the sines and cosines that big_vision leaves out of files."""
        mark = self.layout.fixed_positions
        return (
            mark is not None
            and not any(layer.startswith("position_embedding") for layer in self.shapes)
            and any(re.search(mark, array.name) for array in self.arrays.values())
        )

    @property
    def num_class_tokens(self) -> int:
        """Class and distillation tokens."""
        return len({"class_token", "distillation_token"} & self.shapes.keys())

    @property
    def prefix_row_counts(self) -> tuple[int, ...]:
        """Possible numbers of rows in front of the patches' in the position table."""
        tokens = self.num_class_tokens if self.class_token_has_row else 0
        registers = (self.shapes.get("registers") or (0, 0))[1]
        counts = {"class": tokens, "all": tokens + registers, "none": 0}
        return tuple(dict.fromkeys(counts[rows] for rows in self.layout.prefix_rows))


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
    for base in (hugging_face, keras_hub):
        base.check_family(beside, path)
    if path.is_dir() and any((path / name).is_file() for name in ADAPTER):
        raise adapter_error(path)
    content = _read(path)
    stored, config = content.arrays, content.config or beside
    if any(_ADAPTED.search(name) for name in stored):
        raise adapter_error(path)
    layouts = _LAYOUTS_OF_KERAS.get(content.keras_version, LAYOUTS)
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
        _check_features(path, layout, names.values())
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
        files = dataclasses.replace(checkpoint.files, names=tuple(arrays), wrapper=content.wrapper)
        fields, stated, assumed = _stated(layout, files, content.note)
        return dataclasses.replace(
            checkpoint,
            fields=fields,
            stated=stated,
            is_noted=content.note is not None,
            assumed=assumed,
        )
    hugging_face.check_model_type(config, path)
    for layout in LAYOUTS:
        _check_features(path, layout, stored)
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


def adapter_error(source: object) -> ValueError:
    """Returns the error of an adapter, which needs the weights of its base to be a model."""
    return ValueError(
        "An adapter (LoRA) has no weights of a model: merge it first, with PEFT's "
        f"merge_and_unload(), and save the merged model. Received: {source}"
    )


def _stated(layout, files, note):
    """Fields of the config, the description, and the names of fields that are assumed."""
    fields, stated = layout.stated(files)
    if shows_swiglu(files.shapes):
        fields["gelu"] = "swiglu"
    if note is not None:
        known = vars(note.config) if note.config else {}
        fields |= {name: known[name] for name in UNSEEN_FIELDS if name in known}
        parts = {
            name: getattr(note, name) or getattr(stated, name)
            for name in ("position_grid", "input_shape")
        }
        stated = dataclasses.replace(note, **parts)
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
        raise ValueError(f"{error} in {files.path}") from error
    if layout.needed is not None:
        mark, field = layout.needed
        if field not in fields and any(re.search(mark, name) for name in files.names):
            raise ValueError(
                "Files of DINOv3 and timm's Eva must have their config.json beside them, which "
                f"shows {field}. Received: {files.path}"
            )
    return fields, stated, assumed


def _check_ranks(path, shapes):
    """Sizes of the model are read from these arrays."""
    for layer, rank in _RANKS.items():
        shape = shapes.get(layer)
        if shape is not None and (len(shape) != rank or min(shape) < 1):
            raise ValueError(
                f"The weights of {layer} must have {rank} axes, none of them empty. "
                f"Received: {path} with {shape}"
            )


def _check_features(path, layout, names):
    if feature := layout.refused_feature(names):
        raise ValueError(
            f"The {layout.name} model has {feature}, which no model here has. Received: {path}"
        )


def _read(path):
    """The content of a file, or of all files of a folder or index."""
    if not path.exists():
        raise FileNotFoundError(f"A checkpoint must be a file that exists. Received: {path}")
    whole = None
    for file in _weight_files(path):
        part = _read_file(file)
        if whole is None:
            whole = part
            continue
        if twice := whole.arrays.keys() & part.arrays.keys():
            raise ValueError(
                "The files of a checkpoint must hold every array once. "
                f"Received: {sorted(twice)[0]} in {file} and in another one"
            )
        whole = whole._replace(arrays=whole.arrays | part.arrays, note=whole.note or part.note)
    return whole


def _weight_files(path):
    if not path.is_dir():
        return [path]
    for name in _FOLDER_FILES:
        if (path / name).is_file():
            head = path / KERAS_HUB_HEAD
            has_head = name == WEIGHTS and head.is_file()
            return [path / name, head] if has_head else [path / name]
    for name in _INDEXES:
        if (path / name).is_file():
            return _parts(path / name)
    raise ValueError(
        f"A folder must hold one of {(*_FOLDER_FILES, *_INDEXES)}. Received: {path} without any"
    )


def _parts(index):
    """The files that an index names; they must lie beside it."""
    parts = read_json(index).get("weight_map")
    names = set(map(str, parts.values())) if parts else set()
    if not names or len(names) > _MAX_PARTS or any("/" in name for name in names):
        raise ValueError(
            "An index must name the files beside it that hold the arrays. "
            f"Received: {index} with {sorted(names)[:3]}"
        )
    files = [path_inside(index.parent, name) for name in sorted(names)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ValueError(
            f"A checkpoint must be whole. Received: {index.parent} without {', '.join(missing)}"
        )
    return files


def _read_file(path) -> FileContent:
    """The content of one file; its first bytes and entries give the format."""
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(b"\x89HDF\r\n\x1a\n"):
        return read_keras_h5(path)
    if start.startswith(b"PK\x03\x04"):
        with open_zip(path) as archive:
            names = archive.namelist()
            if WEIGHTS in names:
                return read_keras_archive(path, archive)
            if not any(name.endswith("data.pkl") for name in names):
                return read_npz(path, archive)
        return read_torch(path)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path):
        return read_safetensors(path)
    reason = "it is none of them"
    if not start:
        reason = "it is empty"
    elif start.startswith(b"\x93NUMPY"):
        reason = "it is one .npy array, not an archive"
    elif start.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        reason = "it is a pickle, which is never opened, as it can run any code"
    elif start.lstrip().startswith((b"<", b"{")):
        reason = "it is text, perhaps a server's error page"
    raise ValueError(
        "A checkpoint must be an .npz archive, a .weights.h5, a .safetensors or a PyTorch "
        f"state dict. Received: {path} ({reason})"
    )


def _renamed(path, arrays, names):
    renamed: dict[str, StoredArray] = {}
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
    token, register, head, its_head = (
        layout.stored_name(path)
        for path in (
            "distillation_token/token",
            REGISTERS,
            "predictions/kernel",
            "distillation_token_head/kernel",
        )
    )
    if {token, head} <= arrays.keys() and not {register, its_head} & arrays.keys():
        arrays[register] = arrays.pop(token)
    return arrays


def _joined(path, layout, arrays):
    """Joins arrays that a file holds in parts; empty arrays are left out."""
    arrays = {name: array for name, array in arrays.items() if 0 not in array.shape}
    for name, parts in layout.parts_of_arrays(arrays).items():
        found = [arrays.pop(part, None) for part in parts if part]
        if len({array and array.shape for array in found}) > 1:
            raise ValueError(
                f"The parts {', '.join(filter(None, parts))} of an array must be in the file and "
                f"of one shape. Received: {path}"
            )
        rows, *rest = found[0].shape
        arrays[name] = computed_array(
            name, (rows * len(parts), *rest), functools.partial(_concatenated, found, parts)
        )
    return arrays


def _concatenated(arrays, parts):
    values = iter(list(read_values(arrays)))
    zeros = np.zeros(arrays[0].shape, "float32")
    return np.concatenate([next(values) if part else zeros for part in parts])


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
        if not array.shape or array.shape[0] > _MAX_BLOCKS:
            raise ValueError(
                "Stacked blocks must have the block as first axis. "
                f"Received: {name} of shape {array.shape} in {path}"
            )
        for block in range(array.shape[0]):
            canonical = one_block.format(block=block) + name.removeprefix(all_blocks)
            expanded[canonical] = dataclasses.replace(array, shape=array.shape[1:], block=block)
    return expanded
