"""Settings as dataclass fields that hold their help text, unit, source and limits.

The flags of the commands, the printed plan and the columns of `keras-vit recipes` are made
from the fields; imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from keras_vit import json_files

# Limits of a value: their text in errors, and the check.
POSITIVE = ("positive", lambda value: value > 0)
POSITIVE_NUMBER = ("a positive number", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = ("at least 0", lambda value: value >= 0)
SHARE = ("in [0, 1)", lambda value: 0 <= value < 1)

Class = TypeVar("Class", bound=type)
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """What is known of a setting besides its name, type and default.

    Args:
        help: What it does, for `--help` and docstrings.
        unit: What a value counts or names; the placeholder in `--help`.
        source: Where the default is from.
        absent: In words, what the default None stands for.
        choices: The values that are allowed.
        limits: The text and the check of the values that are allowed.
        flag: The flag's name without dashes; None: the field's; "": there is no flag.
        none: The flag's value that stands for None.
        from_file: Whether the flag takes a file that lists the values, one a line.
        used: From the settings to whether a run reads the value; None: always.
        off: The values that switch it off; the printed plan leaves it out then.
        line: The line of the printed plan that contains the value; None: its own.
        column: The heading in the table of `keras-vit recipes`; None: no column.
    """

    help: str
    unit: str | None = None
    source: str | None = None
    absent: str | None = None
    choices: Sequence[str] | None = None
    limits: tuple[str, Callable[[Any], bool]] | None = None
    flag: str | None = None
    none: Any = None
    from_file: bool = False
    used: Callable[[Any], Any] | None = None
    off: tuple = ()
    line: str | None = None
    column: str | None = None

    def is_off(self, settings: Any, value: Any) -> bool:
        """Returns whether the setting changes nothing: it is not read, or is switched off."""
        return value in self.off or not (self.used is None or self.used(settings))


def setting(default: Any, help: str, **info: Any) -> Any:
    """Returns a dataclass field for a setting.

    Args:
        default: The value.
        help: See `FieldInfo`.
        **info: See `FieldInfo`.
    """
    return dataclasses.field(default=default, metadata={"info": FieldInfo(help, **info)})


def changed(settings_type: Any, name: str, default: Any, **changes: Any) -> Any:
    """Returns the field of a setting for a subclass that has another default.

    Args:
        settings_type: The dataclass of the setting.
        name: The setting.
        default: Its default in the subclass.
        **changes: See `FieldInfo`.
    """
    known = dataclasses.replace(field_info(settings_type.__dataclass_fields__[name]), **changes)
    return dataclasses.field(default=default, metadata={"info": known})


def field_info(field: dataclasses.Field) -> FieldInfo:
    """Returns what is known of the setting in a field."""
    return field.metadata["info"]


def documented(settings_type: Class) -> Class:
    """Lists the fields of a dataclass of settings in its docstring; a decorator."""
    lines = []
    for field in dataclasses.fields(settings_type):
        known = field_info(field)
        default = known.absent if field.default is None and known.absent else repr(field.default)
        text = f"{field.name}: {known.help} (default: {default})"
        lines += textwrap.wrap(text, 90, initial_indent=" " * 8, subsequent_indent=" " * 12)
    text = (settings_type.__doc__ or "").rstrip()
    settings_type.__doc__ = "\n".join([text, "", "    Args:", *lines, "    "])
    return settings_type


def check_fields(settings: Any) -> None:
    """Checks each field of a dataclass of settings by itself.

    Raises:
        ValueError: If a value is not one of the choices, or out of its limits.
    """
    for field in dataclasses.fields(settings):
        name, value, known = field.name, getattr(settings, field.name), field_info(field)
        if value is None and "None" in str(field.type):
            continue
        if known.choices and value not in known.choices:
            raise ValueError(
                f"{name} must be one of {tuple(known.choices)}. Received: {name}={value!r}"
            )
        if known.limits:
            text, holds = known.limits
            if not all(map(holds, value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"{name} must be {text}. Received: {name}={value}")


# By a word of a field's annotation, what JSON holds.
_JSON_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "tuple": list}


def check_json(settings_type: Any, values: Mapping[str, Any], source: object) -> None:
    """Checks that values from a JSON file are fields of a dataclass of settings, of their types.

    Args:
        settings_type: The dataclass.
        values: The values by name.
        source: The file, for the message.

    Raises:
        ValueError: If a name is unknown or a value of another type.
    """
    annotations = {field.name: str(field.type) for field in dataclasses.fields(settings_type)}
    if unknown := sorted(set(values) - set(annotations)):
        raise ValueError(
            f"Settings must be fields of {settings_type.__name__}. "
            f"Received: {unknown[:5]} in {source}"
        )
    annotations = {name: text for name, text in annotations.items() if text != "Any"}
    types = {
        name: _JSON_TYPES[text.partition("[")[0].split()[0]] for name, text in annotations.items()
    }
    json_files.check_fields(values, types, source)
    for name, text in annotations.items():
        value = values.get(name, 0)
        items = value if isinstance(value, list) else ()
        inner = str if "str" in text else int
        if (value is None and "None" not in text) or not all(type(item) is inner for item in items):
            raise ValueError(f"{name} must be {text} in {source}. Received: {value!r:.80}")


def required(value: Value | None, name: str) -> Value:
    """Returns a value that `Settings.resolve` or the like has filled in.

    Args:
        value: The value.
        name: Its name, for the error.

    Raises:
        ValueError: If it is None.
    """
    if value is None:
        raise ValueError(f"{name} must be known by now. Received: {name}=None")
    return value
