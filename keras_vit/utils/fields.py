"""Settings as dataclass fields that hold their help text, unit, source and limits.

The flags of the commands and of the export formats, the printed plan and the columns of
`keras-vit recipes` are made from the fields; imports no TensorFlow.

`add_arguments` declares the flags of a dataclass, and `from_arguments` makes the dataclass from
the parsed ones:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Blur:
        images: tuple[str, ...] = setting(REQUIRED, "files", unit="IMAGE", positional=True)
        output: str = setting(REQUIRED, "the folder to write", unit="DIR")
        radius: float = setting(2.0, "of the filter", unit="PIXELS", limits=POSITIVE)
        data: DataSpec = part(DataSpec, group="data")

    add_arguments(parser, Blur)
    blur = from_arguments(Blur, parser.parse_args())

Annotations are read as text, so the module needs `from __future__ import annotations`.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

from keras_vit.utils.json_files import DataclassInstance, fits_json
from keras_vit.utils.synonyms import value_here
from keras_vit.utils.text_files import read_lines

SettingsType: TypeAlias = type[DataclassInstance]
REQUIRED: Any = dataclasses.MISSING  # In place of a default: the value must be given.

# Limits of a value: their text in errors, and the check.
POSITIVE = ("positive", lambda value: value > 0)
POSITIVE_NUMBER = ("a positive number", lambda value: 0 < value < math.inf)
AT_LEAST_1 = ("at least 1", lambda value: value >= 1)
NOT_NEGATIVE = ("at least 0", lambda value: value >= 0)
SEED = (
    "at least 0 and at most 4294967295",
    lambda value: 0 <= value < 2**32,
)  # As NumPy's and Keras's.
SHARE = ("in [0, 1)", lambda value: 0 <= value < 1)

Value = TypeVar("Value")
Class = TypeVar("Class", bound=type)


@dataclasses.dataclass(frozen=True)
class FieldInfo:
    """The metadata of a setting, in addition to its name, type and default.

    Args:
        help: What it does, for `--help` and docstrings.
        unit: What a value counts or names; the placeholder in `--help`.
        source: Where the default is from.
        absent: Human-readable text: what the default None stands for.
        choices: The values that are allowed.
        limits: The text and the check of the values that are allowed.
        flag: The flag's name without dashes; None: the field's; "": there is no flag.
        positional: Whether it is an argument by its place instead of a flag.
        several: Whether the flag takes several values where the annotation is not a tuple.
        group: The title in `--help` above it and the fields after it.
        parse: From the argument's text to a value; None: by the annotation.
        none: The flag's value that stands for None.
        from_file: Whether the flag takes a file that lists the values, one a line.
        used: From the settings to whether a run reads the value; None: always.
        needs: With `used`, the flags that make a run read the value, for the error without them.
        off: The values that switch it off; the printed plan leaves it out then.
        line: The line of the printed plan that contains the value; None: its own.
        column: The heading in the table of `keras-vit recipes`; None: no column.
        python: The annotation in Python, where it takes more than the flag; "" for the field's.
    """

    help: str
    unit: str | None = None
    source: str | None = None
    absent: str | None = None
    choices: Sequence[str] | None = None
    limits: tuple[str, Callable[[Any], bool]] | None = None
    flag: str | None = None
    positional: bool = False
    several: bool = False
    group: str | None = None
    parse: Callable[[str], Any] | None = None
    none: str | int | None = None
    from_file: bool = False
    used: Callable[[Any], bool] | None = None
    needs: str = ""
    off: tuple = ()
    line: str | None = None
    column: str | None = None
    python: str = ""

    def is_off(self, settings: DataclassInstance, value: object) -> bool:
        """Returns whether the setting changes nothing: it is not read, or is switched off."""
        return value in self.off or not (self.used is None or self.used(settings))


class Rule(NamedTuple):
    """What several settings must fulfil together: the check, the help and the docstring have it.

    Args:
        text: The rule, which names the fields.
        fields: The names of the fields; the help of the first one has the rule.
        holds: From the settings to whether it holds.
    """

    text: str
    fields: tuple[str, ...]
    holds: Callable[[Any], bool]


def setting(default: Value, help: str, **info: Any) -> Value:
    """Returns a dataclass field for a setting, to a type checker a value as its default.

    Args:
        default: The value, or `REQUIRED`.
        help: See `FieldInfo`.
        **info: See `FieldInfo`.
    """
    return dataclasses.field(default=default, metadata={"info": FieldInfo(help, **info)})


def changed(settings_type: SettingsType, name: str, default: object = ..., **changes: Any) -> Any:
    """Returns the field of a setting for another dataclass, with another default or text.

    Args:
        settings_type: The dataclass of the setting.
        name: The setting.
        default: Its default in the other dataclass; by default the same.
        **changes: See `FieldInfo`.
    """
    field = settings_type.__dataclass_fields__[name]
    info = dataclasses.replace(field_info(field), **changes)
    default = field.default if default is ... else default
    return dataclasses.field(default=default, metadata={"info": info})


def part(
    settings_type: SettingsType,
    *,
    make: Callable[[dict[str, Any]], Any] | None = None,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    group: str | None = None,
) -> Any:
    """Returns a dataclass field that holds another dataclass of settings, with its flags.

    Args:
        settings_type: The dataclass.
        make: Makes the value from the fields that were given, by name; by default the dataclass.
            `dict` keeps them unchanged.
        only: Names of the fields that have an argument; None for all.
        without: Names of fields that have none.
        group: The title in `--help` above the fields without a `group`.
    """
    options = {"only": only, "without": without, "group": group}
    make = make or (lambda fields: settings_type(**fields))
    return dataclasses.field(metadata={"part": settings_type, "make": make, "options": options})


def field_info(field: dataclasses.Field) -> FieldInfo:
    """Returns what is known of the setting in a field."""
    return field.metadata["info"]


def documented(settings_type: Class) -> Class:
    """Lists the fields of a dataclass of settings in its docstring; a decorator."""
    lines = [line for field in dataclasses.fields(settings_type) for line in argument_lines(field)]
    text = (settings_type.__doc__ or "").rstrip()
    rules = [f"        {rule.text}." for rule in getattr(settings_type, "RULES", ())]
    rules = ["", "    Rules:", *rules] if rules else []
    settings_type.__doc__ = "\n".join([text, "", "    Args:", *lines, *rules, "    "])
    return settings_type


def argument_lines(field: dataclasses.Field) -> list[str]:
    """Returns the lines of a setting in the part `Args` of a docstring."""
    info = field_info(field)
    default = info.absent if field.default is None and info.absent else repr(field.default)
    default = getattr(field.default, "__name__", default)  # A function.
    text = f"{field.name}: {info.help}"
    if field.default is not REQUIRED:
        text += f" (default: {default})"
    return textwrap.wrap(text, 90, initial_indent=" " * 8, subsequent_indent=" " * 12)


def check_fields(settings: DataclassInstance) -> None:
    """Checks each setting of a dataclass, and its `RULES` if it has any.

    Raises:
        ValueError: If a value is not one of the choices, out of its limits or against a rule.
    """
    for field in dataclasses.fields(settings):
        name, value, info = field.name, getattr(settings, field.name), field.metadata.get("info")
        if info is None or (value is None and "None" in str(field.type)):
            continue  # A part checks itself.
        if info.choices and not all(item in info.choices for item in _items(value)):
            here = value_here(str(value), info.choices)
            raise ValueError(
                f"{name} must be one of {tuple(info.choices)}. "
                f"{here and f'{here}. '}Received: {name}={value!r}"
            )
        if info.limits and not all(map(info.limits[1], _items(value))):
            raise ValueError(f"{name} must be {info.limits[0]}. Received: {name}={value}")
    for rule in getattr(settings, "RULES", ()):
        if not rule.holds(settings):
            received = ", ".join(f"{name}={getattr(settings, name)!r}" for name in rule.fields)
            raise ValueError(f"{rule.text}. Received: {received}")


def _items(value):
    return value if isinstance(value, tuple) else (value,)


def add_arguments(
    parser: argparse.ArgumentParser, settings_type: SettingsType, shown: Collection[str] = ()
) -> None:
    """Adds an argument for each field of a dataclass of settings; see `FieldInfo`.

    Args:
        parser: The parser.
        settings_type: The dataclass.
        shown: The flags that `--help` lists; all by default.
    """
    groups: dict[str | None, Any] = {None: parser}
    for field, group, rules in flat_fields(settings_type):
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        text = _help(field, rules)
        if shown and flag_of(field) not in shown:
            text = argparse.SUPPRESS
        _add_argument(groups[group], field, text)


def _add_argument(parser, field, text):
    info, kind = field_info(field), str(field.type)
    required = field.default is REQUIRED
    options: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text}
    if kind == "bool":
        options["action"] = "store_true"
    elif kind == "bool | None":
        options["action"] = argparse.BooleanOptionalAction
    else:
        several = re.fullmatch(r"tuple\[(.*), \.\.\.\]", kind.removesuffix(" | None"))
        item = several[1] if several else kind.removesuffix(" | None")
        plain = str if info.unit == "TEXT" else without_tilde
        options["type"] = info.parse or _PARSERS.get(item, plain)
        options["metavar"] = info.unit
        if info.choices:
            options["choices"] = tuple(info.choices)
        if (several or info.several) and not info.from_file:
            options["nargs"] = "*" if info.positional and not required else "+"
    if info.positional:
        parser.add_argument(field.name, **options)
    else:
        parser.add_argument(flag_of(field), dest=field.name, required=required, **options)


def from_arguments(settings_type: type[Value], arguments: argparse.Namespace) -> Value:
    """Returns a dataclass of settings from the parsed arguments of `add_arguments`.

    Args:
        settings_type: The dataclass.
        arguments: The parsed arguments; attributes without a field are not read.

    Raises:
        ValueError: As the dataclass raises it.
        OSError: If a file that lists values cannot be read.
    """
    return settings_type(**given_fields(settings_type, arguments))


def check_used(settings: DataclassInstance, given: Iterable[str]) -> None:
    """Raises ValueError if the value of a flag has no effect.

    Args:
        settings: The settings, with the values of all flags.
        given: Names of the fields that were given as flags.
    """
    fields = {field.name: field for field in dataclasses.fields(settings)}
    for name in given:
        info = field_info(fields[name])
        if info.used is not None and not info.used(settings):
            raise ValueError(f"{flag_of(fields[name])} has no effect without {info.needs}.")


def given_fields(
    settings_type: type,
    arguments: argparse.Namespace,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the values of the fields that were given as arguments, by name.

    Args:
        settings_type: The dataclass.
        arguments: The parsed arguments of `add_arguments`.
        only: See `part`.
        without: See `part`.
    """
    given: dict[str, Any] = {}
    for field in _fields(settings_type, only, without):
        if inner := field.metadata.get("part"):
            options = field.metadata["options"]
            fields = given_fields(inner, arguments, options["only"], options["without"])
            given[field.name] = field.metadata["make"](fields)
        elif hasattr(arguments, field.name):
            value, info = getattr(arguments, field.name), field_info(field)
            if info.from_file and isinstance(value, str):
                value = tuple(read_lines(value))
            elif isinstance(value, list):
                value = tuple(value)
            is_none = info.none is not None and value == info.none
            given[field.name] = None if is_none else value
    return given


def flat_fields(
    settings_type: SettingsType,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    group: str | None = None,
    *,
    in_python: bool = False,
) -> Iterator[tuple[dataclasses.Field, str | None, list[Rule]]]:
    """Yields each field with an argument, its group and the rules that its help has, of a
    dataclass of settings and of its parts.

    Args:
        settings_type: The dataclass.
        only: See `part`.
        without: See `part`.
        group: See `part`; it is yielded with the fields before the first that names a group.
        in_python: Whether fields without a flag are yielded too.
    """
    for field in _fields(settings_type, only, without):
        if inner := field.metadata.get("part"):
            yield from flat_fields(inner, **field.metadata["options"], in_python=in_python)
            continue
        group = field_info(field).group or group
        if in_python or field_info(field).flag != "":
            rules = getattr(settings_type, "RULES", ())
            yield field, group, [rule for rule in rules if rule.fields[0] == field.name]


def flag_of(field: dataclasses.Field) -> str:
    """Returns the flag of a field, with its dashes."""
    return "--" + (field_info(field).flag or field.name.replace("_", "-"))


def without_tilde(text: str) -> str:
    """Returns an argument whose `~` is the user's folder, which a shell leaves in --flag=~/photos.

    Args:
        text: Any argument; what is no path begins with another letter.
    """
    scheme = next((name for name in ("tfrecords:", "") if text.startswith(f"{name}~")), None)
    return text if scheme is None else scheme + os.path.expanduser(text[len(scheme) :])


def image_size(text: str) -> tuple[int, int]:
    """Returns (height, width) of "384" or "384x512"; an argparse type."""
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text.lower())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"must be pixels, such as 384, or 384x512 for height x width. Received: {text}"
        )
    return int(match[1]), int(match[2] or match[1])


# By the annotation of one value: from the argument's text to the value.
_PARSERS: dict[str, Callable[[str], float | tuple[int, int]]] = {
    "int": int,
    "float": float,
    "tuple[int, int]": image_size,
}


def _fields(settings_type, only, without):
    return [
        field
        for field in dataclasses.fields(settings_type)
        if field.name not in without and (only is None or field.name in only)
    ]


def _help(field, rules):
    """Returns the help text of a field with its rules, its default and the default's source."""
    info, default = field_info(field), field.default
    needs = [f"needs {info.needs}"] if info.needs else []
    help = "; ".join([info.help, *needs, *(rule.text for rule in rules)])
    if default is None:
        default = info.absent
    elif str(field.type).startswith("tuple[int, int]") and default is not REQUIRED:
        height, width = default
        default = height if height == width else f"{height}x{width}"
    elif isinstance(default, tuple):
        default = " ".join(map(str, default))
    if default is None or default is False or default is REQUIRED or default == "":
        return help
    source = f"; {info.source}" if info.source else ""
    return f"{help} (default: {default}{source})".lstrip()


def check_json(
    settings_type: SettingsType, values: Mapping[str, Any], source: str | os.PathLike
) -> None:
    """Checks that values from a JSON file are fields of a dataclass of settings, of their types.

    Args:
        settings_type: The dataclass.
        values: The values by name.
        source: The file, for the message.

    Raises:
        ValueError: If a name is unknown or a value of another type.
    """
    kinds = get_type_hints(settings_type)
    fields = {field.name: field for field in dataclasses.fields(settings_type)}
    if unknown := sorted(set(values) - set(fields)):
        raise ValueError(
            f"Settings must be fields of {settings_type.__name__}. "
            f"Received: {unknown[:5]} in {source}"
        )
    for name, value in values.items():
        if not fits_json(kinds[name], value):
            kind = fields[name].type
            raise ValueError(f"{name} must be {kind} in {source}. Received: {value!r:.80}")


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
