"""The folder of a fine-tuned classifier: reading and writing its files."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import read_json
from keras_vit.checkpoints.hdf5 import check_keras_archive
from keras_vit.description import (
    Description,
    description_layer,
    set_description,
)
from keras_vit.description.description_texts import TEXTS, read_texts, texts_of
from keras_vit.keras_private import load_keras_model
from keras_vit.models.graph import StoredModel
from keras_vit.predictor import Predictor, described_fully
from keras_vit.utils.files import (
    CARD,
    CLASSES,
    DESCRIPTION,
    HISTORY,
    MODEL,
    RECIPE,
    model_in,
    write_csv,
    write_text,
)
from keras_vit.utils.quiet_tensorflow import check_not_forked
from keras_vit.utils.safe_text import first_line, for_markdown

# For cards.
THIS_FOLDER = "THIS FOLDER"  # In lines that load the classifier.
LOADING = (
    f'`keras.saving.load_model("{MODEL}")` reads the model alone, once '
    "`import keras_vit` has registered its layers."
)

# Numbers that a model may make in addition to three times as many as its file: the seeds of layers,
# and LoRA's factors, which Keras adds to the kernel when it saves. A kernel in int4 takes half of
# its numbers in the file, and is made in float32 before.
_FREE_NUMBERS = 2**20

FILES = (MODEL, DESCRIPTION, CLASSES, RECIPE, HISTORY, CARD)


def read_description(folder: pathlib.Path, model: keras.Model | StoredModel) -> Description:
    """Returns the description of a classifier's folder.

    Args:
        folder: The folder.
        model: Its model; or a `StoredModel`, the same by its JSON.

    Raises:
        ValueError: If the folder or one of its files is missing, cannot be read, or does
            not fit the others.
    """
    known = Description.stored(read_texts(folder), folder)
    try:
        return described_fully(known, model)
    except ValueError as error:
        raise ValueError(f"The files of {folder} do not belong together. {error}") from error


def read_classifier(folder: pathlib.Path) -> Predictor:
    """Returns the classifier in a folder, whose model is read; errors as `read_description`."""
    keras_model = model_in(folder)
    missing = [] if keras_model else [MODEL]
    missing += [name for name in (DESCRIPTION, CLASSES) if not (folder / name).is_file()]
    if missing or keras_model is None:
        raise ValueError(
            f"A classifier is a folder with {', '.join(FILES)}, or hf:OWNER/NAME. "
            f"Missing in {folder}{'' if folder.is_dir() else ', which is no folder'}: "
            f"{', '.join(missing)}; keras_vit.build(weights=...) reads weights alone, keras-vit "
            "convert makes a classifier of them"
        )
    # An error in a small file appears before the model is read.
    Description.stored(read_texts(folder), folder)
    recipe = read_json(folder / RECIPE)
    model = read_model(keras_model)
    description = read_description(folder, model)
    set_description(model, description)
    return Predictor.of(model, description, recipe, folder)


def read_model(path: str | os.PathLike) -> keras.Model:
    """Returns the model of a `.keras` file, or of a folder of its entries, read in safe mode.

    Raises:
        ValueError: If the file cannot be read as a Keras model, has content that Keras does
            not write, or has weights that are not finite.
        RuntimeError: In a fork of a process that has opened a model.
    """
    check_not_forked()
    try:
        config, weights, stored = check_keras_archive(path)
        model = load_keras_model(config, weights, 3 * stored + _FREE_NUMBERS)
        # What `save` of a trainer and a ModelCheckpoint of its `fit` write; its model is read.
        model = getattr(model, "model", model)
    except Exception as error:  # Keras raises errors of many types for a damaged file.
        raise ValueError(f"{path} cannot be read as a Keras model: {first_line(error)}") from error
    for weight in model.weights:
        if not np.isfinite(np.asarray(weight).astype("float32")).all():
            raise ValueError(
                "Weights must be finite numbers. "
                f"Received: {path} with NaN or infinity in {weight.path}"
            )
    return model


def write_files(
    folder: pathlib.Path,
    predictor: Predictor,
    history: Sequence[Mapping[str, str | float]] = (),
    model_card: str = "",
) -> None:
    """Writes a classifier's files into a folder that exists."""
    write_model(folder, predictor.model, predictor.description, predictor.recipe)
    title = for_markdown(predictor.model.name)
    loading = f'`keras_vit.load_classifier("{THIS_FOLDER}")` loads this image classifier. {LOADING}'
    write_history(folder, history, model_card or f"# {title}\n\n{loading}\n")


def write_model(
    folder: pathlib.Path,
    model: keras.Model,
    description: Description,
    recipe: Mapping[str, Any],
) -> None:
    """Writes a model, its description and its recipe into a folder that exists.

    Without names of classes, as after pre-training, there is no file of them.
    """
    layer = description_layer(model)
    before = layer and layer.content
    set_description(model, description)
    try:
        model.save(folder / MODEL)
    finally:
        if layer:
            layer.content = before  # A user's model stays as it is.
    texts = texts_of(description)
    for name in TEXTS:
        if name in texts:
            write_text(folder / name, texts[name])
    write_text(folder / RECIPE, json.dumps(recipe, indent=2) + "\n")


def write_history(
    folder: pathlib.Path, history: Sequence[Mapping[str, str | float]], model_card: str
) -> None:
    """Writes how a model was trained: its values by step as CSV, and its card.

    The columns of all rows stand in the order of their first occurrence.
    """
    columns = list(dict.fromkeys(itertools.chain.from_iterable(history)))
    rows = ([row.get(name, "") for name in columns] for row in history)
    write_csv(folder / HISTORY, [columns, *rows])
    write_text(folder / CARD, model_card)
