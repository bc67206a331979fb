"""Labels of examples as arrays: class numbers, or multi-label zeros and ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from keras_vit.description.class_labels import MULTICLASS, MULTILABEL


def task_of(labels: np.ndarray) -> str:
    """Returns the task of labels: int32 `(N,)` class numbers, or uint8 `(N, K)`."""
    return MULTILABEL if labels.ndim == 2 else MULTICLASS


def label_array(labels: npt.ArrayLike) -> np.ndarray:
    """Returns labels as int32 `(N,)` or uint8 `(N, K)`."""
    array = np.asarray(labels)
    return array.astype("uint8" if array.ndim == 2 else "int32", copy=False)


def multi_hot(numbers: Sequence[Iterable[int]], num_classes: int) -> np.ndarray:
    """Returns the class numbers of each image as zeros and ones, uint8 `(N, K)`."""
    labels = np.zeros((len(numbers), num_classes), "uint8")
    for row, of_image in zip(labels, numbers, strict=True):
        row[list(of_image)] = 1
    return labels


def relabelled(
    labels: np.ndarray, numbers: np.ndarray, num_classes: int | None = None
) -> np.ndarray:
    """Returns labels with other class numbers, or as multi-label zeros and ones.

    Args:
        labels: As `Examples.labels`, of K classes.
        numbers: The new number of each class, int32 `(K,)`, each once.
        num_classes: M, for multi-label zeros and ones: the result has the shape `(N, M)`. None for
            class numbers; each row of zeros and ones has one 1 then.
    """
    if num_classes is None:
        labels = labels.argmax(axis=1) if labels.ndim == 2 else labels
        return label_array(numbers[labels])
    hot = np.zeros((len(labels), num_classes), "uint8")
    if labels.ndim == 2:
        hot[:, numbers] = labels
    else:
        hot[np.arange(len(labels)), numbers[labels]] = 1
    return hot


def class_numbers(label: npt.ArrayLike) -> list[int]:
    """Returns the class numbers of one image's label, ascending."""
    array = np.asarray(label)
    return np.flatnonzero(array).tolist() if array.ndim else [int(array)]


def class_counts(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the images of each class, int `(K,)`."""
    if labels.ndim == 2:
        return labels.sum(axis=0, dtype="int64")
    return np.bincount(labels, minlength=num_classes)


def first_names(names: Sequence[str], count: int = 5) -> str:
    """Returns the first of some names, and how many more there are."""
    more = f" and {len(names) - count:,} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


def places_by_class(labels: np.ndarray) -> list[np.ndarray]:
    """Returns the places of each class number that occurs, ascending, by ascending number.

    Args:
        labels: Class numbers `(N,)`.
    """
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order])) + 1
    return np.split(order, starts)
