"""Image files: in a folder for each class, or listed in a table."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit import images as image_formats
from keras_vit.description.class_labels import composed
from keras_vit.images.listing import (
    NO_FILE,
    images_below,
    is_hidden,
    is_no_file,
    leads_back,
)
from keras_vit.images.transcoding import IN_GRAPHS, LARGE, kind_of, with_pixels

from .examples import RandomAccessExamples, first_names, tf, without_autotune
from .parts import SPLITS, folder_parts, says_no_class, shared_parts
from .split_record import file_fingerprints, usable_cores
from .tables import (
    TABLE_SUFFIXES,
    LabelledFile,
    Reading,
    all_names,
    listed_files,
    read_label_table,
    sorted_classes,
)

NOT_UTF_8 = "The name is not UTF-8."  # The reason why a file cannot be opened.
NO_CLASS = "Not in the folder of a class, but beside these folders."
ARCHIVE = "An archive, which must be unpacked."
NO_ROW = "Not in the table of its folder."

_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
_TABLES_INSIDE = ("metadata.csv", "metadata.jsonl", "_classes.csv")  # Hugging Face's, Roboflow's.


class FileExamples(RandomAccessExamples):
    """Image files with labels.

    Args:
        paths: The files.
        labels: Their class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.
    """

    def __init__(self, paths: Sequence[str], labels: np.ndarray):
        super().__init__(np.asarray(paths, object), labels)

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


def list_files(
    data: pathlib.Path, root: pathlib.Path, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder or a table, and the class names.

    Args:
        data: A folder or a table; see `tables`.
        root: Folder of relative paths in a table.
        reading: Its `DataSpec` says what the folders are, and how a table is read. It receives a
            note for what is read otherwise than the words of a table or folder say, and each file
            that is left out by its name.

    Raises:
        ValueError: If it is neither, or its content has another form.
    """
    if data.is_file():
        if data.suffix.lower() not in TABLE_SUFFIXES:
            raise ValueError(
                f"Data in a file must be a table ({', '.join(TABLE_SUFFIXES)}), and an archive be "
                f"unpacked. Received: {data}"
            )
        return listed_files(read_label_table(data, reading.notes), str(data), root, reading)
    if not data.is_dir():
        raise ValueError(
            "The data must be a folder, a CSV file, tfrecords:FOLDER or tfds:NAME. "
            f"Received: {data}; there is no such folder or file"
        )
    spec = reading.spec
    parts = {} if spec.folders == "classes" else folder_parts(path.name for path in _folders(data))
    if not reading.labelled:  # All images of the folder, or of its folders of parts.
        roots: list[Any] = [(data / name, parts[name]) for name in sorted(parts)]
        if parts:
            _leave_out_images(data, reading)
        return [
            LabelledFile(path, "", part)
            for root, part in roots or [(data, None)]
            for path in _images_in(root, reading)
        ], ("",)
    return folder_files(data, reading)


def check_links(folder: pathlib.Path, paths: Iterable[str]) -> None:
    """Raises ValueError if a symbolic link in a folder leads out of it.

    Args:
        folder: The folder of the data; may be a link itself.
        paths: Files; the files that a CSV file lists may lie elsewhere.
    """
    inside, root = os.path.join(os.path.abspath(folder), ""), os.path.realpath(folder)
    folders = functools.cache(os.path.realpath)
    for path in paths:
        place, name = os.path.split(path)
        if not os.path.abspath(path).startswith(inside):
            continue  # Listed with its place.
        real = os.path.join(folders(place), name)
        real = os.path.realpath(path) if os.path.islink(path) else real
        if not real.startswith(os.path.join(root, "")):
            raise ValueError(
                "Images must lie in the folder of the data; --follow-symlinks "
                f"(follow_symlinks=True) allows links out of it. Received: {path}, which is {real}"
            )


def folder_files(
    folder: pathlib.Path, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder and its class names.

    The folder holds either a folder for each class, or folders named after parts that hold these;
    see `folder_parts`. A folder that is alone in it is entered. Folders inside a class belong to
    it. See `images_below` for what an image is. Where there are none but a table of Hugging Face's
    ImageFolder or Roboflow lies beside the images, in the folder or in those of the parts, it has
    the labels. A line in `notes` says each choice.

    Args:
        folder: The folder.
        reading: See `list_files`.

    Raises:
        ValueError: If it contains no folders of classes, or it is not sure which folders these are.
    """
    folders, notes, start = reading.spec.folders, reading.notes, folder
    if folders is None:
        folder = _entered(
            folder,
            lambda path: not folder_parts([path.name]) and not images_below(path, deep=False)[0],
            reading,
        )
    inside = _folders(folder)
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
    notes += shared_parts(name.lower() for name in parts)
    roots = inside if parts else [folder]
    tables = [path / name for path in [start, folder, *roots] for name in _TABLES_INSIDE]
    tables = [*dict.fromkeys(path for path in tables if path.is_file())]
    if tables and folders != "classes" and not any(len(_folders(root)) > 1 for root in roots):
        return _files_of_tables(folder, tables, parts, reading)
    files: list[LabelledFile] = []
    empty = []
    if parts:
        _leave_out_images(folder, reading)
    for root in roots:
        entered = root
        if parts:  # Named as the part, or as in train/images.
            entered = _entered(
                root,
                lambda path: path.name == path.parent.name or says_no_class(path.name),
                reading,
            )
        _leave_out_images(entered, reading)
        images = {path.name: _images_in(path, reading) for path in _folders(entered)}
        by_name = {name.lower(): of_class for name, of_class in images.items()}
        if by_name.get("images") and by_name.get("labels") == []:
            raise ValueError(
                "The folders images and labels of YOLO (Ultralytics) have boxes, which are not "
                "read: put the images into a folder for each class, or list them in a CSV file "
                f"path,label. Received: {printable(entered)}"
            )
        if folders is None:
            _check_levels(entered, images, parts, notes)
        empty += [entered / name for name, of_class in images.items() if not of_class]
        if parts and not images:
            notes.append(f"left out {printable(root)}: no folder of a class in it")
        files += [
            LabelledFile(path, composed(name), parts.get(root.name))
            for name, of_class in images.items()
            for path in of_class
        ]
    classes = {str(file.label) for file in files} or {composed(path.name) for path in empty}
    if len(classes) < max(1, reading.min_classes):
        others = images_below(start)[1]
        ways = [f"--data {path} reads a table" for path in others if _ends(path, TABLE_SUFFIXES)]
        ways += [f"{path} must be unpacked" for path in others if _ends(path, _ARCHIVES)]
        if ways or not classes:
            raise ValueError(
                "A data folder must hold a folder of images for each class, or train and test "
                "which hold such folders; or the data must be a CSV file path,label. Received: "
                f"{printable('; '.join([str(folder), *ways[:3]]))}"
            )
    if files:
        notes += [f"left out {printable(path)}: no images in it" for path in empty]
    for path in tables:
        _compare_labels(path, files, reading)
    return files, sorted_classes(classes)


def _files_of_tables(folder, tables, parts, reading):
    """The images of tables in a folder or in its folders of parts, and the class names."""
    listed: list[LabelledFile] = []
    for path in tables:
        table = read_label_table(path, reading.notes)
        listed += listed_files(table, str(path), path.parent, reading)[0]
    reading.notes.append(f"the labels are those of {', '.join(map(printable, tables[:3]))}")
    names = [(file, os.path.relpath(file.path, folder).split(os.sep)[0]) for file in listed]
    listed = [file._replace(split=file.split or parts.get(name)) for file, name in names]
    if any(isinstance(file.label, tuple) for file in listed):
        listed = [file._replace(label=tuple(all_names([file.label]))) for file in listed]
    known = {os.path.normpath(file.path) for file in listed}
    if len(known) < len(listed):
        raise ValueError(
            f"Tables in a folder must list each image once. Received: {printable(folder)}"
        )
    others = [path for path in _images_in(folder, reading) if os.path.normpath(path) not in known]
    reading.skipped += [(printable(path), NO_ROW) for path in others]
    return listed, sorted_classes(all_names(file.label for file in listed))


def _compare_labels(path, files, reading):
    """Notes the labels of a table in a folder of classes that differ from the folders."""
    own = {file.path: file.label for file in files}
    quiet = dataclasses.replace(reading, notes=[], skipped=[])
    try:
        listed, _ = listed_files(read_label_table(path, []), str(path), path.parent, quiet)
    except ValueError:
        return  # No table of labels.
    others = [file for file in listed if own.get(file.path, file.label) != file.label]
    if others:
        reading.notes.append(
            f"the labels are the folders; {printable(path)} has others for {len(others):,} images, "
            f"such as {others[0].label} for {printable(others[0].path)}: --data {path} reads these"
        )


def _entered(folder, may_enter, reading):
    """The folder, or the only one in it that may be entered and has folders, and so on."""
    start = folder
    while len(inside := _folders(folder)) == 1 and may_enter(inside[0]) and _folders(inside[0]):
        _leave_out_images(folder, reading)
        folder = inside[0]
    if folder != start:
        reading.notes.append(
            f"classes are looked for in {printable(folder)}, the only folder in {start.name}"
        )
    return folder


def _leave_out_images(folder, reading):
    beside, others = images_below(folder, deep=False)
    reading.skipped += [(printable(path), NO_CLASS) for path in beside]
    _leave_out(others, reading)


def _leave_out(others, reading):
    reading.skipped += [(printable(path), NO_FILE) for path in others if is_no_file(path)]
    reading.skipped += [(printable(path), ARCHIVE) for path in others if _ends(path, _ARCHIVES)]


def _ends(path, suffixes):
    return path.lower().endswith(suffixes)


def _check_levels(folder, images, parts, notes):
    """Raises ValueError if the folders in folders may be the classes; notes them otherwise."""
    inner = {
        name: {os.path.relpath(path, folder / name).rpartition(os.sep)[0] for path in of_class}
        for name, of_class in images.items()
    }
    inner = {name: {path.split(os.sep)[0] for path in found} for name, found in inner.items()}
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


def printable(path: str | os.PathLike) -> str:
    """Returns a path as text, whose bytes that are no UTF-8 are escaped."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


def undecodable(paths: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields the index of each file that cannot be decoded, with the reason, in order.

    Every file is decoded, on all cores, by TensorFlow as in training; a JPEG at an eighth of its
    size, which is enough to find a truncated file. What is neither JPEG nor PNG, or large, is
    decoded by Pillow.

    Args:
        paths: The files.
    """
    named = [place for place, path in enumerate(paths) if is_utf_8(path)]
    names = tf.constant([paths[place] for place in named], tf.string, [len(named)])
    places = tf.constant(named, tf.int64, [len(named)])
    files = tf.data.Dataset.from_tensor_slices((places, names))

    def check(index, path):
        verified = image_formats.decoding.verify_image(tf.io.read_file(path), LARGE)
        with tf.control_dependencies([verified]):
            return tf.identity(index)

    good = files.map(check, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    rest = sorted({*range(len(paths))}.difference(without_autotune(good).as_numpy_iterator()))

    def reason(place):
        if not is_utf_8(paths[place]):
            return NOT_UTF_8
        try:
            content = pathlib.Path(paths[place]).read_bytes()
            pixels = with_pixels(content, lambda pixels: pixels.size // 3)
        except (ValueError, OSError) as error:
            return str(error)
        except MemoryError:
            return "The file needs more memory than there is."
        was_decoded = kind_of(content) in IN_GRAPHS and pixels <= LARGE
        return "The file is damaged." if was_decoded else None

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = zip(rest, pool.map(reason, rest), strict=True)
        yield from ((place, reason) for place, reason in found if reason is not None)


def is_utf_8(name: str) -> bool:
    """Returns whether TensorFlow can open a file of this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _images_in(folder, reading):
    images, others = images_below(folder, follow=reading.spec.follow_symlinks)
    if linked := [path for path in others if os.path.isdir(path)]:
        raise ValueError(
            "Folders in a class must not be links; --follow-symlinks (follow_symlinks=True) reads "
            f"what they lead to. Received: {printable(linked[0])}, which is "
            f"{printable(os.path.realpath(linked[0]))}"
        )
    _leave_out(others, reading)
    return images


def _folders(folder):
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not is_hidden(path.name) and not leads_back(path)
    )
