"""Outputs of this package among the images of a data set."""

from __future__ import annotations

import os
from typing import Any

from keras_vit.utils.files import DESCRIPTION, MODEL, RECIPE
from keras_vit.utils.json_files import read_json

ARCHIVE = "__MACOSX"  # A folder that macOS adds to ZIP files.
# The reason why a file such as ._photo.jpg is left out.
PROPERTIES = "Not an image, but the properties of one, which macOS keeps in files named ._NAME."

# Files that other programs may write too, with a field that only this package writes.
_FIELDS = {
    RECIPE: "settings",
    DESCRIPTION: "preprocessing",
    "result.json": "protocol",
    "metrics.json": "images_per_second",
    "sweep.json": "split_seed",
    "folds.json": "split_seed",
}


def reason_to_leave_out(folder: str | os.PathLike) -> str | None:
    """Returns why a folder among the data holds no images of them; None if it may hold some.

    Classifiers, unfinished runs, sweeps, exports and the reports of `evaluate` and `inspect` have
    pictures in them, which would become images of a class.
    """
    if os.path.basename(folder) == ARCHIVE:
        return "copies of file properties, which macOS adds to archives"
    try:
        names = set(os.listdir(folder))
    except OSError:
        return None  # It is reported when its images are listed.
    is_page = "index.html" in names and any(name.endswith(".npz") for name in names)
    if MODEL in names or is_page or any(_is_ours(folder, name) for name in names & set(_FIELDS)):
        return "an output of keras-vit"
    return None


def _is_ours(folder, name):
    path = os.path.join(folder, name)
    try:  # A pipe would be waited for.
        return os.path.isfile(path) and _FIELDS[name] in read_json(path)
    except (OSError, ValueError):
        return False


def check_output(output: str | os.PathLike | None, data: Any) -> None:
    """Raises unless an output lies outside of the folder of the data.

    Args:
        output: The folder to write, or None.
        data: The data; anything but an existing folder has no outputs in it.

    Raises:
        ValueError: If the pictures in the output would be a class of the data the next time.
    """
    if output is None or not isinstance(data, str | os.PathLike) or not os.path.isdir(data):
        return
    if (os.path.realpath(output) + os.sep).startswith(os.path.join(os.path.realpath(data), "")):
        raise ValueError(
            "The output must lie outside of the data's folder, where its pictures would become "
            f"images of a class. Received: {os.fspath(output)}, in {os.fspath(data)}"
        )
