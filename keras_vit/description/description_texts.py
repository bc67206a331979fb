"""The texts in which a classifier's folder and an export hold a description.

`description.json` is the description. The others are made from it for other programs, and for
reading the folders and exports of earlier versions, which have no `description.json`.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from keras_vit.description import (
    Description,
    Labels,
    check_class_names,
    description_text,
    read_description,
)
from keras_vit.description.licences import licence_in_card
from keras_vit.description.tasks import ACTIVATIONS, MULTILABEL
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import CLASSES, DESCRIPTION, PREPROCESSING, TASK
from keras_vit.utils.json_files import check_fields, parse_json

TEXTS = (DESCRIPTION, CLASSES, PREPROCESSING, TASK)

_TASK_FIELDS = {"task": str, "activation": str, "thresholds": dict}


def texts_of(description: Description) -> dict[str, str]:
    """Returns the texts of a description by their file names.

    Args:
        description: A classifier's. Without names of classes, or without a preprocessing, it has
            no text of them.
    """
    names, thresholds = description.labels.names, description.labels.limits
    texts = {DESCRIPTION: description_text(description)}
    if names is not None:
        texts[CLASSES] = "".join(f"{name}\n" for name in description.labels.output_names)
    if description.preprocessing is not None:
        texts[PREPROCESSING] = description.preprocessing.to_json()
    if names is not None and thresholds is not None:
        content = {
            "task": MULTILABEL,
            "activation": ACTIVATIONS[MULTILABEL],
            "thresholds": dict(zip(names, thresholds, strict=True)),
        }
        texts[TASK] = json.dumps(content, indent=2) + "\n"
    return texts


def description_of_texts(texts: Mapping[str, str], source: object) -> Description:
    """Returns the description of a classifier from its texts.

    Args:
        texts: The texts of `texts_of`, or of an earlier version without `description.json`.
        source: The folder or file, for messages.

    Raises:
        ValueError: If a text is wrong, or they do not agree with each other.
    """
    found = Description()
    if PREPROCESSING in texts:
        found = Description(preprocessing=_read_preprocessing(texts[PREPROCESSING], source))
    if CLASSES in texts:
        labels = _read_labels(texts[CLASSES], texts.get(TASK), source)
        found = Description(preprocessing=found.preprocessing, labels=labels)
    if DESCRIPTION not in texts:
        return found
    path = _path(source, DESCRIPTION)
    described = read_description(texts[DESCRIPTION], path)
    for name, ours, theirs in (
        (PREPROCESSING, found.preprocessing, described.preprocessing),
        (CLASSES, found.labels.output_names, described.labels.output_names),
        (TASK, found.labels.limits, described.labels.limits),
    ):
        if theirs is not None and name not in texts:
            raise ValueError(
                f"The texts that {DESCRIPTION} stands for must be there. Missing in "
                f"{source}: {name}"
            )
        if ours != theirs:
            raise ValueError(
                f"{_path(source, name)} and {DESCRIPTION} do not belong together: the first is "
                "made from the second, so change both. Received: two contents"
            )
    return described


def description_of_folder(folder: pathlib.Path) -> Description:
    """Returns the description of a classifier from the texts in its folder.

    A folder of an earlier version has its licence in the model card, if anywhere.

    Raises:
        ValueError: As `description_of_texts`.
    """
    texts = read_texts(folder)
    found = description_of_texts(texts, folder)
    if DESCRIPTION in texts:
        return found
    return dataclasses.replace(found, licence=licence_in_card(folder) or found.licence)


def read_texts(folder: pathlib.Path, names: Iterable[str] = TEXTS) -> dict[str, str]:
    """Returns the texts that a folder has, by their names.

    Args:
        folder: The folder.
        names: The names of the texts.

    Raises:
        ValueError: If one is not UTF-8.
    """
    texts = {}
    for name in names:
        path = folder / name
        if path.is_file():
            try:
                texts[name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path} must be text in UTF-8. {error}") from error
    return texts


def _path(source, name):
    return f"{source}/{name}" if str(source) else name


def _read_preprocessing(text, source):
    try:
        return Preprocessing.from_json(text)
    except (ValueError, TypeError, KeyError) as error:
        path = _path(source, PREPROCESSING)
        raise ValueError(f"{path} must describe a preprocessing. {error}") from error


def _read_labels(classes, task, source):
    names = classes.splitlines()
    path = _path(source, CLASSES)
    try:
        check_class_names(names)
    except ValueError as error:
        raise ValueError(f"{path} must hold one class name a line. {error}") from error
    if task is None:
        return Labels(tuple(names))
    path = _path(source, TASK)
    content = parse_json(task, path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold one JSON object. Received: {str(content)[:80]}")
    check_fields(content, _TASK_FIELDS, path)
    kind, thresholds = content.get("task"), content.get("thresholds") or {}
    if kind != MULTILABEL or content.get("activation") != ACTIVATIONS[kind]:
        raise ValueError(
            f'{path} must have the task "{MULTILABEL}" and the activation '
            f'"{ACTIVATIONS[MULTILABEL]}". Received: task={kind!r}, '
            f"activation={content.get('activation')!r}"
        )
    values: list[Any] = [thresholds.get(name) for name in names]
    if len(thresholds) != len(values) or not all(type(v) in (int, float) for v in values):
        raise ValueError(
            f"{path} must have a threshold, a number, for each of the {len(names)} "
            f"classes. Received: {str(thresholds)[:80]}"
        )
    try:
        return Labels(tuple(names), kind, tuple(values))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
