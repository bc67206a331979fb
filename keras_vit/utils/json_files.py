"""JSON from files of any origin, with bounds on its depth and numbers, and as Python types."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, Union, get_args, get_origin, get_type_hints

MAX_DEPTH = 100  # Lists and objects within each other.

# What a field may hold: a type, several of them, or the fields of an object.
Fields = Mapping[str, Any]

# Names in files that were written before 0.1.0, and what they are called now.
_FIELDS = {
    "accumulation_steps": "gradient_accumulation_steps",
    "averaging": "ema_momentum",
    "class_weights": "class_weight",
    "clip_norm": "global_clipnorm",
    "licence": "license",
}
_VALUES = {"mean-colour": "mean-color"}


class DataclassInstance(Protocol):
    """An instance of any dataclass, to a type checker."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]


def parse_json(text: str | bytes, source: str | os.PathLike) -> Any:
    """Returns the value of a JSON text whose numbers are finite and whose depth is bounded.

    Args:
        text: The text; bytes are UTF-8.
        source: The file, for the message.

    Raises:
        ValueError: If it is not JSON, is nested deeper than `MAX_DEPTH`, or holds NaN, infinity
            or a number that is infinite as a float64.
    """
    finite_float = functools.partial(_finite, float)
    finite_int = functools.partial(_finite, int)
    try:
        value = json.loads(
            text, parse_constant=finite_float, parse_float=finite_float, parse_int=finite_int
        )
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


def check_fields(content: Mapping[str, Any], fields: Fields, source: str | os.PathLike) -> None:
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


class OtherTypeError(ValueError):
    """A value of JSON is not of the type that it must have."""


def fits_json(kind: type | types.UnionType, value: Any) -> bool:
    """Returns whether a value of JSON is of a type; see `of_json`."""
    try:
        of_json(kind, value)
    except OtherTypeError:
        return False
    return True


def of_json(kind: type | types.UnionType, value: Any) -> Any:
    """Returns a value of JSON as a type.

    JSON has a list for a tuple, an object for a dataclass, and may have 1 for 1.0.

    Args:
        kind: The type, as `typing.get_type_hints` gives a field's.
        value: The value.

    Raises:
        OtherTypeError: If the value is of another type.
    """
    outer: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if kind is Any:
        return value
    if outer in (Union, types.UnionType):
        return _of_union(inner, value)
    if isinstance(value, Mapping):
        return _of_object(outer, inner, value)
    if isinstance(value, list):
        return _of_list(outer, inner, value)
    fits = value in inner if outer is Literal else _is_plain(outer, value)
    if not fits:
        raise OtherTypeError(f"The value must be {kind}. Received: {value!r:.80}")
    return value


def _of_object(outer, inner, values):
    is_dataclass = dataclasses.is_dataclass(outer)
    if is_dataclass:
        own, _ = fields_of_json(outer, values)
        return outer(**own)
    if outer is not dict:
        raise OtherTypeError(f"The value must be {outer}. Received: {values!r:.80}")
    of_value = inner[1] if inner else Any
    return {name: of_json(of_value, value) for name, value in values.items()}


def _of_list(outer, inner, values):
    if outer in (list, Sequence):
        of_item = inner[0] if inner else Any
        return [of_json(of_item, value) for value in values]
    if outer is tuple:
        return _of_items(inner or (Any, ...), values)
    if isinstance(outer, type) and issubclass(outer, tuple):  # A named one.
        return outer(*_of_items(tuple(_hints_of(outer).values()), values))
    raise OtherTypeError(f"The value must be {outer}. Received: {values!r:.80}")


def _of_union(kinds, value):
    for kind in kinds:
        if fits_json(kind, value):
            return of_json(kind, value)
    raise OtherTypeError(f"The value must be of {kinds}. Received: {value!r:.80}")


def _of_items(kinds, values):
    """A tuple of values, of a type for each, or of one type for all where "..." comes after it."""
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(values)
    if len(kinds) != len(values):
        raise OtherTypeError(f"The list must have {len(kinds)} values. Received: {values!r:.80}")
    return tuple(of_json(kind, value) for kind, value in zip(kinds, values, strict=True))


def _is_plain(kind, value):
    if isinstance(value, bool):  # It is an int, too.
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


@functools.cache
def _hints_of(kind):
    """The type of each field of a dataclass or a named tuple."""
    return get_type_hints(kind)


def json_name(field: dataclasses.Field) -> str:
    """Returns the name of a dataclass's field in JSON: its own, or `json` of its metadata."""
    return field.metadata.get("json", field.name)


def fields_of_json(
    kind: type[DataclassInstance], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the fields of a dataclass in a JSON object, and the rest of the object.

    A value of another type than its field's is of another program, and in the rest.

    Args:
        kind: The dataclass.
        values: The object.

    Raises:
        OtherTypeError: If a field without a default is missing.
    """
    fields = {json_name(field): field for field in dataclasses.fields(kind)}
    hints = _hints_of(kind)
    names = {
        name: fields[name].name
        for name, value in values.items()
        if name in fields and fits_json(hints[fields[name].name], value)
    }
    for name, field in fields.items():
        has_default = field.default is not dataclasses.MISSING
        has_default = has_default or field.default_factory is not dataclasses.MISSING
        if name not in names and not has_default:
            raise OtherTypeError(f"{name} must be given. Received: {values!r:.80}")
    own = {field: of_json(hints[field], values[name]) for name, field in names.items()}
    return own, {name: value for name, value in values.items() if name not in names}


def with_present_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a JSON object by the names that they have now."""
    return {
        _FIELDS.get(name, name): _VALUES.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
