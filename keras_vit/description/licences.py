"""Licences of weights, as the model card beside them states it."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from keras_vit.utils.files import MODEL_CARD

APACHE = "apache-2.0"  # As in model cards: of the official weights and of those in the package.
UNKNOWN = "unknown"  # Of weights whose source states none; the Hub's name too.
# Names that the Hub knows, of the most common licences; any other one is "other" with its name.
_OF_HUB = (
    APACHE, UNKNOWN, "mit", "bsd-2-clause", "bsd-3-clause", "gpl-2.0", "gpl-3.0", "agpl-3.0",
    "lgpl-2.1", "lgpl-3.0", "mpl-2.0", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0",
    "cc-by-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0", "openrail", "unlicense",
)  # fmt: skip
README = "README.md"
CARDS = (README, MODEL_CARD)
_MOST = 2**16  # Bytes of a card that are read.
_NAME = re.compile(r"[\w.+-]{1,64}")


def licence_in_card(folder: pathlib.Path) -> str | None:
    """Returns the field `license` at the start of the model card in a folder; None without one.

    Of the licence "other" it is the field `license_name`.
    """
    for name in CARDS:
        try:
            with open(folder / name, "rb") as file:
                text = file.read(_MOST).decode("utf-8", errors="replace")
        except OSError:
            continue
        header = re.match(r"---\r?\n(.*?)\r?\n---", text, re.DOTALL)
        lines = header[1] if header else ""
        fields = dict(re.findall(r"^(license|license_name):[ \t]*(.*?)[ \t\r]*$", lines, re.M))
        names = [fields.get(field, "").strip("'\"") for field in ("license", "license_name")]
        if names[0] == "other" and names[1]:
            names = names[1:]
        if licence := licence_name(names[0]):
            return licence
    return None


def hub_licence(licence: str) -> dict[str, str]:
    """Returns a licence as the fields of a model card on the Hub."""
    if licence in _OF_HUB:
        return {"license": licence}
    return {"license": "other", "license_name": licence}


def licence_name(value: Any) -> str | None:
    """Returns the name of a licence in a file; None if it is none, such as a long text."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None
