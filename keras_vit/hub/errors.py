"""Errors of the Hugging Face Hub, each in one line that says what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from keras_vit._installation import import_optional
from keras_vit.utils.files import disk_error, named_disk_errors

_LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
_REASONS = {
    401: "the server knows no such repository of a model: the name is wrong, or it is private",
    403: "the token has no rights for this",
    404: "there is no such repository of a model, or it is private",
    429: "the server is asked too often; try again later",
    507: "the account has no space left there",
}


class RepositoryError(OSError):
    """Why a repository cannot be read or written, in one line."""


def import_hugging_face() -> Any:
    """Returns the package of the Hugging Face Hub; see `import_optional`."""
    return import_optional("huggingface_hub", "A repository (hf:)", "hub")


@contextlib.contextmanager
def one_line_errors(action: str, site: str, cache: str = "") -> Iterator[None]:
    """Raises the errors of a package for downloads and uploads as a `RepositoryError`.

    Args:
        action: What the block does, such as "hf:owner/name cannot be downloaded".
        site: "Hugging Face".
        cache: The site's cache, if the block writes there, for a full disk.
    """
    advice = "Free space there, or set HF_HUB_CACHE to another folder."
    try:
        with named_disk_errors(cache, lambda: advice) if cache else contextlib.nullcontext():
            yield
    except Exception as error:
        if disk_error(error) or type(error) in (ValueError, ImportError):
            raise  # Ours, or a disk's: they are lines already.
        reason = str(error) if isinstance(error, RepositoryError) else _reason(error, site, cache)
        raise RepositoryError(f"{action}: {reason}") from error


def _reason(error: BaseException, site: str, cache: str) -> str:
    """What a user can do about an error, in one line."""
    names = {base.__name__ for base in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "GatedRepoError" in names:
        return f"its owner lets only chosen users in: ask on its page, then {_LOG_IN}"
    if "RevisionNotFoundError" in names:
        return "there is no such revision any more; write a branch, a tag or a commit that is there"
    if is_offline(error):
        missing = ", and it is not in the cache" if cache else ""
        return f"{site} cannot be reached or broke off{missing}: {_short(error)}"
    if status in (401, 403):
        return f"{_REASONS[status]}; {_LOG_IN}"
    if status in _REASONS:
        return _REASONS[status]
    if error.__cause__ is not None and status is None:
        return _reason(error.__cause__, site, cache)
    return _short(error)


def is_offline(error: BaseException) -> bool:
    """Returns whether an error says that the server was not reached or broke off."""
    names = {base.__name__ for base in type(error).__mro__}
    known = {"ConnectionError", "TransportError", "OfflineModeIsEnabled", "Timeout"}
    return bool(names & known)


def _short(error):
    line = " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= 200 else f"{line[:200]}..."
