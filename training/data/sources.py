"""Labelled images from files, record files, TensorFlow Datasets or memory."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vit.description.tasks import MULTICLASS, MULTILABEL, check_label_names
from keras_vit.images.listing import images_below, only_others
from keras_vit.utils.safe_text import for_line

from .examples import Examples, Source
from .groups import group_of
from .image_files import (
    NOT_UTF_8,
    FileExamples,
    check_links,
    is_utf_8,
    list_files,
    printable,
    undecodable,
)
from .in_memory import MEMORY, Labelled, as_in_memory
from .label_tables import TABLE_SUFFIXES, Columns, LabelledFile
from .labels import multi_hot, task_of
from .parquet_files import PARQUET, column_of_images, open_parquet
from .parts import check_classes, shared_groups, with_test
from .tables import check_excluded, excluded, given_labels, given_parts, relative_names
from .tfrecords import open_tfrecords, record_files

TFDS = "tfds:"
TFRECORDS = "tfrecords:"
VTAB, VTAB_TUNE = "vtab:", "vtab-tune:"  # See vtab_tasks.py.


def open_source(
    data: Labelled,
    *,
    class_names: Sequence[str] | None = None,
    data_dir: str | os.PathLike | None = None,
    seed: int = 0,
    holdout: float = 0.2,
    strict: bool = False,
    verify: bool = True,
    exclude: Iterable[str] = (),
    min_classes: int = 2,
    labelled: bool = True,
    download: bool = True,
    follow_symlinks: bool = False,
    task: str | None = None,
    split: Sequence[str] = (),
    labels: Sequence[str] = (),
    one_part: bool = False,
    group_by: str | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    label_separator: str | None = None,
    folders: str | None = None,
    by_pillow: bool = False,
) -> Source:
    """Opens labelled images.

    Args:
        data: One of
            a folder with `train` and `test` (or `val`, `valid`, `validation`) in it, and
            `calibration` if there is such a part, each with a folder of images for each class;
            a folder with a folder of images for each class; see `folder_files`;
            a CSV file whose first line is `path,label` or `path,label,split`, or `path` and
            the names of the classes, or a table of another tool; see `listed_files`;
            a folder of TFRecord files, also as `tfrecords:FOLDER`; see `open_tfrecords`;
            `parquet:FOLDER` or `parquet:FILE`, Parquet files with images; see `open_parquet`;
            `tfds:NAME` or `tfds:NAME:version`, a TensorFlow Datasets name;
            `vtab:TASK` or `vtab-tune:TASK`, a task of VTAB-1k; see `open_vtab`;
            arrays, a `tf.data.Dataset` or a `pandas.DataFrame`; see `InMemory`.
        class_names: For arrays and a `tf.data.Dataset` the names, in the order of the class
            numbers; by default the numbers.
        data_dir: The folder of prepared TensorFlow Datasets, or the root of relative paths in
            a CSV file (by default the file's folder) or a data frame (by default the
            working directory).
        seed: Seed of the choice of test images where the data have no test split.
        holdout: Share of every class for that test split. 0: there is none.
        strict: Whether the first file that cannot be decoded is an error. Otherwise such
            files are left out and listed in `skipped`.
        verify: Whether every file is decoded once now, so that the usable files are known
            before any work is done. With False, a file that cannot be decoded ends the run.
            Record files are never verified. For a `tf.data.Dataset`: whether a second pass is
            compared with the first.
        exclude: Examples to leave out: paths, ends of paths, or names in record files.
        min_classes: Classes that the data must have; 1 where a classifier's are added to them.
        labelled: Whether labels are needed. Without them, images may lie in any folders; the
            source has no class names and only the split "train", or all images if the data
            have no splits.
        download: Whether a missing data set of TensorFlow Datasets is downloaded.
        follow_symlinks: Whether images may lie outside of the folder, where symbolic links in
            it lead to.
        task: "multiclass" or "multilabel"; by default as the data show it.
        split: The lines of a table of parts, in place of the data's own; see `tables.given_parts`.
        labels: The lines of a table of labels; see `tables.given_labels`.
        one_part: Whether parts that the data have are ignored: all images are in "train".
        group_by: What images have in common that are in the same part: "exif", a column of a CSV
            file or data frame, or a regular expression; see `groups.group_of`.
        path_column: The column of paths in a table, or of images in Parquet files.
        label_column: The column of labels, or the columns of 0 and 1 with commas between.
        label_separator: What is between the labels of an image in a table.
        folders: Whether the folders in a folder are "classes" or "parts"; None: by their names.
        by_pillow: Whether files are decoded without TensorFlow; see `image_files.undecodable`.

    Returns:
        A `Source`.

    Raises:
        NotPrepared: If a data set is missing and may not be downloaded.
        ValueError: If the data do not exist, have no images or fewer than two classes, if a
            class of image files is missing in a split, a name to exclude does not occur, a table
            does not fit, record files are incomplete, or the data are not of the task; with
            `strict`, if a file cannot be decoded.
    """
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout must be at least 0 and less than 1. Received: {holdout}")
    if isinstance(data, str | os.PathLike):
        held, name = None, os.fspath(data)
    else:
        held = as_in_memory(data)
        name = str(held)
    exclude = tuple(exclude)
    if split or labels:
        _check_tables(name, is_files=held.is_frame if held is not None else is_files(name))
    skipped: list[tuple[str, str]] = []
    notes: list[str] = []
    splits: dict[str, Examples]
    root, cells = None, None
    if held is not None and not held.is_frame:
        _check_no_data_dir(name, data_dir)
        class_names, splits = held.open(class_names, verify=verify)
        splits = _without(splits, exclude, name)
    elif name.startswith(MEMORY):
        raise ValueError(
            "Arrays, a tf.data.Dataset and a DataFrame are in memory: the Python program must pass "
            f"them again. Received: {name}"
        )
    elif class_names is not None:
        raise ValueError(f"class_names go with arrays or a tf.data.Dataset. Received: {name}")
    elif name.startswith(TFDS):
        from .tfds_records import open_tfds  # TensorFlow Datasets takes half a second.

        class_names, splits = open_tfds(name.removeprefix(TFDS), data_dir, download=download)
        splits = _without(splits, exclude, name)
    elif name.startswith((VTAB, VTAB_TUNE)):
        from .vtab_tasks import open_vtab  # As above.

        scheme, _, vtab_task = name.partition(":")
        is_tuning = f"{scheme}:" == VTAB_TUNE
        class_names, splits = open_vtab(vtab_task, data_dir, tune=is_tuning, download=download)
        splits = _without(splits, exclude, name)
    elif name.startswith(PARQUET):
        _check_no_data_dir(name, data_dir)
        folder = pathlib.Path(name.removeprefix(PARQUET))
        class_names, splits = open_parquet(folder, path_column, label_column)
        if group_by is not None:
            cells = column_of_images(folder, splits, group_by)
        splits = _without(splits, exclude, name)
    elif name.startswith(TFRECORDS) or record_files(pathlib.Path(name)):
        _check_no_data_dir(name, data_dir)
        class_names, splits = open_tfrecords(name.removeprefix(TFRECORDS), task)
        splits = _without(splits, exclude, name)
    else:
        columns = Columns(path_column, label_column, group_by, label_separator)
        if held is not None:
            files, class_names = held.files(pathlib.Path(data_dir or ""), task, columns, notes)
        else:
            if not name.lower().endswith(TABLE_SUFFIXES):
                _check_no_data_dir(name, data_dir)
            files, class_names = list_files(
                pathlib.Path(name),
                data_dir,
                labelled=labelled,
                task=task,
                notes=notes,
                skipped=skipped,
                columns=columns,
                folders=folders,
            )
        root = pathlib.Path(data_dir or ("" if held is not None else name))
        root = root.parent if root.is_file() else root
        files = _with_tables(files, class_names, root, exclude, split, labels, task, one_part, name)
        if group_by is not None and any(file.group is not None for file in files):
            cells = {file.path: file.group for file in files}
        files, misnamed = _named_in_utf_8(files, strict)
        class_names = tuple(filter(is_utf_8, class_names))
        if not follow_symlinks and (held is None or data_dir is not None):
            check_links(root, (file.path for file in files))
        transcode, unreadable = None, []
        if verify:
            files, unreadable, transcode = _verified(files, strict, by_pillow)
        skipped += misnamed + unreadable
        _check_any(files, name, skipped)
        splits = _file_splits(files, class_names, transcode)
        if labelled:
            left_out = "".join(f"; {line}" for line in describe_skipped(skipped, names=3)[:3])
            check_classes(splits, class_names, more=left_out)
    if not labelled:
        if "train" not in splits:
            raise ValueError(
                f"There must be images to train with. Received: only {', '.join(splits)}"
            )
        splits = {"train": splits["train"]}
        groups = _groups(group_by, splits, root, cells, notes)
        return Source((), splits, skipped, tuple(notes), groups)
    if len(class_names) < min_classes:
        raise ValueError(
            f"There must be at least two classes. Received: {name}, with {len(class_names)}"
            + "".join(f" ({class_name})" for class_name in class_names)
            + "; --weights FOLDER with --head extend or --replay adds one class to a classifier's"
        )
    splits = _of_task(splits, class_names, task, name, notes)
    groups = _groups(group_by, splits, root, cells, notes)
    splits = with_test(splits, class_names, seed, holdout, notes, groups)
    return Source(class_names, splits, skipped, tuple(notes), groups)


def _groups(group_by, splits, root, cells, notes):
    """The group of each image by its name; None where images are not grouped."""
    if group_by is None:
        return None
    paths = [path for examples in splits.values() for path in examples.names]
    names = paths if root is None else relative_names(paths, root)
    if cells is not None:
        cells = {name: cells[path] for name, path in zip(names, paths, strict=True)}
    numbers, alone = group_of(group_by, names, None if root is None else paths, cells)
    groups = dict(zip(paths, numbers.tolist(), strict=True))
    line = f"{len(np.unique(numbers))} groups of {len(paths)} images"
    notes.append(line + (f", {alone} of one image without the information" if alone else ""))
    notes += shared_groups(splits, groups)
    return groups


def _of_task(splits, class_names, task, data, notes):
    """The examples with labels of the wanted task."""
    found = task_of(next(iter(splits.values())).labels)
    if (task or found) == MULTILABEL:
        check_label_names(class_names)
    if MULTILABEL == found != task:
        others = [
            examples.names[place]
            for examples in splits.values()
            for place in np.flatnonzero(examples.labels.sum(axis=1) != 1)
        ]
        if task == MULTICLASS and others:
            raise ValueError(
                "The task multiclass needs data with one class for each image. Received: "
                f"{data}, which are multi-label: {len(others)} images have none or several, such "
                f"as {others[0]}"
            )
        if task is None and not others:
            notes.append(
                "each image has exactly one label, read as multi-label data (a yes or no for each "
                'class); --task multiclass (task="multiclass") reads one class for each image'
            )
    if task in (None, found):
        return splits
    count = len(class_names)
    numbers = np.arange(count, dtype="int32")
    new = count if task == MULTILABEL else None
    return {split: examples.relabelled(numbers, new) for split, examples in splits.items()}


def _check_no_data_dir(name, data_dir):
    if data_dir is not None:
        raise ValueError(
            "data_dir goes with tfds:NAME, a CSV file or a DataFrame. "
            f"Received: {name}, data_dir={data_dir}"
        )


def is_files(name: str) -> bool:
    """Returns whether data are image files, in a folder or listed in a table.

    Args:
        name: The data, as for `open_source`.
    """
    others = (TFDS, TFRECORDS, PARQUET, VTAB, VTAB_TUNE, MEMORY)
    return not name.startswith(others) and not record_files(pathlib.Path(name))


def _check_tables(name, *, is_files):
    if not is_files:
        raise ValueError(
            "--split and --labels (split=, labels=) go with image files: a folder, a CSV file or a "
            f"DataFrame. Received: {name}"
        )


def _with_tables(files, class_names, root, exclude, split, labels, task, one_part, data):
    """The files that are not excluded, with the parts and labels of the tables."""
    paths = [file.path for file in files]
    names = relative_names(paths, root) if exclude or split or labels else paths
    left_out = excluded(names, paths, exclude, data)
    parts = [None if one_part else file.split for file in files]
    found = [file.label for file in files]
    if split:
        parts = given_parts(names, split, left_out)
    if labels:
        found = given_labels(names, found, labels, class_names, task)
    rows = zip(files, found, parts, left_out, strict=True)
    return [file._replace(label=label, split=part) for file, label, part, out in rows if not out]


def _named_in_utf_8(files, strict):
    """The files that TensorFlow can open, and the others with the reason."""
    kept, skipped = [], []
    for file in files:
        if is_utf_8(file.path):
            kept.append(file)
            continue
        name = printable(file.path)
        if strict:
            raise ValueError(f"File and folder names must be UTF-8. Received: {name}")
        skipped.append((name, NOT_UTF_8))
    return kept, skipped


def _without(splits, exclude, data):
    """Leaves out examples by name."""
    if not exclude:
        return splits
    wanted = set(exclude)
    unused, kept = set(exclude), {}
    for split, examples in splits.items():
        names = examples.names
        unused -= set(names)
        left = [place for place, name in enumerate(names) if name not in wanted]
        kept[split] = examples.take(left)
    check_excluded(unused, data)
    return kept


def describe_skipped(skipped: Iterable[tuple[str, str]], names: int = 10) -> list[str]:
    """Returns a line for each reason why files were skipped, with their number and names.

    Args:
        skipped: `(path, reason)`.
        names: Largest number of names in a line.
    """
    by_reason: dict[str, list[str]] = {}
    for path, reason in skipped:
        by_reason.setdefault(reason, []).append(path)
    lines = []
    for reason, paths in by_reason.items():
        if len(paths) == 1:
            lines.append(f"skipped {paths[0]}: {reason}")
        else:
            more = f" and {len(paths) - names:,} more" if len(paths) > names else ""
            found = ", ".join(paths[:names])
            lines.append(f"skipped {len(paths):,} files: {reason} Files: {found}{more}")
    return [for_line(line) for line in lines]


def _verified(files, strict, by_pillow):
    """Returns the files that can be decoded, the others, and whether some need Pillow."""
    skipped, bad, transcode = [], set(), False
    for place, reason in undecodable([file.path for file in files], by_pillow=by_pillow):
        if reason is None:
            transcode = True
            continue
        if strict:
            raise ValueError(f"{files[place].path} cannot be decoded. {reason}")
        skipped.append((files[place].path, reason))
        bad.add(place)
    return [file for place, file in enumerate(files) if place not in bad], skipped, transcode


def _check_any(files, data, skipped):
    if not files:
        reason = ""
        if skipped:
            reason = "; " + "; ".join(describe_skipped(skipped, names=3)[:3])
        elif os.path.isdir(data):
            reason = only_others(images_below(data)[1])
        raise ValueError(f"There must be images in the data. Received: {data}, none{reason}")


def _file_splits(files: list[LabelledFile], class_names, transcode) -> dict[str, Examples]:
    numbers = {name: number for number, name in enumerate(class_names)}
    splits: dict[str, Examples] = {}
    for split in dict.fromkeys(file.split for file in files):
        part = [file for file in files if file.split == split]
        if isinstance(part[0].label, tuple):
            labels = multi_hot(
                [map(numbers.__getitem__, file.label) for file in part], len(numbers)
            )
        else:
            labels = np.array([numbers[file.label] for file in part], "int32")
        splits[split or "train"] = FileExamples([file.path for file in part], labels, transcode)
    return splits
