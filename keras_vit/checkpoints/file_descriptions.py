"""Descriptions of the models in files of weights: by arrays, configs and the files beside them."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import sys

from keras_vit.checkpoints.catalogue import OfficialWeights
from keras_vit.checkpoints.code_bases.files_beside import found, read_class_names
from keras_vit.checkpoints.code_bases.layouts import Checkpoint, readable_files
from keras_vit.checkpoints.load import Arrays, open_arrays
from keras_vit.checkpoints.resize import find_grid
from keras_vit.configs import DEFAULT_IMAGE_SIZE, Gelu, ModelConfig, ViTConfig, resolve
from keras_vit.configs.model_table import check_agrees, paper_name
from keras_vit.configs.recognition import config_of_shapes, num_classes
from keras_vit.description import (
    FACTS,
    IN_FRONT,
    UNKNOWN,
    Description,
    Labels,
)
from keras_vit.description.description_texts import (
    APACHE,
    describe_license,
    license_in_card,
    license_name,
    license_of_family,
)
from keras_vit.preprocessing import Preprocessing, imagenet_classes
from keras_vit.utils.safe_text import for_line

DEFAULT_SIZE = (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)

# Numbers that a described model may have in addition to twice as many as its file: heads of
# pre-training and tables that a file leaves out.
_FREE_NUMBERS = 2**20


def open_described(
    place: OfficialWeights | pathlib.Path,
    model: str | ModelConfig | None = None,
    *,
    with_config: bool = True,
    image_size: tuple[int | None, int | None] = (None, None),
    num_heads: int | None = None,
    gelu: Gelu | None = None,
) -> tuple[Arrays, Description]:
    """Returns the arrays of a place and their `of_file`, and prints their license."""
    arrays = open_arrays(place)
    description = of_file(
        arrays,
        model,
        with_config=with_config,
        image_size=image_size,
        num_heads=num_heads,
        gelu=gelu,
    )
    _print_license(arrays, description)
    return arrays, description


def _print_license(arrays, description):
    """Prints the license of weights of another code base to stderr, once for each folder."""
    if not isinstance(arrays, Checkpoint) or arrays.layout.numbered:
        return
    if description.license != UNKNOWN:
        _print_once(for_line(f"{arrays.folder}: {describe_license(description.license)}"))


@functools.cache
def _print_once(line):
    print(line, file=sys.stderr)


def of_file(
    arrays: Arrays,
    model: str | ModelConfig | None = None,
    *,
    with_config: bool = True,
    image_size: tuple[int | None, int | None] = (None, None),
    num_heads: int | None = None,
    gelu: Gelu | None = None,
) -> Description:
    """Returns what the model of arrays is, with the files beside them.

    Args:
        arrays: An opened file, or a row of the catalogue.
        model: A name or config that the weights must have, or None.
        with_config: Whether their architecture is wanted. Without it nothing about it must be
            known, as for weights of a model that is given.
        image_size: Pixels (height, width), where the file does not show them.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not state it.

    Raises:
        ValueError: If the weights are not of the model, a fact about their architecture is in no
            file and was not given, or a file beside the arrays is wrong.
    """
    if not isinstance(arrays, Checkpoint):
        described = _official(arrays)
        if with_config:
            config = resolve(model or arrays.model)
            described = dataclasses.replace(described, name=arrays.model, config=config)
        return described
    if not with_config:
        return _without_config(arrays, image_size)
    with readable_files(arrays):
        shown = _recognised(arrays, model, image_size, num_heads, gelu)
    name = paper_name(shown.config) or "ViT"
    described = _with_images(arrays, dataclasses.replace(shown, name=name), image_size)
    if gelu is not None and not arrays.states("gelu"):
        described = dataclasses.replace(described, origins={**described.origins, "gelu": "--gelu"})
    return described


def _without_config(checkpoint, image_size):
    """What the arrays of a file are, whatever it states of their architecture."""
    channels = checkpoint.channels
    shown = Description(
        input_shape=(None, None, channels) if channels else None,
        position_grid=checkpoint.stated.position_grid,
        classes=num_classes(checkpoint.shapes),
    )
    described = _with_images(checkpoint, shown, image_size)
    if channels not in (None, 3):
        described = dataclasses.replace(described, preprocessing=None)
    return described


def _official(row):
    """What an official file holds in addition to its model."""
    size = (row.resolution, row.resolution)
    imagenet_names = [name for _, name in imagenet_classes()]
    has_names = row.classes == len(imagenet_names)
    names, notes = read_class_names(imagenet_names if has_names else None, row.classes)
    return Description(
        input_shape=(*size, 3),
        classes=row.classes,
        preprocessing=Preprocessing(size),
        labels=Labels(names),
        origins=dict.fromkeys(FACTS, "the official code"),
        license=APACHE,
        notes=notes,
    )


def _with_images(checkpoint, shown, image_size):
    """What the arrays of a file show, with what it and the files beside it hold of images."""
    height, width = image_size
    size = shown.image_size or (height or DEFAULT_IMAGE_SIZE, width or DEFAULT_IMAGE_SIZE)
    beside = read_images(checkpoint, size, shown.classes)
    return dataclasses.replace(
        beside,
        name=shown.name,
        config=shown.config,
        input_shape=shown.input_shape,
        position_grid=shown.position_grid,
        classes=shown.classes,
        origins={**beside.origins, **_origins_of_numerics(checkpoint)},
        notes=(*checkpoint.notes, *shown.notes, *beside.notes),
    )


def _origins_of_numerics(checkpoint):
    """Where the form of GELU, LayerNorm's epsilon and the rule for positions are from."""
    layout = checkpoint.layout
    numerics = "config.json" if checkpoint.config else f"usual for {layout.name}"
    positions = "assumed" if layout.numbered else f"the rule of {layout.name}"
    if checkpoint.stated.config is not None:
        numerics = positions = checkpoint.path.name
    return {
        "gelu": numerics,
        "norm_epsilon": numerics,
        "position_resize": positions,
    }


def read_images(
    checkpoint: Checkpoint, image_size: tuple[int, int], classes: int | None
) -> Description:
    """Returns the preprocessing, the labels and the license in or beside a checkpoint.

    What is unknown is None, and the origin of "pixels" names the file that is missing.

    Args:
        checkpoint: The weights.
        image_size: Pixels (height, width) of the model's input.
        classes: Classes of their head, or None without a head.

    Raises:
        ValueError: If no `Preprocessing` prepares images in the same way.
    """
    stated = checkpoint.stated
    with readable_files(checkpoint):
        beside = checkpoint.layout.images(checkpoint, image_size, classes)
    is_prepared = stated.preprocessing is not None or "pixels" in stated.origins
    is_beside = checkpoint.layout.numbered and beside.preprocessing is not None
    # What is beside is then the whole model's, not the weights'.
    is_beside = is_beside and stated.origins.get("pixels") != IN_FRONT and not stated.included
    if is_prepared and not is_beside:
        return _noted(checkpoint, classes)
    if stated.labels.is_multilabel:
        labels = dataclasses.replace(beside.labels, task=stated.labels.task)
        beside = dataclasses.replace(beside, labels=labels)
    license = _license(checkpoint)
    return beside if license is None else dataclasses.replace(beside, license=license)


def _license(checkpoint):
    """The license that the card or the config states, else the family's."""
    config, folder = checkpoint.config, checkpoint.folder
    timm = config.get("pretrained_cfg")
    timm = timm if isinstance(timm, dict) else {}
    fields = ("architecture", "_name_or_path", "model_type", "class_name")
    # A repository in the cache has its name two folders above its commit.
    names = (timm.get("tag"), folder.name, folder.parent.parent.name, *map(config.get, fields))
    stated = license_in_card(folder) or license_name(timm.get("license"))
    return stated or license_of_family(names)


def _noted(checkpoint, classes):
    """What this package noted in a file of weights."""
    stated, labels = checkpoint.stated, checkpoint.stated.labels
    if stated.preprocessing is None:
        return found("the source did not hold it", labels=Labels(task=labels.task))
    if labels.names is not None and len(labels.names) != classes:  # Names for another head.
        labels = Labels(task=labels.task)
    origins = found(f"noted in {checkpoint.path.name}").origins
    stated = stated.including(None)  # The weights need the whole of it.
    return dataclasses.replace(stated, labels=labels, origins=origins, notes=())


def _recognised(checkpoint, model, image_size, num_heads, gelu):
    """What arrays show; ValueError if they are not of a model that is given."""
    if model is None:
        return _of_arrays(checkpoint, num_heads, gelu, image_size)
    config = resolve(model)
    if checkpoint.width not in (0, config.width):
        check_agrees(config, checkpoint.path, None)
    heads = num_heads or getattr(config, "num_heads", None)
    shown = _of_arrays(checkpoint, heads, gelu, image_size)
    check_agrees(config, checkpoint.path, shown.config)
    return shown


def _of_arrays(checkpoint, num_heads, gelu, image_size):
    """The config, image size, grid and classes of a checkpoint, with a note for an assumption."""
    stated, classes = checkpoint.stated, num_classes(checkpoint.shapes)
    if stated.config is not None:
        _check_size(checkpoint)
        return dataclasses.replace(stated, classes=classes, notes=())
    config, notes = _config_of_arrays(checkpoint, num_heads, gelu)
    if isinstance(config, ViTConfig):
        size, grid = _shown_image_size(checkpoint, config, image_size)
    else:
        size, grid = stated.image_size or DEFAULT_SIZE, None
    return Description(
        config=config,
        input_shape=(*size, checkpoint.channels),
        position_grid=grid,
        classes=classes,
        notes=(*stated.notes, *notes),
    )


def _config_of_arrays(checkpoint, num_heads, gelu):
    """The config by names, shapes and what the code base states, and a note of what is assumed."""
    fields = dict(checkpoint.fields)
    for fact, given in (("num_heads", num_heads), ("gelu", gelu)):
        if not checkpoint.states(fact):
            fields[fact] = given
    has_paper_sizes = not checkpoint.layout.models_vary
    config, notes = config_of_shapes(checkpoint.shapes, fields, has_paper_sizes=has_paper_sizes)
    if not isinstance(config, ViTConfig):
        return config, notes
    if len(set(config.patch_sizes)) == 1:
        config = dataclasses.replace(config, patch_size=config.patch_sizes[0])
    if "norm_epsilon" in checkpoint.assumed:
        notes += (
            "the file shows neither LayerNorm's epsilon nor what the head reads nor how "
            f"positions are resized: {config.norm_epsilon}, {config.classifier!r} and "
            f"{config.position_resize!r} were assumed, as in most of "
            f"{checkpoint.layout.name}; its config.json states them",
        )
    return config, notes


def _shown_image_size(checkpoint, config, given):
    """The image size and grid that a file shows; only where it shows none, by the given size."""
    try:
        return _image_size(checkpoint, config, None)
    except ValueError:
        if None in given:
            raise
        return _image_size(checkpoint, config, given)


def _check_size(checkpoint):
    """Raises ValueError if the noted model has far more numbers than the file."""
    numbers = sum(math.prod(array.shape) for array in checkpoint.arrays.values())
    described = dataclasses.replace(checkpoint.stated, classes=num_classes(checkpoint.shapes))
    if described.parameters > 2 * numbers + _FREE_NUMBERS:
        raise ValueError(
            "The note of a file must be of its weights. Received: a model of "
            f"{described.parameters:,} numbers in {checkpoint.path}, which has {numbers:,}"
        )


def _image_size(checkpoint, config, image_size):
    """Pixels (height, width) of a file's images, and the grid of its table of positions.

    Images of an image size that is given, else of the one that the file states or, of its grid,
    the smallest; they may be no multiple of the patch, as the model cuts the rest off.
    """
    table, grid = checkpoint.shapes.get("position_embedding"), checkpoint.stated.position_grid
    has_table = config.position_embedding != "none"
    if image_size is not None and not has_table:
        return image_size, config.grid(image_size)
    known = config.grid(image_size) if image_size else grid
    try:
        if has_table:
            rows = table[1] if table else 0
            _, grid = find_grid(rows, checkpoint.prefix_row_counts, known)
        elif grid is None:
            raise ValueError("no table of positions (1, rows, D) and no config.json")
    except (ValueError, IndexError) as error:
        raise ValueError(
            "The image size (image_size, --image-size) must be given where no square grid of "
            "positions and no config.json shows it, and must match the file. "
            f"Received: {checkpoint.path}: {error}"
        ) from error
    if image_size or checkpoint.stated.image_size:
        return image_size or checkpoint.stated.image_size, grid
    stride = config.resnet.stride if config.resnet else 1
    down, across = config.patch_sizes
    return (grid[0] * down * stride, grid[1] * across * stride), grid


def free_grid(
    arrays: Arrays | None, known: tuple[int, int] | None = None
) -> tuple[int, int] | None:
    """Returns the grid of the table of positions that a model of any image size holds.

    Code bases other than the official one resize the table of the file once; else it is None.

    Args:
        arrays: The weights of the model; None without.
        known: The grid that they state.
    """
    if not isinstance(arrays, Checkpoint):
        return None
    table = arrays.shapes.get("position_embedding")
    if table is None or len(table) != 3 or arrays.position_rule == ViTConfig.position_resize:
        return None
    return find_grid(table[1], arrays.prefix_row_counts, known)[1]
