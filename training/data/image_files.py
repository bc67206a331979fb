"""Image files: a folder of classes, or a CSV file of paths and labels."""

from __future__ import annotations

import csv
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.description.tasks import MULTILABEL, SEPARATOR
from keras_vit.images.decoding import images_below, is_hidden, read_image, verify_image
from keras_vit.preprocessing import TRANSCODED_SUFFIXES
from keras_vit.training.machine import usable_cores

from .examples import RandomAccessExamples, without_autotune
from .outputs import reason_to_leave_out
from .parts import SPLITS, folder_parts
from .split_record import file_fingerprints

_FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True}  # pandas writes floats.


class LabelledFile(NamedTuple):
    """An image file with its label; `split` is None for data without splits.

    The labels of a multi-label image are a tuple, which may be empty. `group` is the text of a
    table's column of groups.
    """

    path: str
    label: str | tuple[str, ...]
    split: str | None
    group: str | None = None


class FileExamples(RandomAccessExamples):
    """Image files with labels.

    Args:
        paths: The files.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        transcode: Whether there may be TIFF, AVIF or HEIC files; by default if a path ends
            like them.
    """

    def __init__(self, paths: Sequence[str], labels: np.ndarray, transcode: bool | None = None):
        super().__init__(np.asarray(paths, object), labels)
        self.transcode = any(map(_is_transcoded, paths)) if transcode is None else transcode

    @property
    def names(self) -> list[str]:
        return self.keys.tolist()

    def read(self, handle: Any) -> tuple[tf.Tensor, tf.Tensor]:
        path, label = handle
        return tf.io.read_file(path), label

    def fingerprints(self) -> np.ndarray:
        return file_fingerprints(self.names)


def list_files(
    data: pathlib.Path,
    data_dir: str | os.PathLike | None = None,
    *,
    labelled: bool,
    task: str | None,
    notes: list[str],
    group_by: str | None = None,
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder or a CSV file, and the class names.

    Args:
        data: A folder or a CSV file.
        data_dir: Folder of relative paths in a CSV file; by default the file's.
        labelled: Whether a folder must have a folder for each class.
        task: As for `csv_files`.
        notes: Receives a line for each folder that is left out; see `reason_to_leave_out`.
        group_by: The column of a CSV file that names the group of an image, if it has one of this
            name.

    Raises:
        ValueError: If it is neither, or its content has another form.
    """
    if data.is_file():
        if data.suffix.lower() != ".csv":
            raise ValueError(f"Data in a file must be a CSV file, ending in .csv. Received: {data}")
        files, classes = csv_files(data, pathlib.Path(data_dir or data.parent), task, group_by)
    elif not data.is_dir():
        raise ValueError(
            "The data must be a folder, a CSV file, tfrecords:FOLDER or tfds:NAME. "
            f"Received: {data}; there is no such folder or file"
        )
    elif labelled:
        files, classes = folder_files(data, notes)
    else:
        files, classes = unlabelled_files(data, notes)
    return files, tuple(classes)


def check_links(folder: pathlib.Path, paths: Iterable[str]) -> None:
    """Raises ValueError if a symbolic link in a folder leads out of it.

    Args:
        folder: The folder of the data; may be a link itself.
        paths: Files; the files that a CSV file lists may lie elsewhere.
    """
    inside, root = os.path.join(os.path.abspath(folder), ""), os.path.realpath(folder)
    places: dict[str, str] = {}
    for path in paths:
        if not os.path.abspath(path).startswith(inside):
            continue  # Listed with its place.
        place, name = os.path.split(path)
        if place not in places:
            places[place] = os.path.realpath(place)
        real = os.path.join(places[place], name)
        real = os.path.realpath(real) if os.path.islink(real) else real
        if not real.startswith(os.path.join(root, "")):
            raise ValueError(
                "Images must lie in the folder of the data; --follow-symlinks "
                f"(DataSpec(follow_symlinks=True)) allows links out of it. Received: {path}, "
                f"which is {real}"
            )


def folder_files(folder: pathlib.Path, notes: list[str]) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images of a folder and its class names, including empty classes.

    The folder holds either a folder for each class, or folders named after splits that hold
    these. Folders inside a class belong to it. See `images_below` for what an image is.

    Args:
        folder: The folder.
        notes: See `list_files`.

    Raises:
        ValueError: If it contains no folders.
    """

    def leave_out(path: str | os.PathLike) -> bool:
        return _leave_out(path, notes)

    inside = _folders(folder, leave_out)
    parts = folder_parts(path.name for path in inside)
    files, classes = [], []
    for root in inside if parts else [folder]:
        split = parts.get(root.name) if parts else None
        if split is None and parts:
            raise ValueError(
                "Next to train and test there must be no other folder: are they classes? "
                f"Received: {root}"
            )
        for class_folder in _folders(root, leave_out) if parts else inside:
            classes.append(class_folder.name)
            files += [
                LabelledFile(path, class_folder.name, split)
                for path in images_below(class_folder, leave_out)[0]
            ]
    if not classes:
        raise ValueError(
            "A data folder must hold a folder of images for each class, or train and test which "
            f"hold such folders. Received: {folder}"
        )
    return files, sorted_classes(classes)


def unlabelled_files(
    folder: pathlib.Path, notes: list[str]
) -> tuple[list[LabelledFile], list[str]]:
    """Returns all images of a folder and its subfolders, with the label "".

    If it holds folders named after splits, only the images in these.

    Args:
        folder: The folder.
        notes: See `list_files`.
    """

    def leave_out(path: str | os.PathLike) -> bool:
        return _leave_out(path, notes)

    parts = folder_parts(path.name for path in _folders(folder, lambda path: False))
    roots: dict[pathlib.Path, str | None] = {folder: None}
    if parts:
        roots = {folder / name: part for name, part in sorted(parts.items())}
    files = [
        LabelledFile(path, "", part)
        for root, part in roots.items()
        for path in images_below(root, leave_out)[0]
    ]
    return files, [""]


def csv_files(
    path: pathlib.Path, root: pathlib.Path, task: str | None = None, group_by: str | None = None
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images listed in a CSV file, and its class names.

    Args:
        path: The file. Its first line names the columns, in any order: `path`, `label`, and if
            there are splits `split`. A `;` separates the labels of a multi-label image, in
            all rows; an image without labels has an empty cell. Or `path`, a column with 0
            or 1 for each class instead of `label`, and `split`.
        root: Folder of relative paths.
        task: "multilabel" for multi-label data in which every image has exactly one label; by
            default as the file shows it.
        group_by: See `list_files`.

    Raises:
        ValueError: If a column, value or file is missing, a split unknown, or a path listed
            twice; if a file may have either form.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be a CSV file in UTF-8. {error}") from error
    columns = list(reader.fieldnames or ()) if rows else []
    return listed_files(rows, columns, root, task, table=str(path), first_row=2, group_by=group_by)


def listed_files(
    rows: Sequence[Mapping[Any, Any]],
    columns: Sequence[str],
    root: pathlib.Path,
    task: str | None,
    *,
    table: str,
    first_row: int,
    group_by: str | None = None,
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images listed in the rows of a table, and its class names.

    Args:
        rows: The text of each cell by the column's name.
        columns: Names of the columns, as in `csv_files`.
        root: Folder of relative paths.
        task: As for `csv_files`.
        table: Name of the table, for errors.
        first_row: Number of the first row, for errors.
        group_by: See `list_files`.

    Raises:
        ValueError: As `csv_files` raises it.
    """
    classes = [name for name in columns if name not in ("path", "label", "split", group_by)]
    if "path" not in columns or not ("label" in columns or classes):
        raise ValueError(
            f"{table} must have the columns path,label or path,label,split, or path and a column "
            f"of 0 and 1 for each class, and rows. Received: columns {list(columns)}"
        )
    if "label" in columns:
        if classes and task is None and _are_flags(rows, ["label", *classes]):
            raise ValueError(
                f"{table} has a column label and other columns, all of 0 and 1: give --task "
                "multiclass (task=) if label holds the class, else rename it. "
                f"Received: columns {columns}"
            )
        several = task == MULTILABEL or any(SEPARATOR in (row["label"] or "") for row in rows)
        labels = [_names(row["label"], several) for row in rows]
    else:
        labels = [
            _flagged(table, number, row, classes) for number, row in enumerate(rows, first_row)
        ]
    files: dict[str, LabelledFile] = {}
    for number, (row, label) in enumerate(zip(rows, labels, strict=True), first_row):
        name = (row["path"] or "").strip()
        split = SPLITS.get((row["split"] or "").strip().lower()) if "split" in row else None
        if not name or label == "" or ("split" in row and split is None):
            raise ValueError(
                f"Each row of {table} must have a path, a label (--task multilabel allows none) "
                f"and, if there is such a column, a split ({', '.join(SPLITS)}). "
                f"Received in row {number}: {dict(row)}"
            )
        image = str(root / name)
        if image in files:
            raise ValueError(f"{table} must list each file once. Received in row {number}: {image}")
        if not os.path.isfile(image):
            raise ValueError(f"{table}, row {number}: no such file: {image}")
        group = (row[group_by] or "").strip() if group_by in columns else None
        files[image] = LabelledFile(image, label, split, group)
    if "label" in columns:
        classes = [name for label in labels for name in ((label,) if type(label) is str else label)]
    return list(files.values()), sorted_classes(classes)


def _names(cell, several):
    """The label of a cell, or with several its labels."""
    names = (cell or "").strip()
    if not several:
        return names
    return tuple(dict.fromkeys(filter(None, map(str.strip, names.split(SEPARATOR)))))


def _are_flags(rows, columns):
    return all((row[name] or "").strip() in _FLAGS for row in rows for name in columns)


def _flagged(table, number, row, classes):
    """The classes whose column has a 1 in a row."""
    flags = {name: _FLAGS.get((row[name] or "").strip()) for name in classes}
    wrong = [name for name in classes if flags[name] is None]
    if wrong or None in row or len(flags) != len(classes):
        raise ValueError(
            f"Without a column label, {table} must have 0 or 1 in a column for each class, each "
            f"class once. Received in row {number}: {dict(row)}"
        )
    return tuple(name for name in classes if flags[name])


def printable(path: str | os.PathLike) -> str:
    """Returns a path as text, whose bytes that are no UTF-8 are escaped."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Returns the different class names: in numerical order if all are numbers, else sorted."""
    names = set(names)
    numbers = all(name.isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbers else sorted(names)


def undecodable(paths: Sequence[str]) -> Iterator[tuple[int, str | None]]:
    """Yields the index of each file that TensorFlow cannot decode, with the reason, in order.

    The reason is None for a TIFF, AVIF or HEIC file that Pillow can read. Every file is
    decoded, on all cores; a JPEG at an eighth of its size, which is enough to find a
    truncated file.
    """
    files = tf.data.Dataset.from_tensor_slices(tf.constant(paths, tf.string, [len(paths)]))

    def check(index, path):
        with tf.control_dependencies([verify_image(tf.io.read_file(path))]):
            return tf.identity(index)

    good = files.enumerate().map(check, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    decoded = np.zeros(len(paths), bool)
    decoded[list(without_autotune(good).as_numpy_iterator())] = True
    rest = np.flatnonzero(~decoded).tolist()
    yield from zip(rest, decoding_errors([paths[place] for place in rest]), strict=True)


def decoding_errors(paths: Sequence[str]) -> Iterator[str | None]:
    """Yields for each file the reason why it cannot be read, or None if it can."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(_decoding_error, paths)


def _decoding_error(path: str) -> str | None:
    try:
        read_image(path)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _is_transcoded(path):
    return os.path.splitext(path)[1].lower() in TRANSCODED_SUFFIXES


def _leave_out(path, notes):
    reason = reason_to_leave_out(path)
    if reason is not None:
        notes.append(f"left out {printable(path)}: {reason}")
    return reason is not None


def _folders(folder, leave_out):
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not is_hidden(path.name) and not leave_out(path)
    )
