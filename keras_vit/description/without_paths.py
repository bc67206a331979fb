"""Recipes and commands without paths and names of users, for what leaves this machine.

A path becomes its last part. Names of data sets, models and weights stay whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from keras_vit.configs import MODELS

from .recipe import Recipe

# Fields of a recipe that may be a path.
PATHS = ("data", "data_dir", "weights", "replay", "teacher", "samples")
_PATTERN = "--group-by"  # A flag whose value is no path.
DATA_PLACE = "data_place"  # In a recipe without paths: the hash of the path to the data.
# Names with a scheme; the first is followed by a path.
_FILES, _SCHEMES = "tfrecords:", ("tfds:", "hf:", "kaggle:")


def last_part(path: str) -> str:
    """Returns the last part of a path; a name of something stays whole."""
    if path.startswith(_SCHEMES) or path.partition(" ")[0] in MODELS:
        return path
    if path.startswith(_FILES):
        return _FILES + last_part(path.removeprefix(_FILES))
    parts = [part for part in re.split(r"[/\\]+", path) if part not in ("", ".", "..")]
    return parts[-1] if parts else path


def command_without_paths(command: str) -> str:
    """Returns a command with the last parts of its paths."""
    try:
        words = shlex.split(command)
    except ValueError:  # A program's own text.
        words = command.split()
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        shown.append(word if _PATTERN in (flag, before) else flag + equals + last_part(value))
    return shlex.join(shown)


def without_paths(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a `recipe.json` with the last part of each path.

    `DATA_PLACE` is then in it, by which `is_place` knows the data again.

    Args:
        recipe: The recipe; unchanged if it is reduced already.
    """
    record = Recipe.from_json(recipe)
    entries = [*record.data.items(), *record.settings.items()]
    values = {value for name, value in entries if name in PATHS and isinstance(value, str)}
    known = sorted((value for value in values if last_part(value) != value), key=len, reverse=True)

    def reduced(value, name=""):
        if isinstance(value, Mapping):
            return {key: reduced(part, key) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            # Skipped files, with their paths, are counted.
            return len(value) if name == "skipped" else [reduced(part) for part in value]
        if not isinstance(value, str):
            return value
        if name in PATHS:
            return last_part(value)
        if name == "command":
            return command_without_paths(value)
        for path in known:
            value = value.replace(path, last_part(path))
        return value

    found = reduced(recipe)
    if record.data_name in known and record.data_place is None:
        found[DATA_PLACE] = _place(record.data_name)
    return found


def is_place(recipe: Recipe, path: str) -> bool:
    """Returns whether a path leads to the data of a run.

    Args:
        recipe: The record of the run, which may be empty.
        path: The path of a folder or file, or the name of other data.
    """
    if recipe.data_place:
        return _place(path) == recipe.data_place
    name = recipe.data_name
    return name != "" and os.path.realpath(path) == os.path.realpath(name)


def _place(path):
    return hashlib.sha256(os.path.realpath(path).encode(errors="surrogateescape")).hexdigest()[:16]
