"""SHA-256 of the parts of an export, by which `verify` names a part that was damaged or changed.

The parts of a folder are its files, by their paths. The parts of a file are its texts, by their
names, and `MODEL`.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping

from keras_vit.utils.json_files import parse_json

from .formats import ExportFormat
from .texts import CHECKSUMS, NAMES

MODEL = "model"  # The bytes of a file except for its texts.


def checksums_json(export_format: type[ExportFormat], path: pathlib.Path) -> str:
    """Returns the text of `checksums.json` for an export that has all other texts.

    Args:
        export_format: The format.
        path: The export.
    """
    texts = export_format.open(path).texts
    return json.dumps(_checksums(export_format, path, texts), indent=2) + "\n"


def check_parts(
    export_format: type[ExportFormat], path: pathlib.Path, texts: Mapping[str, str]
) -> tuple[str, ...]:
    """Compares the parts of an export with their checksums.

    Args:
        export_format: The format.
        path: The export.
        texts: Its texts.

    Returns:
        Remarks for the user: that an export of an earlier version has no checksums.

    Raises:
        ValueError: If a part is missing or changed.
    """
    if CHECKSUMS not in texts:
        return (
            "No checksums, as in exports of earlier versions: only what changes the answers to the "
            "golden samples is found.",
        )
    written = parse_json(texts[CHECKSUMS], CHECKSUMS)
    if not isinstance(written, dict) or not written:
        raise ValueError(f"{CHECKSUMS} must hold a checksum for each part of the export.")
    received = _checksums(export_format, path, texts)
    wrong = [
        f"{part} is {'changed' if part in received else 'missing'}"
        for part in written
        if received.get(part) != written[part]
    ]
    # Only texts have a meaning for this package; tools of a system may add other files.
    wrong += [
        f"{part} is added"
        for part in received
        if part not in written and part.rpartition("/")[2] in NAMES
    ]
    if wrong:
        raise ValueError(
            "Every part of an export must have the SHA-256 that it had when it was written. "
            f"Received: {', '.join(wrong)}"
        )
    return ()


def _checksums(export_format, path, texts):
    """Returns the checksums of all parts, in hexadecimal, by the names of the parts."""
    if export_format.marker:
        return {
            file.relative_to(path).as_posix(): _checksum_of_file(file)
            for file in sorted(path.rglob("*"))
            if file.is_file() and file.name != CHECKSUMS
        }
    model = hashlib.sha256()
    for piece in export_format.content(path):
        model.update(piece)
    others = {name: text for name, text in texts.items() if name != CHECKSUMS}
    return {
        MODEL: model.hexdigest(),
        **{name: hashlib.sha256(text.encode()).hexdigest() for name, text in others.items()},
    }


def _checksum_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
