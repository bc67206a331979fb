"""Matching the arrays of a checkpoint with the variables of a model."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.layouts import Rule
from keras_vit.checkpoints.resize import (
    adapt_input_channels,
    resize_patch_kernel,
    resize_positions,
)
from keras_vit.checkpoints.source import Source
from keras_vit.checkpoints.torch_names import TIMM
from keras_vit.models.recognition import looks_like

POSITION_TABLES = ("/embedding", "/offset_embedding")


def weights_by_path(model) -> dict[str, Any]:
    """Returns a model's weights by path, such as "encoder_block_0/mlp/dense_1/kernel".

    Raises:
        ValueError: If two weights have one path.
    """
    weights = {weight.path: weight for weight in model.weights}
    if len(weights) < len(model.weights):
        paths = [weight.path for weight in model.weights]
        double = sorted({path for path in paths if paths.count(path) > 1})
        raise ValueError(f"Every layer must have a name of its own. Received: twice {double}")
    return weights


def owner(model, path: str):
    """Returns the layer that has the variable of a path, or None if it cannot be found."""
    first, *parts = path.split("/")[:-1]
    layer = _layer(model, first)
    for part in parts:
        layer = getattr(layer, part, None)
    return layer


def _layer(model, name):
    """The layer of a name, in the model or in a model that is a layer of it."""
    for layer in model.layers:
        if layer.name == name:
            return layer
    inner = (_layer(layer, name) for layer in model.layers if hasattr(layer, "layers"))
    return next((layer for layer in inner if layer is not None), None)


def position_layer(model, path: str):
    """Returns the layer of a table of positions for a grid; None for another variable.

    The offsets along a line belong to no grid.
    """
    if not path.endswith(POSITION_TABLES):
        return None
    layer = owner(model, path)
    if not (hasattr(layer, "grid") and hasattr(layer, "num_prefix_tokens")):
        return None
    return None if path.endswith("/offset_embedding") and layer.grid[0] == 1 else layer


def numerics(model) -> dict[str, Any]:
    """Returns the GELU form and LayerNorm epsilon of a model's blocks; empty without any."""
    layer = owner(model, "encoder_block_0/variable") or owner(model, "row_block_0/variable")
    return {fact: getattr(layer, fact) for fact in ("gelu", "norm_epsilon") if hasattr(layer, fact)}


PATCH_KERNEL = "patch_embedding/kernel"
FIRST_KERNELS = (PATCH_KERNEL, "root_conv/kernel")
AXIS_TABLES = ("/x_embedding", "/y_embedding")
OFFSETS = "/offset_embedding"


class Refits(dict[str, Callable[[np.ndarray], np.ndarray]]):
    """By path of a variable, the function that makes its value of the file's.

    Args:
        position_resize: How positions go to another grid, or None: they must not.
        patch_resize: How a patch embedding goes to another patch, or None: it must not.
        input_channels: How a first kernel goes to other channels, or None: it must not.
    """

    def __init__(self, position_resize, patch_resize, input_channels):
        super().__init__()
        self._position_resize = position_resize
        self._patch_resize = patch_resize
        self._input_channels = input_channels

    def add_kernel(self, path, stored, wanted, notes):
        """Notes how a first kernel `(height, width, C, D)` becomes the model's.

        Raises:
            ValueError: If it could, but was not asked for.
        """
        if stored == wanted or stored[3] != wanted[3]:
            return
        steps, words = [], []
        if stored[:2] != wanted[:2]:
            if path != PATCH_KERNEL:
                return  # A stride belongs to its kernel, so another one is another network.
            if self._patch_resize is None:
                raise ValueError(
                    f'file {stored}, model {wanted}; patch_resize="pseudo_inverse" makes the '
                    "patches of one those of the other"
                )
            steps.append(lambda kernel: resize_patch_kernel(kernel, wanted[:2]))
            words.append(f"from {stored[0]}x{stored[1]} to {wanted[0]}x{wanted[1]} pixels")
        if stored[2] != wanted[2]:
            if self._input_channels is None:
                raise ValueError(
                    f'file {stored}, model {wanted}; input_channels="adapt" makes the channels '
                    "of one those of the other"
                )
            steps.append(lambda kernel: adapt_input_channels(kernel, wanted[2]))
            words.append(f"from {stored[2]} to {wanted[2]} channels")
        notes.append(f"{path}: {', '.join(words)}")

        def refit(kernel):
            for step in steps:
                kernel = step(kernel)
            return kernel

        self[path] = refit

    def add_axis(self, path, stored, wanted):
        """Notes how the table of one axis, `(length, D / 2)`, becomes the model's.

        Raises:
            ValueError: If it could, but was not asked for.
        """
        if stored == wanted or stored[1] != wanted[1]:
            return
        self._check_resize(f"{stored[0]} patches", f"{wanted[0]}")
        old, new = (1, stored[0]), (1, wanted[0])
        self[path] = lambda table: resize_positions(table, old, new, self._position_resize)

    def add_offsets(self, path, layer, old_grid):
        """Notes how a table of offsets, `(2 N - 1, k, D_h)`, becomes the layer's.

        Raises:
            ValueError: If it could, but was not asked for.
        """
        new_grid = tuple(layer.grid)
        if old_grid == new_grid:
            return
        self._check_resize(f"{old_grid[0]}x{old_grid[1]} patches", f"{new_grid[0]}x{new_grid[1]}")
        if self._position_resize != "official":
            raise ValueError(
                'relative positions are resized with position_resize="official" only, not '
                f'"{self._position_resize}"'
            )
        self[path] = lambda table: np.asarray(layer.resized(table, old_grid))

    def _check_resize(self, old, new):
        if self._position_resize is None:
            raise ValueError(f"file {old}, model {new}, and position_resize is None")


Grid = tuple[int, int]


class Fit:
    """Which array goes to which variable; nothing is read before all of it is known.

    Args:
        source: The checkpoint.
        model: The model.
        skip: Patterns of what is left out.
        position_resize: How position embeddings go to another grid; None: they must not.
        position_grid: Patches (down, across) of the file's table, if given.
        patch_resize: How the patch embedding goes to another patch; None: it must not.
        input_channels: How the first kernel goes to other channels; None: it must not.

    Raises:
        ValueError: If anything is missing, unused or misshapen; lists all of it.
    """

    def __init__(
        self,
        source: Source,
        model,
        skip: Sequence[str] = (),
        position_resize: str | None = "official",
        position_grid: Sequence[int] | None = None,
        patch_resize: str | None = None,
        input_channels: str | None = None,
    ):
        self.source = source
        self.model = model
        self.variables = weights_by_path(model)
        self.shapes = {path: tuple(v.shape) for path, v in self.variables.items()}
        self.rules: list[Rule] = []
        self.skipped: list[str] = []
        self.kept: list[str] = []
        self.grids: dict[str, tuple[Grid, Grid]] = {}
        self.notes: list[str] = []
        self._position_layers = {
            path: layer
            for path in self.variables
            if (layer := position_layer(model, path)) is not None
        }
        self._rows_before: dict[str, int] = {}
        self._method = position_resize
        self._refits = Refits(position_resize, patch_resize, input_channels)
        self._problems: dict[str, list[str]] = {
            "missing in the file": [],
            "in the file but not in the model": [],
            "of another shape": [],
        }
        self._match(tuple(skip))
        for rule in self.rules:
            self._check_shape(rule, position_grid)
        self._raise_problems()

    def read(self) -> dict[str, np.ndarray]:
        """Returns the new value of each variable by its path.

        Raises:
            ValueError: If the file is damaged, or holds NaN or infinity.
        """
        values = {}
        for rule in self.rules:
            array = self.source.arrays[rule.stored].read()
            if rule.paths[0] in self._rows_before:
                (table,) = rule.transform.ours(array, [self.shapes[rule.paths[0]]])
                values[rule.paths[0]] = self._table(rule.paths[0], table)
            else:
                shapes = [self.shapes[path] for path in rule.paths]
                values.update(zip(rule.paths, rule.transform.ours(array, shapes), strict=True))
                if rule.paths[0] in self._refits:
                    values[rule.paths[0]] = self._refits[rule.paths[0]](values[rule.paths[0]])
        bad = [path for path, value in values.items() if not np.isfinite(value).all()]
        if bad:
            raise ValueError(
                "Weights must be finite numbers. "
                f"Received: {self.source.path} with NaN or infinity in {', '.join(bad)}"
            )
        return values

    def _match(self, skip):
        def is_skipped(names):
            return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in skip)

        missing, unused, _ = self._problems.values()
        arrays, layout = self.source.arrays, self.source.layout
        entries = layout.entries(self.variables)
        paths_of = {rule.stored: rule.paths for rule in entries.values()}
        used = set()
        for path in self.variables:
            rule = entries.get(path)
            if is_skipped([rule.stored, *rule.paths] if rule else [path]):
                self.kept.append(path)
            elif rule is None:
                missing.append(f"{path} ({layout.name} files have no name for it)")
            elif rule.stored not in arrays:
                missing.append(f"{rule.stored} ({path})")
            else:
                used.add(rule.stored)
                if path == rule.paths[0]:
                    self.rules.append(rule)
        for name, array in arrays.items():
            if name in used:
                continue
            ours = paths_of.get(name) or layout.our_paths(name)
            if is_skipped([name, array.name, *ours]):
                self.skipped.append(array.name)
            else:
                unused.append(array.name)

    def _check_shape(self, rule, position_grid):
        array = self.source.arrays[rule.stored]
        misshapen = self._problems["of another shape"]
        absent = [path for path in rule.paths if path not in self.shapes]
        if absent:
            misshapen.append(f"{array.name} is for {', '.join(absent)} too")
            return
        path = rule.paths[0]
        if path in self._position_layers and self._is_table(rule, path):
            try:
                self._check_grid(rule, path, position_grid)
            except ValueError as error:
                misshapen.append(f"{array.name}: {error}")
            return
        try:
            self._refit(path, rule.transform.our_shape(array.shape), position_grid)
        except ValueError as error:
            misshapen.append(f"{array.name}: {error}")
            return
        shapes = [self.shapes[path] for path in rule.paths]
        if path not in self._refits and not rule.transform.accepts(array.shape, shapes):
            wanted = rule.transform.stored_shape(shapes)
            misshapen.append(f"{array.name}: file {array.shape}, model {wanted}")

    def _refit(self, path, stored, position_grid):
        """Finds out how an array of another image, patch or channels becomes the variable."""
        wanted = self.shapes[path]
        if stored is None or len(stored) != len(wanted):
            return
        layer = owner(self.model, path)
        if path in FIRST_KERNELS:
            self._refits.add_kernel(path, stored, wanted, self.notes)
        elif path.endswith(AXIS_TABLES):
            self._refits.add_axis(path, stored, wanted)
            self.grids[path] = ((1, stored[0]), (1, wanted[0]))
        elif path.endswith(OFFSETS) and stored[1:] == wanted[1:] and stored[0] % 2:
            patches, grid = (stored[0] + 1) // 2, tuple(layer.grid)
            # The patches of a line can only lie in a line.
            old = (1, patches)
            if grid[0] != 1:
                _, old = self._grid(patches, [0], grid, position_grid)
            self.grids[path] = (old, grid)
            self._refits.add_offsets(path, layer, old)

    def _table_shape(self, rule):
        return rule.transform.our_shape(self.source.arrays[rule.stored].shape)

    def _is_table(self, rule, path):
        stored, shape = self._table_shape(rule), self.shapes[path]
        if len(stored) != 3 or shape[0] != 1:
            return False
        return (stored[0], stored[2]) == (1, shape[2])

    def _check_grid(self, rule, path, given):
        array, (_, rows, _) = self.source.arrays[rule.stored], self._table_shape(rule)
        layer = self._position_layers[path]
        model_grid = tuple(layer.grid)
        before = [0] if self.source.facts.get("positions_apart") else [self.source.class_tokens]
        if self.source.layout is TIMM and before != [0]:
            before.append(0)  # Some of its models have no row for the class token.
        rows_before, grid = self._grid(rows, before, model_grid, given)
        self._rows_before[path] = rows_before
        self.grids[path] = (grid, model_grid)
        if rows_before > layer.num_prefix_tokens:
            self.notes.append(f"{array.name}: the row of the class token was left out")
        if grid != model_grid and self._method is None:
            raise ValueError(
                f"file {grid[0]}x{grid[1]} patches, model {model_grid[0]}x{model_grid[1]}, and "
                "position_resize is None"
            )

    def _grid(self, rows, before, model_grid, given):
        """Rows in front of those of the patches, one of `before`, and the patches' grid."""
        known = given if given is not None else self.source.facts.get("position_grid")
        if known is not None:
            down, across = (int(side) for side in known)
            for count in before:
                if rows == count + down * across and min(down, across) > 0:
                    return count, (down, across)
            raise ValueError(f"{rows} rows are not those of {down}x{across} patches")
        for count in before:
            side = math.isqrt(max(rows - count, 0))
            if side == 0 or side * side != rows - count:
                continue
            if model_grid != (side, side) and math.prod(model_grid) == side * side:
                raise ValueError(
                    f"{side * side} patches may be {side}x{side} or the model's "
                    f"{model_grid[0]}x{model_grid[1]}; say which with position_grid=(down, across)"
                )
            return count, (side, side)
        for count in before:
            if rows - count == math.prod(model_grid):
                return count, model_grid
        raise ValueError(
            f"{rows} rows, {before[0]} of them not of patches, are no square grid; say which with "
            "position_grid=(down, across)"
        )

    def _table(self, path, array):
        layer, count = self._position_layers[path], self._rows_before[path]
        before, patches = array[0, :count], array[0, count:]
        old, new = self.grids[path]
        if old != new:
            patches = resize_positions(
                patches, old, new, self._method, self.source.layout.cubic_antialias
            )
        wanted = layer.num_prefix_tokens
        more = np.asarray(self.variables[path])[0, count:wanted]
        if self.source.class_tokens:
            # Positions that were added before the class token was there: it got nothing.
            more = np.zeros_like(more)
        return np.concatenate([before[:wanted], more, patches])[None]

    def _raise_problems(self):
        if not any(self._problems.values()):
            return
        lines = [
            f"{title} ({len(names)}): {'; '.join(names)}"
            for title, names in self._problems.items()
            if names
        ]
        file, model = looks_like(self.source.shapes), looks_like(dict(self.shapes))
        whose = f", which looks like {file}" if file and file != model else ""
        if whose and model:
            whose += f" and the model like {model}"
        raise ValueError(
            "A checkpoint must fit the model; skip= leaves arrays out by pattern. "
            f"Received: {self.source.path}{whose}\n  " + "\n  ".join(lines)
        )
