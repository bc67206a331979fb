"""Models in repositories of others: which of their files are read, and their download."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from collections.abc import Sequence

from keras_vit.checkpoints.catalogue import check_unambiguous
from keras_vit.checkpoints.checkpoint import (
    ADAPTER,
    INDEX,
    KERAS_HUB_HEAD,
    SAFETENSORS,
    adapter_error,
)
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub
from keras_vit.checkpoints.code_bases.files_beside import read_json
from keras_vit.checkpoints.code_bases.hugging_face import PREPROCESSOR, PROCESSOR
from keras_vit.checkpoints.code_bases.keras_hub import KERAS_HUB_PREPROCESSOR
from keras_vit.checkpoints.weight_sources import released_folder
from keras_vit.description.description_texts import TEXTS
from keras_vit.hub import downloads
from keras_vit.hub.repository_names import RepositoryName
from keras_vit.utils.fields import required
from keras_vit.utils.files import (
    CARD,
    CONFIG,
    HISTORY,
    MODEL,
    RECIPE,
    UNPACKED_MODEL,
    WEIGHTS,
)

# Beside the weights: of transformers and timm, of KerasHub, of this package, of all.
_BESIDE = (
    CONFIG, PREPROCESSOR, PROCESSOR, KERAS_HUB_PREPROCESSOR, *TEXTS, RECIPE, HISTORY,
    CARD,
)  # fmt: skip
# The weights, the first that a repository has: one file, or an index and its parts.
_WEIGHTS = (MODEL, SAFETENSORS, INDEX, WEIGHTS)
# All that is read.
READ_FILES = tuple(dict.fromkeys((*UNPACKED_MODEL, *_BESIDE, *_WEIGHTS, KERAS_HUB_HEAD)))
_PART = re.compile(r"[\w.-]+-\d{5}-of-(\d{5})\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".msgpack")


def repository_folder(name: object) -> pathlib.Path | None:
    """Returns the folder with the files of a repository; None for any other name or path.

    Args:
        name: Any value of `weights=`; "hf:owner/name@revision" is a repository, which is
            downloaded.

    Raises:
        ValueError: If the name is wrong, or the repository has nothing that is read.
        OSError: If it cannot be downloaded.
    """
    return None if _parsed(name) is None else _download(str(name))[1]


def classifier_folder(folder_or_name: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of a repository or of a classifier in the package; or any other path.

    Raises:
        ValueError: As `repository_folder`, or if a file has the name of such a classifier.
        OSError: As `repository_folder`.
    """
    return repository_folder(folder_or_name) or released_folder(folder_or_name)


def fixed_name(name: object) -> str | None:
    """Returns the name of a repository with its commit or version; None for any other name.

    A process resolves a branch once, so that all it does is with the same files.

    Raises:
        ValueError: As `repository_folder`.
        OSError: As `repository_folder`.
    """
    return None if _parsed(name) is None else str(_download(str(name))[0])


def cached_name(name: object) -> str | None:
    """Returns `fixed_name` of a repository that is whole in the cache, else None; asks no server.

    A branch is its newest cached commit.
    """
    repository = _parsed(name)
    if repository is None:
        return None
    held = downloads.cached(repository, choose_files, READ_FILES)
    return None if held is None else str(held[0])


def _parsed(name):
    repository = RepositoryName.parse(name)
    if repository is not None:
        check_unambiguous(str(name), "and rename it for the repository")
    return repository


@functools.cache
def _download(text: str) -> tuple[RepositoryName, pathlib.Path]:
    repository = required(RepositoryName.parse(text), "the name of a repository")
    choose = functools.partial(choose_files, repository=text)
    return downloads.download(repository, choose, READ_FILES, _check_config)


def choose_files(names: Sequence[str], repository: str = "") -> tuple[list[str], list[str]]:
    """Returns the files of a repository that are read: those beside the weights, and the weights.

    Args:
        names: All names in it.
        repository: Its name, for messages.

    Raises:
        ValueError: If it has no weights that are read. Pickles never are.
    """
    if not set(ADAPTER).isdisjoint(names):
        raise adapter_error(repository)
    beside = [name for name in _BESIDE if name in names]
    weights = next((name for name in _WEIGHTS if name in names), None)
    if weights is None:
        pickles = sorted(name for name in names if name.endswith(_PICKLES))
        had = f"pickles alone ({', '.join(pickles[:3])}), which are never opened, as they can run "
        raise ValueError(
            f"A repository must have one of {', '.join(_WEIGHTS)}. Received: {repository} with "
            + (f"{had}any code" if pickles else f"{len(names)} other files")
        )
    if weights == INDEX:
        parts = {name: int(found[1]) for name in names if (found := _PART.fullmatch(name))}
        if not parts or len(parts) < max(parts.values()):
            raise ValueError(
                f"A checkpoint in parts must be whole. Received: {repository} with {len(parts)}"
            )
        return [*beside, INDEX], sorted(parts)
    head = weights == WEIGHTS and KERAS_HUB_HEAD in names
    return beside, [*([KERAS_HUB_HEAD] if head else []), weights]


def _check_config(folder):
    """Raises ValueError if the config is of a model that is not known, before its weights come."""
    config = read_json(folder / CONFIG)
    for base in (hugging_face, keras_hub):
        base.check_family(config, folder)
    hugging_face.check_model_type(config, folder)
