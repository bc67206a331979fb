"""Licences of weights, as the model card beside them states it."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from keras_vit.utils.files import CARD

APACHE = "apache-2.0"  # As in model cards: of the official weights and of those in the package.
UNKNOWN = "unknown"  # Where none is stated; the Hub's name for that, too.
_MOST = 2**16  # Bytes of a card that are read.
_HEADER = re.compile(r"---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_NAME = re.compile(r"[\w.+-]{1,64}")
# Identifiers that the Hugging Face Hub knows; any other name may stand as the name of "other".
_IDENTIFIERS = re.compile(
    rf"{UNKNOWN}|apache-2\.0|mit|isc|unlicense|bsd(-[\w-]+)?|cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.0|"
    r"[al]?gpl-[23]\.0|mpl-2\.0|((bigscience|creativeml|bigcode)-)?openrail(-m)?"
)


def licence_in_card(folder: pathlib.Path) -> str | None:
    """Returns the field `license` at the start of the model card in a folder; None if unknown.

    Of the licence "other" it is the field `license_name`.
    """
    try:
        with open(folder / CARD, "rb") as file:
            text = file.read(_MOST).decode("utf-8", errors="replace")
    except OSError:
        return None
    header = _HEADER.match(text)
    lines = header[1] if header else ""
    fields = dict(re.findall(r"^(license|license_name):[ \t]*(.*?)[ \t\r]*$", lines, re.M))
    names = [fields.get(field, "").strip("'\"") for field in ("license", "license_name")]
    if names[0] == "other" and names[1]:
        names = names[1:]
    licence = licence_name(names[0])
    return None if licence == UNKNOWN else licence


def hub_licence(licence: str) -> dict[str, str]:
    """Returns a licence as the fields of a model card on the Hub."""
    if _IDENTIFIERS.fullmatch(licence):
        return {"license": licence}
    return {"license": "other", "license_name": licence}


def licence_name(value: Any) -> str | None:
    """Returns the name of a licence in a file; None if it is none, such as a long text."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def card_header(licence: str) -> str:
    """Returns the start of a card with a licence, as `licence_in_card` and the Hub read it."""
    fields = [f"{name}: {value}\n" for name, value in hub_licence(licence).items()]
    return f"---\n{''.join(fields)}---\n"


def without_header(card: str) -> str:
    """Returns the text of a card after its YAML header, if it has one."""
    header = _HEADER.match(card)
    return card[header.end() :].lstrip() if header else card
