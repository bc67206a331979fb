"""Names of a classifier's files, and atomic writing of files and folders."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import errno
import glob
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from keras_vit.utils.safe_text import for_csv

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None  # type: ignore[assignment]

# Files of a classifier's folder.
MODEL = "model.keras"
DESCRIPTION = "description.json"
CLASSES = "classes.txt"
RECIPE = "recipe.json"
HISTORY = "history.csv"
CARD = "README.md"
SPLIT = "split.npz"  # The parts of the data of a training run.
REPORT = "report.html"  # The page of a training run.

# Further texts in exports.
PREPROCESSING = "preprocessing.json"
TASK = "task.json"  # Multi-label only; of KerasHub, its head.

SKIPPED = "skipped.csv"  # In the folder of a report.

# What an unfinished run alone needs; all other files of its folder are the finished folder's. They
# go last, after the finished folder has its name: until then a run that is killed goes on.
STATES = ".states"
UNFINISHED = f"{STATES}/{RECIPE}"  # With whole paths.
PARTIAL = ".partial"  # After the name of an output whose run is unfinished.

# The entries of a `.keras` archive. Unpacked in a folder they are what Keras reads of a repository.
CONFIG, WEIGHTS = "config.json", "model.weights.h5"  # The first is also other code bases' name.
UNPACKED_MODEL = ("metadata.json", CONFIG, WEIGHTS)
SAFETENSORS = "model.safetensors"  # Weights in the folders of other code bases.

# A file that each export in a folder has: SavedModel, OpenVINO.
EXPORT_MARKERS = ("saved_model.pb", "model.xml")

# Subfolder of real images, on which exports are checked.
SAMPLES = "samples"
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")  # A table of photos and their labels.


# Errors of a full or read-only disk. C++ libraries raise other types, with the same words.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class DiskError(OSError):
    """A disk is full or read-only; the message names the path and what to do.

    Args:
        path: The file or folder that cannot be written.
        reason: The system's words, such as "No space left on device".
        advice: What to do, a sentence.
    """

    def __init__(self, path: str | os.PathLike, reason: str, advice: str):
        super().__init__(f"{os.fspath(path)} cannot be written: {reason}. {advice}")
        self.path, self.reason = path, reason


def disk_error(error: BaseException | None) -> str | None:
    """Returns why a disk takes no more data, if that is the cause of an error, or None.

    Args:
        error: Any error from Python, HDF5 or TensorFlow. Errors that it was raised from, or
            while they were handled, are looked at too.
    """
    while error is not None:
        for number in _DISK_ERRORS:
            if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
                return os.strerror(number)
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def named_disk_errors(
    path: str | os.PathLike, advice: Callable[[], str] | None = None
) -> Iterator[None]:
    """Raises `DiskError` with a path where the block fails because a disk is full or read-only.

    Args:
        path: The file or folder that the block writes.
        advice: Function, called in case, to a sentence that advises what to do; by default to
            free space or to choose another output.
    """
    try:
        yield
    except Exception as error:
        reason = disk_error(error)
        named = getattr(error, "path", None) or getattr(error, "filename", None)
        # A file of `temporary_sibling` is gone by now: the output that it was made for is named.
        is_hidden = _TEMPORARY.search(str(named)) is not None
        if reason is None or (isinstance(error, DiskError) and advice is None and not is_hidden):
            raise
        path = path if named is None or is_hidden else named
        sentence = advice() if advice else "Free space there, or choose another output."
        raise DiskError(path, reason, sentence) from error


def check_writable(path: str | os.PathLike) -> None:
    """Raises unless a file or folder can be written, as far as can be known before.

    Args:
        path: An output; it and its folders may be missing.

    Raises:
        ValueError: If the nearest existing folder is read-only, or a file is in its place.
    """
    path = pathlib.Path(path).absolute()
    parents = (path, *path.parents) if path.is_dir() else path.parents
    folder = next(parent for parent in parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"The output must be in a folder that can be written. Received: {path}, and {folder} "
            f"is {'read-only' if folder.is_dir() else 'no folder'}"
        )


def model_in(folder: str | os.PathLike) -> pathlib.Path | None:
    """Returns the Keras model in the folder of a model of this package; None without one.

    Returns:
        The path of `model.keras`; or the folder itself, if the entries of `model.keras` lie in it
        beside `description.json`.
    """
    folder = pathlib.Path(folder)
    if (folder / MODEL).is_file():
        return folder / MODEL
    unpacked = all((folder / name).is_file() for name in (CONFIG, WEIGHTS, DESCRIPTION))
    return folder if unpacked else None


def check_holds_one_model(path: str | os.PathLike) -> None:
    """Raises unless a folder is a classifier or an export: an export is run as a program.

    Args:
        path: A folder; a file is one model.

    Raises:
        ValueError: If the folder has the files of several.
    """
    markers = [name for name in EXPORT_MARKERS if pathlib.Path(path, name).is_file()]
    if (model := model_in(path)) is not None:
        markers.insert(0, MODEL if model.name == MODEL else WEIGHTS)
    if len(markers) > 1:
        raise ValueError(
            "A folder must hold one model, a classifier or an export, which is run as a program. "
            f"Received: {path} with {' and '.join(markers)}"
        )


def check_own_files(folder: str | os.PathLike) -> None:
    """Raises unless all in a folder are regular files and folders, and links in it stay in it.

    A folder of others is checked before it is copied or a part of it is given away: a link in it
    could lead to any file of this machine.

    Raises:
        ValueError: If it holds a link that leads out of it or nowhere, a pipe or a device.
    """
    root = os.path.realpath(folder)
    for place, folders, names in os.walk(root):
        for path in (os.path.join(place, name) for name in (*folders, *names)):
            is_inside = os.path.commonpath([root, os.path.realpath(path)]) == root
            if not (is_inside and (os.path.isfile(path) or os.path.isdir(path))):
                kind = "a link" if os.path.islink(path) else "no regular file"
                raise ValueError(
                    f"{folder} must hold regular files, and no links that lead out of it or "
                    f"nowhere; cp -rL copies what they lead to. Received: {path}, {kind}"
                )


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path, which is renamed to `path` at the end of the block.

    If the block raises, the temporary file is removed and an older file keeps its content. If the
    process is killed or the power fails, `path` is the older file or the whole new one.

    Args:
        path: The final path of a file; its folder is made.

    Yields:
        A path of an empty file in the same folder with the same suffixes.
    """
    path = pathlib.Path(path)
    with named_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(path, pathlib.Path.touch) as partial:
            yield partial
            _sync(partial)
            os.replace(partial, path)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    with atomic_write(path) as partial:
        # A path may hold bytes that are no UTF-8.
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


CsvCell: TypeAlias = str | float | None


def write_csv(path: str | os.PathLike, rows: Iterable[Iterable[CsvCell]]) -> None:
    """Writes a CSV file atomically: a row of cells for each line, the header first.

    Cells pass through `csv_row`.
    """
    with (
        atomic_write(path) as partial,
        open(partial, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        csv.writer(file, lineterminator="\n").writerows(map(csv_row, rows))


def append_csv(path: str | os.PathLike, cells: Iterable[CsvCell]) -> None:
    """Adds a row of cells to a file of `write_csv`."""
    with open(path, "a", encoding="utf-8", errors="backslashreplace", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(csv_row(cells))


def csv_row(cells: Iterable[CsvCell]) -> list[CsvCell]:
    """Returns the cells of a row of CSV, their texts by `for_csv`."""
    return [for_csv(cell) if isinstance(cell, str) else cell for cell in cells]


# How folders are replaced. A new folder is made under a temporary name. Where the system can, the
# two exchange their names in one step, and then the older one is removed. Elsewhere the older one
# is put aside first: a process that is killed before it has renamed the new one leaves no folder
# of that name, and the next one puts the older one back.


@contextlib.contextmanager
def atomic_folder(
    folder: str | os.PathLike, *, marker: str | None = None, overwrite: bool = False
) -> Iterator[pathlib.Path]:
    """Yields a temporary folder, which is renamed to `folder` at the end of the block.

    If the block raises, the temporary folder is removed and an older folder stays.

    Args:
        folder: The final path. Its parents are made.
        marker: See `check_folder`.
        overwrite: See `check_folder`.

    Yields:
        An empty folder with the same parent as `folder`.

    Raises:
        ValueError: If `folder` may not be replaced; see `check_folder`.
        DiskError: If the disk is full or read-only.
        OSError: If there is no permission to write.
    """
    folder = output_place(folder)
    check_folder(folder, marker=marker, overwrite=overwrite)
    with named_disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _temporary(folder, pathlib.Path.mkdir) as partial:
            yield partial
            publish_folder(partial, folder, marker=marker, overwrite=overwrite)


def publish_folder(
    finished: pathlib.Path,
    folder: pathlib.Path,
    *,
    marker: str | None = None,
    overwrite: bool = False,
) -> None:
    """Renames a finished folder; an older one of that name then has the name of the finished one.

    All files are on the disk before the rename. If an error is raised, both keep their names.

    Args:
        finished: A folder on the same file system, as a rename is atomic only there.
        folder: Its final path, see `output_place`.
        marker: See `check_folder`.
        overwrite: See `check_folder`.

    Raises:
        ValueError: If `folder` may not be replaced; see `check_folder`.
        OSError: If it cannot be renamed.
    """
    check_folder(folder, marker=marker, overwrite=overwrite)
    _sync(finished)
    if not folder.exists() or not any(folder.iterdir()):
        os.replace(finished, folder)
    elif not _exchange(finished, folder):
        aside = folder.with_name(f"{_ASIDE}{temporary_sibling(folder).name}")
        os.replace(folder, aside)
        try:
            os.replace(finished, folder)
        except OSError:
            os.replace(aside, folder)
            raise
        os.replace(aside, finished)
    _sync(folder.parent, deep=False)


def output_place(folder: str | os.PathLike) -> pathlib.Path:
    """Returns the absolute path of a folder to write; of a link, the path that it leads to."""
    folder = pathlib.Path(folder).absolute()
    return folder.resolve() if folder.is_symlink() else folder


def partial_of(output: pathlib.Path) -> pathlib.Path:
    """Returns the folder of the unfinished run of an output."""
    return output.with_name(output.name + PARTIAL)


def _exchange(one, other):
    """Gives two folders each other's name in one step; returns False where the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    sys.audit("os.rename", os.fspath(one), os.fspath(other), -1, -1)  # As `os.rename` does.
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE.
    return rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _sync(path, deep=True):
    """Writes a file, or a folder and what is in it, to the disk, before a rename relies on it."""
    for entry in (path, *(path.rglob("*") if deep else ())):
        if fcntl is None or entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            continue
        # Not every file system synchronises folders.
        with contextlib.suppress(*([OSError] if entry.is_dir() else [])):
            descriptor = os.open(entry, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def check_folder(
    folder: str | os.PathLike, *, marker: str | None = None, overwrite: bool = False
) -> None:
    """Raises unless a folder is new or empty, or may be replaced.

    Only a folder of the same kind is replaced, so that a slip such as `--output ~` costs
    nothing. An older folder that a killed process put aside gets its name back first.

    Args:
        folder: The folder to write.
        marker: Name of a file that every folder of this kind has, such as "model.keras"; None
            if none is replaced.
        overwrite: Whether to replace a folder that has the marker.

    Raises:
        ValueError: If the folder is not empty and may not be replaced, or is a file or the place
            of a mounted disk.
    """
    folder = pathlib.Path(folder)
    for aside in _siblings(folder, _ASIDE):  # By a process that was killed.
        if folder.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(aside, folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"The output must be a folder. Received a file: {folder}")
    if os.path.ismount(folder):
        raise ValueError(
            "The output must be a folder that can be renamed, not the place of a mounted disk: "
            f"name a folder in it. Received: {folder}"
        )
    if not any(folder.iterdir()):
        return
    if marker is None or not overwrite:
        hint = "; --overwrite (overwrite=True) replaces an older one" if marker else ""
        raise ValueError(f"The output folder must be new or empty{hint}. Received: {folder}")
    if not (folder / marker).is_file():
        raise ValueError(
            f"Only a folder that has the file {marker} is overwritten; remove this one by hand. "
            f"Received: {folder}"
        )


def check_file(path: str | os.PathLike, suffix: str, *, overwrite: bool = False) -> None:
    """Raises unless a file has the right suffix, and is new or may be replaced.

    Raises:
        ValueError: If the suffix is another, or if the file exists and `overwrite` is False.
    """
    path = pathlib.Path(path)
    if not path.name.endswith(suffix):
        raise ValueError(f"The file's name must end with {suffix}. Received: {path}")
    if path.exists() and not overwrite:
        raise ValueError(
            "The output file must be new; --overwrite (overwrite=True) replaces an older one. "
            f"Received: {path}"
        )


_LEFTOVER = re.compile(r"\.[0-9a-f]{32}-.")
_ASIDE = ".old"  # Before the name of a temporary path.


def remove_leftovers(folder: str | os.PathLike) -> None:
    """Removes the temporary files of `atomic_write` that killed processes left in a folder.

    Args:
        folder: A folder to which no other process writes; its subfolders are cleared too.
    """
    for path in pathlib.Path(folder).rglob(".*"):
        if _LEFTOVER.match(path.name) and path.is_file():
            path.unlink()


_TEMPORARY = re.compile(r"(?:^|[/\\])\.[0-9a-f]{32}-")


def temporary_sibling(path: pathlib.Path) -> pathlib.Path:
    """Returns an unused hidden path in the same folder, whose name ends with the same suffixes."""
    return path.with_name(f".{os.urandom(16).hex()}-{path.name}")


def _siblings(path, before=""):
    """The paths that `temporary_sibling` made for a path."""
    return path.parent.glob(f"{before}.{'[0-9a-f]' * 32}-{glob.escape(path.name)}")


@contextlib.contextmanager
def _temporary(path, make):
    """Yields a temporary sibling, which is removed at the end of the block if it is still there.

    What killed processes left for this path is removed first. A process locks what it writes, and
    the system frees it when the process ends; where there are no such locks, it stays.

    Args:
        path: The final path; its folder exists.
        make: Makes the temporary file or folder.
    """
    for left in _siblings(path):
        with _locked(left) as is_free:
            if is_free:
                _remove(left)
    partial = temporary_sibling(path)
    try:
        make(partial)
        with _locked(partial):
            yield partial
    finally:
        _remove(partial)


@contextlib.contextmanager
def _locked(path):
    """Locks a file or folder for a block; gives False if another process has, or none can."""
    descriptor, is_locked = None, False
    try:
        with contextlib.suppress(OSError):
            if fcntl is not None:
                descriptor = os.open(path, os.O_RDONLY)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
        yield is_locked
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
