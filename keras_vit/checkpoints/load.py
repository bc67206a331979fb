"""Loading weights of any known layout into a model, all of them or none."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.layouts import POSITIONS, Checkpoint
from keras_vit.checkpoints.match import (
    LoadOptions,
    match_checkpoint,
    position_layers,
    read_match,
    set_position_rule,
    unseen_fields,
    weights_by_path,
)


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of `load_checkpoint`; `str()` gives a readable summary.

    Args:
        path: The file.
        layout: Name of the code base that its names belong to.
        loaded: Paths of the variables that got values of the file.
        resized: The grids (down, across) before and after of the position embeddings that
            were resized, by path.
        skipped: Names of the arrays that were not loaded.
        kept: Paths of the variables that were not changed.
        zero_head: Whether the head was loaded and is all zeros: the model predicts the same
            for every image until it is fine-tuned.
        notes: Other remarks, a sentence each.
    """

    path: str
    layout: str
    loaded: tuple[str, ...]
    resized: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    skipped: tuple[str, ...]
    kept: tuple[str, ...]
    zero_head: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.loaded)} variables loaded ({self.layout} names)"]
        lines += [
            f"resized: {path} from {old[0]}x{old[1]} to {new[0]}x{new[1]} patches"
            for path, (old, new) in self.resized.items()
        ]
        if self.skipped:
            lines.append(f"not loaded: {', '.join(self.skipped)}")
        if self.kept:
            lines.append(f"not changed: {', '.join(self.kept)}")
        if self.zero_head:
            lines.append("the head is all zeros; fine-tune before predicting")
        return "\n  ".join([*lines, *self.notes])


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    skip: Iterable[str] = (),
    position_resize: str | None = "official",
    position_grid: Sequence[int] | None = None,
    input_channels: str | None = None,
) -> LoadReport:
    """Loads a checkpoint into a model, strictly.

    Reads every layout of the official files (published, linen and big_vision names, with
    any prefix, stacked or separate blocks, bfloat16), BiT's, files of `save_checkpoint` and
    Keras's `.weights.h5`, and files of Hugging Face and timm (`.safetensors`, `.bin`, a folder
    with one of them). The layout is recognised from the content. Either every variable gets
    its value, or the model is not changed.

    Position embeddings are resized if their grid is not the model's, and the model keeps the
    rule for its own resizes. The grid of the file is
    the one stored in it (by `save_checkpoint` and Hugging Face); else it is square, as in the
    official code; else it is the model's, if the number of patches is the same. If this is
    ambiguous, as with 144 patches for a model of 24x6, it must be given. Tables of relative
    positions are resized as `keras_vit.layers.RelativeSelfAttention` does.

    Args:
        model: A model of `keras_vit.build`, or one that was saved and loaded again.
        path: The file.
        skip: Patterns such as "head/*" of weights to leave out, by name in the file or by path
            in the model; variables that match are not changed.
        position_resize: A key of `keras_vit.configs.position_resize.RULES`, such as "official"
            (linear, corners aligned); None for the rule of the file's code base.
        position_grid: Patches (down, across) of the file's position embeddings, if they are
            not stored in the file.
        input_channels: "adapt" to convert a first kernel for other channels
            (`keras_vit.checkpoints.resize.adapt_input_channels`); None to refuse it.

    Returns:
        A `LoadReport`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is of no known format, damaged, or does not fit: one error
            lists every missing, unused and misshapen array.
        ImportError: If reading the format needs a package that is not installed.

    Example:
    >>> model = keras_vit.build("ViT-B/16", classes=10, input_shape=(384, 384, 3))
    >>> print(load_checkpoint(model, "ViT-B_16.npz", skip=("head/*", "pre_logits/*")))
    """
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    options = LoadOptions(skip, position_resize, position_grid, input_channels)
    return load_opened(open_checkpoint(path), model, options)


def load_opened(
    checkpoint: Checkpoint, model: keras.Model, options: LoadOptions | None = None
) -> LoadReport:
    """Loads an opened checkpoint into a model; raises the errors of `load_checkpoint`."""
    options = options or LoadOptions()
    match = match_checkpoint(checkpoint, model, options)
    variables = weights_by_path(model)
    dtypes = {path: np.dtype(variable.dtype) for path, variable in variables.items()}
    values = read_match(match, dtypes)
    for path, value in values.items():
        variables[path].assign(value)
    tables = {weight.path for layer in position_layers(model) for weight in layer.weights}
    if tables.isdisjoint(match.kept):
        set_position_rule(model, checkpoint.position_rule(options.position_resize))
    report = LoadReport(
        path=str(checkpoint.path),
        layout=checkpoint.layout.name,
        loaded=tuple(values),
        resized={
            assignment.rule.paths[0]: assignment.grids
            for assignment in match.assignments
            if assignment.grids and assignment.grids[0] != assignment.grids[1]
        },
        skipped=tuple(match.skipped),
        kept=tuple(match.kept),
        zero_head=not values.get("predictions/kernel", np.ones(1)).any(),
        notes=(
            *match.notes,
            *(f"{a.rule.paths[0]}: {a.note}" for a in match.assignments if a.note),
        ),
    )
    _warn(report, checkpoint, model)
    return report


def _warn(report, checkpoint, model):
    """Warns of weights that fit, while their model computes something else."""
    warned = []
    if report.zero_head:
        warned.append(
            f"The head of {checkpoint.path} is all zeros, as in the first official ImageNet-21k "
            "files: the model predicts the same for every image until it is fine-tuned. The "
            "AugReg files have trained heads."
        )
    if checkpoint.has_fixed_positions and POSITIONS not in weights_by_path(model):
        warned.append(
            f"{checkpoint.path} was trained with the sine and cosine positions of big_vision "
            '(posemb="sincos2d"), and the model has none.'
        )
    ours, theirs = unseen_fields(model), checkpoint.fields
    differ = [fact for fact in ours if fact in theirs and theirs[fact] != ours[fact]]
    if differ:
        of_file = ", ".join(f"{fact}={theirs[fact]!r}" for fact in differ)
        of_model = ", ".join(f"{fact}={ours[fact]!r}" for fact in differ)
        warned.append(
            f"{checkpoint.path} was trained with {of_file}; the model has {of_model}. Its outputs "
            f"will differ; to have them equal, give keras_vit.build {of_file}."
        )
    for text in warned:
        warnings.warn(text, stacklevel=4)
