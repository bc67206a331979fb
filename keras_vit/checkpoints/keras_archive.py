"""Models in `.keras` files, read in safe mode and with bounds."""

from __future__ import annotations

import importlib
import os

import keras
import numpy as np

from keras_vit.checkpoints.hdf5 import LayerVariables, check_keras_archive
from keras_vit.checkpoints.hdf5_structure import open_weights_entry
from keras_vit.keras_private import load_keras_model

# Numbers that a model may have in addition to twice as many as its file: the seeds of layers, and
# LoRA's factors, which Keras adds to the kernel when it saves.
_FREE_NUMBERS = 2**20


# What `save` of a trainer and a ModelCheckpoint of its `fit` write; its model is read.
_TRAINER = "keras_vit>Trainer"


def read_model(path: str | os.PathLike) -> keras.Model:
    """Returns the model of a `.keras` file, or of a folder of its entries, read in safe mode.

    Raises:
        ValueError: If the file cannot be read as a Keras model, has content that Keras does
            not write, or has weights that are not finite.
    """
    try:
        config, stored = check_keras_archive(path)
        is_trainer = config.get("registered_name") == _TRAINER
        if is_trainer:  # By name, as training/ is built on this file.
            importlib.import_module("keras_vit.training.trainer.trainer")
        most = 2 * stored + _FREE_NUMBERS
        with open_weights_entry(path) as file:
            variables = LayerVariables(file)
            model = load_keras_model(config, most, variables.values, variables.has_path)
        model = model.model if is_trainer else model
    except Exception as error:  # Keras raises errors of many types for a damaged file.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be read as a Keras model: {reason[0]}") from error
    for weight in model.weights:
        if not np.isfinite(np.asarray(weight).astype("float32")).all():
            raise ValueError(
                "Weights must be finite numbers. "
                f"Received: {path} with NaN or infinity in {weight.path}"
            )
    return model
