"""Loads weights of any known layout into a model, all of them or none."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.checkpoints.match import Fit, numerics, weights_by_path
from keras_vit.checkpoints.resize import METHODS
from keras_vit.checkpoints.source import Source, open_source

HEAD = "predictions/kernel"


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What `load_checkpoint` did; `str()` of it is for people.

    Args:
        path: The file.
        layout: Whose names it has.
        loaded: Paths of the variables that have values of the file now.
        resized: Of these the position embeddings that were resized: by path the grids
            (down, across) before and after.
        skipped: Arrays that were left in the file, by name.
        kept: Paths of the variables that were left as they were.
        zero_head: Whether the head came from the file and is all zeros: the model says the
            same of every image until it is fine-tuned.
        notes: Other things to know, a sentence each.
    """

    path: str
    layout: str
    loaded: tuple[str, ...]
    resized: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    skipped: tuple[str, ...]
    kept: tuple[str, ...]
    zero_head: bool
    notes: tuple[str, ...] = ()

    def __str__(self):
        lines = [f"{self.path}: {len(self.loaded)} variables loaded ({self.layout} names)"]
        lines += [
            f"resized: {path} from {old[0]}x{old[1]} to {new[0]}x{new[1]} patches"
            for path, (old, new) in self.resized.items()
        ]
        if self.skipped:
            lines.append(f"left in the file: {', '.join(self.skipped)}")
        if self.kept:
            lines.append(f"left as they were: {', '.join(self.kept)}")
        if self.zero_head:
            lines.append("the head is all zeros; fine-tune before predicting")
        return "\n  ".join([*lines, *self.notes])


def load_checkpoint(
    model,
    path,
    *,
    skip: Iterable[str] = (),
    position_resize: str | None = "official",
    position_grid: Sequence[int] | None = None,
    patch_resize: str | None = None,
    input_channels: str | None = None,
) -> LoadReport:
    """Loads a checkpoint into a model, strictly.

    Reads every layout of the official files (published, linen and big_vision names, with
    any prefix, blocks stacked or apart, bfloat16), BiT's, those of `save_checkpoint` and of
    Keras's `.weights.h5`, Hugging Face's and timm's (`.safetensors`, `.bin`, a folder with
    one of them). The content says which it is. Either every variable gets its value, or the
    model stays as it was.

    Position embeddings are resized if their grid is not the model's. The file's grid is what
    the file says (those of `save_checkpoint` and of Hugging Face do); else it is square, as
    the official code takes it; else the model's own, if the number of patches is the same.
    Where that cannot tell, as with 144 patches for a model of 24x6, it must be given. Tables
    of relative positions are resized as `keras_vit.layers.RelativeSelfAttention` does.

    Args:
        model: A model of `keras_vit.build`, or one that was saved and loaded again.
        path: The file.
        skip: Patterns such as "head/*" of what to leave out, by name in the file or by path
            in the model; variables that match stay as they are.
        position_resize: "official" (linear, corners aligned), "bilinear", "bicubic", or None
            to refuse another grid; see `keras_vit.checkpoints.resize`.
        position_grid: Patches (down, across) of the file's position embeddings, if the file
            does not say.
        patch_resize: "pseudo_inverse" to let a patch embedding of another patch size in, as
            FlexiViT does (`keras_vit.checkpoints.resize`); None to refuse it.
        input_channels: "adapt" to let a first kernel for images with other channels in
            (`keras_vit.checkpoints.resize` has the formula); None to refuse it.

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
    if position_resize not in (None, *METHODS):
        raise ValueError(
            f"position_resize must be one of {METHODS} or None. Received: {position_resize!r}"
        )
    for argument, value, known in (
        ("patch_resize", patch_resize, "pseudo_inverse"),
        ("input_channels", input_channels, "adapt"),
    ):
        if value not in (None, known):
            raise ValueError(f"{argument} must be {known!r} or None. Received: {value!r}")
    source = open_source(path, weights_by_path(model))
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    return load_source(
        source, model, skip, position_resize, position_grid, patch_resize, input_channels
    )


def load_source(
    source: Source,
    model,
    skip: Sequence[str] = (),
    position_resize: str | None = "official",
    position_grid: Sequence[int] | None = None,
    patch_resize: str | None = None,
    input_channels: str | None = None,
) -> LoadReport:
    """Loads an opened checkpoint; arguments and errors are those of `load_checkpoint`."""
    fit = Fit(source, model, skip, position_resize, position_grid, patch_resize, input_channels)
    values = fit.read()
    for name, value in values.items():
        variable = fit.variables[name]
        variable.assign(value.astype(np.dtype(variable.dtype)))
    report = LoadReport(
        source.path,
        source.layout.name,
        tuple(values),
        {name: grids for name, grids in fit.grids.items() if grids[0] != grids[1]},
        tuple(fit.skipped),
        tuple(fit.kept),
        HEAD in values and not values[HEAD].any(),
        (*source.notes, *fit.notes),
    )
    _warn(report, source, model)
    return report


def _warn(report, source, model):
    if report.zero_head:
        warnings.warn(
            f"The head of {source.path} is all zeros, as in the first official ImageNet-21k "
            "files: the model says the same of every image until it is fine-tuned. The AugReg "
            "files have trained heads.",
            stacklevel=4,
        )
    ours = numerics(model)
    theirs = {fact: source.facts.get(fact) for fact in ours}
    differ = [fact for fact in ours if theirs[fact] not in (None, ours[fact])]
    if differ:
        warnings.warn(
            f"{source.path} was made with "
            + ", ".join(f"{fact}={theirs[fact]!r}" for fact in differ)
            + ", the model with "
            + ", ".join(f"{fact}={ours[fact]!r}" for fact in differ)
            + ": its outputs will differ a little. Give keras_vit.build the former to have "
            "them equal.",
            stacklevel=4,
        )
