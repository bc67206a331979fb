"""JSON from files of any origin, with bounds on its depth and numbers."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100  # Lists and objects within each other.

# What a field may hold: a type, several of them, or the fields of an object.
Fields = Mapping[str, Any]


def parse_json(text: str | bytes, source: object) -> Any:
    """Returns the value of a JSON text whose numbers are finite and whose depth is bounded.

    Args:
        text: The text; bytes are UTF-8.
        source: The file, for the message.

    Raises:
        ValueError: If it is not JSON, is nested deeper than `MAX_DEPTH`, or holds NaN, infinity
            or a number that is infinite as a float64.
    """
    finite: dict[str, Any] = {
        "parse_constant": functools.partial(_finite, float),
        "parse_float": functools.partial(_finite, float),
        "parse_int": functools.partial(_finite, int),
    }
    try:
        value = json.loads(text, **finite)
        if _depth(value) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and objects in each other")
        return value
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{source} must be JSON with finite numbers. Received: {error}") from error


def _finite(kind, text):
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {_short(text)}")
    return kind(text)


def _depth(value):
    if not isinstance(value, (dict, list)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def read_json(path: str | os.PathLike, fields: Fields | None = None) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Args:
        path: The file.
        fields: What its fields must hold, see `check_fields`.

    Raises:
        ValueError: If it holds no JSON object; see `parse_json`.
        OSError: If it cannot be read.
    """
    content = parse_json(pathlib.Path(path).read_bytes(), path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold one JSON object. Received: {_short(content)}")
    if fields:
        check_fields(content, fields, path)
    return content


def check_fields(content: Mapping[str, Any], fields: Fields, source: object) -> None:
    """Raises ValueError if a field holds another type than it must; null and absence pass.

    Args:
        content: The object.
        fields: By name a type, a tuple of types, or a mapping of fields for an object. `float`
            takes whole numbers too.
        source: The file, for the message.
    """
    for name, kind in fields.items():
        value = content.get(name)
        if value is None:
            continue
        nested = isinstance(kind, Mapping)
        kinds = (dict,) if nested else kind if isinstance(kind, tuple) else (kind,)
        if type(value) not in kinds and not (type(value) is int and float in kinds):
            raise ValueError(
                f"{name} must be {' or '.join(kind.__name__ for kind in kinds)} in {source}. "
                f"Received: {_short(value)}"
            )
        if nested:
            check_fields(value, kind, source)


def changed_fields(whole: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that differ from their defaults, as types of JSON.

    So a file has only what is special about a model, and a field that comes or goes does not
    change the files of other models.

    Args:
        whole: The dataclass; it may hold others, mappings and tuples.
    """
    fields = {}
    for field in dataclasses.fields(whole):
        value, factory = getattr(whole, field.name), field.default_factory
        if value != (field.default if factory is dataclasses.MISSING else factory()):
            fields[field.name] = _plain(value)
    return fields


def _plain(value):
    if dataclasses.is_dataclass(value):
        return changed_fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _short(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def number_or_none(value: float) -> float | None:
    """Returns a number as a type of JSON: None for NaN."""
    if math.isnan(value):
        return None
    return float(value) if isinstance(value, float) else value
