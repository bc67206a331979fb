"""The task of a classifier: one class of an image, or several labels with a threshold each.

The names are scikit-learn's. Imports neither Keras nor NumPy.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_vit.json_files import check_fields, read_json

MULTICLASS, MULTILABEL = "multiclass", "multilabel"
TASKS = (MULTICLASS, MULTILABEL)

# Of the model's last layer.
ACTIVATIONS = {MULTICLASS: "softmax", MULTILABEL: "sigmoid"}

# The score on validation images by which the best weights are chosen: in history.csv, recipe.json.
SCORES = {MULTICLASS: "accuracy", MULTILABEL: "mAP"}

SEPARATOR = ";"  # Between the labels of an image in a CSV file; in no class name.

DEFAULT_THRESHOLD = 0.5  # Probability over which an image has a label.

Thresholds = tuple[float, ...] | None  # One a class; None for one class an image.

_FIELDS = {"task": str, "activation": str, "thresholds": dict}


def check_task(
    task: str, class_names: Sequence[str], thresholds: Sequence[float] | None
) -> Thresholds:
    """Returns the thresholds of a classifier, 0.5 each by default.

    Args:
        task: A name of `TASKS`.
        class_names: The K names.
        thresholds: K probabilities, or None.

    Raises:
        ValueError: If the task is unknown, a class name holds the separator of labels, or the
            thresholds are not one probability for each class of several labels.
    """
    if task not in TASKS:
        raise ValueError(f"task must be one of {TASKS}. Received: task={task!r}")
    if task == MULTICLASS:
        if thresholds is not None:
            raise ValueError(
                f"Thresholds are for task={MULTILABEL!r}. Received: {len(thresholds)} of them"
            )
        return None
    check_label_names(class_names)
    if thresholds is None:
        return (DEFAULT_THRESHOLD,) * len(class_names)
    values = tuple(float(value) for value in thresholds)
    if len(values) != len(class_names) or not all(0 <= value < 1 for value in values):
        raise ValueError(
            "Thresholds must be probabilities in [0, 1), one for each of the "
            f"{len(class_names)} classes. Received: {list(values)[:10]}"
        )
    return values


def check_label_names(class_names: Sequence[str]) -> None:
    """Raises ValueError if a name of several labels holds the character between two labels."""
    wrong = [name for name in class_names if SEPARATOR in name]
    if wrong:
        raise ValueError(
            f'A class name must not hold "{SEPARATOR}", which separates the labels of an image. '
            f"Received: {wrong[0]!r}"
        )


def task_json(class_names: Sequence[str], thresholds: Sequence[float]) -> str:
    """Returns the content of `task.json` for several labels; one class has no such file."""
    content = {
        "task": MULTILABEL,
        "activation": ACTIVATIONS[MULTILABEL],
        "thresholds": dict(zip(class_names, thresholds, strict=True)),
    }
    return json.dumps(content, indent=2) + "\n"


def read_task(path: str | os.PathLike, class_names: Sequence[str]) -> tuple[str, Thresholds]:
    """Returns the task and the thresholds in `task.json`, in the order of the class names.

    Args:
        path: The file. Without it there is one class an image.
        class_names: The names of the classes.

    Raises:
        ValueError: If it is no JSON, or does not describe a task of these classes.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        return MULTICLASS, None
    return task_of_json(read_json(path), class_names, path)


def task_of_json(
    content: Any, class_names: Sequence[str], source: object
) -> tuple[str, Thresholds]:
    """Returns the task and the thresholds of the content of `task.json`; see `read_task`.

    Args:
        content: The value of the JSON text.
        class_names: The names of the classes.
        source: The file, for the message.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{source} must hold one JSON object. Received: {str(content)[:80]}")
    check_fields(content, _FIELDS, source)
    task, thresholds = content.get("task"), content.get("thresholds") or {}
    if task != MULTILABEL or content.get("activation") != ACTIVATIONS[task]:
        raise ValueError(
            f'{source} must have the task "{MULTILABEL}" and the activation '
            f'"{ACTIVATIONS[MULTILABEL]}". Received: task={task!r}, '
            f"activation={content.get('activation')!r}"
        )
    values: list[Any] = [thresholds.get(name) for name in class_names]
    if len(thresholds) != len(values) or not all(type(v) in (int, float) for v in values):
        raise ValueError(
            f"{source} must have a threshold, a number, for each of the {len(class_names)} "
            f"classes. Received: {str(thresholds)[:80]}"
        )
    try:
        return task, check_task(task, class_names, values)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def task_of_model(model: Any) -> str:
    """Returns the task of a Keras model by the activation of its last layer."""
    activation = getattr(model.layers[-1], "activation", None)
    name = getattr(activation, "__name__", None)
    return MULTILABEL if name == ACTIVATIONS[MULTILABEL] else MULTICLASS
