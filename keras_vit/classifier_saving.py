"""Saving any Keras model as a classifier's folder, and copies of such folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence

import keras
import numpy as np

from keras_vit.classifier_folder import write_files
from keras_vit.description import Description, check_one_output
from keras_vit.description.class_labels import ACTIVATIONS, MULTICLASS
from keras_vit.images.listing import Images, as_images
from keras_vit.images.samples import pixels_of, write_samples
from keras_vit.keras_private import all_layers
from keras_vit.models.outputs import array_of
from keras_vit.predictor import ONE_UNIT, Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import (
    CARD,
    HISTORY,
    MODEL,
    REPORT,
    SAMPLES,
    SPLIT,
    atomic_folder,
    check_folder,
)


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
        ValueError: If it holds none, or has several inputs or outputs.
    """
    check_one_output(model)
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
