"""JSON from files of any origin, with bounds on its depth and numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100  # Lists and objects within each other.
_MAX_BYTES = 256 * 2**20
_MAX_DIGITS = 20  # Digits of a whole number: 64 bits.

# What a field may hold: a type, several of them, or the fields of an object.
Fields = Mapping[str, Any]

_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def parse_json(text: str | bytes, source: object) -> Any:
    """Returns the value of a JSON text whose numbers are finite and whose depth is bounded.

    Args:
        text: The text; bytes are UTF-8.
        source: The file, for the message.

    Raises:
        ValueError: If it is not JSON; if it holds NaN, infinity or a number that is infinite
            as a float64 or larger than 64 bits; or if it is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded
        )
    except RecursionError:
        value = None
        depth = MAX_DEPTH + 1
    except ValueError as error:
        raise ValueError(f"{source} must be JSON with finite numbers. Received: {error}") from error
    else:
        depth = _depth(value)
    if depth > MAX_DEPTH:
        raise ValueError(
            f"{source} must be JSON whose lists and objects are nested no deeper than {MAX_DEPTH}."
        )
    return value


def read_json(path: str | os.PathLike, fields: Fields | None = None) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Args:
        path: The file.
        fields: What its fields must hold, see `check_fields`.

    Raises:
        ValueError: If it holds no JSON object; see `parse_json`.
        OSError: If it cannot be read.
    """
    path = pathlib.Path(path)
    if path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"{path} must be JSON of no more than {_MAX_BYTES:,} bytes.")
    content = parse_json(path.read_bytes(), path)
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
                f"{name} must be {' or '.join(_KINDS[kind] for kind in kinds)} in {source}. "
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


def _no_constant(name):
    raise ValueError(name)


def _finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {_short(text)}")
    return value


def _bounded(text):
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"the number {_short(text)}")
    return int(text)


def _depth(value):
    """Lists and objects within each other, without recursion."""
    depth, level = 0, [value]
    while (level := [item for item in level if isinstance(item, (dict, list))]) and (
        depth <= MAX_DEPTH
    ):
        depth += 1
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth
