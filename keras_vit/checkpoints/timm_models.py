"""Facts about timm's models that neither their arrays nor their `config.json` hold, by name."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.facts import Facts
from keras_vit.checkpoints.formats import StoredArray, computed_array, read_values
from keras_vit.configs import Rotary, ViTConfig
from keras_vit.configs.recognition import num_classes

# Names of activations in `transformers` and timm.
ACTIVATIONS = {
    "gelu": "exact",
    "gelu_python": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_tanh": "tanh",
    "quick_gelu": "quick",
    "quickgelu": "quick",
    "relu": "relu",
    "gated silu": "swiglu",
}

# Names of the models, and what their functions in timm set. Every other name has heads of 64
# units, exact GELU and an epsilon of 1e-6; tests/checkpoints/test_timm.py asks timm.
_FACTS: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"^(vit|deit3)_(huge|gigantic|giantopt|so400m)_patch", {"num_heads": 16}),
    (r"^vit_giant_patch\d+_(224|clip|gap)", {"num_heads": 16}),
    (r"^vit_base_patch16_gap_224$", {"num_heads": 16}),
    (r"^vit_small_resnet", {"num_heads": 8}),
    (r"_clip_", {"norm_epsilon": 1e-5}),
    (r"_dinov3|_lingbot|_pe_", {"norm_epsilon": 1e-5}),
    (r"^vit_7b_patch16_dinov3", {"num_heads": 32}),
    (r"_pe_\w+_gigantic_", {"num_heads": 16}),
    (r"_rpn_", {"block_norm": "after"}),
    (r"_quickgelu_", {"gelu": "quick"}),
    (r"^vit_(giantopt|so400m)_patch16_siglip_", {"gelu": "tanh"}),
    (r"^vit_base_patch32_siglip_|^vit_large_patch16_siglip_(gap_)?512$", {"gelu": "tanh"}),
)
_HEAD_DIM = 64

_BY_INDEX = Rotary(coordinates="index", pairs="neighbours")
_COLUMNS_FIRST = dataclasses.replace(_BY_INDEX, columns_first=True)

# Rotary positions by the names of the models, and whether an index is scaled to the grid of the
# images that the name states.
_ROTARY: tuple[tuple[str, Rotary, bool], ...] = (
    (r"_dinov3|_lingbot$", Rotary(), False),
    (r"_rope_mixed_", dataclasses.replace(_COLUMNS_FIRST, temperature=10.0, learned=True), False),
    (r"_rope_(ape_)?\d+$", _COLUMNS_FIRST, False),
    (r"_rope_reg\d_gap_\d+$", dataclasses.replace(_BY_INDEX, temperature=10_000.0), True),
    (r"_pe_(core|lang|spatial)_", dataclasses.replace(_COLUMNS_FIRST, temperature=10_000.0), True),
)

# The same for models that no model here equals although all arrays have names.
REFUSALS = (
    (r"^eva|^beit", "the attention of BEiT and EVA"),
    (r"^aimv2", "RMSNorm"),
    (r"^cait", "talking heads and class attention"),
)

# Names of arrays in files of timm's Eva, whose rotary positions the arrays do not show.
EVA_NAMES = re.compile(r"^rope\.freqs$|\.gamma_1$|\.attn\.q_bias$|\.mlp\.fc1_g\.weight$")

# Our input of the head by timm's `global_pool`.
_CLASSIFIERS = {"token": "token", "avg": "gap", "max": "max", "map": "map"}

# Arguments of a model that change what it computes without a trace in the arrays' names.
_ARGUMENTS = {
    "pool_include_prefix": False,
    "norm_layer": "layernorm",
    "attn_layer": "attn",
    "block_fn": None,
}


_ROTARY_ARGUMENTS = ("rope_", "use_rot_pos_emb", "ref_feat_shape")


def facts_of_timm(
    config: Mapping[str, Any], shapes: Mapping[str, Any], path: pathlib.Path
) -> Facts:
    """Returns facts about the weights of a timm model from its `config.json` and its name.

    Args:
        config: The content of `config.json`.
        shapes: Shapes by layer; see `keras_vit.configs.recognition.layer_shapes`.
        path: The file or folder, for messages.

    Raises:
        ValueError: If no model here equals it.
    """
    name = str(config.get("architecture") or "")
    for pattern, feature in REFUSALS:
        if re.search(pattern, name):
            raise ValueError(
                f"timm's {name} has {feature}, which no model here has. Received: {path}"
            )
    arguments = config.get("model_args") or {}
    for argument, default in _ARGUMENTS.items():
        if arguments.get(argument) not in (None, default):
            raise ValueError(
                f"A timm model must have {argument}={default!r}. "
                f"Received: {argument}={arguments[argument]!r} in the config.json of {path}"
            )
    changed = [argument for argument in arguments if argument.startswith(_ROTARY_ARGUMENTS)]
    if changed:
        raise ValueError(
            "A timm model must have the rotary positions of its name. "
            f"Received: {', '.join(changed)} in the config.json of {path}"
        )
    fields = _of_name(name, arguments, shapes)
    if activation := arguments.get("act_layer"):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"act_layer must be one of {tuple(ACTIVATIONS)}. "
                f"Received: act_layer={activation!r} beside {path}"
            )
        fields["gelu"] = ACTIVATIONS[activation]
    if isinstance(arguments.get("num_heads"), int):
        fields["num_heads"] = arguments["num_heads"]
    # The argument that the model was made with, and the state in which it was saved.
    given = [place.get("global_pool") for place in (arguments, config)]
    if "" in given and num_classes(shapes) is not None:
        raise ValueError(
            "A timm model with a head must pool its tokens. "
            f"Received: global_pool='' in the config.json of {path}"
        )
    pools = {str(pool) for pool in given if pool}
    if len(pools) > 1 or not pools <= _CLASSIFIERS.keys():
        raise ValueError(
            f"global_pool must be one of {tuple(_CLASSIFIERS)}. "
            f"Received: global_pool={' and '.join(map(repr, sorted(pools)))} beside {path}"
        )
    for pool in pools:
        is_distilled = pool == "token" and "distillation_token" in shapes
        fields["classifier"] = "token+distillation" if is_distilled else _CLASSIFIERS[pool]
    if arguments.get("pos_embed") == "none" and "position_embedding" not in shapes:
        fields["position_embedding"] = "none"
    size, kernel = _image_size(config, arguments), shapes.get("patch_embedding")
    grid = None
    if size and kernel and "root_conv" not in shapes:
        grid = tuple(side // patch for side, patch in zip(size, kernel[:2], strict=True))
    try:
        return Facts(fields, grid, size)
    except ValueError as error:
        raise ValueError(f"{error} in {path}") from error


def with_block_frequencies(arrays: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
    """Returns a file's arrays with the learned frequencies of rotary positions for each block.

    timm keeps the frequencies of all blocks in one array (2, blocks, heads, D_h / 2).
    """
    found = dict(arrays)
    whole = found.get("rope.freqs")
    if whole is None or len(whole.shape) != 4 or not 0 < whole.shape[1] <= _MAX_BLOCKS:
        return found
    del found["rope.freqs"]
    axes, depth, heads, pairs = whole.shape
    for block in range(depth):
        name = f"blocks.{block}.attn.rope.freqs"
        compute = functools.partial(_of_block, whole, block)
        found[name] = computed_array(name, (axes, heads, pairs), compute)
    return found


def _of_block(whole, block):
    (values,) = read_values([whole])
    return values[:, block]


_POSITION_MLP = re.compile(r"^(?:blocks\.(\d+)\.attn\.rel_pos|shared_rel_pos)\.mlp\.fc1\.weight$")


_MAX_BLOCKS = 1000
_MAX_SIDE = 256  # Patches; the table has the square of twice as many rows.


def with_bias_tables(
    arrays: Mapping[str, StoredArray], grid: Sequence[int] | None, path: pathlib.Path
) -> dict[str, StoredArray]:
    """Returns a file's arrays with tables of relative position biases for the MLPs that make them.

    timm computes the bias of a step (rows, columns) with a small MLP of
    `sign(step) log(1 + |step|)`; the steps of a grid give a table. One MLP may be shared by all
    blocks.

    Args:
        arrays: Arrays by name.
        grid: Patches (down, across), or None if the file does not show them.
        path: The file, for messages.

    Raises:
        ValueError: If there are such MLPs, and the grid is unknown or the MLPs are Swin's.
    """
    first = [match for name in arrays if (match := _POSITION_MLP.match(name))]
    if not first:
        return dict(arrays)
    if grid is None or max(grid) > _MAX_SIDE:
        raise ValueError(
            "Relative position biases need the image size, of no more than "
            f"{_MAX_SIDE} patches a side, in timm's config.json. "
            f"Received: {path} with {'none' if grid is None else tuple(grid)}"
        )
    found = {name: array for name, array in arrays.items() if "rel_pos.mlp." not in name}
    depth = len({name.split(".")[1] for name in arrays if name.startswith("blocks.")})
    for match in first:
        stem = match[0].removesuffix("fc1.weight")
        names = [f"{stem}{layer}.{kind}" for layer in ("fc1", "fc2") for kind in ("weight", "bias")]
        if not set(names) <= arrays.keys():
            raise ValueError(
                f"The MLP of relative positions must have {', '.join(names)}. Received: {path}"
            )
        parts = [arrays[name] for name in names]
        shape = ((2 * grid[0] - 1) * (2 * grid[1] - 1), parts[2].shape[0])
        blocks = range(depth) if match[1] is None else [int(match[1])]
        for block in blocks:
            name = f"blocks.{block}.attn.rel_pos.table"
            compute = functools.partial(_bias_table, parts, tuple(grid))
            found[name] = computed_array(name, shape, compute)
    return found


def _bias_table(parts, grid):
    """The table `(steps, heads)` of the MLP with these arrays."""
    first, first_bias, second, second_bias = (np.asarray(v, "float64") for v in read_values(parts))
    steps = np.stack(
        np.meshgrid(*(np.arange(1 - side, side) for side in grid), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    x = np.sign(steps) * np.log1p(np.abs(steps))
    hidden = np.maximum(x @ first.T + first_bias, 0)
    return (hidden @ second.T + second_bias).astype("float32")


def _of_name(name, arguments, shapes):
    """Fields of the config by the name of timm's function; none of functions unknown here."""
    if not re.match(r"(vit|deit3?|flexivit)_", name):
        return {}
    fields: dict[str, Any] = {"gelu": "exact", "norm_epsilon": ViTConfig.norm_epsilon}
    width = (shapes.get("patch_embedding") or (0,))[-1]
    if "embed_dim" not in arguments and width % _HEAD_DIM == 0:
        fields["num_heads"] = width // _HEAD_DIM
    for pattern, more in _FACTS:
        if re.search(pattern, name):
            fields.update({k: v for k, v in more.items() if k != "num_heads" or k in fields})
    if "_pe_core_" in name and "map_head" in shapes:
        fields |= {"map_num_heads": 8, "map_reads_prefix": "class_token" in shapes}
    for pattern, rotary, is_scaled in _ROTARY:
        if re.search(pattern, name):
            if is_scaled:
                rotary = _scaled(rotary, name, shapes)
            fields["rotary"] = rotary
    return fields


def _scaled(rotary, name, shapes):
    """Rotary positions by index on the grid of a name's images, such as "..._patch16_..._224"."""
    patch, size = (int(number) for number in re.findall(r"(?<=_patch)\d+|(?<=_)\d+$", name))
    # The Perception Encoder numbers the class token 0.
    offset = float("_pe_" in name and "class_token" in shapes)
    return dataclasses.replace(rotary, reference_grid=(size // patch,) * 2, offset=offset)


def _image_size(config, arguments):
    """Pixels (height, width) of the images, or None."""
    size = arguments.get("img_size") or (config.get("pretrained_cfg") or {}).get("input_size")
    if isinstance(size, int):
        return (size, size)
    if isinstance(size, list) and len(size) > 1 and all(isinstance(side, int) for side in size):
        return tuple(size[-2:])  # Also from (channels, height, width).
    return None
