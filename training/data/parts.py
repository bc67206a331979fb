"""The parts of labelled images: given by the data, or drawn from the training images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.description.tasks import MULTILABEL

from .labels import class_counts, task_of

if TYPE_CHECKING:
    from .examples import Examples

PARTS = ("train", "validation", "calibration", "test")

# Common name of a part: our name.
SPLITS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "calibration": "calibration",
    "test": "test",
    "testing": "test",
}


def folder_parts(names: Iterable[str]) -> dict[str, str]:
    """Returns the part that each folder of the data is; {} if the folders are no parts.

    A folder "calibration" is a part next to others only: a class may have that name.

    Args:
        names: Names of the folders.
    """
    parts = {name: SPLITS[name.lower()] for name in names if name.lower() in SPLITS}
    return {} if set(parts.values()) == {"calibration"} else parts


def with_test(
    splits: dict[str, Examples],
    class_names: Sequence[str],
    seed: int,
    holdout: float,
    notes: list[str],
) -> dict[str, Examples]:
    """Returns images in parts with a "test" part.

    A validation part without a test part is the test part. Otherwise a share of the training
    images is drawn.

    Args:
        splits: The images.
        class_names: The classes in the order of their numbers.
        seed: Seed of the choice.
        holdout: The share of every class; with 0 none is drawn.
        notes: Receives a line about classes of one image.

    Raises:
        ValueError: If a class of multi-label data would be missing in a part.
    """
    if "test" not in splits and "validation" in splits:
        splits = {**splits, "test": splits["validation"]}
        del splits["validation"]
    if "test" in splits or not holdout or "train" not in splits:
        return splits
    train = splits["train"]
    single = np.flatnonzero(class_counts(train.labels, len(class_names)) == 1)
    if len(single):
        names = ", ".join(class_names[number] for number in single[:5])
        more = f" and {len(single) - 5} more" if len(single) > 5 else ""
        notes.append(f"not tested, as there is a single image: {names}{more}")
    rest, test = train.split(holdout, seed)
    if not len(test):
        return splits
    if task_of(train.labels) == MULTILABEL:  # Nearly stratified: rare labels may share images.
        check_classes({"train": rest}, class_names)
        check_classes(
            {"test": test}, class_names, np.setdiff1d(np.arange(len(class_names)), single)
        )
    return {**splits, "train": rest, "test": test}


def with_calibration(
    splits: dict[str, Examples], class_names: Sequence[str], share: float, seed: int
) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "calibration".

    Args:
        splits: The images; their own "calibration" stays.
        class_names: The classes in the order of their numbers.
        share: The share of every class; with 0 none is drawn.
        seed: Seed of the choice.

    Raises:
        ValueError: If there is no class of two training images or more, or a class of
            multi-label data would have no training image.
    """
    if not share or "calibration" in splits:
        return splits
    train, kept = splits["train"].split(share, seed)
    if not len(kept):
        raise ValueError(
            "A part for calibration needs a class of two training images or more. "
            f"Received: calibration={share}, {len(train)} training images of {len(class_names)} "
            "classes"
        )
    if task_of(train.labels) == MULTILABEL:
        check_classes({"train": train}, class_names)
    return {**splits, "train": train, "calibration": kept}


def with_validation(splits: dict[str, Examples], share: float, seed: int) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "validation".

    Args:
        splits: The images; their own "validation" stays if the share is not 0.
        share: The share; with 0 there is no "validation".
        seed: Seed of the choice.
    """
    if share == 0:
        return {name: examples for name, examples in splits.items() if name != "validation"}
    if "validation" in splits:
        return splits
    train, kept = splits["train"].split(share, seed)
    return {**splits, "train": train, **({"validation": kept} if len(kept) else {})}


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
            names = ", ".join(class_names[number] for number in missing[:5])
            others = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise ValueError(
                f"Every split must have images of every class. Received: {split} without "
                f"{names}{others}{more}"
            )
