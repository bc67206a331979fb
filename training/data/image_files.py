"""Image files: in a folder for each class, or listed in a table."""

from __future__ import annotations

import collections
import functools
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from keras_vit import images as image_formats
from keras_vit.description.class_labels import composed
from keras_vit.images.listing import (
    NO_FILE,
    has_image_suffix,
    images_below,
    is_hidden,
    is_no_file,
    leads_back,
)
from keras_vit.images.transcoding import IN_GRAPHS, LARGE, kind_of, with_pixels
from keras_vit.utils.files import TABLE_SUFFIXES

from .by_path import labelled_by_folder, labelled_by_path, only_matching
from .content import file_fingerprints, file_pixel_fingerprints, usable_cores
from .examples import (
    Handle,
    RandomAccessExamples,
    first_names,
    sorted_classes,
    tf,
    unconverted,
    without_autotune,
)
from .parts import SPLITS, folder_parts
from .spec import INNERMOST
from .tables import (
    LabelledFile,
    Reading,
)

NOT_UTF_8 = "The name is not UTF-8."  # The reason why a file cannot be opened.
NO_CLASS = "Not in the folder of a class, but next to these folders."
ARCHIVE = "An archive, which must be unpacked."

_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")


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

    def read(self, handle: Handle) -> tuple[tf.Tensor, tf.Tensor]:
        path, label = handle
        return tf.io.read_file(path), label

    def encoded(self) -> Iterator[tuple[bytes, int | np.ndarray]]:
        for path, label in zip(self.names, self.labels, strict=True):
            yield pathlib.Path(path).read_bytes(), label

    def fingerprints(self) -> np.ndarray:
        return file_fingerprints(self.names)

    def pixel_fingerprints(self) -> np.ndarray:
        return file_pixel_fingerprints(self.names)


def check_links(folder: str | os.PathLike, paths: Iterable[str]) -> None:
    """Raises ValueError if a symbolic link in a folder leads out of it.

    Args:
        folder: The folder of the data; may be a link itself.
        paths: Files; the files that a CSV file lists may lie elsewhere.
    """
    inside = os.path.join(os.path.abspath(folder), "")
    real_inside = os.path.join(os.path.realpath(folder), "")
    real_folder = functools.cache(os.path.realpath)
    for path in paths:
        if os.path.islink(path):
            real = os.path.realpath(path)
        else:
            real = os.path.join(real_folder(os.path.dirname(path)), os.path.basename(path))
        if os.path.abspath(path).startswith(inside) and not real.startswith(real_inside):
            raise ValueError(
                "Images must lie in the folder of the data; --follow-symlinks "
                f"(follow_symlinks=True) allows links out of it. Received: {path}, which is {real}"
            )


def folder_files(
    folder: pathlib.Path, reading: Reading
) -> tuple[list[LabelledFile], tuple[str, ...]]:
    """Returns the images of a folder and its class names.

    The folder holds either a folder for each class, or folders named after parts that hold these;
    see `folder_parts`. Folders inside a class belong to it, and a line in `notes` says so. See
    `images_below` for what an image is. Without labels, all images of the folder, or of its
    folders of parts, are in one class.

    Args:
        folder: The folder.
        reading: Its `DataSpec` says what the folders are. It receives notes on them, and each
            file that is left out by its name.

    Raises:
        ValueError: If it contains no folders of classes, or it is not sure which folders these are.
    """
    _check_not_around(folder, reading)
    parts = _parts_of(folder, reading)
    roots = [folder / name for name in sorted(parts)] or [folder]
    if parts:
        _leave_out_images(folder, reading)
    files: list[LabelledFile] = []
    names: list[str] = []
    for root in roots:
        for name, images in _images_by_class(root, parts, reading).items():
            files += [LabelledFile(image, name, parts.get(root.name)) for image in images]
            names.append(name)
    files = only_matching(files, reading)
    if not reading.labelled:
        return files, ("",)
    if reading.spec.label_by is not None:
        files = labelled_by_path(files, reading)
    elif reading.spec.folders == INNERMOST:
        files = labelled_by_folder(files, reading)
    else:
        _note_depth(files, roots, reading)
    classes = {str(file.label) for file in files} or {*names}
    _check_classes(classes, folder, reading)
    return files, sorted_classes(classes)


def check_folders(reading: Reading) -> tuple[str, ...]:
    """Returns the class names; raises ValueError for folders that do not say what they are.

    Folders of classes are looked into only where one of them has no image directly in it.
    """
    folder = pathlib.Path(reading.spec.data)
    _check_not_around(folder, reading)
    parts = _parts_of(folder, reading)
    roots = [folder / name for name in parts] or [folder]
    classes = [path for root in roots for path in _folders(root)]
    by_path = reading.spec.label_by is not None
    if by_path or not classes or not all(map(_has_images, classes)):
        return folder_files(folder, reading)[1]
    return sorted_classes({path.name for path in classes})


def _has_images(folder):
    with os.scandir(folder) as entries:  # Ends at the first.
        return any(has_image_suffix(entry.name) for entry in entries)


def _note_depth(files, roots, reading):
    """Notes at which depth below the data, or a part, the classes are, if images lie deeper."""
    folders = {os.path.dirname(file.path) for file in files}
    if all(pathlib.Path(folder).parent in roots for folder in folders):
        return
    count = len({file.label for file in files})
    line = f"{count} classes at depth 1; {len(folders)} folders hold photos"
    if count < len({os.path.basename(path) for path in folders}):  # Else they are no classes.
        line += f": --folders {INNERMOST} makes these the classes"
    reading.class_notes.append(line)


def _check_not_around(folder, reading):
    """Raises ValueError if the only folder in a folder holds folders alone, and no photos."""
    spec, inner = reading.spec, folder
    if spec.folders is not None or spec.label_by is not None or not reading.labelled:
        return
    while len(inside := _folders(inner)) == 1 and _holds_folders(inside[0]):
        inner = inside[0]
    if inner != folder:
        raise ValueError(
            "A data folder must hold the folders of classes or parts, not one folder around them: "
            f"--data {printable(inner)} reads those in it, --folders classes makes "
            f"{printable(_folders(folder)[0].name)} a class. Received: {printable(folder)}"
        )


def _holds_folders(folder):
    is_part = folder.name in SPLITS
    return not is_part and _folders(folder) and not images_below(folder, deep=False)[0]


def _parts_of(folder, reading):
    """The parts by the names of the folders in a folder; {} if these are classes."""
    if reading.spec.folders == "classes":
        return {}
    names = [path.name for path in _folders(folder)]
    are_parts = reading.spec.folders == "parts"
    parts = folder_parts(names, are_parts=are_parts)
    unknown = [name for name in names if name not in parts]
    is_strict = reading.labelled and reading.spec.label_by is None
    if unknown and is_strict and (parts or are_parts):
        raise ValueError(
            f"Next to train and test there must be no other folder: {unknown[0]} must be "
            "named after a part (--folders parts reads names such as Testing and val2017), moved "
            "away, or be a class as all others (--folders classes). "
            f"Received: {printable(folder / unknown[0])}"
        )
    if unknown and parts:
        reading.notes.append(f"left out {first_names(unknown, 3)}: not named after a part")
    if renamed := [f"{name} is {part}" for name, part in parts.items() if name not in SPLITS]:
        reading.notes.append(f"parts by --folders parts: {', '.join(renamed)}")
    return parts


def _images_by_class(root, parts, reading):
    """The images of each class in the folder of a part or of the data."""
    if not reading.labelled or reading.spec.label_by or reading.spec.folders == INNERMOST:
        return {"": _images_in(root, reading)}
    _leave_out_images(root, reading)
    images = {path: _images_in(path, reading) for path in _folders(root)}
    if reading.spec.folders is None:
        _check_levels(root, images, parts, reading.notes)
    if parts and not images:
        reading.notes.append(f"left out {printable(root)}: no folder of a class in it")
    empty = [printable(path) for path, of_class in images.items() if not of_class]
    reading.notes += [f"left out {path}: no images in it" for path in empty]
    # A name on disk in two of Unicode's forms is one.
    by_class: dict[str, list[str]] = collections.defaultdict(list)
    for path, of_class in images.items():
        by_class[composed(path.name)] += of_class
    return by_class


def _check_levels(folder, images, parts, notes):
    """Raises ValueError if the folders in folders may be the classes; notes them otherwise."""
    inner: dict[str, set[str]] = {}  # The folders in each class; "." for its own images.
    for path, of_class in images.items():
        folders = {os.path.relpath(os.path.dirname(image), path) for image in of_class}
        inner[path.name] = {name.split(os.sep)[0] for name in folders}
    only_folders = {name: names for name, names in inner.items() if names and "." not in names}
    counts = collections.Counter(name for names in only_folders.values() for name in names)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if len(repeated) > 1:
        outer, same = ", ".join(sorted(only_folders)[:3]), ", ".join(repeated[:3])
        way = "--folders parts" if parts else "--folders classes"
        raise ValueError(
            f"It must be clear which folders are the classes: several of them hold {same}. If the "
            f"classes are {outer}, give {way}; if they are {same}, name the outer folders train "
            "and test, or list the images in a CSV file path,label,split. "
            f"Received: {printable(folder)}"
        )
    deeper = [f"{name}/{other}" for name in inner for other in sorted(inner[name] - {"."})]
    if deeper:
        notes.append(f"folders in a class belong to it: {first_names(deeper, 3)}")


def _check_classes(classes, folder, reading):
    """Raises ValueError if classes are missing and a file in the data may be what was meant."""
    if len(classes) >= max(1, reading.min_classes):
        return
    ways = []
    for path in images_below(folder)[1]:
        if path.lower().endswith(TABLE_SUFFIXES):
            ways.append(f"--data {path} reads a table")
        elif path.lower().endswith(_ARCHIVES):
            ways.append(f"{path} must be unpacked")
    if ways or not classes:
        raise ValueError(
            "A data folder must hold a folder of images for each class, or train and test "
            "which hold such folders; or the data must be a CSV file path,label; --label-by REGEX "
            "reads classes in the names of files. Received: "
            f"{printable('; '.join([str(folder), *ways[:3]]))}"
        )


def _leave_out_images(folder, reading):
    images, others = images_below(folder, deep=False)
    reading.skipped += [(printable(path), NO_CLASS) for path in images]
    _leave_out(others, reading)


def _leave_out(others, reading):
    for path in others:
        if is_no_file(path):
            reading.skipped.append((printable(path), NO_FILE))
        elif path.lower().endswith(_ARCHIVES):
            reading.skipped.append((printable(path), ARCHIVE))


def _images_in(folder, reading):
    images, others = images_below(folder, follow=reading.spec.follow_symlinks)
    linked = [path for path in others if os.path.isdir(path)]
    if linked:
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


def printable(path: str | os.PathLike) -> str:
    """Returns a path as text, whose bytes that are no UTF-8 are escaped."""
    return os.fspath(path).encode(errors="backslashreplace").decode()


class Verified(NamedTuple):
    """What decoding image files once shows.

    Args:
        reasons: The index of each file that cannot be decoded, in order, and why.
        largest: The largest value in the files of 16 bits; 0 without such files.
    """

    reasons: dict[int, str]
    largest: int


def verify_files(paths: Sequence[str]) -> Verified:
    """Decodes image files once, to find damaged ones and the values of 16-bit ones.

    Every file is decoded, on all cores, by TensorFlow as in training; a JPEG at an eighth of its
    size, which is enough to find a truncated file. What is neither JPEG nor PNG, or large, is
    decoded by Pillow.

    Args:
        paths: The files.
    """
    if not paths:  # To trace the graph takes longer than to run it on thirty photos.
        return Verified({}, 0)
    indices = [index for index, path in enumerate(paths) if is_utf_8(path)]
    names = tf.constant([paths[index] for index in indices], tf.string, [len(indices)])
    files = tf.data.Dataset.from_tensor_slices((tf.constant(indices, tf.int64), names))

    @unconverted
    def check(index, path):
        size, largest = image_formats.decoding.verify_image(tf.io.read_file(path), LARGE)
        with tf.control_dependencies([size]):
            return tf.identity(index), largest

    good = files.map(check, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    largest_of = {int(n): int(most) for n, most in without_autotune(good).as_numpy_iterator()}
    rest = sorted({*range(len(paths))}.difference(largest_of))

    def size_and_largest(pixels):
        return math.prod(pixels.shape[:2]), pixels.max() if pixels.dtype == np.uint16 else 0

    def reason_of(index):
        if not is_utf_8(paths[index]):
            return NOT_UTF_8
        try:
            content = pathlib.Path(paths[index]).read_bytes()
            size, largest = with_pixels(content, size_and_largest, None)
        except (ValueError, OSError) as error:
            return str(error)
        except MemoryError:
            return "The file needs more memory than there is."
        if kind_of(content) in IN_GRAPHS and size <= LARGE:
            return "The file is damaged."
        largest_of[index] = int(largest)
        return None

    with ThreadPoolExecutor(usable_cores()) as pool:
        found = dict(zip(rest, pool.map(reason_of, rest), strict=True))
    reasons = {index: reason for index, reason in found.items() if reason is not None}
    return Verified(reasons, max(largest_of.values(), default=0))


def is_utf_8(name: str) -> bool:
    """Returns whether TensorFlow can open a file of this name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
