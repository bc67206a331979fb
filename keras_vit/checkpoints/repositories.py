"""Models in repositories of others: which of their files are read, and their download."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_vit.checkpoints.catalogue import check_unambiguous, released_folder
from keras_vit.checkpoints.checkpoint import read_config
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub
from keras_vit.description.description_texts import TEXTS
from keras_vit.hub import downloads
from keras_vit.hub.downloads import RepositoryName
from keras_vit.utils.files import (
    CARD,
    CONFIG,
    HISTORY,
    MODEL,
    RECIPE,
    SAFETENSORS,
    UNPACKED_MODEL,
    WEIGHTS,
)  # fmt: skip

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


def repository_folder(name: Any) -> pathlib.Path | None:
    """Returns the folder with the files of a repository, which is downloaded; None for others.

    Args:
        name: Any value of `weights=`; "hf:owner/name@revision" is a repository.

    Raises:
        ValueError: If the name is wrong, or the repository has nothing that is read.
        OSError: If it cannot be downloaded.
    """
    return None if _parsed(name) is None else _downloaded(name)[1]


def classifier_folder(folder_or_name: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of a repository or of a classifier in the package; or any other path.

    Raises:
        ValueError: As `repository_folder`, or if a file has the name of such a classifier.
        OSError: As `repository_folder`.
    """
    return repository_folder(folder_or_name) or released_folder(folder_or_name)


def fixed_name(name: Any) -> str | None:
    """Returns the name of a repository with its commit; arguments as for `repository_folder`.

    A process resolves a branch once, so that all it does is with the same files.
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
        check_unambiguous(name)
    return repository


@functools.cache
def _downloaded(name):
    """The name of a repository with its commit, and its folder."""
    choose = functools.partial(choose_files, repository=name)
    return downloads.download(_parsed(name), choose, READ_FILES, read_config)


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
