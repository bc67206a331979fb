"""Folders of images: which of them are classes and which are parts."""

from __future__ import annotations

import collections
import os
import pathlib

from keras_vit.description.class_labels import composed
from keras_vit.images.listing import (
    NO_FILE,
    has_image_suffix,
    images_below,
    is_hidden,
    is_no_file,
    leads_back,
)
from keras_vit.utils.files import TABLE_SUFFIXES
from keras_vit.utils.safe_text import first_names

from .by_path import labelled_by_folder, labelled_by_path, only_matching
from .examples import sorted_classes
from .image_files import printable
from .parts import SPLITS, folder_parts
from .spec import INNERMOST
from .tables import (
    LabelledFile,
    Reading,
)

NO_CLASS = "Not in the folder of a class, but next to these folders."
ARCHIVE = "An archive, which must be unpacked."

_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")


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
