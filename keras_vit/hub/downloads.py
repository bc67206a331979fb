"""Downloads from the Hugging Face Hub into its own cache, and its errors, each in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from keras_vit._installation import import_optional
from keras_vit.utils.files import disk_error, named_disk_errors, path_inside
from keras_vit.utils.safe_text import for_line

HUGGING_FACE = "hf:"

_PART = r"[A-Za-z0-9][\w.-]*"
NAME = f"{_PART}/{_PART}"
_FORM = re.compile(rf"({NAME})(?:@([\w.-]+(?:/[\w.-]+)*))?")
COMMIT = re.compile("[0-9a-f]{40}")
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

_NAME = "keras-vit"
_LIBRARY = {"library_name": _NAME}
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_REASONS = {
    "GatedRepoError": f"its owner lets only chosen users in: ask on its page, then {_LOG_IN}",
    "RevisionNotFoundError": "there is no such revision any more; write one that is there",
    401: f"the server knows no such repository of a model, or it is private; {_LOG_IN}",
    403: f"the token has no rights for this; {_LOG_IN}",
    404: "there is no such repository of a model, or it is private",
}

_MAX_ANSWER = 8 * 2**20  # Bytes; a list of 10,000 files has one million.

# Returns, out of the names in a repository, the files beside the weights and the weights.
Choose = Callable[[Sequence[str]], tuple[list[str], list[str]]]


@dataclasses.dataclass(frozen=True)
class RepositoryName:
    """The name of a repository.

    Args:
        name: Such as "google/vit-base-patch16-224".
        revision: A branch, tag or commit; None for the newest.
    """

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Returns the name in a text; None for a text without "hf:".

        "hf://owner/name" is read as "hf:owner/name", as Keras and KerasHub write it.

        Raises:
            ValueError: If the text begins so and is no name.
        """
        if not isinstance(text, str) or not text.startswith(HUGGING_FACE):
            return None
        found = _FORM.fullmatch(text.removeprefix(HUGGING_FACE).removeprefix("//"))
        if found is None or ".." in text:
            raise ValueError(
                "A repository's name must be hf:OWNER/NAME, or hf:OWNER/NAME@REVISION with a "
                f"branch, a tag or a commit. Received: {text}"
            )
        return cls(found[1], found[2])

    @property
    def is_fixed(self) -> bool:
        """Whether the revision always means the same files: a commit."""
        return self.revision is not None and COMMIT.fullmatch(self.revision) is not None

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return HUGGING_FACE + self.name + (f"@{self.revision}" if self.revision else "")


class RepositoryError(OSError):
    """Why a repository cannot be read or written, in one line."""


def import_hugging_face() -> Any:
    """Returns the package of the Hugging Face Hub; see `import_optional`.

    What a server answers to this package is checked before huggingface_hub makes paths of it.
    huggingface_hub makes a new client after an error, so the check belongs to what makes clients:
    its own function, or the user's for a proxy, for which there is no public name.
    """
    hub = import_optional("huggingface_hub", "A repository (hf:)", "hub")
    from huggingface_hub.utils._http import _GLOBAL_CLIENT_FACTORY as make

    if getattr(make, "func", None) is not _client:
        hub.set_client_factory(functools.partial(_client, make))
    return hub


def download(
    repository: RepositoryName,
    choose: Choose,
    known: Sequence[str],
    check: Callable[[pathlib.Path], object],
) -> tuple[RepositoryName, pathlib.Path]:
    """Returns a repository with its commit, and the folder in the cache with its files.

    The revision is resolved to a commit first, and every file is of that commit. The small files
    come first and are checked, then the weights: a folder with its weights is whole. A commit
    that is whole in the cache is taken without a network; so is the newest cached commit of a
    branch where the Hub cannot be reached, with a line that says so. A file that is downloaded
    is compared with its hash.

    Args:
        repository: The name.
        choose: Chooses the files; raises ValueError if there are none.
        known: Names that some repository has beside its weights or as weights.
        check: Raises ValueError if the folder, without its weights yet, is of no model here.

    Raises:
        ValueError: If the repository has nothing that is read.
        OSError: If it cannot be downloaded.
        ImportError: If huggingface_hub is not installed.
    """
    hub = import_hugging_face()
    name, revision = repository.name, repository.revision or "main"
    held = cached(repository, choose, known)
    if repository.is_fixed and held is not None:
        return held
    with one_line_errors(f"{repository} cannot be downloaded", hub.constants.HF_HUB_CACHE):
        try:
            found = hub.HfApi(**_LIBRARY).model_info(name, revision=revision)
        except Exception as error:
            if held is None or not _is_offline(error):
                raise
            line = f"Hugging Face cannot be reached: {repository} is commit {held[1].name}"
            print(for_line(f"{line}, as cached."), file=sys.stderr)
            return held
        _check_commit(found.sha, revision if repository.is_fixed else None)
        names = [file.rfilename for file in found.siblings or ()]
        for inside in names:
            path_inside(str(repository), inside)
        beside, weights = choose(names)
        for file in beside:
            folder = _fetched(hub, name, found.sha, file)
        if beside:
            check(folder)
        for file in weights:
            folder = _fetched(hub, name, found.sha, file)
        if revision != found.sha:  # Notes in the cache which commit the branch or tag is.
            _path_of(hub, name, weights[0], revision)
    return dataclasses.replace(repository, revision=found.sha), folder


def _client(make):
    client = make()
    client.event_hooks["response"].append(_check_answer)
    return client


def _check_answer(answer):
    """Raises RepositoryError for an answer that leads outside the cache or fills the memory.

    Commit and ETag become names of files. Only the content of a file is streamed to the disk.
    """
    if _NAME not in answer.request.headers.get("User-Agent", ""):
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
    if answer.is_success and not answer.request.url.path.startswith("/api/"):
        return
    content = bytearray()
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > _MAX_ANSWER:
            raise RepositoryError(f"the server's answer has more than {_MAX_ANSWER:,} bytes")
    answer._content = bytes(content)


def _check_commit(sha, wanted=None):
    if not COMMIT.fullmatch(sha or "") or wanted not in (None, sha):
        raise RepositoryError(
            f"the server's commit must be {wanted or '40 hex digits'}. Received: {sha!r:.80}"
        )


def _path_of(hub, name, file, revision):
    return pathlib.Path(hub.hf_hub_download(name, file, revision=revision, **_LIBRARY))


def cached(
    repository: RepositoryName, choose: Choose, known: Sequence[str]
) -> tuple[RepositoryName, pathlib.Path] | None:
    """Returns what `download` does, for a repository that is whole in the cache, else None.

    A branch is its newest cached commit. Nothing is asked of the Hub.
    """
    hub = import_hugging_face()
    name, revision = repository.name, repository.revision or "main"
    paths = (hub.try_to_load_from_cache(name, file, revision=revision) for file in known)
    found = next((path for path in paths if isinstance(path, str)), None)
    if found is None:
        return None
    folder = pathlib.Path(found).parent
    with contextlib.suppress(ValueError):  # Without weights yet.
        choose(os.listdir(folder))
        return dataclasses.replace(repository, revision=folder.name), folder
    return None


def _fetched(hub, name, commit, file):
    """Downloads a file of a commit, compares it with its hash and returns its folder."""
    is_held = isinstance(hub.try_to_load_from_cache(name, file, revision=commit), str)
    path = _path_of(hub, name, file, commit)
    # With Xet the content is itself a link, into a store of all repositories.
    content = path.parent / os.readlink(path) if path.is_symlink() else path
    if not is_held and not _is_content(content):
        for place in (path, content.resolve(), content):
            place.unlink(missing_ok=True)
        raise RepositoryError(f"{file} was damaged on its way and removed; call again")
    return path.parent


def _is_content(path: pathlib.Path) -> bool:
    """Whether a file of the cache, whose name is its hash, has that hash; True without a hash."""
    start = b"blob %d\0" % path.stat().st_size  # As git hashes a file.
    digests = {40: hashlib.sha1(start, usedforsecurity=False), 64: hashlib.sha256()}
    digest = digests.get(len(path.name))
    if digest is None:
        return True
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest() == path.name


def in_cache(folder: str | os.PathLike) -> bool:
    """Returns whether a folder is in huggingface_hub's cache, where all files are links."""
    constants = sys.modules.get("huggingface_hub.constants")  # Keras imports the package alone.
    if constants is None:
        return False
    return pathlib.Path(constants.HF_HUB_CACHE).resolve() in pathlib.Path(folder).resolve().parents


@contextlib.contextmanager
def one_line_errors(action: str, cache: str = "") -> Iterator[None]:
    """Raises the errors of the Hub as a `RepositoryError`.

    Args:
        action: What the block does, such as "hf:owner/name cannot be downloaded".
        cache: The Hub's cache, if the block writes there, for a full disk.
    """
    advice = "Free space there, or set HF_HUB_CACHE to another folder."
    try:
        with named_disk_errors(cache, lambda: advice) if cache else contextlib.nullcontext():
            yield
    except Exception as error:
        if disk_error(error) or type(error) in (ValueError, ImportError):
            raise  # Ours, or a disk's: they are lines already.
        reason = str(error) if isinstance(error, RepositoryError) else _reason(error, cache)
        raise RepositoryError(f"{action}: {reason}") from error


def _reason(error: BaseException, cache: str) -> str:
    """What a user can do about an error, in one line."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if _is_offline(error):
        missing = ", and it is not in the cache" if cache else ""
        return f"Hugging Face cannot be reached or broke off{missing}: {_line(error)}"
    if error.__cause__ is not None and status is None:
        return _reason(error.__cause__, cache)
    keys = (*_kinds(error), status)  # The Hub's own errors have a status, too.
    return next((_REASONS[key] for key in keys if key in _REASONS), _line(error))


def _line(error):
    return " ".join(str(error).split())[:200] or type(error).__name__


def _kinds(error):
    return [base.__name__ for base in type(error).__mro__]


def _is_offline(error):
    """Whether an error says that the server was not reached or broke off."""
    offline = {"ConnectionError", "TransportError", "OfflineModeIsEnabled", "Timeout"}
    return not offline.isdisjoint(_kinds(error))
