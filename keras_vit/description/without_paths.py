"""Recipes and commands without the folders of a machine and its users, for what leaves it.

A relative path stays as it was typed, so that a command can be copied. Of any other, only the last
part stays, behind `.../`. Names of data sets, models and weights stay whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .run_record import RunRecord

# Fields of a recipe that may be a path.
PATHS = ("data", "data_dir", "checked", "weights", "replay", "teacher", "samples")
_PATTERN = "--group-by"  # A flag whose value is no path.
DATA_PLACE = "data_place"  # In a recipe without paths: the hash of the path to the data.
# A root, a home or an address: alone, or behind a scheme, a drive or the equals sign of a flag.
_ROOT = re.compile(r"(^|[:=,;\s\"'])[/\\~]")
_FILES = "tfrecords:"  # A scheme that is followed by a path.
_NAMES = ("tfds:", "memory:")  # Schemes of data that have no path.
LEFT_OUT = ".../"  # A path that begins with it does not exist.
_NOTE = f"  # {LEFT_OUT} stands for folders that are left out"


def shown_path(path: str) -> str:
    """Returns a path as it is shown: a relative one and a name whole, of others the last part."""
    if path.startswith(_FILES):
        return _FILES + shown_path(path.removeprefix(_FILES))
    parts = [part for part in re.split(r"[/\\]+", path) if part not in ("", ".", "..", "~")]
    if not parts or not _ROOT.search(path):
        return path
    return LEFT_OUT + parts[-1]


def command_without_paths(command: str) -> str:
    """Returns a command as it is shown; a comment at its end says what is left out of it."""
    command = command.removesuffix(_NOTE)
    try:
        words = shlex.split(command)
    except ValueError:  # A program's own text.
        words = command.split()
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        shown.append(word if _PATTERN in (flag, before) else flag + equals + shown_path(value))
    text = shlex.join(shown)
    return text + _NOTE if LEFT_OUT in text else text


def without_paths(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a `recipe.json` with each path as it is shown.

    `DATA_PLACE` is then in it, by which `is_place` knows the data again.

    Args:
        recipe: The recipe; unchanged if it is reduced already.
    """
    record = RunRecord.from_json(recipe)
    entries = [*record.data.items(), *record.settings.items()]
    values = {value for name, value in entries if name in PATHS and isinstance(value, str)}
    known = sorted((value for value in values if shown_path(value) != value), key=len, reverse=True)

    def reduced(value, name=""):
        if isinstance(value, Mapping):
            return {key: reduced(part, key) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            # Skipped files, with their paths, are counted.
            return len(value) if name == "skipped" else [reduced(part) for part in value]
        if not isinstance(value, str):
            return value
        if name in PATHS:
            return shown_path(value)
        if name == "command":
            return command_without_paths(value)
        for path in known:
            value = value.replace(path, shown_path(path))
        return value

    found = reduced(recipe)
    is_path = record.data_name and not record.data_name.startswith((*_NAMES, LEFT_OUT))
    if is_path and record.data_place is None:
        found[DATA_PLACE] = _place(record.data_name)
    return found


def is_place(recipe: RunRecord, path: str) -> bool:
    """Returns whether a path leads to the data of a run.

    The hash of the place decides where the record has it, and the name only where it has not: a
    relative name says nothing about the folder that it is in today.

    Args:
        recipe: The record of the run, which may be empty.
        path: The path of a folder or file, or the name of other data.
    """
    if recipe.data_place is not None:
        return _place(path) == recipe.data_place
    return path == recipe.data_name != ""


def command_hash(command: str) -> str:
    """Returns the SHA-256 of a whole command in the working directory.

    Processes that run it together have the same one, whatever their number.
    """
    together = re.sub(r" --process[ =]\d+", "", command)
    return hashlib.sha256(f"{os.getcwd()}\n{together}".encode(errors="surrogateescape")).hexdigest()


def _place(path):
    """The hash of a path; records are a folder with or without their scheme."""
    path = path.removeprefix(_FILES)
    return hashlib.sha256(os.path.realpath(path).encode(errors="surrogateescape")).hexdigest()[:16]
