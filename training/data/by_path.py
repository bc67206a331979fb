"""Image files of a folder that are read, and their classes, both by their paths."""

from __future__ import annotations

import fnmatch
import os

from keras_vit.description.class_labels import composed

from .examples import first_names
from .path_patterns import texts_in_paths
from .tables import LabelledFile, Reading

NO_CLASS_IN_PATH = "No class in its path by --label-by."


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
