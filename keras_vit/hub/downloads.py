"""Downloads from the Hugging Face Hub into its own cache, and its errors, each in one line."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_vit._installation import import_optional
from keras_vit.hub.repository_names import COMMIT, RepositoryName
from keras_vit.utils.files import disk_error, named_disk_errors, path_inside
from keras_vit.utils.safe_text import for_line

_LIBRARY = {"library_name": "keras-vit"}
_MAIN = "main"
_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_REASONS = {
    401: f"the server knows no such repository of a model, or it is private; {_LOG_IN}",
    403: f"the token has no rights for this; {_LOG_IN}",
    404: "there is no such repository of a model, or it is private",
    429: "the server is asked too often; try again later",
    507: "the account has no space left there",
}

# Returns, out of the names in a repository, the files beside the weights and the weights.
Choose = Callable[[Sequence[str]], tuple[list[str], list[str]]]


class RepositoryError(OSError):
    """Why a repository cannot be read or written, in one line."""


def import_hugging_face() -> Any:
    """Returns the package of the Hugging Face Hub; see `import_optional`."""
    return import_optional("huggingface_hub", "A repository (hf:)", "hub")


def download(
    repository: RepositoryName,
    choose: Choose,
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
        choose: Chooses the files; raises ValueError if there are none.
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
    with one_line_errors(f"{repository} cannot be downloaded", hub.constants.HF_HUB_CACHE):
        try:
            found = hub.HfApi(**_LIBRARY).model_info(name, revision=revision)
        except Exception as error:
            if held is None or not _is_offline(error):
                raise
            line = f"Hugging Face cannot be reached: {repository} is commit {held[1].name}"
            print(for_line(f"{line}, as cached."), file=sys.stderr)
            return held
        wanted = revision if repository.is_fixed else found.sha
        if not COMMIT.fullmatch(found.sha or "") or found.sha != wanted:
            raise RepositoryError(
                f"the server's commit must be {wanted if repository.is_fixed else '40 hex digits'}."
                f" Received: {found.sha!r:.80}"
            )
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
            hub.hf_hub_download(name, weights[0], revision=revision, **_LIBRARY)
    return repository.at(found.sha), folder


def cached(
    repository: RepositoryName, choose: Choose, known: Sequence[str]
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


def _fetched(hub, name, commit, file):
    """Downloads a file of a commit, compares it with its hash and returns its folder."""
    is_held = isinstance(hub.try_to_load_from_cache(name, file, revision=commit), str)
    path = pathlib.Path(hub.hf_hub_download(name, file, revision=commit, **_LIBRARY))
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
    kinds = {base.__name__ for base in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    line = " ".join(str(error).split())[:200] or type(error).__name__
    if "GatedRepoError" in kinds:
        return f"its owner lets only chosen users in: ask on its page, then {_LOG_IN}"
    if "RevisionNotFoundError" in kinds:
        return "there is no such revision any more; write a branch, a tag or a commit that is there"
    if _is_offline(error):
        missing = ", and it is not in the cache" if cache else ""
        return f"Hugging Face cannot be reached or broke off{missing}: {line}"
    if error.__cause__ is not None and status is None:
        return _reason(error.__cause__, cache)
    return _REASONS.get(status or 0, line)


def _is_offline(error):
    """Whether an error says that the server was not reached or broke off."""
    kinds = {base.__name__ for base in type(error).__mro__}
    return bool(kinds & {"ConnectionError", "TransportError", "OfflineModeIsEnabled", "Timeout"})
