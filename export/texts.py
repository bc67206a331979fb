"""Texts in an export: what it knows of its classifier, golden samples, the report of its check.

Each format keeps them in a way of its own, by the names of `NAMES`. What they say is written by
`texts_of` and read by `read_facts` only. This module imports neither Keras nor NumPy when it is
loaded, as the formats' modules.
"""

from __future__ import annotations

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_vit import description_files
from keras_vit._version import __version__
from keras_vit.description import Description, check_class_names
from keras_vit.files import CLASSES, PREPROCESSING
from keras_vit.json_files import parse_json

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

ORIGIN = "origin.json"
GOLDEN = "golden.json"  # Golden samples; see `golden.py`.
CHECK = "check.json"  # The report of the check after the export.
NAMES = (*description_files.TEXTS, ORIGIN, GOLDEN, CHECK)


def texts_of(
    classifier: Classifier, files: Sequence[str], input_size: tuple[int, int] | None = None
) -> dict[str, str]:
    """Returns the texts of an export by their names, except for the report of its check.

    Args:
        classifier: The exported classifier.
        files: The check images.
        input_size: The only size of pixels that the export takes, if it has one.
    """
    import keras
    import tensorflow as tf

    from .golden import golden_json

    origin = {
        "made_by": f"keras_vit {__version__}",
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "model": classifier.model.name,
        "parameters": classifier.model.count_params(),
        "recipe": classifier.recipe,
    }
    return {
        **description_files.texts_of(classifier.description),
        ORIGIN: json.dumps(origin, indent=2) + "\n",
        GOLDEN: golden_json(classifier, files, input_size),
    }


def read_facts(texts: Mapping[str, str]) -> tuple[Description, dict[str, Any]]:
    """Returns the description and the recipe in the texts of an export.

    Raises:
        ValueError: If a text is missing, or is not one that `texts_of` writes.
    """
    check_texts(texts)
    origin = parse_json(texts.get(ORIGIN, "{}"), ORIGIN)
    recipe = origin.get("recipe") if isinstance(origin, dict) else None
    description = description_files.description_of_texts(texts, "")
    return description, recipe if isinstance(recipe, dict) else {}


def check_texts(texts: Mapping[str, str]) -> None:
    """Raises ValueError unless texts are those of an export of this package."""
    missing = [name for name in (CLASSES, PREPROCESSING) if name not in texts]
    if missing:
        raise ValueError(
            "It must hold the class names and the preprocessing that keras-vit export writes. "
            f"Missing: {', '.join(missing)}"
        )


def write_texts(folder: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Writes texts into a folder, each as a file."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def read_texts(folder: pathlib.Path) -> dict[str, str]:
    """Returns the texts in a folder by their names."""
    paths = {name: folder / name for name in NAMES}
    return {
        name: path.read_bytes().decode("utf-8") for name, path in paths.items() if path.is_file()
    }


def classes_to_json(classes: str) -> str:
    """Returns the class names as a JSON list, from the text of a name on each line."""
    return json.dumps(classes.splitlines())


def classes_from_json(names: str, source: str) -> str:
    """Returns the text of a class name on each line.

    Args:
        names: A JSON list.
        source: Its name, for the message of an error.

    Raises:
        ValueError: If it is no list of names, or one of them is not a line of text.
    """
    listed = parse_json(names, source)
    check_class_names(listed if isinstance(listed, list) else [listed])
    return "".join(f"{name}\n" for name in listed)
