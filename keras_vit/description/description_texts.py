"""The texts in which a classifier's folder and an export hold a description.

`description.json` is the description. The others are made from it for other programs.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping

from keras_vit.description import (
    Description,
    check_class_names,
    description_text,
    read_description,
)
from keras_vit.description.tasks import ACTIVATIONS, MULTILABEL
from keras_vit.utils.files import CLASSES, DESCRIPTION, PREPROCESSING, TASK

TEXTS = (DESCRIPTION, CLASSES)  # In a folder.
EXPORT_TEXTS = (*TEXTS, PREPROCESSING, TASK)


def texts_of(description: Description) -> dict[str, str]:
    """Returns the texts of a description, `EXPORT_TEXTS`, by their file names.

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
    """Returns the description in the texts of a folder or an export.

    Args:
        texts: The texts of `texts_of`.
        source: The folder or file, for messages.

    Raises:
        ValueError: If a text is missing or wrong, or they do not agree with each other.
    """
    if DESCRIPTION not in texts:
        raise ValueError(f"There must be a {DESCRIPTION}. Missing in {source}")
    described = read_description(texts[DESCRIPTION], _path(source, DESCRIPTION))
    path, labels = _path(source, CLASSES), described.labels
    if labels.names is not None and CLASSES not in texts:
        raise ValueError(
            f"The class names of {DESCRIPTION} must be there as text too. Missing in "
            f"{source}: {CLASSES}"
        )
    if CLASSES in texts:
        found = tuple(texts[CLASSES].splitlines())
        try:
            check_class_names(found)
        except ValueError as error:
            raise ValueError(f"{path} must hold one class name a line. {error}") from error
        if labels.names is None or found != labels.output_names:
            raise ValueError(
                f"{path} and {DESCRIPTION} do not belong together: the first is made from the "
                "second, so change both. Received: two contents"
            )
    return described


def description_of_folder(folder: pathlib.Path) -> Description:
    """Returns the description of a classifier from the texts in its folder.

    Raises:
        ValueError: As `description_of_texts`.
    """
    return description_of_texts(read_texts(folder), folder)


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
