"""The one door to a model: what a name, file, folder or export is, and what builds or runs it."""

from __future__ import annotations

import dataclasses
import importlib
import os
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import OfficialWeights
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.checkpoint_description import (
    DEFAULT_SIZE,
    describe_checkpoint,
)
from keras_vit.checkpoints.code_bases.official import OFFICIAL
from keras_vit.checkpoints.code_bases.own import read_folder
from keras_vit.checkpoints.hdf5 import has_own_layers, read_model
from keras_vit.checkpoints.match import set_position_rule
from keras_vit.checkpoints.weight_sources import find_weights, fixed_name
from keras_vit.classifier_folder import read_classifier
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.config_comparison import check_agrees, paper_name
from keras_vit.configs.position_resize import RULES
from keras_vit.description import (
    Description,
    completed,
    held_description,
)
from keras_vit.description.licences import APACHE
from keras_vit.models.opened_classifier import is_export
from keras_vit.models.opened_model import OpenedModel, export_error
from keras_vit.preprocessing import (
    NORMALIZATIONS,
    Preprocessing,
    check_normalization,
    describe_range,
    describe_resize,
    value_range,
)
from keras_vit.utils.files import CLASSES, DESCRIPTION, MODEL, RECIPE, model_in
from keras_vit.utils.json_files import read_json

_FACTS = ("pixels", "evaluation", "gelu", "norm_epsilon", "position_resize")


def open_model(
    anything: str | os.PathLike | ViTConfig | BiTConfig,
    *,
    weights: str | os.PathLike | None = None,
    model: str | ViTConfig | BiTConfig | None = None,
    image_size: tuple[int | None, int | None] | None = None,
    source_size: tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: Any = None,
    normalization: str | None = None,
    position_resize: str | None = None,
) -> OpenedModel:
    """Opens a model of any origin; builds nothing, and downloads nothing but a repository.

    A name is a name and a path is a path: if both exist, it is an error that shows how to write
    each.

    Args:
        anything: A classifier's folder, the folder of a pre-trained model, an export of this
            package, anything that `keras_vit.load_checkpoint` reads, "imagenet21k" or another
            name of `keras_vit.list_weights()`; or a repository, "hf:owner/name@revision",
            whose commit is in `source`. Or a config or name of `keras_vit.list_models()`, with
            `weights`.
        weights: For the name or config of a model: its weights, one of the above, or "random".
        model: A name or config that the weights must have; official weights need it. By
            default it is recognised from the file.
        image_size: Pixels (height, width), by which an official file is chosen; needed for other
            files that do not show their size.
        source_size: Pixels (height, width) of the file's images; another size is an error.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not state it.
        normalization: A key of `NORMALIZATIONS`; replaces the source's.
        position_resize: A key of `keras_vit.configs.position_resize.RULES`, by which tables of
            positions are resized; by default the rule of the weights' code base.

    Raises:
        ValueError: If there are no such weights, they are not of the model, or a fact about
            their architecture is in no file and was not given.
        OSError: If a file cannot be read.

    Example:
    >>> opened = open_model("runs/pets")
    >>> opened.description.labels.names
    ('beagle', 'boxer')
    """
    if weights is not None:
        if isinstance(anything, (str, os.PathLike)) and not is_model_name(anything):
            if os.path.exists(anything):
                raise ValueError(
                    "The weights are stored in the classifier's folder; give others only with a "
                    f"model's name. Received: {os.fspath(anything)}, weights={weights!r}"
                )
            configs.resolve(os.fspath(anything))  # Names the nearest.
        if model is not None:
            raise ValueError("With weights, the model is the first argument. Received: both")
        if weights == "random":
            check_normalization(normalization)
            opened = _open_random(anything, num_heads, gelu, normalization)
            return _with_position_resize(opened, position_resize)
        source: str | os.PathLike = weights
        model = anything if not isinstance(anything, os.PathLike) else os.fspath(anything)
    elif not isinstance(anything, (str, os.PathLike)) or is_model_name(anything):
        raise ValueError(
            "A model's name needs weights (weights=, --weights): imagenet21k, imagenet, a key of "
            f"the catalogue, a file, or random. Received: {anything!r} without weights"
        )
    else:
        source = anything
    check_normalization(normalization)
    repository = fixed_name(source)
    source = repository or source
    opened = _of_repository(
        _open(source, model, image_size, source_size, num_heads, gelu), repository
    )
    for name, value in (("num_heads", num_heads), ("gelu", gelu)):
        found = getattr(opened.description.config, name, None)
        if value not in (None, found):
            raise ValueError(
                f"{name} is for weights that do not hold it. Received: {name}={value!r} for "
                f"{os.fspath(source)}, which has {found!r}"
            )
    if source_size is not None and opened.description.image_size != source_size:
        raise ValueError(
            "The image size (image_size, --image-size) must match the source. "
            f"Received: {source_size} for {opened.source} of {opened.description.image_size}"
        )
    opened = _with_position_resize(opened, position_resize)
    return opened if normalization is None else _with_normalization(opened, normalization)


def open_weights(
    weights: str | os.PathLike,
    model: str | ViTConfig | BiTConfig,
    config: ViTConfig | BiTConfig,
    image_size: tuple[int | None, int | None],
    position_resize: str | None = None,
) -> OpenedModel:
    """Opens weights for a model that is given, whatever they state themselves.

    Unlike with `open_model` the model may differ from the weights' in all that their arrays do not
    show. A classifier's folder is read as a checkpoint.

    Args:
        weights: As for `open_model`.
        model: The name or config of the model, by which official weights are chosen.
        config: Its config, perhaps with changes.
        image_size: Pixels (height, width) of its images; None where any size fits.
        position_resize: The rule by which positions are resized; by default the weights'.

    Raises:
        ValueError: If there are no such weights for the model, or they are an export.
        OSError: If a file cannot be read.
    """
    repository = fixed_name(weights)
    weights = repository or weights
    found = find_weights(weights, model, image_size)
    height, width = image_size
    size = None if height is None or width is None else (height, width)
    if isinstance(found, OfficialWeights):
        opened = _official(weights, found, config, size, name="")
    elif model_in(found) is None and is_export(found):
        raise export_error(os.fspath(weights))
    else:
        checkpoint = open_checkpoint(found)
        described = describe_checkpoint(checkpoint, config=config, image_size=image_size)
        opened = OpenedModel(os.fspath(weights), described, checkpoint=checkpoint)
        opened = _with_position_resize(opened, position_resize)
    return _of_repository(opened, repository)


def is_model_name(name: Any) -> bool:
    """Returns whether a text is a name of `keras_vit.list_models()`.

    Raises:
        ValueError: If there is also a file or folder of that name.
    """
    if not isinstance(name, str) or name not in configs.MODELS:
        return False
    catalogue.check_unambiguous(name, "a config of keras_vit.configs.MODELS for the model")
    return True


def _open_random(model, num_heads, gelu, normalization):
    """A model with random weights; a fact that is given is one of its config."""
    given = {"num_heads": num_heads, "gelu": gelu}
    changes = {name: value for name, value in given.items() if value is not None}
    side = configs.default_image_size(model)
    description = Description(
        name=model if isinstance(model, str) else "ViT",
        config=configs.resolve(model, **changes),
        input_shape=(side, side, 3),
        preprocessing=Preprocessing(
            (side, side), value_range=value_range(*NORMALIZATIONS[normalization or "half"])
        ),
        origins=dict.fromkeys(_FACTS, "the settings"),
    )
    return OpenedModel(description.name, description)


def _of_repository(opened, repository):
    """The model, whose origins name the repository with its commit, if it is from one."""
    if repository is None:
        return opened
    origins = {**opened.description.origins, "weights": repository}
    described = dataclasses.replace(opened.description, origins=origins)
    return dataclasses.replace(opened, description=described)


def _with_position_resize(opened, given):
    """The weights with the rule for positions that was given, whatever their source says."""
    described = opened.description
    if given is None:
        return opened
    if given not in RULES:
        raise ValueError(
            f"position_resize must be one of {tuple(RULES)}. Received: position_resize={given!r}"
        )
    if described.position_resize is None:
        raise ValueError(
            "position_resize is for a model with a table of positions. "
            f"Received: position_resize={given!r} for {opened.source}"
        )
    rule = given if opened.checkpoint is None else opened.checkpoint.position_rule(given)
    if isinstance(opened.model, keras.Model):
        set_position_rule(opened.model, rule)
    config = dataclasses.replace(described.config, position_resize=rule)
    origins = {**described.origins, "position_resize": "--position-resize"}
    described = dataclasses.replace(described, config=config, origins=origins)
    return dataclasses.replace(opened, description=described)


def _with_normalization(opened, normalization):
    """The weights with the given range of pixels, whatever their source states."""
    given, described = value_range(*NORMALIZATIONS[normalization]), opened.description
    known, notes = described.preprocessing, described.notes
    origins = {**described.origins, "pixels": f"--normalization {normalization}"}
    if known is None:
        layout = opened.checkpoint.layout if opened.checkpoint else OFFICIAL
        known = layout.usual_resize(described.image_size or DEFAULT_SIZE)
        resize = describe_resize(known)
        notes += (f"{described.origin_of('evaluation')}: the usual resize was assumed ({resize})",)
        origins["evaluation"] = f"the usual of {layout.name}"
    elif known.value_range != given:
        before = f"{describe_range(known.value_range)}, {described.origin_of('pixels')}"
        origins["pixels"] += f" instead of {before}"
    if known.value_range != given:
        opened = opened.without_unknown()
        described = dataclasses.replace(described, labels=opened.description.labels)
    known = dataclasses.replace(known, value_range=given)
    described = dataclasses.replace(described, preprocessing=known, origins=origins, notes=notes)
    return dataclasses.replace(opened, description=described)


def _open(weights, model, image_size, source_size, num_heads, gelu):
    path = find_weights(weights, model, image_size or (None, None))
    if isinstance(path, OfficialWeights):
        return _official(weights, path, configs.resolve(model or path.model))
    keras_model = model_in(path)
    if keras_model and (path / CLASSES).exists():
        model_in_folder, described, recipe = read_classifier(path)
        opened = _of_model(weights, model_in_folder, described, recipe)
        opened = dataclasses.replace(opened, folder=path)
    elif keras_model:  # Pre-trained without classes.
        recipe = read_json(path / RECIPE) if (path / RECIPE).is_file() else {}
        opened = _of_model(weights, read_model(keras_model), read_folder(path, None))
        opened = dataclasses.replace(opened, recipe=recipe)
    elif is_export(path):
        # By name, as export/ is built on this file.
        classifier = importlib.import_module("keras_vit.export.artefacts").load_artefact(path)
        opened = OpenedModel(
            os.fspath(weights),
            classifier.description,
            classifier.recipe,
            model=classifier.model,
            folder=path,
        )
    elif has_own_layers(path):
        found = read_model(path)
        held = held_description(found)
        beside = read_folder(path.parent, held.classes)
        if beside.preprocessing is None and held.preprocessing is not None:
            beside = held
        opened = _of_model(weights, found, beside)
    else:
        checkpoint = open_checkpoint(path)
        described = describe_checkpoint(
            checkpoint,
            model,
            image_size=image_size or (None, None),
            source_size=source_size,
            num_heads=num_heads,
            gelu=gelu,
        )
        return OpenedModel(os.fspath(weights), described, checkpoint=checkpoint)
    if model is not None:
        check_agrees(model, weights, opened.description.config)
    return opened


def _official(weights, row, config, image_size=None, name=None):
    """Official weights, for their own image size and under their model's name by default."""
    side = row.resolution
    description = Description(
        name=row.model if name is None else name,
        config=config,
        input_shape=(side, side, 3),
        classes=row.classes,
        preprocessing=Preprocessing(image_size or (side, side)),
        origins=dict.fromkeys(_FACTS, "the official code"),
        licence=APACHE,
    )
    return OpenedModel(os.fspath(weights), description, official=row)


def _of_model(weights, model, description, recipe=None):
    """A Keras model with the description in the files beside it."""
    described = completed(description, held_description(model))
    name = (recipe or {}).get("model") or paper_name(described.config) or described.name
    origins = {**dict.fromkeys(_FACTS[:2], DESCRIPTION), **dict.fromkeys(_FACTS[2:], MODEL)}
    described = dataclasses.replace(
        described, name=name, origins={**origins, **description.origins}
    )
    return OpenedModel(os.fspath(weights), described, recipe or {}, model=model)
