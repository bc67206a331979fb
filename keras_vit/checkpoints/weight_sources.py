"""Weights by name or path: a row of the catalogue, a repository, a file or a folder."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import OfficialWeights, check_unambiguous, find_released
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub
from keras_vit.checkpoints.code_bases.files_beside import read_json
from keras_vit.description.description_texts import TEXTS
from keras_vit.hub import downloads
from keras_vit.hub.repository_names import RepositoryName
from keras_vit.utils.files import (
    CARD,
    CONFIG,
    HISTORY,
    MODEL,
    RECIPE,
    SAFETENSORS,
    UNPACKED_MODEL,
    WEIGHTS,
    check_holds_one_model,
)  # fmt: skip

# Ends of the names of files of weights.
_SUFFIXES = (".npz", ".h5", ".keras", ".safetensors", ".bin", ".pth", ".pt")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".msgpack")

# Files of a repository beside the weights: of transformers and timm, of KerasHub, of this package,
# of all; and the weights, of which the first that it has are read.
_BESIDE = (
    CONFIG, hugging_face.PREPROCESSOR, hugging_face.PROCESSOR, keras_hub.PREPROCESSOR, *TEXTS,
    RECIPE, HISTORY, CARD,
)  # fmt: skip
_WEIGHTS = (MODEL, SAFETENSORS, WEIGHTS)
# All that is read.
READ_FILES = tuple(dict.fromkeys((*UNPACKED_MODEL, *_BESIDE, *_WEIGHTS, keras_hub.HEAD)))


def fixed_name(name: Any) -> str | None:
    """Returns the name of a repository, which is downloaded, with its commit; None for others.

    A process resolves a branch once, so that all it does is with the same files.

    Args:
        name: Any value of `weights=`; "hf:owner/name@revision" is a repository.

    Raises:
        ValueError: If the name is wrong, or the repository has nothing that is read.
        OSError: If it cannot be downloaded.
    """
    return None if _parsed(name) is None else str(_downloaded(name)[0])


def cached_name(name: Any) -> str | None:
    """Returns `fixed_name` of a repository that is whole in the cache, else None; asks no server.

    A branch is its newest cached commit.
    """
    repository = _parsed(name)
    held = repository and downloads.cached(repository, choose_files, READ_FILES)
    return str(held[0]) if held else None


def _parsed(name):
    repository = RepositoryName.parse(name)
    if repository is not None:
        check_unambiguous(str(name), "and rename it for the repository")
    return repository


@functools.cache
def _downloaded(name):
    """The name of a repository with its commit, and its folder."""
    choose = functools.partial(choose_files, repository=name)
    return downloads.download(_parsed(name), choose, READ_FILES, _check_config)


def _check_config(folder):
    """Raises ValueError if the config is of a model that is not known, before its weights come."""
    config = read_json(folder / CONFIG)
    hugging_face.check_model_type(config, folder)
    keras_hub.check_family(config, folder)


def choose_files(names: Sequence[str], repository: str = "") -> tuple[list[str], list[str]]:
    """Returns the files of a repository that are read: those beside the weights, and the weights.

    Args:
        names: All names in it.
        repository: Its name, for messages.

    Raises:
        ValueError: If it has no weights that are read. Pickles never are.
    """
    beside = [name for name in _BESIDE if name in names]
    weights = next((name for name in _WEIGHTS if name in names), None)
    if weights is None:
        pickles = ", ".join([name for name in names if name.endswith(_PICKLES)][:3])
        raise ValueError(
            f"A repository must have one of {', '.join(_WEIGHTS)}; pickles are never opened, as "
            f"they can run any code. Received: {repository} with {pickles or 'other files'}"
        )
    head = [keras_hub.HEAD] if weights == WEIGHTS and keras_hub.HEAD in names else []
    return beside, [*head, weights]


def classifier_folder(
    folder_or_name: str | os.PathLike,
    model: str | configs.ViTConfig | configs.BiTConfig | None = None,
) -> pathlib.Path:
    """Returns the folder of a released classifier or a repository; any other path is returned.

    Args:
        folder_or_name: A folder, a name of `RELEASED_NAMES`, or the name of a repository, which
            is downloaded: "hf:owner/name@revision". A `pathlib.Path` is a
            folder.
        model: Selects among the classifiers of that name; by default the most accurate one.

    Raises:
        ValueError: If it is a name, and a file or folder of that name exists; or if the
            repository has nothing that is read.
        OSError: If a repository cannot be downloaded.
    """
    if _parsed(folder_or_name) is not None:
        return _downloaded(str(folder_or_name))[1]
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
        weights: A path, a name of the catalogue, of a classifier of the package, or of a
            repository, which is downloaded.
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
    path = classifier_folder(weights, model)
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
