"""Values of JSON as Python types: dataclasses, tuples and dictionaries, each within others."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Class = TypeVar("Class")


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
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return value
    if outer in (Union, types.UnionType):
        return _of_union(inner, value)
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        own, _ = fields_of_json(kind, value)
        return kind(**own)
    if outer is dict and isinstance(value, Mapping):
        of_value = inner[1] if inner else Any
        return {name: of_json(of_value, item) for name, item in value.items()}
    if outer in (list, Sequence) and isinstance(value, list):
        of_item = inner[0] if inner else Any
        return [of_json(of_item, item) for item in value]
    if outer is tuple and isinstance(value, list):
        return _of_items(inner or (Any, ...), value)
    if _is_named_tuple(outer) and isinstance(value, list):
        return outer(*_of_items(tuple(hints_of(outer).values()), value))
    if outer is Literal and value in inner:
        return value
    if outer is not Literal and _is_plain(outer, value):
        return value
    raise OtherTypeError(f"The value must be {kind}. Received: {value!r:.80}")


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


def _is_named_tuple(kind):
    return isinstance(kind, type) and issubclass(kind, tuple) and kind is not tuple


def _is_plain(kind, value):
    if isinstance(value, bool):  # It is an int, too.
        return kind is bool
    if isinstance(value, (list, Mapping)):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """Returns the type of each field of a dataclass or a named tuple."""
    return get_type_hints(kind)


def json_name(field: dataclasses.Field) -> str:
    """Returns the name of a dataclass's field in JSON: its own, or `json` of its metadata."""
    return field.metadata.get("json", field.name)


def fields_of_json(
    kind: type[Class], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the fields of a dataclass in a JSON object, and the rest of the object.

    A value of another type than its field's is of another program, and in the rest.

    Args:
        kind: The dataclass.
        values: The object.

    Raises:
        OtherTypeError: If a field without a default is missing.
    """
    own: dict[str, Any] = {}
    fields = {json_name(field): field for field in dataclasses.fields(kind)}
    for name, value in values.items():
        if name in fields and fits_json(hints_of(kind)[fields[name].name], value):
            own[fields[name].name] = of_json(hints_of(kind)[fields[name].name], value)
    read = {json_name(field) for field in fields.values() if field.name in own}
    for field in fields.values():
        has_default = field.default is not dataclasses.MISSING
        has_default = has_default or field.default_factory is not dataclasses.MISSING
        if field.name not in own and not has_default:
            raise OtherTypeError(f"{field.name} must be given. Received: {values!r:.80}")
    return own, {name: value for name, value in values.items() if name not in read}
