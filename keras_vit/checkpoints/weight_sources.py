"""Weights by name or path: a row of the catalogue, a file or a folder."""

from __future__ import annotations

import os
import pathlib

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import OfficialWeights, check_unambiguous, find_released
from keras_vit.utils.files import check_holds_one_model

# Ends of the names of files of weights.
_SUFFIXES = (".npz", ".h5", ".keras", ".safetensors", ".bin", ".pth", ".pt")


def released_folder(
    folder_or_name: str | os.PathLike,
    model: str | configs.ViTConfig | configs.BiTConfig | None = None,
) -> pathlib.Path:
    """Returns the folder of a classifier in the package; any other path is returned.

    Args:
        folder_or_name: A path, or a name of `RELEASED_NAMES`. A `pathlib.Path` is a path.
        model: Selects among the classifiers of that name; by default the most accurate one.

    Raises:
        ValueError: If it is a name, and a file or folder of that name exists.
    """
    released = find_released(folder_or_name, model) or find_released(folder_or_name)
    if not released:
        return pathlib.Path(folder_or_name)
    row = released[0]
    other = row.folder if os.path.exists(row.key) else row.key
    check_unambiguous(str(folder_or_name), f"{other} for the package's classifier")
    return row.folder


def find_weights(
    weights: str | os.PathLike,
    model: str | configs.ViTConfig | configs.BiTConfig | None = None,
    image_size: tuple[int | None, int | None] = (None, None),
) -> OfficialWeights | pathlib.Path:
    """Returns what a value of `weights=` means: a row of the catalogue, or a file or folder.

    A name is a name and a path is a path; if both exist, the error shows how to write each.

    Args:
        weights: A path, or a name of the catalogue or of a classifier of the package.
        model: The name or config of the weights' model; by default the key's, or ViT-B/16.
        image_size: Pixels (height, width), by which an official file is chosen.

    Raises:
        ValueError: If there are no such weights, or none for the model.
        FileNotFoundError: If a path ends as a file of weights does, and there is none.
    """
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None, a path, or a name of keras_vit.list_weights(). "
            f"Received: weights={weights!r}"
        )
    if catalogue.is_official(weights):
        key = os.fspath(weights)
        usual = next((row.model for row in catalogue.rows() if row.key == key), "ViT-B/16")
        return catalogue.find(usual if model is None else _name_of(model, key), key, image_size)
    if (released := find_released(weights)) and not find_released(weights, model):
        models = " or ".join(row.model for row in released)
        raise ValueError(f"weights={weights!r} are of {models}. Received: {model}")
    path = released_folder(weights, model)
    if not path.exists():
        known = f"for {model}: {catalogue.known_weights(model)}" if isinstance(model, str) else ""
        error = FileNotFoundError if path.suffix in _SUFFIXES else ValueError
        raise error(
            f"No such folder or file: {os.fspath(weights)}. A model is a classifier's folder, a "
            f"file of weights, an export, hf:OWNER/NAME, {', '.join(catalogue.RELEASED_NAMES)}, "
            "imagenet21k, a name of keras_vit.list_weights(), or a model's name with its weights"
            + (f" ({known}). Received: weights={weights!r}" if known else "")
        )
    check_holds_one_model(path)
    return path


def _name_of(model, weights):
    for name, config in configs.MODELS.items():
        if model in (name, config):
            return name
    configs.resolve(model)  # Names the nearest.
    raise ValueError(
        "Official weights are for the models of keras_vit.list_models(); another config "
        f"needs a path. Received: weights={weights!r} for {model}"
    )
