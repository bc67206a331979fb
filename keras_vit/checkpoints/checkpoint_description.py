"""The description of a checkpoint's model: from its arrays and the files beside it."""

from __future__ import annotations

import dataclasses
import os

from keras_vit import configs
from keras_vit.checkpoints.checkpoint import Checkpoint
from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.resize import find_grid
from keras_vit.configs import DEFAULT_IMAGE_SIZE, BiTConfig, Gelu, ViTConfig
from keras_vit.configs.model_table import check_agrees, paper_name
from keras_vit.configs.recognition import config_of_shapes, is_shown_by_shapes, num_classes
from keras_vit.description import Description, Labels
from keras_vit.description.description_texts import licence_in_card, licence_name

DEFAULT_SIZE = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)


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
    is_noted = _is_whole(checkpoint)
    kernel = checkpoint.shapes.get("patch_embedding")
    if model is not None and kernel and kernel[-1] != configs.resolve(model).width:
        check_agrees(model, weights, None)
    if is_noted or given is None or is_shown_by_shapes(given):
        heads = num_heads or getattr(given, "num_heads", None)
        try:
            shown = shown_by(checkpoint, heads, source_size, gelu)
        except ValueError:
            height, width = image_size or (None, None)
            if height is None or width is None or source_size is not None:
                raise
            shown = shown_by(checkpoint, heads, (height, width), gelu)
        if model is not None:
            check_agrees(model, weights, shown.config)
    else:
        names = ("gelu", "norm_epsilon", "position_resize")
        known = {name: checkpoint.fields[name] for name in names if name in checkpoint.fields}
        shown = Description(config=dataclasses.replace(given, **known), input_shape=(None, None, 3))
    config = shown.config
    origins = _origins(checkpoint)
    beside = read_images(checkpoint, shown.image_size or DEFAULT_SIZE, shown.classes)
    if gelu is not None and not is_noted and not checkpoint.states("gelu"):
        origins["gelu"] = "--gelu"
    return dataclasses.replace(
        beside,
        name=paper_name(config) or "ViT",
        config=config,
        input_shape=shown.input_shape,
        position_grid=shown.position_grid,
        classes=shown.classes,
        origins={**beside.origins, **origins},
        notes=(*shown.notes, *beside.notes),
    )


def describe_for(checkpoint: Checkpoint, image_size: tuple[int, int] | None = None) -> Description:
    """Returns what a checkpoint states for a given model, whose config its arrays may not show.

    Args:
        checkpoint: The checkpoint.
        image_size: Pixels (height, width) of the model's images; None where any size fits.
    """
    shapes = checkpoint.shapes
    kernel = shapes.get("root_conv") or shapes.get("patch_embedding")
    classes = num_classes(shapes)
    try:
        beside = read_images(checkpoint, image_size or DEFAULT_SIZE, classes)
    except ValueError as error:  # Weights are right also where images are prepared otherwise.
        beside = Description(origins={"pixels": str(error)})
    if kernel and kernel[2] != 3:
        beside = dataclasses.replace(beside, preprocessing=None)
    return dataclasses.replace(
        beside,
        name="",
        input_shape=(None, None, kernel[2]) if kernel else None,
        position_grid=checkpoint.stated.position_grid,
        classes=classes,
        origins={**_origins(checkpoint), **beside.origins},
    )


def read_images(
    checkpoint: Checkpoint, image_size: tuple[int, int], classes: int | None
) -> Description:
    """Returns the preprocessing, the labels and the licence in or beside a checkpoint.

    What is unknown is None, and the origin of "pixels" names the file that is missing.

    Args:
        checkpoint: The weights.
        image_size: Pixels (height, width) of the model's input.
        classes: Classes of their head, or None without a head.

    Raises:
        ValueError: If no `Preprocessing` prepares images in the same way.
    """
    stated, layout = checkpoint.stated, checkpoint.layout
    is_prepared = stated.preprocessing is not None
    if checkpoint.is_noted and not layout.numbered and (is_prepared or "pixels" in stated.origins):
        return _noted(checkpoint, classes)
    beside = layout.images(checkpoint.files, image_size, classes)
    if beside.preprocessing is None and is_prepared:
        return _noted(checkpoint, classes)
    if checkpoint.is_noted and stated.labels.is_multilabel:
        labels = dataclasses.replace(beside.labels, task=stated.labels.task)
        beside = dataclasses.replace(beside, labels=labels)
    places = (checkpoint.config.get("pretrained_cfg"), checkpoint.config)
    named = (licence_name(place.get("license")) for place in places if isinstance(place, dict))
    licence = licence_in_card(checkpoint.files.folder) or next(filter(None, named), None)
    return beside if licence is None else dataclasses.replace(beside, licence=licence)


def _noted(checkpoint, classes):
    """What this package noted in a file of weights."""
    stated, labels = checkpoint.stated, checkpoint.stated.labels
    if stated.preprocessing is None:
        return found("the source did not hold it", labels=Labels(task=labels.task))
    if labels.names is not None and len(labels.names) != classes:  # Names for another head.
        labels = Labels(task=labels.task)
    origins = found(f"noted in {checkpoint.path.name}").origins
    return dataclasses.replace(stated, labels=labels, origins=origins, notes=())


def _origins(checkpoint):
    """Where the numerics and the rule of positions are from."""
    layout, file = checkpoint.layout, checkpoint.path.name
    numerics = "config.json" if checkpoint.config else f"usual for {layout.name}"
    positions = "assumed" if layout.numbered else f"the rule of {layout.name}"
    if checkpoint.is_noted:
        positions = f"noted in {file}"
    if _is_whole(checkpoint):
        numerics = file
    return {"gelu": numerics, "norm_epsilon": numerics, "position_resize": positions}


def _is_whole(checkpoint):
    """Whether the file holds the description of its model, which its arrays are named by."""
    return checkpoint.layout.numbered and checkpoint.stated.config is not None


def shown_by(
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
    shapes, fields = checkpoint.shapes, dict(checkpoint.fields)
    for fact, given in (("num_heads", num_heads), ("gelu", gelu)):
        known = fields.get(fact) if checkpoint.states(fact) else None
        if None not in (known, given) and known != given:
            raise ValueError(
                f"{fact} must match the file, {known!r}. Received: {fact}={given!r} for "
                f"{checkpoint.path}"
            )
        fields[fact] = given if known is None else known
    if _is_whole(checkpoint):
        return dataclasses.replace(checkpoint.stated, classes=num_classes(shapes), notes=())
    try:
        config, notes = config_of_shapes(
            shapes,
            fields,
            epsilon_in=checkpoint.epsilon_in,
            has_paper_sizes=not checkpoint.layout.models_vary,
        )
    except ValueError as error:
        raise ValueError(f"{error} in {checkpoint.path}") from error
    is_gap = getattr(config, "classifier", None) == "gap" and "classifier" not in fields
    if is_gap and checkpoint.layout.gap_note and num_classes(shapes):
        notes = (*notes, checkpoint.layout.gap_note)
    if "norm_epsilon" in checkpoint.assumed and isinstance(config, ViTConfig):
        notes = (
            *notes,
            f"the file shows neither LayerNorm's epsilon nor what the head reads: "
            f"{config.norm_epsilon} and {config.classifier!r} were assumed, as in most of "
            f"{checkpoint.layout.name}; its config.json states them",
        )
    if isinstance(config, ViTConfig) and len(set(config.patch_sizes)) == 1:
        config = dataclasses.replace(config, patch_size=config.patch_sizes[0])
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
        if not (grid := checkpoint.stated.position_grid):
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
    known = config.grid(image_size) if image_size else checkpoint.stated.position_grid
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
    size = checkpoint.stated.image_size
    if size is not None and config.grid(size) == tuple(grid):
        return size
    stride = config.resnet.stride if config.resnet else 1
    down, across = config.patch_sizes
    return (grid[0] * down * stride, grid[1] * across * stride)
