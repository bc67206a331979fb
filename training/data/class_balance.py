"""Classes of unequal size: weights of the loss, and examples of each class equally often."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.description.class_labels import MULTICLASS

from .examples import Examples
from .labels import class_counts, first_names, places_by_class, task_of
from .tables import csv_table, named_csv_errors

BALANCED = "balanced"


def class_weights(
    given: str | os.PathLike, labels: np.ndarray, class_names: Sequence[str]
) -> tuple[float, ...]:
    """Returns the weight of each class in the loss.

    Args:
        given: "balanced", or a CSV file of `class,weight` with a line for each class. Balanced
            are, with n_k of the N images in class k of K, N / (K n_k) as in scikit-learn, whose
            mean over all images is 1; and for multi-label images (N - n_k) / n_k, so that
            images with a label weigh as much as those without.
        labels: Labels of the training images, as `Examples.labels`.
        class_names: The K names.

    Raises:
        ValueError: If a class has no image, every image has a label, or the file does not have
            one positive weight for each class.
    """
    if os.fspath(given) == BALANCED:
        counts = _counts(labels, class_names)
        if task_of(labels) == MULTICLASS:
            return tuple((len(labels) / (len(class_names) * counts)).tolist())
        if (counts == len(labels)).any():
            raise ValueError(
                "For balanced class weights no label may be on every image. "
                f"Received: {class_names[int(np.argmax(counts))]}"
            )
        return tuple(((len(labels) - counts) / counts).tolist())
    path = pathlib.Path(given)
    if not path.is_file():
        raise ValueError(
            f'Class weights must be "{BALANCED}" or a CSV file of class,weight. Received: {path}'
        )
    with named_csv_errors(path):
        columns, rows, _ = csv_table(path.read_bytes().decode("utf-8-sig"), str(path))
    found = {row.get("class"): row.get("weight") for row in rows}
    try:
        values = tuple(float(str(found[name])) for name in class_names)
    except (KeyError, ValueError):
        values = ()
    if len(values) != len(rows) or not all(0 < value < math.inf for value in values):
        raise ValueError(
            f"{path} must have the columns class,weight and a line with a positive number for each "
            f"of the {len(class_names)} classes ({first_names(class_names)}). "
            f"Received: columns {columns}, {len(rows)} rows, {str(found):.200}"
        )
    return values


def balanced(examples: Examples, class_names: Sequence[str], seed: int) -> Examples:
    """Returns examples in which every class occurs equally often.

    An epoch has each image of the largest class once and repeats images of the other classes;
    which of them occur once more than the rest is drawn.

    Args:
        examples: Examples of one class an image.
        class_names: The K names.
        seed: Decides the draw.

    Raises:
        ValueError: If the images are multi-label, or a class has no image.
    """
    labels = examples.labels
    if task_of(labels) != MULTICLASS:
        raise ValueError(
            "For balanced sampling an image must have one class. Received: multi-label data; "
            "class_weights balances them"
        )
    counts = _counts(labels, class_names)
    rng = np.random.default_rng(seed)
    times = counts.max() // counts[labels]
    for places, count in zip(places_by_class(labels), counts, strict=True):
        times[rng.permutation(places)[: counts.max() % count]] += 1
    return examples.repeated(times)


def _counts(labels, class_names):
    counts = class_counts(labels, len(class_names))
    if not counts.all():
        raise ValueError(
            "Every class must have a training image. "
            f"Received: none of {class_names[int(np.argmin(counts))]}"
        )
    return counts
