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

# Fields of a recipe that may be a path.
PATHS = ("data", "data_dir", "weights", "replay", "teacher", "class_weights", "samples")
# Fields of a recipe with names of classes, models, recipes and columns, which may have a slash, and
# tables and patterns of paths relative to the data.
_NAMES = (
    "class_names",
    "labels",
    "split",
    "group_by",
    "path_column",
    "label_column",
    "label_separator",
    "config",
    "model",
    "recipe",
    "recipe_source",
)
_PATTERN = "--group-by"  # A flag whose value is no path.
DATA_PLACE = "data_place"  # In a recipe without paths: the hash of the path to the data.
# Names with a scheme; the first is followed by a path.
_FILES, _SCHEMES = ("tfrecords:", "parquet:"), ("tfds:", "vtab:", "vtab-tune:", "hf:", "kaggle:")
_HOME = re.compile(r"~[^/\\]*|([A-Za-z]:)?[/\\]+(home|Users)[/\\]+[^/\\]+")  # A user's.
# A path in a sentence: from the root, from a home or from the working directory.
_PATH = re.compile(r"(?<![\w.:/\\<-])(?:(?:~\w*|\.{1,2})?/|[A-Za-z]:\\)[^\s'\"`,;()]+")


def last_part(path: str) -> str:
    """Returns the last part of a path; a home becomes "~", and a name of something stays whole."""
    if path.startswith(_SCHEMES) or path.partition(" ")[0] in MODELS:
        return path
    for scheme in _FILES:
        if path.startswith(scheme):
            return scheme + last_part(path.removeprefix(scheme))
    parts = [part for part in re.split(r"[/\\]+", path) if part not in ("", ".", "..")]
    if _HOME.fullmatch(path.rstrip("/\\")):
        return "~"
    return parts[-1] if parts else path


def command_without_paths(command: str) -> str:
    """Returns a command with the last parts of its paths."""
    try:
        words = shlex.split(command)
    except ValueError:  # A program's own text.
        return _sentence(command, ())
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        is_pattern = _PATTERN in (flag, before)
        shown.append(word if is_pattern else flag + equals + last_part(value))
    return shlex.join(shown)


def without_paths(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a `recipe.json` with the last part of each path.

    `DATA_PLACE` is then in it, by which `is_place` knows the data again.

    Args:
        recipe: The recipe, of this version or an earlier one; unchanged if it is reduced already.
    """
    found = [recipe.get(part) for part in ("data", "settings")]
    fields = [part for part in found if isinstance(part, Mapping)]
    values = {part[name] for part in fields for name in PATHS if isinstance(part.get(name), str)}
    known = sorted((value for value in values if last_part(value) != value), key=len, reverse=True)
    reduced = _reduced(recipe, known)
    data = fields[0].get("data") if fields else None
    if data in known and DATA_PLACE not in recipe:
        reduced[DATA_PLACE] = _place(data)
    return reduced


def is_place(recipe: Mapping[str, Any], path: str) -> bool:
    """Returns whether a path leads to the data of a run.

    Args:
        recipe: The content of the run's `recipe.json`, or {}.
        path: The path of a folder or file, or the name of other data.
    """
    known = (recipe.get("data") or {}).get("data") or ""
    if place := recipe.get(DATA_PLACE):
        return _place(path) == place
    return known != "" and os.path.realpath(path) == os.path.realpath(known)


def _place(path):
    return hashlib.sha256(os.path.realpath(path).encode(errors="surrogateescape")).hexdigest()[:16]


def _reduced(value, known, name=""):
    if name in _NAMES:
        return value
    if isinstance(value, Mapping):
        return {key: _reduced(part, known, key) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        if name == "skipped":
            return len(value)  # Files with their paths.
        return [_reduced(part, known) for part in value]
    if not isinstance(value, str):
        return value
    if name == "command":
        return command_without_paths(value)
    return last_part(value) if name in PATHS else _sentence(value, known)


def _sentence(text, known):
    for path in known:
        text = text.replace(path, last_part(path))
    return _PATH.sub(lambda match: last_part(match[0]), text)
