"""The one door to a model: what a name, file, folder or export is, and what builds or runs it."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.catalogue import OfficialWeights, check_unambiguous, find_weights
from keras_vit.checkpoints.file_descriptions import DEFAULT_SIZE, open_described
from keras_vit.checkpoints.hdf5 import has_own_layers
from keras_vit.configs import MODELS, ModelConfig, default_image_size, resolve
from keras_vit.configs.model_table import check_agrees
from keras_vit.description import FACTS, Description
from keras_vit.export.formats.artefacts import load_artefact, read_artefact
from keras_vit.export.formats.table import is_export
from keras_vit.hub.repositories import located
from keras_vit.model_weights import Weights, keras_file_weights
from keras_vit.predictor import AnyClassifier, Predictor, predictor_in
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, value_range
from keras_vit.utils.files import model_in
from keras_vit.utils.quiet_tensorflow import check_not_forked


def open_model(
    anything: AnyClassifier,
    *,
    model: str | ModelConfig | None = None,
    image_size: tuple[int | None, int | None] | None = None,
    num_heads: int | None = None,
    gelu: str | None = None,
    normalization: str | None = None,
) -> Weights:
    """Returns weights of any origin; builds no model that a description says, and downloads
    nothing but a repository.

    A name is a name and a path is a path: if both exist, it is an error that shows how to write
    each.

    Args:
        anything: A classifier or its folder, the folder of a pre-trained model, an export of this
            package, anything that `keras_vit.load_checkpoint` reads, "imagenet21k" or another
            name of `keras_vit.list_weights()`; a repository, "hf:owner/name@revision", whose
            commit is in `source`; or "none", for random weights of `model`.
        model: A name or config that the weights must have; official weights need it. By
            default it is recognised from the file.
        image_size: Pixels (height, width), by which an official file is chosen; needed for other
            files that do not show their size.
        num_heads: Attention heads, where the file does not show them.
        gelu: The form of GELU, where the file does not state it.
        normalization: A key of `NORMALIZATIONS`; replaces the source's.

    Raises:
        ValueError: If there are no such weights, they are not of the model, or a fact about
            their architecture is in no file and was not given.
        OSError: If a file cannot be read.

    Example:
    >>> opened = open_model("runs/pets")
    >>> opened.description.labels.names
    ('beagle', 'boxer')
    """
    check_not_forked()
    given = {"num_heads": num_heads, "gelu": gelu}
    predictor = predictor_in(anything)
    if predictor is not None:
        others = {"model": model, "image_size": image_size, "normalization": normalization}
        return _of_predictor(predictor, {**others, **given})
    if not isinstance(anything, str | os.PathLike | ModelConfig):
        raise TypeError(
            "A classifier must be a keras_vit.Classifier or what keras_vit.load_classifier takes; "
            "keras_vit.Classifier(model, class_names) makes one of a Keras model. "
            f"Received: {type(anything).__name__}"
        )
    if not isinstance(anything, (str, os.PathLike)) or anything in MODELS:
        raise ValueError(
            "A model's name needs weights (--weights; in Python "
            f'load_classifier("imagenet", model="ViT-B/16")): imagenet21k, imagenet, a key of the '
            "catalogue, a file, or none for random values. "
            f"Received: {anything!r} without weights"
        )
    repository, place = located(anything)
    name = repository or os.fspath(anything)
    if anything == "none":
        check_unambiguous(name)
        opened = _random(model or "ViT-B/16", given)
    else:
        opened = _open(name, place, model, image_size, given)
    if repository is not None:
        origins = {**opened.description.origins, "weights": repository}
        opened = opened.described(dataclasses.replace(opened.description, origins=origins))
    known = opened.description
    for fact, value in given.items():
        held = getattr(known.config, fact, None)
        if value not in (None, held):
            raise ValueError(
                f"{fact} is for weights that do not hold it. Received: {fact}={value!r} for "
                f"{name}, which has {held!r}"
            )
    return opened if normalization is None else _with_normalization(opened, normalization)


def open_predictor(
    anything: AnyClassifier,
    image_size: tuple[int, int] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Predictor:
    """Returns a model of any origin as a predictor.

    Args:
        anything: A classifier, or anything that `open_model` takes whose classes have names.
        image_size: Pixels (height, width); the weights' by default.
        facts: More arguments of `open_model`, None where they are not given.

    Raises:
        ValueError: As `open_model`; or if facts are given with a classifier, which has them.
        TypeError: If it is neither a classifier nor a name or path.
        OSError: If a file cannot be read.
    """
    given = {name: value for name, value in (facts or {}).items() if value is not None}
    predictor = predictor_in(anything)
    if predictor is not None and image_size is None and not given:
        return predictor
    return open_model(anything, image_size=image_size, **given).classifier(image_size)


def _of_predictor(predictor, facts):
    """The weights of a classifier in memory."""
    if given := [name for name, value in facts.items() if value is not None]:
        raise ValueError(
            "A classifier has its model, image size and facts; give them with its name or folder. "
            f"Received: {', '.join(given)}"
        )
    return Weights(
        predictor.source or "a classifier in memory",
        predictor.description,
        predictor.recipe,
        whole=lambda: predictor.model,
        folder=predictor.folder,
        is_export=predictor.is_export,
    )


def _random(model, given):
    """A model with random weights; a fact that is given is one of its config."""
    changes = {name: value for name, value in given.items() if value is not None}
    config, side = resolve(model, changes), default_image_size(model)
    description = Description(
        name=model if isinstance(model, str) else config.architecture,
        config=config,
        input_shape=(side, side, 3),
        preprocessing=Preprocessing((side, side)),
        origins=dict.fromkeys(FACTS, "the settings"),
    )
    return Weights(description.name, description)


def _open(name, source, model, image_size, given):
    """The weights at a place or by a name of the catalogue, which is asked once what it is."""
    size = image_size or (None, None)
    place = find_weights(source, model, size)
    whole = None if isinstance(place, OfficialWeights) else _whole_model(name, place)
    if whole is None:
        arrays, description = open_described(place, model, image_size=size, **given)
        return Weights(name, description, arrays=lambda: arrays)
    if model is not None:
        check_agrees(model, name, whole.description.config)
    return whole


def _whole_model(name, path):
    """The weights of a file or folder that holds a whole model; None of weights alone."""
    file = model_in(path) or (path if has_own_layers(path) else None)
    if file is not None:
        return keras_file_weights(name, path, file)
    if is_export(path):
        description, recipe = read_artefact(path)
        return Weights(
            name,
            description,
            recipe,
            whole=functools.cache(lambda: load_artefact(path).model),
            folder=path,
            is_export=True,
        )
    return None


def _with_normalization(opened, normalization):
    """The weights with the given range of pixels, whatever their source states."""
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            f"normalization must be one of {tuple(NORMALIZATIONS)} or None. "
            f"Received: {normalization!r}"
        )
    given, described = value_range(*NORMALIZATIONS[normalization]), opened.description
    known, notes = described.preprocessing, described.notes
    origins = {**described.origins, "pixels": f"--normalization {normalization}"}
    if known is None:
        known = Preprocessing(described.image_size or DEFAULT_SIZE)
        notes += (f"{described.origin_of('evaluation')}: the official code's resize was assumed",)
        origins["evaluation"] = "assumed"
    if known.value_range != given:
        opened = opened.without_unknown()
    known = dataclasses.replace(known, value_range=given)
    return opened.described(
        dataclasses.replace(opened.description, preprocessing=known, origins=origins, notes=notes)
    )
