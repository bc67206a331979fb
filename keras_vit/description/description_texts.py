"""The texts in which a folder and an export hold a description, and the license in a model card."""

from __future__ import annotations

import json
import os
import pathlib
import re
from collections.abc import Iterable

from keras_vit.description import Description, description_text
from keras_vit.description.class_labels import ACTIVATIONS, MULTILABEL, UNKNOWN
from keras_vit.utils.files import CARD, CLASSES, DESCRIPTION, PREPROCESSING, TASK
from keras_vit.utils.text_files import read_text

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


def read_texts(folder: pathlib.Path, names: Iterable[str] = TEXTS) -> dict[str, str]:
    """Returns the texts that a folder has, by their names.

    Args:
        folder: The folder.
        names: The names of the texts.

    Raises:
        ValueError: If one is no text; see `read_text`.
    """
    texts = {}
    for name in names:
        path = folder / name
        if path.is_file():
            texts[name] = read_text(path)
    return texts


APACHE = "apache-2.0"  # As in model cards: of the official weights and of those in the package.
# The license that a family of weights was published with, by a pattern of their names, for files
# that do not state it.
_LICENSES = (
    (r"eupe", "fair-noncommercial-research-license"),
    (r"dinov3", "dinov3-license"),
    (r"ijepa|metaclip", "cc-by-nc-4.0"),
    (r"medsiglip", "health-ai-developer-foundations"),
    (r"radio_?v\d", "nvidia-open-model-license"),
    (r"^eva_|laion", "mit"),
    (r"dinov2|siglip|lingbot|google[/-]+vit|vit_msn", APACHE),
)
_NONCOMMERCIAL = re.compile("-nc|noncommercial|amlr")
_MOST = 2**16  # Bytes of a card that are read.
_HEADER = re.compile(r"---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_NAME = re.compile(r"[\w.+-]{1,64}")
# Identifiers that the Hugging Face Hub knows; any other name may stand as the name of "other".
_IDENTIFIERS = re.compile(
    rf"{UNKNOWN}|apache-2\.0|mit|isc|unlicense|bsd(-[\w-]+)?|cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.0|"
    r"[al]?gpl-[23]\.0|mpl-2\.0|((bigscience|creativeml|bigcode)-)?openrail(-m)?"
)


def license_in_card(folder: pathlib.Path) -> str | None:
    """Returns the field `license` at the start of the model card in a folder; None if unknown.

    Of the license "other" it is the field `license_name`.
    """
    try:
        with open(folder / CARD, "rb") as file:
            text = file.read(_MOST).decode("utf-8", errors="replace")
    except OSError:
        return None
    header = _HEADER.match(text)
    lines = header[1] if header else ""
    fields = dict(re.findall(r"^(license|license_name):(.*)$", lines, re.M))
    texts = (fields.get(field, "").strip() for field in ("license", "license_name"))
    known, name = (text.strip("'\"") for text in texts)
    license = license_name(name if known == "other" and name else known)
    return None if license == UNKNOWN else license


def license_of_family(names: Iterable[str | os.PathLike | None]) -> str | None:
    """Returns the license of the first family that one of the names of weights belongs to."""
    texts = [str(name).lower() for name in names if name]
    for pattern, license in _LICENSES:
        if any(re.search(pattern, text) for text in texts):
            return license
    return None


def describe_license(license: str) -> str:
    """Returns a sentence about the license of weights."""
    limit = ", which forbids commercial use" if _NONCOMMERCIAL.search(license) else ""
    return f"License of the weights: {license}{limit}."


def hub_license(license: str) -> dict[str, str]:
    """Returns a license as the fields of a model card on the Hub."""
    if _IDENTIFIERS.fullmatch(license):
        return {"license": license}
    return {"license": "other", "license_name": license}


def license_name(value: object) -> str | None:
    """Returns the name of a license in a file; None if it is none, such as a long text."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def card_header(license: str) -> str:
    """Returns the start of a card with a license, as `license_in_card` and the Hub read it."""
    fields = [f"{name}: {value}\n" for name, value in hub_license(license).items()]
    return f"---\n{''.join(fields)}---\n"


def without_header(card: str) -> str:
    """Returns the text of a card after its YAML header, if it has one."""
    header = _HEADER.match(card)
    return card[header.end() :].lstrip() if header else card
