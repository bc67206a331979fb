"""Texts in an export: what it knows of its classifier, golden samples, the report of its check.

Each format stores them in its own way, by the names of `NAMES`. Only `publish.texts_of` writes
what they say, and only `read_facts` reads it. As the modules of the formats, this one imports
neither Keras nor NumPy.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_vit.description import Description, check_class_names, description_texts
from keras_vit.utils.files import CLASSES, PREPROCESSING
from keras_vit.utils.json_files import parse_json

ORIGIN = "origin.json"
GOLDEN = "golden.json"  # Golden samples; see `golden.py`.
CHECK = "check.json"  # The report of the check after the export.
CHECKSUMS = "checksums.json"  # SHA-256 of all other parts; see `part_checksums.py`.
TFLITE_LABELS = "labels.txt"  # Class names in a TFLite file, whose metadata refer to it.
NAMES = (*description_texts.EXPORT_TEXTS, ORIGIN, GOLDEN, CHECK, CHECKSUMS)


def read_facts(texts: Mapping[str, str]) -> tuple[Description, dict[str, Any]]:
    """Returns the description and the recipe in the texts of an export.

    Raises:
        ValueError: If a text is missing, or is not one that `publish.texts_of` writes.
    """
    check_texts(texts)
    origin = parse_json(texts.get(ORIGIN, "{}"), ORIGIN)
    recipe = origin.get("recipe") if isinstance(origin, dict) else None
    description = description_texts.description_of_texts(texts, "")
    return description, recipe if isinstance(recipe, dict) else {}


def check_texts(texts: Mapping[str, str]) -> None:
    """Raises ValueError unless an export of this package has these texts."""
    missing = [name for name in (CLASSES, PREPROCESSING) if name not in texts]
    if missing:
        raise ValueError(
            "It must hold the class names and the preprocessing that keras-vit export writes. "
            f"Missing: {', '.join(missing)}"
        )


def write_texts(path: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Writes texts into a folder, each as a file."""
    for name, text in texts.items():
        (path / name).write_text(text, encoding="utf-8")


def json_texts(texts: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns texts as JSON by other names; class names become a list.

    Args:
        texts: By their names, some of `NAMES`.
        names: The other names by the names of the texts.
    """
    return {
        names[name]: json.dumps(text.splitlines()) if name == CLASSES else text
        for name, text in texts.items()
    }


def texts_of_json(stored: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts of which `json_texts` made `stored`, which may also hold others.

    Raises:
        ValueError: If the class names are no list, or one of them is not a line of text.
    """
    texts = {name: stored[other] for name, other in names.items() if other in stored}
    if CLASSES in texts:
        class_names = parse_json(texts[CLASSES], names[CLASSES])
        check_class_names(class_names if isinstance(class_names, list) else [class_names])
        texts[CLASSES] = "".join(f"{name}\n" for name in class_names)
    return texts
