"""Labelled images from files, record files, TensorFlow Datasets or memory."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_vit.description.class_labels import (
    MULTICLASS,
    MULTILABEL,
    check_label_names,
    composed,
    look_alikes,
)
from keras_vit.images.listing import images_below, only_others
from keras_vit.utils.safe_text import for_line

from . import parts
from .examples import Examples, Source, class_counts, first_names, multi_hot, task_of
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
from .tables import (
    TABLE_SUFFIXES,
    Reading,
    given_labels,
    given_parts,
    left_out,
    listed_files,
    read_label_table,
    relative_names,
)
from .tfrecords import INDEX, open_tfds, open_tfrecords

TFDS = "tfds:"
TFRECORDS = "tfrecords:"

NO_PART = "In no part by the table of --split."

ClassesAndSplits = tuple[tuple[str, ...], dict[str, Examples]]


def read_source(
    spec: Any,
    validation: float | Callable[[int], float] | None = None,
    *,
    trained: bool = False,
    recorded: bool = False,
    **how: Any,
) -> Source:
    """Opens labelled images and splits them.

    Args:
        spec: A `DataSpec`.
        validation: See `DataSpec.open`.
        trained: Whether a class in another part must have a training image, as a model of the
            data's classes alone needs it.
        recorded: Whether a `SplitRecord` has the part of each image, so that none is held out
            here; where a table has the parts, all images are in "train".
        **how: Fields of `Reading`.

    Raises:
        NotPrepared: As `open_source`.
        ValueError: As `open_source`.
    """
    spec.check_given()
    calibration = 0.0 if recorded else spec.calibration
    if recorded:
        how |= {"one_part": bool(spec.split), "recorded": True}
        spec = dataclasses.replace(spec, holdout=0.0, split=())
    source = _opened(Reading(spec, **how))
    splits, count = dict(source.splits), len(source.class_names)
    drawing = parts.Drawing(source.class_names, spec.split_seed or 0, source.groups)
    if calibration and not source.class_names:
        raise ValueError("Images without labels have no part for calibration.")
    if not spec.test:
        splits.pop("test", None)
    divided = validation is not None or calibration or not source.class_names
    if divided and "train" not in splits:
        raise ValueError(f"There must be images to train with. Received: only {', '.join(splits)}")
    if trained:
        present = [np.flatnonzero(class_counts(part.labels, count)) for part in splits.values()]
        wanted = np.unique(np.concatenate(present))
        parts.check_classes({"train": splits["train"]}, source.class_names, wanted)
    # Before the validation images, so that they do not change what is held out.
    splits = parts.with_calibration(splits, calibration, drawing)
    share = validation(len(splits["train"])) if callable(validation) else validation
    if share is not None:
        splits = parts.with_validation(splits, share, drawing)
    return dataclasses.replace(source, splits=splits)


def _opened(reading):
    """The images in the parts of the data, and a test part."""
    spec, notes, name = reading.spec, reading.notes, str(reading.spec.data)
    open_data, options = READERS[kind_of_data(spec.data)]
    for option in ("class_names", "data_dir", "split", "labels"):
        if getattr(spec, option) and option not in options:
            kinds = [kind for kind, (_, known) in READERS.items() if option in known]
            raise ValueError(f"{option} goes with {', '.join(kinds)}. Received: {name}")
    class_names, splits = open_data(reading)
    class_names = tuple(map(composed, class_names))
    notes += [f"classes that look alike: {line}" for line in look_alikes(class_names)]
    if spec.exclude and reading.root is None:  # Files are left out before they are decoded.
        splits = _without(splits, reading)
    if not reading.labelled:
        splits = {"train": splits["train"]} if "train" in splits else splits
        return Source((), splits, reading.skipped, tuple(notes), _groups(splits, reading))
    if len(class_names) < reading.min_classes:
        raise ValueError(
            f"There must be at least two classes. Received: {name}, with {len(class_names)}"
            + "".join(f" ({class_name})" for class_name in class_names)
            + "; --weights FOLDER with --head extend or --replay adds one class to a classifier's"
        )
    splits = _of_task(splits, class_names, spec.task, name, notes)
    groups = _groups(splits, reading)
    drawing = parts.Drawing(class_names, spec.split_seed or 0, groups)
    splits = parts.with_test(splits, spec.holdout, drawing, notes)
    return Source(class_names, splits, reading.skipped, tuple(notes), groups)


def kind_of_data(data: str | InMemory) -> str:
    """Returns the key of `READERS` for `DataSpec.data`."""
    if isinstance(data, InMemory):
        return "arrays" if data.frame is None else "table"
    if data.startswith(MEMORY):
        raise ValueError(f"Data in memory must be passed again by the program. Received: {data}")
    for prefix in (TFDS, TFRECORDS):
        if data.startswith(prefix):
            return prefix
    if os.path.isfile(os.path.join(data, INDEX)):
        return TFRECORDS
    return "table" if data.lower().endswith(TABLE_SUFFIXES) or os.path.isfile(data) else "folder"


def _open_tfds(reading):
    spec = reading.spec
    name = spec.data.removeprefix(TFDS)
    return open_tfds(name, spec.data_dir, reading.notes, download=reading.download)


def check_table(spec: Any, *, columns: bool) -> None:
    """Raises ValueError for a table that cannot be read, or a path to nothing, without TensorFlow.

    Args:
        spec: A `DataSpec` whose data are a text.
        columns: Whether columns and files are looked at too, which the other fields decide.
    """
    kind, path = kind_of_data(spec.data), pathlib.Path(spec.data)
    if kind == "table" and path.is_file() and not columns:
        read_label_table(path, [])
    elif kind == "table" or (kind == "folder" and not path.is_dir()):
        _listed(Reading(spec))


def _listed(reading):
    """The image files with their labels, and the class names."""
    spec = reading.spec
    name, is_frame = str(spec.data), isinstance(spec.data, InMemory)
    root = pathlib.Path(spec.data_dir or ("" if is_frame else name))
    reading.root = root = root.parent if root.is_file() else root
    if is_frame:
        files, class_names = listed_files(spec.data.frame, name, root, reading)
    else:
        files, class_names = list_files(pathlib.Path(name), root, reading)
    files = _with_tables(files, class_names, reading)
    if not spec.follow_symlinks and (not is_frame or spec.data_dir is not None):
        check_links(root, (file.path for file in files))
    return files, class_names


def _open_files(reading):
    spec, skipped = reading.spec, reading.skipped
    name = str(spec.data)
    files, class_names = _listed(reading)
    paths = [file.path for file in files]
    if reading.verify:
        reasons = dict(undecodable(paths))
    else:
        reasons = {n: NOT_UTF_8 for n, path in enumerate(paths) if not is_utf_8(path)}
    for place, reason in reasons.items():
        path = printable(paths[place])
        if spec.strict:
            raise ValueError(f"{path} cannot be decoded. {reason}")
        skipped.append((path, reason))
    files = [file for place, file in enumerate(files) if place not in reasons]
    lines = describe_skipped(skipped, names=3)[:3]
    if not files:
        others = only_others(images_below(name)[1]) if os.path.isdir(name) else ""
        reason = "; " + "; ".join(lines) if skipped else others
        raise ValueError(f"There must be images in the data. Received: {name}, none{reason}")
    if any(file.group is not None for file in files):
        reading.cells = {file.path: file.group or "" for file in files}
    class_names = tuple(filter(is_utf_8, class_names))
    numbers: dict[Any, int] = {name: number for number, name in enumerate(class_names)}
    splits: dict[str, Examples] = {}
    for split in dict.fromkeys(file.split or "train" for file in files):
        part = [file for file in files if (file.split or "train") == split]
        if isinstance(part[0].label, tuple):
            rows = [map(numbers.__getitem__, file.label) for file in part]
            labels = multi_hot(rows, len(numbers))
        else:
            labels = np.array([numbers[file.label] for file in part], "int32")
        splits[split] = FileExamples([file.path for file in part], labels)
    if reading.labelled and reading.min_classes:
        parts.check_classes(splits, class_names, more="".join(f"; {line}" for line in lines))
    return class_names, splits


# By the kind of data, a function from a `Reading` to the class names and the splits, and the
# options that go with such data only.
READERS: dict[str, tuple[Callable[[Reading], ClassesAndSplits], tuple[str, ...]]] = {
    "folder": (_open_files, ("split", "labels")),
    "table": (_open_files, ("split", "labels", "data_dir")),
    "arrays": (lambda how: how.spec.data.open(how.spec.class_names), ("class_names",)),
    TFDS: (_open_tfds, ("data_dir",)),
    TFRECORDS: (lambda how: open_tfrecords(how.spec.data.removeprefix(TFRECORDS)), ()),
}


def _with_tables(files, class_names, reading):
    """The files that are not excluded, with the parts and labels of the tables."""
    spec = reading.spec
    if reading.one_part:
        files = [file._replace(split=None) for file in files]
    if not (spec.exclude or spec.split or spec.labels):
        return files
    paths = [file.path for file in files]
    names = relative_names(paths, reading.root)
    is_out = left_out(names, paths, reading)
    splits = [file.split for file in files]
    labels = [file.label for file in files]
    if spec.split:
        # A name that is no UTF-8 is in no table; such files are left out with a line.
        splits = given_parts(
            names,
            spec.split,
            [out or not is_utf_8(name) for name, out in zip(names, is_out, strict=True)],
        )
        without = [place for place, part in enumerate(splits) if part == "" and not is_out[place]]
        reading.skipped += [(printable(paths[place]), NO_PART) for place in without]
        is_out = [out or part == "" for out, part in zip(is_out, splits, strict=True)]
    if spec.labels:
        labels = given_labels(names, labels, spec.labels, class_names, spec.task)
    rows = zip(files, labels, splits, is_out, strict=True)
    return [file._replace(label=label, split=part) for file, label, part, out in rows if not out]


def _without(splits, reading):
    """The examples that are not excluded by name."""
    names = [name for examples in splits.values() for name in examples.names]
    is_out = iter(left_out(names, names, reading))
    return {
        split: examples.take([place for place in range(len(examples)) if not next(is_out)])
        for split, examples in splits.items()
    }


def _groups(splits, reading):
    """The group of each image by its name; None where images are not grouped."""
    group_by, root, cells = reading.spec.group_by, reading.root, reading.cells
    if group_by is None:
        return None
    paths = [path for examples in splits.values() for path in examples.names]
    names = paths if root is None or cells is not None else relative_names(paths, root)
    numbers, alone = parts.group_of(group_by, names, cells)
    groups = dict(zip(paths, numbers.tolist(), strict=True))
    line = f"{len(np.unique(numbers))} groups of {len(paths)} images"
    line += f", {alone} of one image without the information" if alone else ""
    reading.notes += [line, *parts.shared_groups(splits, groups)]
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
                f"The task multiclass needs one class for each image. Received: {data}, which are "
                f"multi-label: {len(others)} images have none or several, such as {others[0]}"
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
