"""The download of official weights into Keras's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile

from keras_vit.checkpoints.catalogue import RELEASED_NAMES, OfficialWeights
from keras_vit.checkpoints.fetching import fetch
from keras_vit.checkpoints.formats import check_npz
from keras_vit.utils.files import atomic_write, remove_leftovers, write_text

TIMEOUT = 60  # Seconds without a byte from the server.
FOLDER = "models"  # Below `$KERAS_HOME` or ~/.keras, as for all Keras applications.
_MAX_PAUSE = 24 * 60 * 60  # Seconds; downloads that paused for longer have ended.
_NOTED = ".sha256"  # The hash of a file that was read as a whole.
_ASIDE = ".damaged"


def download(weights: OfficialWeights) -> pathlib.Path:
    """Returns the path of an official file, downloaded if the cache has no whole copy.

    The file is downloaded to a temporary name, into the folder of `keras.utils.get_file`. It gets
    its own name when all of it has been read and compared with the hashes that are known: the
    catalogue's and the server's. Its SHA-256 is then kept beside it and compared at every use; a
    copy that has changed, or cannot be read, is moved aside and downloaded once more. An
    interrupted download starts again from the beginning.

    Args:
        weights: A row of the catalogue.

    Raises:
        OSError: If the file cannot be downloaded; the message names the URL and the path for
            a file that was fetched by other means.
    """
    final = _place(f"{weights.key}.npz")
    noted = final.with_name(f"{final.name}{_NOTED}")
    if final.exists():
        try:
            known = noted.read_text(encoding="utf-8").strip() if noted.exists() else ""
            _note(noted, known, _check(final, weights, known))
            return final
        except ValueError as error:
            aside = final.with_name(f"{final.name}{_ASIDE}")
            os.replace(final, aside)
            print(f"{final} is damaged and will be downloaded again: {error} It is now {aside}.")
    try:
        remove_leftovers(final.parent, _MAX_PAUSE)
        with atomic_write(final) as partial:
            fetch(weights.url, partial, TIMEOUT)
            _note(noted, "", _check(partial, weights))
    except Exception as error:
        raise OSError(
            f"The weights {weights.key} could not be downloaded: fetch {weights.url} by other "
            f"means and put it at {final}. (In the package: {', '.join(RELEASED_NAMES)}.) "
            f"Received: {' '.join(str(error).split())}"
        ) from None  # All of it is in the message.
    return final


def _check(path, weights, known=""):
    """The SHA-256 of a file that is whole.

    Args:
        path: The file.
        weights: Its row of the catalogue.
        known: The hash of the same file when it was read as a whole, or "".

    Raises:
        ValueError: If it is damaged.
    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for expected in (weights.sha256, known):
        if expected and digest != expected:
            raise ValueError(
                f"The SHA-256 of {weights.key} must be {expected}. Received: {digest}."
            )
    if not known:
        check_npz(path)
    return digest


def _note(path, known, digest):
    """Keeps the hash of a file, where the cache may be written."""
    if digest != known:
        with contextlib.suppress(OSError):
            write_text(path, f"{digest}\n")


def _place(name):
    """The path of a file in the cache of `keras.utils.get_file`."""
    home = os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")
    folders = [
        pathlib.Path(base).expanduser() / FOLDER
        for base in (home, pathlib.Path(tempfile.gettempdir()) / ".keras")
    ]
    for folder in folders:
        with contextlib.suppress(OSError):
            if (folder / name).exists():
                return folder / name
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder / name
    return folders[0] / name
