"""Image files with their labels, of a folder or a table: which are read, and which are skipped."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable

import numpy as np

from keras_vit.images.listing import images_below, only_others
from keras_vit.utils.safe_text import first_names, for_line

from . import parts
from .class_folders import folder_files
from .corrections import corrected_files
from .examples import Examples, multi_hot
from .image_files import (
    NOT_UTF_8,
    FileExamples,
    check_links,
    is_utf_8,
    mask_notes,
    printable,
    verify_files,
)
from .tables import (
    LabelledFile,
    Reading,
    all_names,
    check_listed_once,
    listed_files,
    read_label_table,
)


def labelled_files(reading: Reading) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the image files of a folder or a table with their labels, and the class names.

    Raises:
        ValueError: If the data, or a table of corrections, are not of the documented forms.
    """
    spec, root = reading.spec, pathlib.Path(reading.spec.root)
    if os.path.isdir(spec.data):
        files, class_names = folder_files(pathlib.Path(spec.data), reading)
    else:
        table = read_label_table(pathlib.Path(spec.data))
        files, class_names = listed_files(table, spec.data, root, reading)
    files = corrected_files(files, class_names, reading)
    if not spec.follow_symlinks:
        check_links(spec.root, (file.path for file in files))
    if not os.path.isdir(spec.data):
        check_listed_once(files, spec.data)
    return files, class_names


def no_images(data: str, skipped: Iterable[str] = ()) -> ValueError:
    """Returns the error of data without images, with the reasons why files were skipped."""
    reason = only_others(images_below(data)[1]) if os.path.isdir(data) else ""
    if lines := [*skipped]:
        reason = "; " + "; ".join(lines)
    return ValueError(f"There must be images in the data. Received: {data}, none{reason}")


def open_files(reading: Reading) -> tuple[tuple[str, ...], dict[str, Examples]]:
    """Returns the class names, and the images in the parts of the data.

    Raises:
        ValueError: As `labelled_files`; or if there are no images, or a class has none in a part.
    """
    files, class_names = labelled_files(reading)
    files = _readable(files, reading)
    lines = describe_skipped(reading.skipped, names=3)[:3]
    if not files:
        raise no_images(str(reading.spec.data), lines)
    if os.path.isdir(reading.spec.data):
        paths = [file.path for file in files]
        reading.notes += mask_notes(paths, decodes=reading.verify)
    class_names = tuple(filter(is_utf_8, class_names))
    numbers = {name: number for number, name in enumerate(class_names)}
    files_by_part: dict[str, list[LabelledFile]] = {}
    for file in files:
        files_by_part.setdefault(file.split or "train", []).append(file)
    is_multilabel = any(isinstance(file.label, tuple) for file in files)
    splits: dict[str, Examples] = {}
    for part, inside in files_by_part.items():
        rows = [[numbers[name] for name in all_names([file.label])] for file in inside]
        labels = multi_hot(rows, len(numbers)) if is_multilabel else np.concatenate(rows)
        splits[part] = FileExamples([file.path for file in inside], labels)
    if reading.labelled and reading.min_classes:
        parts.check_classes(splits, class_names, more="".join(f"; {line}" for line in lines))
    return class_names, splits


def _readable(files, reading):
    """The files that can be read; others are left out with the reason, or raise ValueError."""
    paths = [file.path for file in files]
    if reading.verify:
        reasons, reading.largest_value = verify_files(paths)
    else:
        reasons = {n: NOT_UTF_8 for n, path in enumerate(paths) if not is_utf_8(path)}
    for index, reason in reasons.items():
        path = printable(paths[index])
        if reading.spec.strict:
            raise ValueError(f"{path} cannot be decoded. {reason}")
        reading.skipped.append((path, reason))
    return [file for index, file in enumerate(files) if index not in reasons]


def describe_skipped(skipped: Iterable[tuple[str, str]], names: int = 10) -> list[str]:
    """Returns a line for each reason why files were skipped, with their number and names.

    Args:
        skipped: `(path, reason)`.
        names: Largest number of names in a line.
    """
    by_reason: dict[str, list[str]] = {}
    for path, reason in skipped:
        by_reason.setdefault(reason, []).append(path)
    return [
        for_line(
            f"skipped {len(paths):,} files: {reason} Files: {first_names(paths, names)}"
            if len(paths) > 1
            else f"skipped {paths[0]}: {reason}"
        )
        for reason, paths in by_reason.items()
    ]
