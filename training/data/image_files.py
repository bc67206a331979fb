"""Image files: in a folder for each class, or listed in a table."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit import images as image_formats
from keras_vit.images.listing import (
    NO_FILE,
    images_below,
    is_hidden,
    is_no_file,
    is_properties,
)
from keras_vit.images.transcoding import decode_with_pillow
from keras_vit.preprocessing import TRANSCODED_SUFFIXES
from keras_vit.training.machine import usable_cores

from . import lazy_tensorflow as tf
from .examples import RandomAccessExamples, without_autotune
from .label_tables import (
    TABLE_SUFFIXES,
    LabelledFile,
    Reading,
    listed_files,
    read_label_table,
    sorted_classes,
    table_folder_files,
    tables_beside,
)
from .labels import first_names
from .outputs import PROPERTIES, reason_to_leave_out
from .parts import SPLITS, folder_parts, says_no_class
from .split_record import Contents, file_contents, file_fingerprints

NOT_UTF_8 = "The name is not UTF-8."  # The reason why a file cannot be opened.
NO_CLASS = "Not in the folder of a class, but beside these folders."


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
    data: pathlib.Path, root: pathlib.Path, spec: Any, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder or a table, and the class names.

    Args:
        data: A folder or a table; see `label_tables`.
        root: Folder of relative paths in a table.
        spec: A `DataSpec`: what the folders are, and how a table is read.
        reading: Receives a note for each folder that is left out (see `reason_to_leave_out`), and
            for what is read otherwise than the words of a table or folder say; and each file that
            is left out by its name.

    Raises:
        ValueError: If it is neither, or its content has another form.
    """
    if data.is_file():
        if data.suffix.lower() not in TABLE_SUFFIXES:
            raise ValueError(
                "Data in a file must be a CSV file, ending in .csv or .tsv, or JSON, ending in "
                f".jsonl or .json. Received: {data}"
            )
        table = read_label_table(data, reading.notes)
        return listed_files(table, str(data), root, spec, reading)
    if not data.is_dir():
        raise ValueError(
            "The data must be a folder, a CSV file, tfrecords:FOLDER or tfds:NAME. "
            f"Received: {data}; there is no such folder or file"
        )
    if not reading.labelled:
        return unlabelled_files(data, spec.folders, reading), ("",)
    names = [path.name for path in _folders(data, lambda path: False)]
    parts = {} if spec.folders == "classes" else folder_parts(names)
    if tables := tables_beside(data, parts, spec.label_column):
        reading.notes.append(f"labels from {', '.join(printable(path) for path, _ in tables)}")
        return table_folder_files(data, parts, tables, spec, reading)
    return folder_files(data, spec.folders, reading)


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
    folder: pathlib.Path, folders: str | None, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder and its class names.

    The folder holds either a folder for each class, or folders named after parts that hold these;
    see `folder_parts`. A folder that is alone in it is entered. Folders inside a class belong to
    it. See `images_below` for what an image is. A line in `notes` says each choice.

    Args:
        folder: The folder.
        folders: Whether the folders in it are "classes" or "parts"; None: by their names.
        reading: See `list_files`.

    Raises:
        ValueError: If it contains no folders of classes, or it is not sure which folders these are.
    """
    notes, skipped = reading.notes, reading.skipped

    def leave_out(path: str | os.PathLike) -> bool:
        return _leave_out(path, notes)

    if folders is None:
        folder = _entered(folder, leave_out, lambda name: not folder_parts([name]), notes)
    inside = _folders(folder, leave_out)
    parts = {} if folders == "classes" else folder_parts(path.name for path in inside)
    unknown = [path for path in inside if path.name not in parts]
    if unknown and (parts or folders == "parts"):
        raise ValueError(
            f"Next to train and test there must be no other folder: {unknown[0].name} must be "
            "named after a part, moved away, or be a class as all others (--folders classes). "
            f"Received: {printable(unknown[0])}"
        )
    named = [f"{name} is {part}" for name, part in parts.items() if name.lower() not in SPLITS]
    notes += [f"parts by the names of folders: {', '.join(named)}"] if named else []
    files: list[LabelledFile] = []
    empty = []
    for root in inside if parts else [folder]:
        entered = root
        if parts:  # As training_set/training_set and train/images.
            entered = _entered(root, leave_out, _is_no_class(root.name), notes, skipped)
        images = {
            path.name: _images_in(path, leave_out, skipped) for path in _folders(entered, leave_out)
        }
        _check_boxes(entered, images)
        if folders is None:
            _check_levels(entered, images, parts, notes)
        skipped += [(printable(path), NO_CLASS) for path in images_below(entered, _every)[0]]
        empty += [entered / name for name, of_class in images.items() if not of_class]
        files += [
            LabelledFile(path, name, parts.get(root.name))
            for name, of_class in images.items()
            for path in of_class
        ]
    classes = {str(file.label) for file in files} or {path.name for path in empty}
    if not classes:
        are_classes = f" (--folders classes: {', '.join(parts)} are the classes)" if parts else ""
        beside = [path for path, reason in skipped if reason == NO_CLASS]
        raise ValueError(
            "A data folder must hold a folder of images for each class, or train and test which "
            f"hold such folders{are_classes}; or the data must be a CSV file path,label. "
            f"Received: {folder}"
            + (f", with {len(beside)} images in no folder of a class" if beside else "")
        )
    if files:
        notes += [f"left out {printable(path)}: no images in it" for path in empty]
    return files, sorted_classes(classes)


def _every(path):
    return True


def _is_no_class(part):
    return lambda name: name == part or says_no_class(name)


def _entered(folder, leave_out, may_enter, notes, skipped=None):
    """The folder, or the only one in it that may be entered and has folders, and so on.

    With `skipped` names decide, and images beside are left out; else there must be none.
    """
    start = folder
    while True:
        inside = _folders(folder, leave_out)
        if len(inside) != 1 or not may_enter(inside[0].name) or not _folders(inside[0], leave_out):
            break
        beside = images_below(folder, _every)[0]
        if skipped is None and (beside or images_below(inside[0], _every)[0]):
            break
        if skipped is not None:
            skipped += [(printable(path), NO_CLASS) for path in beside]
        folder = inside[0]
    if folder != start:
        notes.append(
            f"classes are looked for in {printable(folder)}, the only folder in {start.name}"
        )
    return folder


def _check_boxes(folder, images):
    """Raises ValueError where folders are no classes, but images and files of their boxes."""
    by_name = {name.lower(): of_class for name, of_class in images.items()}
    if by_name.get("images") and by_name.get("labels") == []:
        raise ValueError(
            "The folders images and labels of YOLO (Ultralytics) have boxes, which are not read: "
            "put the images into a folder for each class, or list them in a CSV file path,label. "
            f"Received: {printable(folder)}"
        )


def _check_levels(folder, images, parts, notes):
    """Raises ValueError if the folders in folders may be the classes; notes them otherwise."""
    inner = {
        name: {
            os.path.relpath(path, folder / name).rpartition(os.sep)[0].split(os.sep)[0]
            for path in of_class
        }
        for name, of_class in images.items()
    }
    only_folders = {name: found for name, found in inner.items() if found and "" not in found}
    counts = collections.Counter(name for found in only_folders.values() for name in found)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if len(repeated) > 1:
        outer = ", ".join(sorted(only_folders)[:3])
        way = "--folders parts" if parts else "--folders classes"
        raise ValueError(
            "Folders of classes must not hold folders of the same names. If the classes are "
            f"{outer}, give {way}; if they are {', '.join(repeated[:3])}, put those into folders "
            "train and test, or list the images in a CSV file path,label,split. "
            f"Received: {printable(folder)}"
        )
    if deeper := [f"{name}/{found}" for name in inner for found in sorted(inner[name] - {""})]:
        notes.append(f"folders in a class belong to it: {first_names(deeper, 3)}")


def unlabelled_files(
    folder: pathlib.Path, folders: str | None, reading: Reading
) -> list[LabelledFile]:
    """Returns all images of a folder and its subfolders, with the label "".

    If it holds folders named after splits, only the images in these. Arguments are as for
    `folder_files`.
    """

    def leave_out(path: str | os.PathLike) -> bool:
        return _leave_out(path, reading.notes)

    names = [path.name for path in _folders(folder, lambda path: False)]
    parts = {} if folders == "classes" else folder_parts(names)
    roots: dict[pathlib.Path, str | None] = {folder: None}
    if parts:
        roots = {folder / name: part for name, part in sorted(parts.items())}
    return [
        LabelledFile(path, "", part)
        for root, part in roots.items()
        for path in _images_in(root, leave_out, reading.skipped)
    ]


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
    skipped += [(printable(path), NO_FILE) for path in others if is_no_file(path)]
    return images


def _leave_out(path, notes):
    reason = reason_to_leave_out(path)
    line = f"left out {printable(path)}: {reason}"
    if reason is not None and line not in notes:
        notes.append(line)
    return reason is not None


def _folders(folder, leave_out):
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not is_hidden(path.name) and not leave_out(path)
    )
