"""Paths of images: the files that are read by them, their classes and their groups."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from keras_vit.description.class_labels import composed
from keras_vit.utils.safe_text import first_names

from .tables import LabelledFile, Reading

NO_CLASS_IN_PATH = "No class in its path by --label-by."

# A search of Python's cannot be stopped from another thread, and a run's record may have an
# expression without an end: a separate process can be ended.
_SECONDS = 30
_SEARCH = """
import json, re, sys

wanted = json.load(sys.stdin)
try:
    pattern = re.compile(wanted["pattern"])
except (re.error, OverflowError, RecursionError) as error:
    found = str(error)
else:
    matches = map(pattern.search, wanted["names"])
    found = [match and match[1 if pattern.groups else 0] for match in matches]
json.dump(found, sys.stdout)
"""


def only_matching(files: list[LabelledFile], reading: Reading) -> list[LabelledFile]:
    """Returns the files whose name matches `only`, in any case; a note counts the others."""
    pattern = reading.spec.only
    if pattern is None:
        return files
    kept = [file for file in files if _matches(file.path, pattern.lower())]
    if not kept:
        raise ValueError(
            f"--only (only=) must match the names of some images. Received: {pattern!r}, of "
            f"{len(files):,} images such as {first_names([file.path for file in files], 3)}"
        )
    if len(kept) < len(files):
        reading.notes.append(f"{len(files) - len(kept):,} images are left out by --only {pattern}")
    return kept


def _matches(path, pattern):
    return fnmatch.fnmatchcase(os.path.basename(path).lower(), pattern)


def labelled_by_path(files: list[LabelledFile], reading: Reading) -> list[LabelledFile]:
    """Returns the files with the classes that `label_by` finds in their paths.

    Raises:
        ValueError: If the regular expression is wrong, or no path has a class.
    """
    pattern, names = reading.spec.label_by, reading.spec.relative_names(f.path for f in files)
    reason = f"no class in any of {len(files)} paths such as {first_names(names, 3)}"
    try:
        labels = texts_in_paths(str(pattern), names)
    except ValueError as error:
        labels, reason = [], str(error)
    labelled = []
    for file, label in zip(files, labels, strict=False):
        if label and label.strip():
            labelled.append(file._replace(label=composed(label.strip())))
        else:
            reading.skipped.append((file.path, NO_CLASS_IN_PATH))
    if not labelled:
        raise ValueError(
            "--label-by (label_by=) must be a regular expression that finds a class in some paths. "
            f"Received: {pattern!r}; {reason}"
        )
    return labelled


def labelled_by_folder(files: list[LabelledFile], reading: Reading) -> list[LabelledFile]:
    """Returns the files with the folders that they lie in as their classes.

    Raises:
        ValueError: If folders of the same name in one part lie in different ones.
    """
    above: dict[tuple[str | None, str], str] = {}
    labelled = []
    for file in files:
        folder, name = os.path.split(os.path.dirname(file.path))
        first = above.setdefault((file.split, name), folder)
        if first != folder:
            raise ValueError(
                "The innermost folders are the classes (--folders innermost) and must have "
                "different names; --label-by REGEX finds classes in whole paths. Received: "
                f"{name} in {first} and in {folder}"
            )
        labelled.append(file._replace(label=composed(name)))
    return labelled


def texts_of_groups(group_by: str, names: Sequence[str]) -> list[str | None]:
    """Returns what names the group of each image in its path; None for none. As `group_of`."""
    try:
        return texts_in_paths(group_by, names)
    except ValueError as error:
        raise _no_groups(group_by, error) from error


def _no_groups(group_by, reason):
    return ValueError(
        "--group-by (group_by=) must be a column of the table, or a regular expression that "
        f"some paths match. Received: {group_by!r}; {reason}"
    )


def group_of(
    group_by: str, names: Sequence[str], texts: Sequence[str | None] | None = None
) -> tuple[np.ndarray, int]:
    """Returns the group of each image, and how many images lack the information.

    An image without the information is a group of one.

    Args:
        group_by: Without `texts`, a regular expression that is searched in the names: the group is
            its first capture group, or the whole match.
        names: The images; paths relative to the data.
        texts: The text that names the group of each image; None for none.

    Returns:
        Numbers from 0 in the order of their first image, int64 `(N,)`, and the count.

    Raises:
        ValueError: If the regular expression is wrong, or no image has the information.
    """
    if texts is None:
        texts = texts_of_groups(group_by, names)
    alone = sum(text is None for text in texts)
    if alone == len(texts):
        raise _no_groups(group_by, f"none of {len(names)} images has a group, such as {names[0]}")
    numbers: dict = {}
    keys = [index if text is None else text for index, text in enumerate(texts)]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], "int64"), alone


def texts_in_paths(pattern: str, names: Sequence[str]) -> list[str | None]:
    """Returns what a regular expression finds in each path; None where it does not match.

    Args:
        pattern: The expression: its first capture group counts, or the whole match without one.
        names: Paths relative to the data.

    Raises:
        ValueError: If the expression is wrong, or has not ended in `_SECONDS`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _SEARCH],
            input=json.dumps({"pattern": pattern, "names": [*names]}),
            capture_output=True,
            check=True,
            text=True,
            encoding="utf-8",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"it has not ended in {_SECONDS} seconds, such as of repeats in repeats"
        ) from error
    found = json.loads(done.stdout)
    if isinstance(found, str):
        raise ValueError(found)
    return found
