"""Labelled images from files, record files, TensorFlow Datasets or memory."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, check_label_names
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
from .in_memory import MEMORY, InMemory
from .label_tables import TABLE_SUFFIXES, LabelledFile, Reading, listed_files
from .labels import first_names, multi_hot, task_of
from .parts import check_classes, shared_groups, with_test
from .tables import check_excluded, excluded, given_labels, given_parts, relative_names
from .tfrecords import open_tfrecords, record_files

TFDS = "tfds:"
TFRECORDS = "tfrecords:"

ClassesAndSplits = tuple[tuple[str, ...], dict[str, Examples]]


def read_source(spec: Any, reading: Reading) -> Source:
    """Opens labelled images, and holds out a test part where they have none.

    Args:
        spec: A `DataSpec`.
        reading: How they are read; receives the notes.

    Raises:
        NotPrepared: As `open_source`.
        ValueError: As `open_source`.
    """
    spec.check_given()
    reader, name = READERS[kind_of_data(spec.data)], str(spec.data)
    for option, belongs in _BELONGS.items():
        if getattr(spec, option) and option not in reader.options:
            raise ValueError(f"{belongs}. Received: {name}, with {option}")
    class_names, splits = reader.open(spec, reading)
    notes = reading.notes
    if not reading.labelled:
        if "train" not in splits:
            raise ValueError(
                f"There must be images to train with. Received: only {', '.join(splits)}"
            )
        splits = {"train": splits["train"]}
        groups = _groups(spec, splits, reading)
        return Source((), splits, reading.skipped, tuple(notes), groups)
    if len(class_names) < reading.min_classes:
        raise ValueError(
            f"There must be at least two classes. Received: {name}, with {len(class_names)}"
            + "".join(f" ({class_name})" for class_name in class_names)
            + "; --weights FOLDER with --head extend or --replay adds one class to a classifier's"
        )
    splits = _of_task(splits, class_names, spec.task, name, notes)
    groups = _groups(spec, splits, reading)
    splits = with_test(splits, class_names, spec.split_seed or 0, spec.holdout, notes, groups)
    return Source(class_names, splits, reading.skipped, tuple(notes), groups)


def kind_of_data(data: str | InMemory) -> str:
    """Returns the key of `READERS` for `DataSpec.data`."""
    if isinstance(data, InMemory):
        return "arrays" if data.frame is None else "table"
    for prefix in (MEMORY, TFDS, TFRECORDS):
        if data.startswith(prefix):
            return prefix
    if record_files(pathlib.Path(data)):
        return TFRECORDS
    return "table" if data.lower().endswith(TABLE_SUFFIXES) else "folder"


def is_files(name: str) -> bool:
    """Returns whether data are image files, in a folder or listed in a table.

    Args:
        name: The data, as for `open_source`.
    """
    return kind_of_data(name) in ("table", "folder")


def _open_arrays(spec, reading):
    class_names, splits = spec.data.open(spec.class_names)
    return class_names, _without(splits, spec)


def _refuse_memory(spec, reading):
    raise ValueError(
        "Arrays, a tf.data.Dataset and a DataFrame are in memory: the Python program must pass "
        f"them again. Received: {spec.data}"
    )


def _open_tfds(spec, reading):
    from .tfds_records import open_tfds  # TensorFlow Datasets takes half a second.

    name = spec.data.removeprefix(TFDS)
    class_names, splits = open_tfds(name, spec.data_dir, download=reading.download)
    return class_names, _without(splits, spec)


def _open_tfrecords(spec, reading):
    class_names, splits = open_tfrecords(spec.data.removeprefix(TFRECORDS), spec.task)
    return class_names, _without(splits, spec)


def _open_files(spec, reading):
    name, is_frame = str(spec.data), isinstance(spec.data, InMemory)
    root = pathlib.Path(spec.data_dir or ("" if is_frame else name))
    root = root.parent if root.is_file() else root
    skipped = reading.skipped
    if is_frame:
        files, class_names = listed_files(spec.data.frame, name, root, spec, reading)
    else:
        files, class_names = list_files(pathlib.Path(name), root, spec, reading)
    files = _with_tables(files, class_names, root, spec, reading.one_part)
    if spec.group_by is not None and any(file.group is not None for file in files):
        reading.cells = {file.path: file.group for file in files}
    files, misnamed = _named_in_utf_8(files, spec.strict)
    class_names = tuple(filter(is_utf_8, class_names))
    if not spec.follow_symlinks and (not is_frame or spec.data_dir is not None):
        check_links(root, (file.path for file in files))
    transcode, unreadable = None, []
    if reading.verify:
        files, unreadable, transcode = _verified(files, spec.strict, reading.by_pillow)
    skipped += misnamed + unreadable
    left_out = describe_skipped(skipped, names=3)[:3]
    if not files:
        reason = only_others(images_below(name)[1]) if os.path.isdir(name) else ""
        reason = "; " + "; ".join(left_out) if skipped else reason
        raise ValueError(f"There must be images in the data. Received: {name}, none{reason}")
    splits = _file_splits(files, class_names, transcode)
    if reading.labelled:
        check_classes(splits, class_names, more="".join(f"; {line}" for line in left_out))
    reading.root = root
    return class_names, splits


class Reader(NamedTuple):
    """A row of the table of readers.

    Args:
        open: Function from a `DataSpec` and a `Reading` to the class names and the splits.
        options: Names of `_BELONGS` that go with such data.
    """

    open: Callable[[Any, Reading], ClassesAndSplits]
    options: tuple[str, ...] = ()


READERS = {
    "folder": Reader(_open_files, ("split", "labels")),
    "table": Reader(_open_files, ("split", "labels", "data_dir")),
    "arrays": Reader(_open_arrays, ("class_names",)),
    TFDS: Reader(_open_tfds, ("data_dir",)),
    TFRECORDS: Reader(_open_tfrecords),
    MEMORY: Reader(_refuse_memory, ("class_names", "data_dir", "split", "labels")),
}
_BELONGS = {
    "class_names": "class_names go with arrays or a tf.data.Dataset",
    "data_dir": "data_dir goes with tfds:NAME, a CSV file or a DataFrame",
    "split": "--split (split=) goes with image files: a folder, a CSV file or a DataFrame",
    "labels": "--labels (labels=) goes with image files: a folder, a CSV file or a DataFrame",
}


def _groups(spec, splits, reading):
    """The group of each image by its name; None where images are not grouped."""
    if spec.group_by is None:
        return None
    root, cells = reading.root, reading.cells
    paths = [path for examples in splits.values() for path in examples.names]
    names = paths if root is None else relative_names(paths, root)
    if cells is not None:
        cells = {name: cells[path] for name, path in zip(names, paths, strict=True)}
    numbers, alone = group_of(spec.group_by, names, None if root is None else paths, cells)
    groups = dict(zip(paths, numbers.tolist(), strict=True))
    line = f"{len(np.unique(numbers))} groups of {len(paths)} images"
    line += f", {alone} of one image without the information" if alone else ""
    reading.notes += [line, *shared_groups(splits, groups)]
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


def _with_tables(files, class_names, root, spec, one_part):
    """The files that are not excluded, with the parts and labels of the tables."""
    paths = [file.path for file in files]
    has_lists = spec.exclude or spec.split or spec.labels
    names = relative_names(paths, root) if has_lists else paths
    left_out = excluded(names, paths, spec.exclude, str(spec.data))
    parts = [None if one_part else file.split for file in files]
    found = [file.label for file in files]
    if spec.split:
        parts = given_parts(names, spec.split, left_out)
    if spec.labels:
        found = given_labels(names, found, spec.labels, class_names, spec.task)
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


def _without(splits, spec):
    """Leaves out examples by name."""
    if not spec.exclude:
        return splits
    wanted = set(spec.exclude)
    unused, kept = set(wanted), {}
    for split, examples in splits.items():
        names = examples.names
        unused -= set(names)
        left = [place for place, name in enumerate(names) if name not in wanted]
        kept[split] = examples.take(left)
    check_excluded(unused, str(spec.data))
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
            found = first_names(paths, names)
            lines.append(f"skipped {len(paths):,} files: {reason} Files: {found}")
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
