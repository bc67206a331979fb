"""Labelled images from files, record files, TensorFlow Datasets or memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_vit.description.class_labels import (
    MULTICLASS,
    MULTILABEL,
    alike_names,
    check_label_names,
    composed,
)

from . import parts
from .corrections import find_groups, without_excluded
from .examples import Examples, class_counts, task_of
from .in_memory import Labelled
from .labelled_files import open_files
from .labelled_images import Source
from .spec import FILES, TFDS, TFRECORDS, DataSpec, data_spec
from .tables import (
    OPTIONS_OF_READING,
    Reading,
)
from .tfrecords import open_tfds, open_tfrecords
from .things import crossings, find_things


def open_source(
    data: Labelled | DataSpec,
    validation: float | Callable[[int], float] | None = None,
    *,
    seed: int | None = None,
    trained: bool = False,
    recorded: bool = False,
    **options: Any,
) -> Source:
    """Opens labelled images and splits them.

    Args:
        data: A `DataSpec`, or one of
            a folder with `train` and `test` (or `val`, `valid`, `validation`) in it, and
            `calibration` if there is such a part, each with a folder of images for each class;
            a folder with a folder of images for each class; see `folder_files`;
            a CSV file whose first line is `path,label` or `path,label,split`; see `listed_files`;
            a folder of TFRecord files, also as `tfrecords:FOLDER`; see `open_tfrecords`;
            `tfds:NAME` or `tfds:NAME:version`, a TensorFlow Datasets name;
            arrays; see `InMemory`.
        validation: Share of the training images for "validation" where the data have no such part,
            or a function from the number of training images to it. 0: there is no "validation",
            even if the data have one. None: as the data have it.
        seed: Seed of the choice of test images where the data have no test split; by default 0.
        trained: Whether a class in another part must have a training image, as a model of the
            data's classes alone needs it.
        recorded: Whether a `SplitRecord` has the part of each image, so that none is held out
            here; where a table has the parts, all images are in "train".
        **options: Fields of `Reading`, such as `verify`, and other fields of `DataSpec`, such as
            `holdout`.

    Returns:
        The images in "train", and if there are any, "validation", "calibration" and "test".

    Raises:
        NotPrepared: If a data set is missing and may not be downloaded.
        TypeError: If an option is no field of `DataSpec`.
        ValueError: If the data do not exist, have no images or fewer than two classes, if a
            class of image files is missing in a split, a name to exclude does not occur, a table
            does not fit, record files are incomplete, or the data are not of the task; with
            `strict`, if a file cannot be decoded.
    """
    how = {name: options.pop(name) for name in OPTIONS_OF_READING & options.keys()}
    if seed is not None:
        options["split_seed"] = seed
    spec = data_spec(data, options)
    spec.check_given()
    if recorded:
        how |= {"one_part": bool(spec.split), "recorded": True}
        spec = dataclasses.replace(spec, holdout=0.0, calibration=0.0, split=())
    reading = Reading(spec, **how)
    class_names, splits = _opened(reading)
    groups = find_groups(splits, reading)
    bit_depth = reading.found_bit_depth()
    has_parts = len(splits) > 1 or spec.holdout or spec.calibration or validation is not None
    things = _things(splits, reading, bit_depth) if has_parts else None
    drawing = parts.Drawing(class_names, spec.split_seed or 0, groups, things)
    splits = _divided(splits, validation, drawing, reading, trained=trained)
    if things is not None:
        things = things.placed(splits)
        reading.notes += crossings(splits, things)
    return Source(
        class_names,
        splits,
        reading.skipped,
        tuple(reading.notes),
        groups,
        things,
        tuple(reading.class_notes),
        bit_depth,
    )


def _things(splits, reading, bit_depth):
    """The things that the images show; None where they are not looked for."""
    spec = reading.spec
    if reading.recorded or spec.ignores_copies:
        return None
    if reading.things is not None:
        names = [name for examples in splits.values() for name in examples.names]
        if names == [*reading.things.numbers]:
            reading.notes += reading.things.notes
            return reading.things
    things = find_things(
        splits,
        by_pixels=spec.kind in _WITH_PIXELS,
        log=reading.log,
        in_first=reading.in_first,
        bit_depth=bit_depth,
    )
    reading.notes += things.notes
    return things


def with_things_among(
    tested: Sequence[Examples],
    source: Source,
    spec: DataSpec,
    log: Callable[[str], None] | None = None,
) -> tuple[Source, list[str]]:
    """Returns a source with the things that images of it show, whose parts nobody drew.

    Args:
        tested: The images, in parts.
        source: Their source; if it has things, it is returned.
        spec: The data, which say whether photos that show one thing are looked for.
        log: See `find_things`.

    Returns:
        The source with the groups of the images alone, and lines where several images
        show one thing, or not all copies were looked for.
    """
    if source.things is not None or spec.ignores_copies:
        return source, []
    things = find_things(
        {str(number): examples for number, examples in enumerate(tested)},
        by_pixels=spec.kind in _WITH_PIXELS,
        log=log,
        bit_depth=source.bit_depth,
    )
    groups = source.groups
    if groups is not None:
        groups = {name: groups[name] for name in things.numbers}
    source, lines = dataclasses.replace(source, things=things, groups=groups), []
    if not things.are_single:
        lines = [f"things  {things.line}: the intervals count photos of one thing together"]
    elif things.limits:
        lines = [f"things  {things.line}"]
    return source, lines + [f"data    {note}" for note in things.notes]


def _divided(splits, validation, drawing, reading, *, trained):
    """The images in all parts that are wanted; see `open_source`."""
    spec, class_names = reading.spec, drawing.class_names
    if reading.labelled:
        splits = parts.with_test(splits, spec.holdout, drawing, reading.notes)
    elif spec.calibration:
        raise ValueError("Images without labels have no part for calibration.")
    if not spec.test:
        splits = {part: examples for part, examples in splits.items() if part != "test"}
    is_divided = validation is not None or spec.calibration or not reading.labelled
    if is_divided and "train" not in splits:
        raise ValueError(f"There must be images to train with. Received: only {', '.join(splits)}")
    if trained:
        counts = [class_counts(examples.labels, len(class_names)) for examples in splits.values()]
        present = np.flatnonzero(np.sum(counts, axis=0))
        parts.check_classes({"train": splits["train"]}, class_names, present)
    # Before the validation images, so that they do not change what is held out.
    splits = parts.with_calibration(splits, spec.calibration, drawing)
    share = validation(len(splits["train"])) if callable(validation) else validation
    return splits if share is None else parts.with_validation(splits, share, drawing)


def _opened(reading):
    """The class names, none without labels, and the images in the parts of the data."""
    spec = reading.spec
    if spec.checked_line:
        reading.notes.append(spec.checked_line)
    kind = spec.kind
    for option, kinds in _OPTIONS.items():
        if getattr(spec, option) and kind not in kinds:
            raise ValueError(f"{option} goes with {', '.join(kinds)}. Received: {spec.data}")
    class_names, splits = READERS[kind](reading)
    class_names = tuple(map(composed, class_names))
    for alike in alike_names(class_names):
        count = "two" if len(alike) == 2 else len(alike)
        reading.class_notes.append(f"{' and '.join(map(repr, alike))} are taken as {count} classes")
    if spec.exclude and not spec.has_paths:  # Files are left out before they are decoded.
        splits = without_excluded(splits, reading)
    if not reading.labelled:
        return (), {"train": splits["train"]} if "train" in splits else splits
    check_several(class_names, reading)
    return class_names, _of_task(splits, class_names, reading)


def check_several(class_names: Sequence[str], reading: Reading) -> None:
    """Raises ValueError for fewer classes than there must be.

    Args:
        class_names: The classes of the data.
        reading: It has the data and the classes that there must be.
    """
    if len(class_names) < reading.min_classes:
        raise ValueError(
            "There must be at least two classes. Received: "
            f"{reading.spec.data}, with {len(class_names)}"
            + "".join(f" ({class_name})" for class_name in class_names)
            + "; photos of several classes lie in a folder for each class, or --label-by names them"
            " by their paths; --weights FOLDER with --head extend or --replay adds one class to a "
            "classifier's"
        )


# By the kind of data, a function from a `Reading` to the class names and the splits.
READERS: dict[str, Callable[[Reading], tuple[tuple[str, ...], dict[str, Examples]]]] = {
    "folder": open_files,
    "table": open_files,
    "arrays": lambda reading: reading.spec.data.open(reading.spec.class_names),
    TFDS: open_tfds,
    TFRECORDS: lambda reading: open_tfrecords(reading.spec.data.removeprefix(TFRECORDS), reading),
}
_WITH_PIXELS = (*FILES, "arrays")  # Kinds of data whose images are compared with each other.
# By an option that not all data have, the kinds of data that have it.
_OPTIONS = {
    "only": ("folder",),
    "label_by": ("folder",),
    "class_names": ("arrays",),
    "data_dir": ("table", TFDS),
    "skip_unlabelled": ("table",),
    "split": FILES,
    "labels": FILES,
    "groups": FILES,
}


def _of_task(splits, class_names, reading):
    """The examples with labels of the wanted task."""
    task, data_task = reading.spec.task, task_of(next(iter(splits.values())).labels)
    if (task or data_task) == MULTILABEL:
        check_label_names(class_names)
    if data_task == MULTILABEL and task != MULTILABEL:
        others = [
            examples.names[index]
            for examples in splits.values()
            for index in np.flatnonzero(examples.labels.sum(axis=1) != 1)
        ]
        if task == MULTICLASS and others:
            raise ValueError(
                "The task multiclass needs one class for each image. Received: "
                f"{reading.spec.data}, which are multi-label: {len(others)} images have none or "
                f"several, such as {others[0]}"
            )
        if task is None and not others:
            reading.notes.append(
                "each image has exactly one label, read as multi-label data (a yes or no for each "
                'class); --task multiclass (task="multiclass") reads one class for each image'
            )
    if task in (None, data_task):
        return splits
    count = len(class_names)
    numbers = np.arange(count, dtype="int32")
    new_count = count if task == MULTILABEL else None
    return {part: examples.relabelled(numbers, new_count) for part, examples in splits.items()}
