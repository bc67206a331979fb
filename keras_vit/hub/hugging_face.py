"""Downloads from the Hugging Face Hub into its own cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from keras_vit.hub.errors import (
    RepositoryError,
    import_hugging_face,
    is_offline,
    one_line_errors,
)
from keras_vit.hub.repository_names import RepositoryName
from keras_vit.utils.files import path_inside
from keras_vit.utils.safe_text import for_line

_LIBRARY = {"library_name": "keras-vit"}
_MAIN = "main"
# Lengths of the hashes by which the cache names the content of a file.
_SHA256, _GIT_SHA1 = 64, 40


def download(
    repository: RepositoryName,
    choose: Callable[[Sequence[str]], tuple[list[str], list[str]]],
    known: Sequence[str],
    check: Callable[[pathlib.Path], None],
) -> tuple[RepositoryName, pathlib.Path]:
    """Returns a repository with its commit, and the folder in the cache with its files.

    The revision is resolved to a commit first, and every file is of that commit. The small files
    come first and are checked, then the weights: a folder with its weights is whole. A commit
    that is whole in the cache is taken without a network; so is the newest cached commit of a
    branch where the Hub cannot be reached, with a line that says so. A file that is downloaded
    is compared with its hash.

    Args:
        repository: The name.
        choose: Returns, out of the names in the repository, the files beside the weights and the
            files of the weights; raises ValueError if there are none.
        known: Names that some repository has beside its weights or as weights.
        check: Raises ValueError if the folder, without its weights yet, is of no model here.

    Raises:
        ValueError: If the repository has nothing that is read, or a name that leads outside.
        OSError: If it cannot be downloaded.
        ImportError: If huggingface_hub is not installed.
    """
    hub = import_hugging_face()
    name, revision = repository.name, repository.revision or _MAIN
    held = cached(repository, choose, known)
    if repository.is_fixed and held is not None:
        return held
    cache = hub.constants.HF_HUB_CACHE
    with one_line_errors(f"{repository} cannot be downloaded", "Hugging Face", cache):
        try:
            found = hub.HfApi(**_LIBRARY).model_info(name, revision=revision)
        except Exception as error:
            if is_offline(error) and held is not None:
                _say_that_it_is_cached(repository, held[1])
                return held
            _check_kind(hub, name, error)
            raise
        names = [file.rfilename for file in found.siblings or ()]
        for inside in names:
            path_inside(str(repository), inside)
        parts = choose(names)
        for part in parts:
            bar = {"tqdm_class": _NoBar} if part is parts[0] else {}
            folder = _fetched(hub, name, found.sha, part, **bar)
            if part is parts[0]:
                check(folder)
        if revision != found.sha:  # Notes in the cache which commit the branch or tag is.
            _snapshot(hub, name, revision, parts[0], tqdm_class=_NoBar)
    return repository.at(found.sha), folder


def cached(
    repository: RepositoryName,
    choose: Callable[[Sequence[str]], tuple[list[str], list[str]]],
    known: Sequence[str],
) -> tuple[RepositoryName, pathlib.Path] | None:
    """Returns what `download` does, for a repository that is whole in the cache, else None.

    A branch is its newest cached commit. Nothing is asked of the Hub.
    """
    hub = import_hugging_face()
    name, revision = repository.name, repository.revision or _MAIN
    paths = (hub.try_to_load_from_cache(name, file, revision=revision) for file in known)
    found = next((path for path in paths if isinstance(path, str)), None)
    if found is None:
        return None
    folder = pathlib.Path(found).parent
    with contextlib.suppress(ValueError):  # Without weights yet.
        choose(os.listdir(folder))
        return repository.at(folder.name), folder
    return None


class _NoBar(tqdm):
    """No progress bar, for files that take no time."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "disable": True})


def _snapshot(hub, name, revision, files, **options):
    return pathlib.Path(
        hub.snapshot_download(name, revision=revision, allow_patterns=files, **options, **_LIBRARY)
    )


def _fetched(hub, name, commit, files, **options):
    """Downloads files of a commit, compares them with their hashes and returns their folder."""
    missing = {
        file
        for file in files
        if not isinstance(hub.try_to_load_from_cache(name, file, revision=commit), str)
    }
    folder = _snapshot(hub, name, commit, files, **options)
    for file in sorted(missing):
        path = path_inside(folder, file)
        # With Xet the content is itself a link, into a store of all repositories.
        content = path.parent / os.readlink(path) if path.is_symlink() else path
        if not _is_content(content):
            for place in (content.resolve(), content, path):
                place.unlink(missing_ok=True)
            raise RepositoryError(f"{file} was damaged on its way and removed; call again")
    return folder


def _is_content(path: pathlib.Path) -> bool:
    """Whether a file of the cache, whose name is its hash, has that hash; True without a hash."""
    if len(path.name) == _SHA256:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == path.name
    if len(path.name) == _GIT_SHA1:
        content = path.read_bytes()
        start = f"blob {len(content)}\0".encode()
        return hashlib.sha1(start + content, usedforsecurity=False).hexdigest() == path.name
    return True


def _say_that_it_is_cached(repository, folder):
    line = f"Hugging Face cannot be reached: {repository} is commit {folder.name}, as cached."
    print(for_line(line), file=sys.stderr)


def _check_kind(hub: Any, name: str, error: BaseException) -> None:
    """Raises ValueError if the repository is one of data or of a Space."""
    if getattr(getattr(error, "response", None), "status_code", None) not in (401, 404):
        return
    for kind, what in (("dataset", "a data set"), ("space", "a Space")):
        exists = False
        with contextlib.suppress(Exception):  # The first error is the one that counts.
            exists = hub.HfApi(**_LIBRARY).repo_exists(name, repo_type=kind)
        if exists:
            raise ValueError(
                f"A repository of a model is needed. Received: hf:{name}, which is {what}"
            ) from error
