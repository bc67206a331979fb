"""The description of a checkpoint's model: from its arrays and the files beside it."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from keras_vit import configs
from keras_vit.checkpoints.checkpoint import Checkpoint
from keras_vit.checkpoints.layouts import KERAS
from keras_vit.checkpoints.metadata import (
    described_in,
    origin_of_numerics,
    origin_of_positions,
    read_metadata,
)
from keras_vit.checkpoints.official_names import OFFICIAL
from keras_vit.checkpoints.resize import find_grid
from keras_vit.configs import DEFAULT_IMAGE_SIZE, BiTConfig, Gelu, ViTConfig
from keras_vit.configs.config_comparison import check_agrees, paper_name
from keras_vit.configs.recognition import config_of_shapes, is_shown_by_shapes, num_classes
from keras_vit.description import Description

DEFAULT_SIZE = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)

_GAP_NOTE = (
    "the head reads the mean over patches; a file does not show big_vision's "
    'pool_type="0" and "none", which no model here has'
)


def describe_checkpoint(
    checkpoint: Checkpoint,
    weights: str | os.PathLike,
    model: str | ViTConfig | BiTConfig | None = None,
    *,
    image_size: tuple[int | None, int | None] | None = None,
    source_size: tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: Gelu | None = None,
) -> Description:
    """Returns the description of a checkpoint's model, with the files beside it.

    Args:
        checkpoint: The checkpoint.
        weights: What the user gave, for messages.
        model: A name or config that the weights must have, or None.
        image_size: Pixels (height, width), where the file does not show them.
        source_size: Pixels (height, width) of the file's images; another size is an error.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not state it.

    Raises:
        ValueError: If the weights are not of the model, or a fact about their architecture is in
            no file and was not given.
    """
    given = None if model is None else configs.resolve(model)
    kernel = checkpoint.shapes.get("patch_embedding")
    if model is not None and kernel and kernel[-1] != configs.resolve(model).width:
        check_agrees(model, weights, None)
    noted = described_in(checkpoint) if checkpoint.layout is KERAS else None
    if noted is not None and noted.config is not None:
        shown = build_arguments(checkpoint)
        if model is not None:
            check_agrees(model, weights, shown.config)
    elif given is None or is_shown_by_shapes(given):
        shown = _shown(checkpoint, given, image_size, source_size, num_heads, gelu)
        if model is not None:
            check_agrees(model, weights, shown.config)
    else:
        names = ("gelu", "norm_epsilon", "position_resize")
        fields = checkpoint.facts.fields
        known = {name: fields[name] for name in names if name in fields}
        shown = Description(config=dataclasses.replace(given, **known), input_shape=(None, None, 3))
    config = shown.config
    numerics = checkpoint.path.name if noted is not None else origin_of_numerics(checkpoint)
    beside = read_metadata(checkpoint, shown.image_size or DEFAULT_SIZE, shown.classes)
    is_given = gelu is not None and noted is None and not checkpoint.states("gelu")
    return dataclasses.replace(
        beside,
        name=paper_name(config) or "ViT",
        config=config,
        input_shape=shown.input_shape,
        position_grid=shown.position_grid,
        classes=shown.classes,
        origins={
            **beside.origins,
            "gelu": "--gelu" if is_given else numerics,
            "norm_epsilon": numerics,
            "position_resize": origin_of_positions(checkpoint),
        },
        notes=(*shown.notes, *beside.notes),
    )


def describe_for(
    checkpoint: Checkpoint,
    config: ViTConfig | BiTConfig,
    image_size: tuple[int, int] | None = None,
    position_resize: str | None = None,
) -> Description:
    """Returns the description of a checkpoint for a given model, which its arrays may not show.

    Args:
        checkpoint: The checkpoint.
        config: The model that it is loaded into.
        image_size: Pixels (height, width) of the model's images; None where any size fits.
        position_resize: The rule by which positions are resized; by default the file's.
    """
    shapes = checkpoint.shapes
    kernel = shapes.get("root_conv") or shapes.get("patch_embedding")
    classes = num_classes(shapes)
    try:
        beside = read_metadata(checkpoint, image_size or DEFAULT_SIZE, classes)
    except ValueError as error:  # Weights are right also where images are prepared otherwise.
        beside = Description(origins={"pixels": str(error)})
    if kernel and kernel[2] != 3:
        beside = dataclasses.replace(beside, preprocessing=None)
    if isinstance(config, ViTConfig):
        changes: dict[str, Any] = {"position_resize": checkpoint.position_rule(position_resize)}
        config = dataclasses.replace(config, **changes)
    numerics = origin_of_numerics(checkpoint)
    return dataclasses.replace(
        beside,
        name="",
        config=config,
        input_shape=(None, None, kernel[2]) if kernel else None,
        position_grid=checkpoint.facts.position_grid,
        classes=classes,
        origins={
            "gelu": numerics,
            "norm_epsilon": numerics,
            "position_resize": "given" if position_resize else origin_of_positions(checkpoint),
            **beside.origins,
        },
    )


def _shown(checkpoint, given, image_size, source_size, num_heads, gelu):
    """The model that names and shapes of a file show; what they leave open, as given."""
    num_heads = num_heads or getattr(given, "num_heads", None)
    if checkpoint.layout is KERAS:
        gelu = gelu or getattr(given, "gelu", None)
    try:
        shown = build_arguments(checkpoint, num_heads, source_size, gelu)
    except ValueError:
        if image_size is None or None in image_size or source_size is not None:
            raise
        shown = build_arguments(checkpoint, num_heads, image_size, gelu)
    config = shown.config
    if isinstance(config, ViTConfig) and len(set(config.patch_sizes)) == 1:
        config = dataclasses.replace(config, patch_size=config.patch_sizes[0])
    return dataclasses.replace(shown, config=config)


def build_arguments(
    checkpoint: Checkpoint,
    num_heads: int | None = None,
    image_size: tuple[int, int] | None = None,
    gelu: Gelu | None = None,
) -> Description:
    """Returns the model of a checkpoint from the names and shapes in it.

    The description has the config, the shape of the images where the file shows it, the classes
    and a note for each assumption.

    Args:
        checkpoint: The checkpoint.
        num_heads: Attention heads, for files that do not show them.
        image_size: Pixels (height, width) of the images that the position table is for, if
            neither the file nor its `config.json` shows them and they are not square.
        gelu: The form of GELU, for files that do not show it; see `ViTConfig`.

    Raises:
        ValueError: If it is not of a model of this package, or its heads, GELU or grid cannot
            be known, or are not those given.
    """
    shapes, fields = checkpoint.shapes, dict(checkpoint.facts.fields)
    for fact, given in (("num_heads", num_heads), ("gelu", gelu)):
        known = fields.get(fact) if checkpoint.states(fact) else None
        if None not in (known, given) and known != given:
            raise ValueError(
                f"{fact} must match the file, {known!r}. Received: {fact}={given!r} for "
                f"{checkpoint.path}"
            )
        fields[fact] = given if known is None else known
    noted = described_in(checkpoint) if checkpoint.layout is KERAS else None
    if noted is not None and noted.config is not None:
        return dataclasses.replace(noted, classes=num_classes(shapes), notes=())
    try:
        config, notes = config_of_shapes(
            shapes,
            fields,
            epsilon_in=checkpoint.facts.epsilon_in or checkpoint.layout.epsilon_in,
            has_paper_sizes=not checkpoint.layout.models_vary,
        )
    except ValueError as error:
        raise ValueError(f"{error} in {checkpoint.path}") from error
    is_official_gap = checkpoint.layout is OFFICIAL and getattr(config, "classifier", None) == "gap"
    if is_official_gap and num_classes(shapes) and "classifier" not in fields:
        notes = (*notes, _GAP_NOTE)
    if "norm_epsilon" in checkpoint.assumed and isinstance(config, ViTConfig):
        notes = (
            *notes,
            f"the file shows neither LayerNorm's epsilon nor what the head reads: "
            f"{config.norm_epsilon} and {config.classifier!r} were assumed, as in most of "
            f"{checkpoint.layout.name}; its config.json states them",
        )
    kernel = shapes.get("root_conv") or shapes.get("patch_embedding") or ()
    size = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)
    if isinstance(config, ViTConfig):
        size = _image_size(checkpoint, config, image_size)
    return Description(
        config=config,
        input_shape=(*(size or (None, None)), kernel[2]),
        position_grid=config.grid(size) if size and isinstance(config, ViTConfig) else None,
        classes=num_classes(shapes),
        notes=notes,
    )


def _image_size(checkpoint, config, image_size):
    """Pixels (height, width) of the images that the position table of a file is for."""
    if checkpoint.has_fixed_positions and image_size is not None:
        return image_size
    table = checkpoint.shapes.get("position_embedding")
    if config.position_embedding == "none":
        if image_size:
            return image_size
        if not (grid := checkpoint.facts.position_grid):
            raise ValueError(
                "The image size (image_size, --image-size) must be given where neither the arrays "
                f"nor config.json show it. Received: {checkpoint.path}"
            )
        return _stated_size(checkpoint, config, tuple(grid))
    if not table or len(table) != 3:
        hint = (
            "; give the image size (image_size, --image-size), for which big_vision's sines and "
            "cosines are filled in"
            if checkpoint.has_fixed_positions
            else ""
        )
        raise ValueError(
            "A checkpoint must hold position embeddings of shape (1, rows, D). "
            f"Received: {checkpoint.path} with {table or 'none'}{hint}"
        )
    known = config.grid(image_size) if image_size else checkpoint.facts.position_grid
    try:
        _, grid = find_grid(table[1], checkpoint.prefix_row_counts, known)
    except ValueError as error:
        raise ValueError(
            "The image size (image_size, --image-size) must be given where the position "
            "embeddings have no square grid and the file does not hold it, and must match the "
            f"file. Received: {checkpoint.path}: {error}"
        ) from error
    return _stated_size(checkpoint, config, grid) if image_size is None else image_size


def _stated_size(checkpoint, config, grid):
    """Pixels (height, width) of images of a grid: those that the file states, or the fewest.

    They may be no multiple of the patch; the model cuts the rest off.
    """
    noted = checkpoint.facts.noted.get("description")
    shape = noted.get("input_shape") if isinstance(noted, dict) else None
    for stated in (checkpoint.facts.image_size, shape):
        size = tuple(stated[:2]) if isinstance(stated, list | tuple) else ()
        is_known = len(size) == 2 and all(isinstance(side, int) for side in size)
        if is_known and config.grid(size) == tuple(grid):
            return size
    stride = config.resnet.stride if config.resnet else 1
    down, across = config.patch_sizes
    return (grid[0] * down * stride, grid[1] * across * stride)
