"""Matching the arrays of a checkpoint with the variables of a model.

All decisions are made by names and shapes, before any value is read.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fnmatch
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.checkpoint import POSITIONS, Checkpoint
from keras_vit.checkpoints.code_bases.layouts import Rule, Shape
from keras_vit.checkpoints.completion import complete
from keras_vit.checkpoints.formats import StoredArray, computed_array, read_values
from keras_vit.checkpoints.resize import (
    Grid,
    adapt_input_channels,
    find_grid,
    resize_patch_kernel,
    resize_positions,
)
from keras_vit.configs import CLASSIFIER_LAYERS, ViTConfig
from keras_vit.configs.blocks import UNSEEN_BLOCK_FIELDS
from keras_vit.configs.model_table import LEVERAGE
from keras_vit.configs.position_resize import RULES
from keras_vit.configs.recognition import config_of, layer_shapes, similar_models
from keras_vit.description import description_layer, held_description, set_description

# Arrays that an error names of each kind.
MAX_LISTED = 3

PATCH_KERNEL, ROOT_KERNEL = "patch_embedding/kernel", "root_conv/kernel"

REFUSE = "refuse"  # The `position_resize` by which another grid is an error.

# Ends of the paths of position tables.
TABLE = "/embedding"
AXIS_TABLES = ("/x_embedding", "/y_embedding")
OFFSETS = "/offset_embedding"


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Arguments of `load_checkpoint`, which describes them, and `head_rows`.

    By default positions are resized by the rule of the weights' code base.

    `head_rows` has for each class of the model its number in the file, or None for a class
    that keeps its initial values.

    Raises:
        ValueError: If a method is unknown.
    """

    skip: Sequence[str] = ()
    position_resize: str | None = None
    position_grid: Sequence[int] | None = None
    patch_resize: str | None = None
    input_channels: str | None = None
    head_rows: Sequence[int | None] | None = None

    def __post_init__(self):
        if self.position_resize not in (None, REFUSE, *RULES):
            raise ValueError(
                f"position_resize must be one of {(*RULES, REFUSE)} or None. "
                f"Received: {self.position_resize!r}"
            )
        for argument, known in (("patch_resize", "pseudo_inverse"), ("input_channels", "adapt")):
            value = getattr(self, argument)
            if value not in (None, known):
                raise ValueError(f"{argument} must be {known!r} or None. Received: {value!r}")

    def skips(self, names: Sequence[str]) -> bool:
        """Returns whether a pattern of `skip` matches a name."""
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.skip)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """An array of a file and the variables that get its values.

    Args:
        array: The array.
        rule: Its row in the layout, which has the paths of the variables.
        shapes: Shapes of the variables in the file, before `adapt`.
        adapt: Converts the value to the model's grid, patch or channels; None if it is equal.
        grids: Patches (down, across) in the file and in the model, for position embeddings.
        note: A sentence about it for the report, or "".
    """

    array: StoredArray
    rule: Rule
    shapes: Sequence[Shape]
    adapt: Callable[[np.ndarray], np.ndarray] | None = None
    grids: tuple[Grid, Grid] | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Match:
    """Which array goes to which variable.

    Args:
        path: The checkpoint, for messages.
        assignments: In the order of the model's variables.
        skipped: Names of arrays that `skip` leaves in the file.
        kept: Paths of variables that `skip` leaves unchanged.
        notes: Sentences for a report.
    """

    path: pathlib.Path
    assignments: tuple[Assignment, ...]
    skipped: tuple[str, ...]
    kept: tuple[str, ...]
    notes: tuple[str, ...] = ()


def match_checkpoint(checkpoint: Checkpoint, model: keras.Model, options: LoadOptions) -> Match:
    """Returns which array of a checkpoint goes to which variable of a model.

    Raises:
        ValueError: If an array is missing, unused or misshapen; one error lists all of them.
    """
    variables = weights_by_path(model)
    if POSITIONS in variables:
        known = options.position_grid or checkpoint.stated.position_grid
        checkpoint = complete(checkpoint, layer_of(model, POSITIONS).grid, known)
    layout, arrays = checkpoint.layout, checkpoint.arrays
    rules = layout.rules_of_model(variables)
    absent = layout.absent_paths(arrays, variables)
    assignments: list[Assignment] = []
    skipped: list[str] = []
    kept: list[str] = []
    used: set[str] = set()
    missing: list[str] = []
    unused: list[str] = []
    misshapen: list[str] = []
    for path in variables:
        rule = rules.get(path)
        if options.skips([rule.stored, *rule.paths] if rule else [path]):
            kept.append(path)
            continue
        if rule is None or (rule.stored not in arrays and path not in absent):
            nameless = f"{path} ({layout.name} files have no name for it)"
            missing.append(f"{rule.stored} ({path})" if rule else nameless)
            continue
        used.add(rule.stored)
        if path != rule.paths[0]:  # The first variable of an array stands for all of them.
            continue
        try:
            assignments.append(_assign(checkpoint, rule, model, variables, options))
        except ValueError as error:
            name = arrays[rule.stored].name if rule.stored in arrays else rule.stored
            misshapen.append(f"{name}: {error}")

    paths_of = {rule.stored: rule.paths for rule in rules.values()}
    for name, array in arrays.items():
        if name in used:
            continue
        rule = layout.rule_of_array(name)
        paths = paths_of.get(name, rule.paths if rule else ())
        is_skipped = options.skips([name, array.name, *paths])
        (skipped if is_skipped else unused).append(array.name)

    problems = [
        f"{title} ({len(names)}): {'; '.join(names[:MAX_LISTED])}"
        + ("; ..." if len(names) > MAX_LISTED else "")
        for title, names in (
            ("missing in the file", missing),
            ("in the file but not in the model", unused),
            ("of another shape", misshapen),
        )
        if names
    ]
    if problems:
        raise ValueError(
            "A checkpoint must fit the model; skip= leaves arrays out by pattern. "
            f"Received: {checkpoint.path}{_similar_models(checkpoint, variables)}\n  "
            + "\n  ".join(problems)
        )
    notes = [*checkpoint.notes]
    if absent:
        layers = sorted({re.sub(r"_\d+/", "_*/", path) for path in absent})
        notes.append(f"not in the file, so zeros: {', '.join(layers)}")
    return Match(checkpoint.path, tuple(assignments), tuple(skipped), tuple(kept), tuple(notes))


def _similar_models(checkpoint, variables):
    """A hint which models of the paper the file and the model are like, if they differ."""
    file = similar_models(checkpoint.shapes)
    model = similar_models(
        layer_shapes({path: tuple(variable.shape) for path, variable in variables.items()})
    )
    if not file or file == model:
        return ""
    return f", which looks like {file}" + (f" and the model like {model}" if model else "")


def read_match(match: Match, dtypes: Mapping[str, np.dtype]) -> dict[str, np.ndarray]:
    """Returns the new value of each variable by its path.

    Args:
        match: The match.
        dtypes: The dtype of each variable by its path.

    Raises:
        ValueError: If a file is damaged, or holds NaN, infinity or a number that is infinite
            in the variable's dtype.
    """
    values: dict[str, np.ndarray] = {}
    arrays = [assignment.array for assignment in match.assignments]
    for assignment, value in zip(match.assignments, read_values(arrays), strict=True):
        parts = assignment.rule.transform.ours(value, assignment.shapes)
        if assignment.adapt is not None:
            parts = [assignment.adapt(part) for part in parts]
        with np.errstate(over="ignore"):  # Infinity is an error below.
            parts = [
                part.astype(dtypes[path])
                for path, part in zip(assignment.rule.paths, parts, strict=True)
            ]
        values.update(zip(assignment.rule.paths, parts, strict=True))
    bad = [path for path, value in values.items() if not np.isfinite(value).all()]
    if bad:
        raise ValueError(
            "Weights must be finite numbers. "
            f"Received: {match.path} with NaN or infinity, or a number beyond "
            f"{dtypes[bad[0]]}, in {', '.join(bad[:MAX_LISTED])}"
        )
    return values


def weights_by_path(model: keras.Model) -> dict[str, Any]:
    """Returns a model's weights by path, such as "encoder_block_0/mlp/dense_1/kernel".

    The weights of the class "unknown" belong to no checkpoint and are left out.

    Raises:
        ValueError: If two weights have the same path.
    """
    named = [weight for weight in model.weights if not weight.path.startswith(f"{LEVERAGE}/")]
    weights = {weight.path: weight for weight in named}
    if len(weights) < len(named):
        counts = collections.Counter(weight.path for weight in named)
        double = sorted(path for path, count in counts.items() if count > 1)[:MAX_LISTED]
        raise ValueError(
            f"The layers of a model must have different names. Received: twice {double}"
        )
    return weights


def layer_of(model: keras.Model, path: str) -> Any:
    """Returns the layer that has the variable of a path, or None if it cannot be found."""
    first, *parts = path.split("/")[:-1]
    layer = _layer_named(model, first)
    for part in parts:
        layer = getattr(layer, part, None)
    return layer


def position_grid(model: keras.Model) -> Grid | None:
    """Returns the grid (down, across) of a model's position tables; None without any.

    Offsets along a line belong to no grid.
    """
    for path in weights_by_path(model):
        if path.endswith((TABLE, OFFSETS)):
            grid = getattr(layer_of(model, path), "grid", None)
            if grid is not None and not (path.endswith(OFFSETS) and grid[0] == 1):
                return tuple(grid)
    return None


def position_layers(model: keras.Model) -> list[Any]:
    """Returns the layers of a model whose tables of positions have a rule of resizing."""
    paths = [path for path in weights_by_path(model) if path.endswith((TABLE, *AXIS_TABLES))]
    layers = {
        id(layer): layer for path in paths if hasattr(layer := layer_of(model, path), "resize")
    }
    return list(layers.values())


def position_rule(model: keras.Model) -> str | None:
    """Returns the rule by which a model's tables of positions are resized; None without any."""
    return next((layer.resize for layer in position_layers(model)), None)


def set_position_rule(model: keras.Model, rule: str) -> None:
    """Makes a model resize its tables of positions by a rule, and its description say so."""
    layers = position_layers(model)
    for layer in layers:
        layer.resize = rule
    held = held_description(model) if description_layer(model) else None
    if layers and held is not None and isinstance(held.config, ViTConfig):
        changes: dict[str, Any] = {"position_resize": rule}
        config = dataclasses.replace(held.config, **changes)
        set_description(model, dataclasses.replace(held, config=config))


def unseen_fields(model: keras.Model) -> dict[str, Any]:
    """Returns the fields of a model's blocks, and where they add positions, as known.

    Weights do not show them. {} without any block.
    """
    layer = layer_of(model, "encoder_block_0/variable") or layer_of(model, "row_block_0/variable")
    fields = {name: getattr(layer, name) for name in UNSEEN_BLOCK_FIELDS if hasattr(layer, name)}
    with contextlib.suppress(ValueError):  # A model of other layers.
        config = config_of(model)
        if isinstance(config, ViTConfig):
            fields["position_embedding_at"] = config.position_embedding_at
    return fields


def _layer_named(model, name):
    """The layer of a name, in the model or in a model that is a layer of it."""
    for layer in model.layers:
        if layer.name == name:
            return layer
    inner = (_layer_named(layer, name) for layer in model.layers if hasattr(layer, "layers"))
    return next((layer for layer in inner if layer is not None), None)


def _assign(checkpoint, rule, model, variables, options):
    """The assignment of an array by its rule.

    Raises:
        ValueError: If the array does not fit, or could be adapted and no option asks for it.
    """
    absent = [path for path in rule.paths if path not in variables]
    if absent:
        raise ValueError(f"the array also holds {', '.join(absent)}, not in the model")
    path = rule.paths[0]
    wanted = [tuple(variables[path].shape) for path in rule.paths]
    array = checkpoint.arrays.get(rule.stored)
    if array is None:  # An absent bias.
        shape = rule.transform.stored_shape(wanted)
        array = computed_array(rule.stored, shape, lambda: np.zeros(shape, "float32"))
    stored = rule.transform.our_shape(array.shape)
    if options.head_rows is not None and path.partition("/")[0] in CLASSIFIER_LAYERS:
        return _assign_head(array, rule, wanted, variables, options.head_rows)
    if stored is not None and len(stored) == len(wanted[0]):
        layer = layer_of(model, path)
        adapted = None
        if path.endswith(TABLE) and hasattr(layer, "grid"):
            adapted = _adapt_table(checkpoint, stored, variables[path], layer, options)
        elif path.endswith(AXIS_TABLES):
            adapted = _adapt_axis(checkpoint, stored, wanted[0], options)
        elif path.endswith(OFFSETS):
            adapted = _adapt_offsets(checkpoint, stored, wanted[0], layer, options)
        elif path in (PATCH_KERNEL, ROOT_KERNEL):
            adapted = _adapt_kernel(path, stored, wanted[0], options)
        if adapted is not None:
            return Assignment(array, rule, [stored], **adapted)
    if not rule.transform.accepts(array.shape, wanted):
        raise ValueError(f"file {array.shape}, model {rule.transform.stored_shape(wanted)}")
    return Assignment(array, rule, wanted)


def _assign_head(array, rule, wanted, variables, rows):
    """The assignment of a kernel or bias of the head, whose classes are in another order."""
    (shape,), (path,) = wanted, rule.paths
    stored = rule.transform.our_shape(array.shape) or array.shape
    known = [(new, old) for new, old in enumerate(rows) if old is not None]
    if stored[:-1] != shape[:-1] or len(rows) != shape[-1]:
        raise ValueError(f"file {stored}, model {shape}")

    def adapt(value):
        result = np.array(variables[path])
        for new, old in known:
            result[..., new] = value[..., old]
        return result

    return Assignment(array, rule, [stored], adapt)


# Each function returns the fields of an `Assignment` that adapts a variable, or None if its
# other axes differ, too.


def _adapt_table(checkpoint, stored, variable, layer, options):
    """Positions `(1, rows, D)` for another grid or with other rows in front of the patches."""
    _, rows, dim = stored
    if stored[0] != 1 or dim != variable.shape[2]:
        return None
    new_grid, num_prefix = tuple(layer.grid), layer.num_prefix_tokens
    count, grid = _grid_in_file(checkpoint, rows, checkpoint.prefix_row_counts, new_grid, options)
    if grid != new_grid:
        _check_resize(options, grid, new_grid)

    def adapt(table):
        prefix, patches = table[0, :count], table[0, count:]
        if grid != new_grid:
            rule = checkpoint.position_rule(options.position_resize)
            patches = resize_positions(patches, grid, new_grid, rule)
        more = np.asarray(variable)[0, count:num_prefix]
        if checkpoint.num_class_tokens:
            # Positions were added before the class token, which got none.
            more = np.zeros_like(more)
        return np.concatenate([prefix[:num_prefix], more, patches])[None]

    note = "the row of the class token was left out" if count > num_prefix else ""
    return {"adapt": adapt, "grids": (grid, new_grid), "note": note}


def _adapt_axis(checkpoint, stored, wanted, options):
    """Positions of one axis, `(length, D / 2)`, for another length."""
    if stored[1] != wanted[1]:
        return None
    old, new = (1, stored[0]), (1, wanted[0])
    if old == new:
        return {"grids": (old, new)}
    _check_resize(options, old, new)
    rule = checkpoint.position_rule(options.position_resize)
    return {
        "adapt": lambda table: resize_positions(table, old, new, rule),
        "grids": (old, new),
    }


def _adapt_offsets(checkpoint, stored, wanted, layer, options):
    """Relative positions `(2 N - 1, k, D_h)` for another grid of N patches."""
    if stored[1:] != wanted[1:] or stored[0] % 2 == 0:
        return None
    patches, new = (stored[0] + 1) // 2, tuple(layer.grid)
    old = (1, patches)
    if new[0] != 1:  # The patches of a line can only lie in a line.
        _, old = _grid_in_file(checkpoint, patches, (0,), new, options)
    if old == new:
        return {"grids": (old, new)}
    _check_resize(options, old, new)
    rule = checkpoint.position_rule(options.position_resize)
    if rule != "official":
        raise ValueError(
            f'relative positions are resized with position_resize="official" only, not "{rule}"'
        )
    return {
        "adapt": lambda table: np.asarray(layer.resized(table, old)),
        "grids": (old, new),
    }


def _adapt_kernel(path, stored, wanted, options):
    """A first kernel `(height, width, C, D)` for another patch or number of channels."""
    if stored[3] != wanted[3] or stored == wanted:
        return None
    # A stride belongs to its kernel: a root of another size is another network.
    if stored[:2] != wanted[:2] and path == ROOT_KERNEL:
        return None
    if stored[:2] != wanted[:2] and options.patch_resize is None:
        raise ValueError(
            f'file {stored}, model {wanted}; patch_resize="pseudo_inverse" converts the patch size'
        )
    if stored[2] != wanted[2] and options.input_channels is None:
        raise ValueError(
            f'file {stored}, model {wanted}; input_channels="adapt" converts the channels'
        )
    changes = []
    if stored[:2] != wanted[:2]:
        changes.append(f"from {stored[0]}x{stored[1]} to {wanted[0]}x{wanted[1]} pixels")
    if stored[2] != wanted[2]:
        changes.append(f"from {stored[2]} to {wanted[2]} channels")

    def adapt(kernel):
        if stored[:2] != wanted[:2]:
            kernel = resize_patch_kernel(kernel, wanted[:2])
        if stored[2] != wanted[2]:
            kernel = adapt_input_channels(kernel, wanted[2])
        return kernel

    return {"adapt": adapt, "note": ", ".join(changes)}


def _grid_in_file(checkpoint, rows, prefix_counts, model_grid, options):
    """The rows in front and the grid of a table; see `find_grid`."""
    known = options.position_grid
    if known is None:
        known = checkpoint.stated.position_grid
    try:
        return find_grid(rows, prefix_counts, known, model_grid)
    except ValueError as error:
        hint = "" if known is not None else "; give position_grid=(down, across)"
        raise ValueError(f"{error}{hint}") from error


def _check_resize(options, old, new):
    if options.position_resize == REFUSE:
        raise ValueError(
            f"file {old[0]}x{old[1]} patches, model {new[0]}x{new[1]}, and position_resize is "
            f'"{REFUSE}"'
        )
