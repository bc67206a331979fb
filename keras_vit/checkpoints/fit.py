"""How the arrays of a checkpoint and the variables of a model fit together."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence

import numpy as np

from keras_vit.checkpoints import variables
from keras_vit.checkpoints.likeness import looks_like
from keras_vit.checkpoints.names import TIMM, Rule
from keras_vit.checkpoints.positions import resize_positions
from keras_vit.checkpoints.refit import AXIS_TABLES, FIRST_KERNELS, OFFSETS, Refits
from keras_vit.checkpoints.source import Source

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
        self.variables = variables.weights_by_path(model)
        self.shapes = {path: tuple(v.shape) for path, v in self.variables.items()}
        self.rules: list[Rule] = []
        self.skipped: list[str] = []
        self.kept: list[str] = []
        self.grids: dict[str, tuple[Grid, Grid]] = {}
        self.notes: list[str] = []
        self._position_layers = {
            path: layer
            for path in self.variables
            if (layer := variables.position_layer(model, path)) is not None
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
        layer = variables.owner(self.model, path)
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
