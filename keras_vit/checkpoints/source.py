"""A checkpoint whose layout has been recognised."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

from keras_vit.checkpoints.arrays import StoredArray
from keras_vit.checkpoints.files import open_checkpoint
from keras_vit.checkpoints.names import KERAS_HUB, LAYOUTS, VIT_KERAS, Layout, keras_layout

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
