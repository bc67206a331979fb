"""Writing a model's weights under the names of a layout."""

from __future__ import annotations

import pathlib

import keras
import numpy as np

from keras_vit.checkpoints.formats import write_npz
from keras_vit.checkpoints.layouts import Layout
from keras_vit.checkpoints.match import numerics, position_layer, weights_by_path
from keras_vit.checkpoints.official_names import BIT, OFFICIAL


def save_checkpoint(model, path) -> None:
    """Writes the weights to an `.npz` in the official layout, whole or not at all.

    Names and shapes are those of the published files, and BiT's for a BiT ResNet, so that
    the official code, timm and big_vision read it; variants of which nothing was published
    have names of the same style. Values keep their bits. What the layout
    has no array for (the grid of the position embeddings, which need not be square, the
    form of GELU and LayerNorm's epsilon) is in the comment of the archive, which other
    readers pass over and `load_checkpoint` takes into account.

    Args:
        model: A model of `keras_vit.build`.
        path: Where to; must end in ".npz".

    Raises:
        ValueError: If the layout has no name for a variable, or `path` another suffix.
        OSError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"The path of a checkpoint must end in .npz. Received: {path}")
    is_bit = "final_norm/gamma" in weights_by_path(model)
    write_npz(path, stored_arrays(model, BIT if is_bit else OFFICIAL), facts_of(model))


def stored_arrays(model, layout: Layout) -> dict[str, np.ndarray]:
    """Returns the weights as files of a layout hold them, by name in order of names.

    Raises:
        ValueError: If the layout has no name for a variable.
    """
    weights = weights_by_path(model)
    entries = layout.entries(weights)
    nameless = sorted(set(weights) - set(entries))
    if nameless:
        raise ValueError(
            f"The {layout.name} layout must have a name for every variable; save_weights of "
            f"Keras has. Received: a model with {', '.join(nameless)}"
        )
    rules = {rule.stored: rule for rule in entries.values()}
    return {
        name: rule.transform.stored(
            [np.asarray(keras.ops.convert_to_numpy(weights[path])) for path in rule.paths]
        )
        for name, rule in sorted(rules.items())
    }


def facts_of(model) -> dict:
    """Returns what arrays cannot tell: GELU, epsilon, and the grid of the positions."""
    weights = weights_by_path(model)
    layers = (position_layer(model, path) for path in weights)
    grid = next(({"position_grid": list(layer.grid)} for layer in layers if layer), {})
    return {**numerics(model), **grid}
