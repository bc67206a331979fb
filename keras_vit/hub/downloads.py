"""Downloads from the Hugging Face Hub into its own cache."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

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
_COMMIT, _HASH = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_MAX_ANSWER = 8 * 2**20  # Bytes; the list of 10,000 files has one million.
# Bytes of each answer; None for those with the content of a file, 0 where nothing is checked.
_LIMIT: contextvars.ContextVar[int | None] = contextvars.ContextVar("_LIMIT", default=0)


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
    with (
        one_line_errors(f"{repository} cannot be downloaded", "Hugging Face", cache),
        _checked(hub),
    ):
        try:
            found = hub.HfApi(**_LIBRARY).model_info(name, revision=revision)
        except Exception as error:
            if is_offline(error) and held is not None:
                line = f"Hugging Face cannot be reached: {repository} is commit {held[1].name}"
                print(for_line(f"{line}, as cached."), file=sys.stderr)
                return held
            raise
        _check_commit(found.sha, revision if repository.is_fixed else None)
        names = [file.rfilename for file in found.siblings or ()]
        for inside in names:
            path_inside(str(repository), inside)
        parts = choose(names)
        for part in parts:
            for file in part:
                folder = _fetched(hub, name, found.sha, file)
            if part is parts[0] and part:
                check(folder)
        if revision != found.sha:  # Notes in the cache which commit the branch or tag is.
            _path_of(hub, name, (parts[0] + parts[1])[0], revision)
    return repository.at(found.sha), folder


@contextlib.contextmanager
def _checked(hub, limit=_MAX_ANSWER):
    """Within it, what a server answers is checked before huggingface_hub makes paths of it.

    huggingface_hub makes a new client after an error, so the hook belongs to what makes clients;
    there is no public name for that.
    """
    http = hub.utils._http
    make = http._GLOBAL_CLIENT_FACTORY  # Perhaps the user's, for a proxy.
    if getattr(make, "func", None) is not _client:
        hub.set_client_factory(functools.partial(_client, make))
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def _client(make):
    client = make()
    client.event_hooks["response"].append(_check_answer)
    return client


def _check_commit(sha, wanted=None):
    if not _COMMIT.fullmatch(sha or "") or wanted not in (None, sha):
        expected = wanted or "40 hex digits"
        raise RepositoryError(f"the server's commit must be {expected}. Received: {sha!r:.80}")


def _check_answer(answer: Any) -> None:
    """Raises RepositoryError if huggingface_hub would make paths of other than hashes.

    It holds answers other than the content of a file in memory, so they have a limit.
    """
    limit = _LIMIT.get()
    if limit == 0:
        return
    commit = answer.headers.get("X-Repo-Commit")
    if commit is not None:
        _check_commit(commit)
    etag = answer.headers.get("X-Linked-Etag") or answer.headers.get("ETag") or ""
    names_path = answer.request.method == "HEAD" and commit and answer.status_code < 400
    if names_path and not _HASH.fullmatch(etag.lstrip("W/").strip('"')):
        raise RepositoryError(
            f"the server's ETag must be 40 or 64 hex digits. Received: {etag!r:.80}"
        )
    if answer.is_success and limit is None:
        return
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > _MAX_ANSWER:
            raise RepositoryError(f"the server's answer has more than {_MAX_ANSWER:,} bytes")
    answer._content = bytes(content)


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


def _path_of(hub, name, file, revision):
    with _checked(hub, None):
        return pathlib.Path(hub.hf_hub_download(name, file, revision=revision, **_LIBRARY))


def _fetched(hub, name, commit, file):
    """Downloads a file of a commit, compares it with its hash and returns its folder."""
    start = time.time() - 1  # Clocks of file systems are coarse.
    is_held = isinstance(hub.try_to_load_from_cache(name, file, revision=commit), str)
    path = _path_of(hub, name, file, commit)
    # With Xet the content is itself a link, into a store of all repositories.
    content = path.parent / os.readlink(path) if path.is_symlink() else path
    if not is_held and not _is_content(content):
        path.unlink()
        if content.exists() and content.stat().st_mtime < start:  # Another process wrote it.
            raise RepositoryError(f"{content.resolve()} is damaged; remove it and call again")
        for place in (content.resolve(), content):
            place.unlink(missing_ok=True)
        raise RepositoryError(f"{file} was damaged on its way and removed; call again")
    return path.parent


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
