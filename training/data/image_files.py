"""Image files: in a folder for each class, or listed in a table."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit import images as image_formats
from keras_vit.images.listing import images_below, is_hidden, is_properties
from keras_vit.images.pillow_decoding import decode_with_pillow
from keras_vit.preprocessing import TRANSCODED_SUFFIXES
from keras_vit.training.machine import usable_cores

from . import lazy_tensorflow as tf
from .examples import RandomAccessExamples, without_autotune
from .label_tables import (
    TABLE_SUFFIXES,
    Columns,
    LabelledFile,
    csv_files,
    sorted_classes,
    table_folder_files,
    tables_beside,
)
from .outputs import PROPERTIES, reason_to_leave_out
from .parts import folder_parts
from .split_record import Contents, file_contents, file_fingerprints

NOT_UTF_8 = "The name is not UTF-8."  # The reason why a file cannot be opened.


class FileExamples(RandomAccessExamples):
    """Image files with labels.

    Args:
        paths: The files.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
        transcode: Whether there may be files that are neither JPEG nor PNG; by default if a path
            ends like them.
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

    def encoded(self) -> Iterator[tuple[bytes, Any]]:
        for path, label in zip(self.names, self.labels, strict=True):
            yield pathlib.Path(path).read_bytes(), label

    def fingerprints(self) -> np.ndarray:
        return file_fingerprints(self.names)

    def contents(self) -> Contents:
        return file_contents(self.names)


def list_files(
    data: pathlib.Path,
    data_dir: str | os.PathLike | None = None,
    *,
    labelled: bool,
    task: str | None,
    notes: list[str],
    skipped: list[tuple[str, str]],
    columns: Columns,
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder or a table, and the class names.

    Args:
        data: A folder or a table; see `label_tables`.
        data_dir: Folder of relative paths in a CSV file; by default the file's.
        labelled: Whether a folder must have a folder for each class.
        task: As for `csv_files`.
        notes: Receives a line for each folder that is left out; see `reason_to_leave_out`.
        skipped: Receives the path and the reason of each file that is left out by its name.
        columns: The columns of a table to take.

    Raises:
        ValueError: If it is neither, or its content has another form.
    """
    if data.is_file():
        if data.suffix.lower() not in TABLE_SUFFIXES:
            raise ValueError(
                "Data in a file must be a CSV file, ending in .csv, or JSON lines, ending in "
                f".jsonl. Received: {data}"
            )
        files, classes = csv_files(data, pathlib.Path(data_dir or data.parent), task, columns)
    elif not data.is_dir():
        raise ValueError(
            "The data must be a folder, a CSV file, tfrecords:FOLDER or tfds:NAME. "
            f"Received: {data}; there is no such folder or file"
        )
    elif labelled:
        parts = folder_parts(path.name for path in _folders(data, lambda path: False))
        tables = tables_beside(data, parts, columns.label)
        if tables:
            files, classes = table_folder_files(data, parts, tables, task, columns)
            notes.append(f"labels from {', '.join(printable(path) for path, _ in tables)}")
        else:
            files, classes = folder_files(data, notes, skipped)
    else:
        files, classes = unlabelled_files(data, notes, skipped)
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


def folder_files(
    folder: pathlib.Path, notes: list[str], skipped: list[tuple[str, str]]
) -> tuple[list[LabelledFile], list[str]]:
    """Returns the images of a folder and its class names, including empty classes.

    The folder holds either a folder for each class, or folders named after splits that hold
    these. Folders inside a class belong to it. See `images_below` for what an image is.

    Args:
        folder: The folder.
        notes: See `list_files`.
        skipped: See `list_files`.

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
                for path in _images_in(class_folder, leave_out, skipped)
            ]
    if not classes:
        raise ValueError(
            "A data folder must hold a folder of images for each class, or train and test which "
            f"hold such folders. Received: {folder}"
        )
    return files, sorted_classes(classes)


def unlabelled_files(
    folder: pathlib.Path, notes: list[str], skipped: list[tuple[str, str]]
) -> tuple[list[LabelledFile], list[str]]:
    """Returns all images of a folder and its subfolders, with the label "".

    If it holds folders named after splits, only the images in these.

    Args:
        folder: The folder.
        notes: See `list_files`.
        skipped: See `list_files`.
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
        for path in _images_in(root, leave_out, skipped)
    ]
    return files, [""]


def printable(path: str | os.PathLike) -> str:
    """Returns a path as text, whose bytes that are no UTF-8 are escaped."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def undecodable(
    paths: Sequence[str], *, by_pillow: bool = False
) -> Iterator[tuple[int, str | None]]:
    """Yields the index of each file that TensorFlow cannot decode, with the reason, in order.

    The reason is None for a file of another format that Pillow can read. Every file is
    decoded, on all cores; a JPEG at an eighth of its size, which is enough to find a
    truncated file.

    Args:
        paths: The files.
        by_pillow: Whether Pillow decodes them all, without TensorFlow, as `pixel_batches` does.
    """
    if by_pillow:
        reasons = decoding_errors(paths, by_pillow=True)
        yield from ((place, reason) for place, reason in enumerate(reasons) if reason is not None)
        return
    named = [place for place, path in enumerate(paths) if is_utf_8(path)]
    names = tf.constant([paths[place] for place in named], tf.string, [len(named)])
    places = tf.constant(named, tf.int64, [len(named)])
    files = tf.data.Dataset.from_tensor_slices((places, names))

    def check(index, path):
        with tf.control_dependencies([image_formats.decoding.verify_image(tf.io.read_file(path))]):
            return tf.identity(index)

    good = files.map(check, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    decoded = np.zeros(len(paths), bool)
    decoded[list(without_autotune(good).as_numpy_iterator())] = True
    rest = np.flatnonzero(~decoded).tolist()
    yield from zip(rest, decoding_errors([paths[place] for place in rest]), strict=True)


def decoding_errors(paths: Sequence[str], *, by_pillow: bool = False) -> Iterator[str | None]:
    """Yields for each file the reason why it cannot be read, or None if it can.

    Args:
        paths: The files.
        by_pillow: See `undecodable`.
    """
    read = read_with_pillow if by_pillow else image_formats.decoding.read_image

    def reason(path):
        if not is_utf_8(path):
            return NOT_UTF_8
        try:
            read(path)
        except (ValueError, OSError) as error:
            return str(error)
        return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        yield from pool.map(reason, paths)


def is_utf_8(name: str) -> bool:
    """Returns whether TensorFlow can open a file of this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_with_pillow(path: str) -> np.ndarray:
    """Returns an image file's pixels as `images.decoding.read_image` does, without TensorFlow."""
    return decode_with_pillow(pathlib.Path(path).read_bytes())


def _is_transcoded(path):
    return os.path.splitext(path)[1].lower() in TRANSCODED_SUFFIXES


def _images_in(folder, leave_out, skipped):
    images, others = images_below(folder, leave_out)
    skipped += [(printable(path), PROPERTIES) for path in others if is_properties(path)]
    return images


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
