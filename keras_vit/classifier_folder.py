"""The folder of a fine-tuned classifier: reading and writing its files."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import read_json
from keras_vit.checkpoints.hdf5 import check_keras_archive
from keras_vit.description import (
    Description,
    description_layer,
    description_text,
    set_description,
)
from keras_vit.description.class_labels import ACTIVATIONS, MULTICLASS
from keras_vit.description.description_texts import TEXTS, read_texts, texts_of
from keras_vit.images.listing import Images, as_images
from keras_vit.images.samples import pixels_of, write_samples
from keras_vit.keras_private import all_layers, load_keras_model
from keras_vit.models.graph import StoredModel
from keras_vit.models.outputs import array_of
from keras_vit.predictor import ONE_UNIT, Predictor, described_fully
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import (
    CARD,
    CLASSES,
    DESCRIPTION,
    HISTORY,
    MODEL,
    RECIPE,
    REPORT,
    SAMPLES,
    SPLIT,
    atomic_folder,
    check_folder,
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


def write_classifier(
    folder: str | os.PathLike,
    predictor: Predictor,
    history: Sequence[Mapping[str, str | float]] = (),
    model_card: str = "",
    *,
    samples: Images = (),
    overwrite: bool = False,
) -> Predictor:
    """Writes a classifier's folder, complete or not at all; see `keras_vit.save_classifier`.

    Returns:
        The predictor of the folder.
    """
    check_folder(folder, marker=MODEL, overwrite=overwrite)
    known = predictor.preprocessing
    _check_scaled_once(predictor.model, known)
    _check_probabilities(predictor.model, predictor.task)
    photos = as_images(samples, known.bit_depth)
    with atomic_folder(folder, marker=MODEL, overwrite=overwrite) as partial:
        write_files(partial, predictor, history, model_card)
        write_samples(partial, (pixels_of(photo, known.bit_depth) for photo in photos), known)
    return Predictor.of(predictor.model, predictor.description, predictor.recipe, folder)


def copy_classifier(
    folder: str | os.PathLike, predictor: Predictor, *, overwrite: bool = False
) -> Predictor:
    """Writes a classifier's folder with the files that its own folder has; see `write_classifier`.

    The history, the card, the samples and the record of the split are copied, the model and what
    describes it are written.
    """
    source = predictor.folder
    if source is None or not source.is_dir():
        return write_classifier(folder, predictor, overwrite=overwrite)
    check_folder(folder, marker=MODEL, overwrite=overwrite)
    with atomic_folder(folder, marker=MODEL, overwrite=overwrite) as partial:
        write_files(partial, predictor)
        for name in (HISTORY, CARD, SPLIT, REPORT):
            if (source / name).is_file():
                shutil.copyfile(source / name, partial / name)
        if (source / SAMPLES).is_dir():
            shutil.copytree(source / SAMPLES, partial / SAMPLES)
    return Predictor.of(predictor.model, predictor.description, predictor.recipe, folder)


def model_preprocessing(model: keras.Model) -> Preprocessing:
    """Returns the preprocessing that a model holds.

    Raises:
        ValueError: If it holds none.
    """
    known = Description.of_model(model).preprocessing
    if known is None:
        raise ValueError(
            "The range of pixels that the model was fitted on is not known, and not guessed: pass "
            f"preprocessing=keras_vit.Preprocessing({tuple(model.input_shape[1:3])}) for images of "
            "keras_vit.preprocess_input, with value_range=(0, 1) for pixels / 255, or with "
            "value_range=(0, 255) for unchanged pixels."
        )
    return known


def _check_scaled_once(model, preprocessing):
    """Raises ValueError if a model scales pixels itself that the preprocessing has scaled."""
    low, high = preprocessing.value_range
    for layer in all_layers(model):
        factor = getattr(layer, "scale", 1) if isinstance(layer, keras.layers.Rescaling) else 1
        if isinstance(layer, keras.layers.Normalization):
            factor = 1 / np.sqrt(array_of(layer.variance))
        if np.max(np.abs(factor)) * np.max(np.subtract(high, low)) < _LEAST_RANGE:
            raise ValueError(
                f"Pixels must be scaled once, and the model's own layer {layer.name!r} does so: "
                f"pass preprocessing=keras_vit.Preprocessing({preprocessing.image_size}, "
                f"value_range=(0, 255)). Received: value_range={preprocessing.value_range}"
            )


# Behind a model's own scaling, pixels 0 and 255 differ by more: by 1 or 2 usually.
_LEAST_RANGE = 0.1


def write_files(
    folder: pathlib.Path,
    predictor: Predictor,
    history: Sequence[Mapping[str, str | float]] = (),
    model_card: str = "",
) -> None:
    """Writes a classifier's files into a folder that exists."""
    write_model(folder, predictor)
    write_history(folder / HISTORY, history)
    title = for_markdown(predictor.model.name)
    loading = f'`keras_vit.load_classifier("{THIS_FOLDER}")` loads this image classifier. {LOADING}'
    write_text(folder / CARD, model_card or f"# {title}\n\n{loading}\n")


def write_model(folder: pathlib.Path, predictor: Predictor) -> None:
    """Writes a classifier's model, description and recipe into a folder that exists."""
    layer = description_layer(predictor.model)
    before = layer and layer.content
    set_description(predictor.model, predictor.description)
    try:
        predictor.model.save(folder / MODEL)
    finally:
        if layer:
            layer.content = before  # A user's model stays as it is.
    texts = texts_of(predictor.description)
    for name in TEXTS:
        write_text(folder / name, texts[name])
    write_text(folder / RECIPE, json.dumps(predictor.recipe, indent=2) + "\n")


def write_without_classes(
    folder: pathlib.Path,
    model: keras.Model,
    description: Description,
    recipe: Mapping[str, Any],
    history: Sequence[Mapping[str, str | float]],
    model_card: str,
) -> None:
    """Writes the files of a pre-trained model without classes into a folder that exists."""
    set_description(model, description)
    model.save(folder / MODEL)
    write_text(folder / DESCRIPTION, description_text(description))
    write_text(folder / RECIPE, json.dumps(recipe, indent=2) + "\n")
    write_history(folder / HISTORY, history)
    write_text(folder / CARD, model_card)


def write_history(path: pathlib.Path, history: Sequence[Mapping[str, str | float]]) -> None:
    """Writes rows as CSV, with all their columns in the order of first occurrence."""
    columns = list(dict.fromkeys(itertools.chain.from_iterable(history)))
    write_csv(path, [columns, *([row.get(name, "") for name in columns] for row in history)])


def _check_probabilities(model, task):
    shape = [1, *(side or 224 for side in model.input_shape[1:])]
    scores = array_of(model(np.zeros(shape, "float32"), training=False))
    # The sum of float32 probabilities is 1 up to rounding. The sum of logits is not, also not
    # with a zero head, whose logits are all 0. A sigmoid is never 0 there.
    if task == MULTICLASS:
        is_right = scores.min() >= 0 and abs(scores.sum() - 1) <= 1e-3
    else:
        is_right = 0 <= scores.min() <= scores.max() <= 1 and scores.any()
        last = getattr(model.layers[-1], "activation", None)
        is_right = is_right and last is not keras.activations.softmax
    if not is_right and scores.shape[1] == 1:
        raise ValueError(
            f"{ONE_UNIT}. Received: outputs of shape {model.output_shape}, task={task!r}"
        )
    if not is_right:
        raise ValueError(
            "The model must give probabilities, of a multi-label one each by itself: build it with "
            f'classifier_activation="{ACTIVATIONS[task]}". Received: outputs with sum '
            f"{scores.sum():.4g} and minimum {scores.min():.4g}"
        )
