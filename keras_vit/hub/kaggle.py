"""Downloads of presets of KerasHub from Kaggle, into the cache of kagglehub."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from keras_vit.hub.errors import RepositoryError, is_offline, one_line_errors
from keras_vit.hub.repository_names import RepositoryName
from keras_vit.utils.optional_packages import import_optional


def download(
    repository: RepositoryName,
    needed: str,
    files: Sequence[str],
    weights: str,
    check: Callable[[pathlib.Path], None],
) -> tuple[RepositoryName, pathlib.Path]:
    """Returns a model with its version, and the folder in the cache with its files.

    Args:
        repository: The name.
        needed: The file that is downloaded first and that each model has.
        files: Others that a model may have.
        weights: The file that is downloaded last, so that a folder with it is whole.
        check: Raises ValueError if the folder, without its weights yet, is of no model here.

    Raises:
        ValueError: If the model has not the files of a preset.
        OSError: If it cannot be downloaded.
        ImportError: If kagglehub is not installed.
    """
    kagglehub = import_optional("kagglehub", "A model of Kaggle (kaggle:)", "hub")
    logging.getLogger("kagglehub").setLevel(logging.WARNING)
    handle = str(repository).removeprefix(repository.scheme)
    place = import_optional("kagglehub.config", "kaggle:", "hub").get_cache_folder()
    with one_line_errors(f"{repository} cannot be downloaded", "Kaggle", place):
        if held := cached(repository, weights):
            return held
        try:
            folder = pathlib.Path(kagglehub.model_download(handle, needed)).parent
        except Exception as error:
            if is_offline(error) and not repository.is_fixed:
                raise RepositoryError(
                    "Kaggle cannot be reached; a version that is in the cache is found if it is "
                    f"written: {repository.at('VERSION')}"
                ) from error
            raise
        fixed = repository.at(folder.name)
        handle = str(fixed).removeprefix(fixed.scheme)
        for file in files:
            _download_if_there(kagglehub, handle, file)
        check(folder)
        if not _download_if_there(kagglehub, handle, weights):
            raise ValueError(
                f"A model of Kaggle must be a preset of KerasHub, with {needed} and {weights}. "
                f"Received: {repository} without {weights}"
            )
    return fixed, folder


def cached(repository: RepositoryName, weights: str) -> tuple[RepositoryName, pathlib.Path] | None:
    """Returns what `download` does, for a version that is whole in the cache, else None."""
    if not repository.is_fixed:
        return None
    caches: Any = import_optional("kagglehub.cache", "kaggle:", "hub")
    handles = import_optional("kagglehub.handle", "kaggle:", "hub")
    handle = handles.parse_model_handle(str(repository).removeprefix(repository.scheme))
    found = caches.Cache().load_from_cache(handle, weights)
    return (repository, pathlib.Path(found).parent) if found else None


def _download_if_there(kagglehub, handle, file):
    """Downloads a file; returns whether the model has it."""
    try:
        kagglehub.model_download(handle, file)
    except Exception as error:
        if getattr(getattr(error, "response", None), "status_code", None) != 404:
            raise
        return False
    return True
