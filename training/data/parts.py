"""The parts of labelled images: given by the data, or drawn from the training images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.description.class_labels import MULTILABEL

from .groups import assign, class_groups, held_out
from .labels import class_counts, first_names, task_of
from .split_record import PARTS

if TYPE_CHECKING:
    from .examples import Examples


_WORDS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "calibration": ("calibration",),
    "test": ("test", "testing"),
}
SPLITS = {word: part for part, words in _WORDS.items() for word in words}

# Words that say nothing in the name of a folder, as in training_set and test-images.
_FILLERS = {"", "data", "dataset", "folder", "image", "images", "img", "imgs", "part", "photos"}
_FILLERS |= {"pictures", "pics", "sample", "samples", "set", "sets", "split"}


def folder_parts(names: Iterable[str]) -> dict[str, str]:
    """Returns the part that each folder of the data is; {} if the folders are no parts.

    Names are read by their words: training_set, TestImages, val2017. Another word must be in the
    name of another part too, as in seg_train and seg_test. A folder "calibration" is a part next to
    others only: a class may have that name.

    Args:
        names: Names of the folders.
    """
    read = {name: _part_and_rest(name) for name in names}
    known = {
        rest: {part for part, other in read.values() if other == rest} - {None}
        for _, rest in read.values()
    }
    parts = {
        name: part
        for name, (part, rest) in read.items()
        if part is not None and (not rest or len(known[rest]) > 1)
    }
    if "train" not in parts.values():  # test1 and test2 alone are classes.
        parts = {name: part for name, part in parts.items() if name.lower() in SPLITS}
    return {} if set(parts.values()) == {"calibration"} else parts


def says_no_class(name: str) -> bool:
    """Returns whether a folder's name has words for parts and images only, as "test images"."""
    part, rest = _part_and_rest(name)
    return not rest and (part is not None or any(map(str.isalpha, name)))


def _part_and_rest(name):
    """The part in a folder's name, or None, and its other words."""
    words = [
        word.lower() if word.lower() in _FILLERS else word.lower().removesuffix("set")
        for word in re.split(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])", name)
    ]
    parts = {SPLITS[word] for word in words if word in SPLITS}
    rest = tuple(word for word in words if word not in SPLITS and word not in _FILLERS)
    return parts.pop() if len(parts) == 1 else None, rest


def with_test(
    splits: dict[str, Examples],
    class_names: Sequence[str],
    seed: int,
    holdout: float,
    notes: list[str],
    groups: Mapping[str, int] | None = None,
) -> dict[str, Examples]:
    """Returns images in parts with a "test" part.

    A validation part without a test part is the test part. Otherwise a share of the training
    images is drawn.

    Args:
        splits: The images.
        class_names: The classes in the order of their numbers.
        seed: Seed of the choice.
        holdout: The share of every class; with 0 none is drawn.
        notes: Receives a line about classes of one image or group.
        groups: See `draw`.

    Raises:
        ValueError: If a class of multi-label data would be missing in a part, or as `draw`.
    """
    if "test" not in splits and "validation" in splits:
        splits = {**splits, "test": splits["validation"]}
        del splits["validation"]
    if "test" in splits or not holdout or "train" not in splits:
        return splits
    train = splits["train"]
    counts, unit = class_counts(train.labels, len(class_names)), "image"
    if groups is not None:
        unit = "group"
        counts = class_groups(train.labels, groups_of(train, groups), len(class_names))
    single = np.flatnonzero(counts == 1)
    if len(single):
        names = _named(class_names, single)
        notes.append(f"not tested, as there is a single {unit}: {names}")
    rest, test = draw(train, holdout, seed, "test", groups)
    if not len(test):
        return splits
    if task_of(train.labels) == MULTILABEL:  # Nearly stratified: rare labels may share images.
        check_classes({"train": rest}, class_names)
        check_classes(
            {"test": test}, class_names, np.setdiff1d(np.arange(len(class_names)), single)
        )
    return {**splits, "train": rest, "test": test}


def with_calibration(
    splits: dict[str, Examples],
    class_names: Sequence[str],
    share: float,
    seed: int,
    groups: Mapping[str, int] | None = None,
) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "calibration".

    Args:
        splits: The images; their own "calibration" stays.
        class_names: The classes in the order of their numbers.
        share: The share of every class; with 0 none is drawn.
        seed: Seed of the choice.
        groups: See `draw`.

    Raises:
        ValueError: If there is no class of two training images or more, a class of multi-label
            data would have no training image, or as `draw`.
    """
    if not share or "calibration" in splits:
        return splits
    train, kept = draw(splits["train"], share, seed, "calibration", groups)
    if not len(kept):
        raise ValueError(
            "A part for calibration needs a class of two training images or more. "
            f"Received: calibration={share}, {len(train)} training images of {len(class_names)} "
            "classes"
        )
    if task_of(train.labels) == MULTILABEL:
        check_classes({"train": train}, class_names)
    return {**splits, "train": train, "calibration": kept}


def with_validation(
    splits: dict[str, Examples],
    share: float,
    seed: int,
    groups: Mapping[str, int] | None = None,
) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "validation".

    Args:
        splits: The images; their own "validation" stays if the share is not 0.
        share: The share; with 0 there is no "validation".
        seed: Seed of the choice.
        groups: See `draw`.

    Raises:
        ValueError: As `draw`.
    """
    if share == 0:
        return {name: examples for name, examples in splits.items() if name != "validation"}
    if "validation" in splits:
        return splits
    train, kept = draw(splits["train"], share, seed, "validation", groups)
    return {**splits, "train": train, **({"validation": kept} if len(kept) else {})}


def fold_numbers(
    train: Examples,
    class_names: Sequence[str],
    count: int,
    seed: int,
    groups: Mapping[str, int] | None = None,
) -> np.ndarray:
    """Returns the fold of each image, from 1 to K, int64 `(N,)`.

    Args:
        train: The images.
        class_names: The classes in the order of their numbers.
        count: K.
        seed: Seed of the folds.
        groups: See `draw`.

    Raises:
        ValueError: If there are less than two folds, or fewer images or groups than folds, or a
            class would have no image outside of a fold.
    """
    if count < 2:
        raise ValueError(f"There must be at least 2 folds. Received: folds={count}")
    unit = "images" if groups is None else "groups"
    numbers = np.arange(len(train)) if groups is None else groups_of(train, groups)
    units = len(np.unique(numbers))
    if units < count:
        raise ValueError(f"{count} folds need at least {count} {unit}. Received: {units}")
    few = np.flatnonzero(class_groups(train.labels, numbers, len(class_names)) < 2)
    if len(few):
        names = _named(class_names, few)
        raise ValueError(
            f"Folds need two {unit} or more of every class. Received: fewer of {names}"
        )
    folds = assign(train.labels, numbers, (1 / count,) * count, seed) + 1
    for number in range(1, count + 1):
        rest = train.take(np.flatnonzero(folds != number))
        check_classes({"train": rest}, class_names)
    return folds


def draw(
    examples: Examples,
    share: float,
    seed: int,
    part: str,
    groups: Mapping[str, int] | None,
) -> tuple[Examples, Examples]:
    """Returns images in two parts, the second with about a share of every class.

    Args:
        examples: The images.
        share: The share.
        seed: Seed of the choice.
        part: Name of the second part, for errors.
        groups: The group of each image by its name: images of a group are in the same part. None:
            each image is drawn by itself; see `groups.held_out`.

    Raises:
        ValueError: If no class has images of two groups.
    """
    if groups is None:
        chosen = held_out(examples.labels, share, np.random.default_rng(seed))
    else:
        numbers = groups_of(examples, groups)
        chosen = assign(examples.labels, numbers, (1 - share, share), seed) == 1
        if not chosen.any() or chosen.all():
            raise ValueError(
                f"A {part} part by groups needs a class with images of two groups or more. "
                f"Received: {len(examples)} images in {len(np.unique(numbers))} groups"
            )
    return examples.take(np.flatnonzero(~chosen)), examples.take(np.flatnonzero(chosen))


def groups_of(examples: Examples, groups: Mapping[str, int]) -> np.ndarray:
    """Returns the group of each image, int64 `(N,)`.

    Args:
        examples: The images.
        groups: The group of each image by its name.
    """
    return np.array([groups[name] for name in examples.names], "int64")


def shared_groups(splits: Mapping[str, Examples], groups: Mapping[str, int]) -> list[str]:
    """Returns a line for each two parts that have images of the same group.

    Args:
        splits: The images.
        groups: See `draw`.
    """
    found = {part: np.unique(groups_of(examples, groups)) for part, examples in splits.items()}
    names, lines = [part for part in PARTS if part in found], []
    for place, second in enumerate(names):
        for first in names[:place]:
            count = len(np.intersect1d(found[first], found[second]))
            if count:
                lines.append(f"{count} groups have images in {first} and in {second} of the data")
    return lines


def check_trained_classes(splits: Mapping[str, Examples], class_names: Sequence[str]) -> None:
    """Raises ValueError if a part has images of a class that has no training image.

    Args:
        splits: The images, with a "train" part.
        class_names: The classes in the order of their numbers.
    """
    untrained = class_counts(splits["train"].labels, len(class_names)) == 0
    for split, examples in splits.items():
        counts = class_counts(examples.labels, len(class_names))
        wrong = np.flatnonzero(untrained & (counts > 0))
        if len(wrong):
            names = _named(class_names, wrong)
            raise ValueError(
                "Every class must have a training image, or none in the other parts. "
                f"Received: {split} with {names}, which train is without"
            )


def check_classes(
    splits: dict[str, Examples],
    class_names: Sequence[str],
    numbers: np.ndarray | None = None,
    more: str = "",
) -> None:
    """Raises ValueError unless each part has images of each class.

    Args:
        splits: The images.
        class_names: The classes in the order of their numbers.
        numbers: The classes that are needed; by default all.
        more: The end of the error.
    """
    for split, examples in splits.items():
        missing = np.flatnonzero(class_counts(examples.labels, len(class_names)) == 0)
        missing = missing if numbers is None else np.intersect1d(missing, numbers)
        if len(missing):
            names = _named(class_names, missing)
            raise ValueError(
                f"Every split must have images of every class. Received: {split} without "
                f"{names}{more}"
            )


def _named(class_names, numbers):
    return first_names([class_names[number] for number in numbers])
