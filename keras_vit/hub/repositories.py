"""Repositories of the Hugging Face Hub: their names, the files that are read, and downloads."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from keras_vit._installation import import_optional
from keras_vit.checkpoints.catalogue import released_folder
from keras_vit.checkpoints.checkpoint import read_config
from keras_vit.checkpoints.code_bases import hugging_face, keras_hub
from keras_vit.description.description_texts import TEXTS
from keras_vit.utils.files import (
    CARD,
    CONFIG,
    HISTORY,
    MODEL,
    RECIPE,
    SAFETENSORS,
    UNPACKED_MODEL,
    WEIGHTS,
    disk_error,
    named_disk_errors,
)
from keras_vit.utils.safe_text import first_line, first_names, for_line

T = TypeVar("T", bound=str | os.PathLike | None)

_PART = r"[A-Za-z0-9][\w.-]*"
NAME = f"{_PART}/{_PART}"
_FORM = re.compile(rf"hf:(?://)?({NAME})(?:@([\w.-]+(?:/[\w.-]+)*))?")
_KAGGLE = re.compile(rf"kaggle://{NAME}/keras/{_PART}(?:/\d+)?")
_COMMIT = re.compile("[0-9a-f]{40}")
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

# Files of a repository beside the weights: of transformers and timm, of KerasHub, of this package,
# of all; and the weights, of which the first that it has are read. Pickles never are.
_BESIDE = (
    CONFIG,
    hugging_face.PREPROCESSOR,
    hugging_face.PROCESSOR,
    keras_hub.PREPROCESSOR,
    keras_hub.CONVERTER,
    *TEXTS,
    RECIPE,
    HISTORY,
    CARD,
)
_WEIGHTS = (MODEL, SAFETENSORS, WEIGHTS)
# All that is read.
READ_FILES = tuple(dict.fromkeys((*UNPACKED_MODEL, *_BESIDE, *_WEIGHTS, keras_hub.HEAD)))

LIBRARY = "keras-vit"  # In the requests of this package.
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_REASONS = {
    "GatedRepoError": f"its owner lets only chosen users in: ask on its page, then {_LOG_IN}",
    "RevisionNotFoundError": "there is no such revision any more; write one that is there",
    401: f"the server knows no such repository of a model, or it is private; {_LOG_IN}",
    403: f"the token has no rights for this; {_LOG_IN}",
    404: "there is no such repository of a model, or it is private",
}
_MAX_ANSWER = 8 * 2**20  # Bytes; a list of 10,000 files has one million.


@dataclasses.dataclass(frozen=True)
class RepositoryName:
    """The name of a repository.

    Args:
        name: Such as "google/vit-base-patch16-224".
        revision: A branch, tag or commit.
    """

    name: str
    revision: str = "main"

    @classmethod
    def parse(cls, text: str | os.PathLike | None) -> Self | None:
        """Returns the name in a text; None for a text without "hf:".

        "hf://owner/name" is read as "hf:owner/name", as Keras and KerasHub write it.

        Raises:
            ValueError: If the text begins so and is no name.
        """
        if not isinstance(text, str) or not text.startswith("hf:"):
            return None
        match = _FORM.fullmatch(text)
        if match is None or ".." in text:
            raise ValueError(
                "A repository's name must be hf:OWNER/NAME, or hf:OWNER/NAME@REVISION with a "
                f"branch, a tag or a commit. Received: {text}"
            )
        return cls(match[1], match[2] or cls.revision)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"hf:{self.name}@{self.revision}"


class RepositoryError(OSError):
    """Why a repository cannot be read or written, in one line."""


def repository_folder(name: str | os.PathLike | None) -> pathlib.Path | None:
    """Returns the folder with the files of a repository, which is downloaded; None for others.

    Args:
        name: Any value of `weights=`; "hf:owner/name@revision" is a repository, and
            "kaggle://owner/model/keras/variation/version" a preset of KerasHub on Kaggle.

    Raises:
        ValueError: If the name is wrong, or the repository has nothing that is read.
        ImportError: If the package that downloads it is not installed.
        OSError: If it cannot be downloaded.
    """
    if str(name).startswith("kaggle:"):
        return _downloaded_of_kaggle(str(name))
    repository = RepositoryName.parse(name)
    return None if repository is None else _downloaded(str(name), repository)


def _downloaded_of_kaggle(name):
    if not _KAGGLE.fullmatch(name) or ".." in name:
        raise ValueError(
            "A preset of Kaggle must be kaggle://OWNER/MODEL/keras/VARIATION, or .../VERSION. "
            f"Received: {name}"
        )
    kagglehub = import_optional("kagglehub", "A preset of Kaggle (kaggle://)", extra="")
    try:
        return pathlib.Path(kagglehub.model_download(name.removeprefix("kaggle://")))
    except Exception as error:  # Any, of its client.
        raise RepositoryError(f"{name} cannot be downloaded: {first_line(error)}") from error


def classifier_folder(folder_or_name: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of a repository or of a classifier in the package; or any other path.

    Raises:
        ValueError: As `repository_folder`, or if a file has the name of such a classifier.
        OSError: As `repository_folder`.
    """
    return repository_folder(folder_or_name) or released_folder(folder_or_name)


def fixed_name(name: str | os.PathLike | None) -> str | None:
    """Returns the name of a repository with its commit; arguments as for `repository_folder`.

    A process resolves a branch once, so that all it does is with the same files. A preset of
    Kaggle gets its version.
    """
    repository, folder = RepositoryName.parse(name), repository_folder(name)
    if folder is not None and repository is None:
        return f"{str(name).removesuffix(f'/{folder.name}')}/{folder.name}"
    return None if repository is None else _with_commit(repository, folder)


def located(weights: T) -> tuple[str | None, T | pathlib.Path]:
    """Returns the name of a repository with its commit, and where its files are.

    Args:
        weights: Any value of `weights=`; of others the name is None, and the place is the value.
    """
    repository = fixed_name(weights)
    return repository, repository_folder(repository) or weights


def cached_name(name: str | os.PathLike | None) -> str | None:
    """Returns `fixed_name` of a repository that is whole in the cache, else None; asks no server.

    A branch is its newest cached commit.
    """
    repository = RepositoryName.parse(name)
    folder = repository and _cached(import_hugging_face(), repository)
    return _with_commit(repository, folder) if folder else None


def _with_commit(repository, folder):
    return str(RepositoryName(repository.name, folder.name))


def import_hugging_face() -> types.ModuleType:
    """Returns the package of the Hugging Face Hub; see `import_optional`."""
    return import_optional("huggingface_hub", "A repository (hf:)", "hub")


@functools.cache
def _downloaded(name: str, repository: RepositoryName) -> pathlib.Path:
    """The folder in the Hub's cache with the files of a repository.

    The revision is resolved to a commit first, and every file is of that commit. The small files
    come first and are checked, then the weights: a folder with its weights is whole. A commit
    that is whole in the cache is taken without a network; so is the newest cached commit of a
    branch where the Hub cannot be reached, with a line that says so.
    """
    hub = import_hugging_face()
    is_fixed = _COMMIT.fullmatch(repository.revision) is not None
    cached = _cached(hub, repository)
    if is_fixed and cached is not None:
        return cached
    with (
        one_line_errors(f"{name} cannot be downloaded", hub.constants.HF_HUB_CACHE),
        _checked_answers(hub.get_session()),
    ):
        api = hub.HfApi(library_name=LIBRARY)
        try:
            info = api.model_info(repository.name, revision=repository.revision)
        except Exception as error:
            is_answer = isinstance(error, RepositoryError) or _status(error)
            if cached is None or is_answer:
                raise
            line = f"Hugging Face cannot be reached: {name} is commit {cached.name}, as cached."
            print(for_line(line), file=sys.stderr)
            return cached
        _check_commit(info.sha, repository.revision if is_fixed else None)
        beside, weights = choose_files([file.rfilename for file in info.siblings or ()], name)

        def fetch(file, revision=info.sha):
            path = api.hf_hub_download(repository.name, file, revision=revision)
            return pathlib.Path(path).parent

        for file in beside:
            folder = fetch(file)
        if beside:
            read_config(folder)
        for file in weights:
            folder = fetch(file)
        if not is_fixed:  # Notes in the cache which commit the branch or tag is.
            fetch(weights[0], repository.revision)
    return folder


def _cached(hub, repository):
    """The folder of a repository that is whole in the cache, else None."""
    try:
        folder = hub.snapshot_download(
            repository.name, revision=repository.revision, allow_patterns=[], local_files_only=True
        )
        choose_files(os.listdir(folder))
    except (OSError, ValueError):  # ValueError where the weights are missing.
        return None
    return pathlib.Path(folder)


def choose_files(names: Sequence[str], repository: str = "") -> tuple[list[str], list[str]]:
    """Returns the files of a repository that are read: those beside the weights, and the weights.

    Args:
        names: All names in it.
        repository: Its name, for messages.

    Raises:
        ValueError: If it has no weights that are read.
    """
    weights = next((name for name in _WEIGHTS if name in names), None)
    if weights is None:
        raise ValueError(
            f"A repository must have one of {', '.join(_WEIGHTS)}; pickles are never opened, as "
            f"they can run any code. Received: {repository} with {first_names(names)}"
        )
    head = [keras_hub.HEAD] if weights == WEIGHTS and keras_hub.HEAD in names else []
    return [name for name in _BESIDE if name in names], [*head, weights]


@contextlib.contextmanager
def _checked_answers(client):
    """Checks what a server answers before huggingface_hub makes paths of it."""
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [*hooks["response"], _check_answer]}
    try:
        yield
    finally:
        client.event_hooks = hooks


def _check_answer(answer):
    """Raises RepositoryError for an answer that leads outside the cache or fills the memory.

    Commit and ETag become names of files. Only the content of a file is streamed to the disk.
    """
    commit = answer.headers.get("X-Repo-Commit")
    if commit is not None:
        _check_commit(commit)
    etag = answer.headers.get("X-Linked-Etag") or answer.headers.get("ETag") or ""
    names_path = answer.request.method == "HEAD" and commit and answer.status_code < 400
    if names_path and not _HASH.fullmatch(etag.lstrip("W/").strip('"')):
        raise RepositoryError(
            f"the server's ETag must be 40 or 64 hex digits. Received: {etag!r:.80}"
        )
    is_file = answer.is_success and not answer.request.url.path.startswith("/api/")
    if not is_file and int(answer.headers.get("Content-Length") or 0) > _MAX_ANSWER:
        raise RepositoryError(f"the server's answer has more than {_MAX_ANSWER:,} bytes")


def _check_commit(sha, wanted=None):
    if not _COMMIT.fullmatch(sha or "") or wanted not in (None, sha):
        raise RepositoryError(
            f"the server's commit must be {wanted or '40 hex digits'}. Received: {sha!r:.80}"
        )


@contextlib.contextmanager
def one_line_errors(action: str, cache: str = "") -> Iterator[None]:
    """Raises the errors of the Hub as a `RepositoryError`.

    Args:
        action: What the block does, such as "hf:owner/name cannot be downloaded".
        cache: The Hub's cache, if the block writes there, for a full disk.
    """
    advice = "Free space there, or set HF_HUB_CACHE to another folder."
    try:
        with named_disk_errors(cache, lambda: advice):
            yield
    except Exception as error:
        if disk_error(error) or type(error) in (ValueError, ImportError):
            raise  # Ours, or a disk's: they are lines already.
        reason = str(error) if isinstance(error, RepositoryError) else _reason(error, cache)
        raise RepositoryError(f"{action}: {reason}") from error


def _status(error):
    """The number of an answer of the server that is an error; None without an answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _reason(error, cache):
    """What a user can do about an error, in one line."""
    status, line = _status(error), first_line(error)[:200]
    if status is None and error.__cause__ is not None:
        return _reason(error.__cause__, cache)
    if status is None:
        missing = ", and it is not in the cache" if cache else ""
        return f"Hugging Face cannot be reached or broke off{missing}: {line}"
    return _REASONS.get(type(error).__name__) or _REASONS.get(status, line)
