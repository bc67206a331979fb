"""Checksums of the parts of an export."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping

from keras_vit.utils.json_files import parse_json

from .formats.export_format import CHECKSUMS, NAMES

# Parts of a file: its bytes before the texts, and their number.
MODEL, MODEL_BYTES = "model", "model_bytes"


def checksums(
    path: pathlib.Path, texts: Mapping[str, str], model_bytes: int | None = None
) -> dict[str, str | int | None]:
    """Returns the SHA-256 of the parts of an export, in hexadecimal.

    The parts of a folder are its files, by their paths. The parts of a file are its texts, by
    their names, and `MODEL`.

    Args:
        path: The export.
        texts: Its texts.
        model_bytes: Number of bytes of a file before its texts.
    """
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        parts = {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
        kept = {name: part for name, part in parts.items() if not name.endswith(CHECKSUMS)}
        return {name: hashlib.sha256(part).hexdigest() for name, part in kept.items()}
    with path.open("rb") as file:
        model = hashlib.sha256(file.read(model_bytes)).hexdigest()
    others = {name: text.encode() for name, text in texts.items() if name != CHECKSUMS}
    return {
        MODEL: model,
        MODEL_BYTES: model_bytes,
        **{name: hashlib.sha256(text).hexdigest() for name, text in others.items()},
    }


def check_parts(path: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Raises ValueError if a part of an export is missing or changed, or a text is added."""
    written = parse_json(texts.get(CHECKSUMS, "null"), CHECKSUMS)
    if not isinstance(written, dict) or not written:
        raise ValueError(f"{CHECKSUMS} must hold a checksum for each part of the export.")
    received = checksums(path, texts, written.get(MODEL_BYTES))
    wrong = [
        f"{part} is {'changed' if part in received else 'missing'}"
        for part in written
        if received.get(part) != written[part]
    ]
    # Only texts have a meaning for this package; tools of a system may add other files.
    added = [part for part in received if part not in written]
    wrong += [f"{part} is added" for part in added if part.rpartition("/")[2] in NAMES]
    if wrong:
        raise ValueError(
            "Every part of an export must have the SHA-256 that it had when it was written. "
            f"Received: {', '.join(wrong)}"
        )
