"""The commands as Python functions: `keras_vit.finetune("photos", "runs/photos", epochs=3)`.

A row of `VERBS` makes a function of a command: the fields of its dataclass are the arguments, its
`result` is what the function does, its docstring and the fields' texts are the docstring.
docs/verbs_stub.py writes the signatures to `keras_vit/verbs.pyi`, for editors and type checkers.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import os
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

from keras_vit.commands import Command
from keras_vit.commands.calibrate import Calibrate
from keras_vit.commands.check import Check
from keras_vit.commands.compare import Compare
from keras_vit.commands.convert import Convert
from keras_vit.commands.embed import Embed
from keras_vit.commands.evaluate import Evaluate
from keras_vit.commands.few_shot import FewShot
from keras_vit.commands.finetune import Finetune
from keras_vit.commands.pretrain import PretrainCommand
from keras_vit.commands.push import Push
from keras_vit.commands.sweep import Sweep
from keras_vit.commands.verify import Verify
from keras_vit.training.data.spec import DataSpec
from keras_vit.utils.fields import (
    REQUIRED,
    argument_lines,
    field_info,
    flag_of,
    flat_fields,
    from_arguments,
)
from keras_vit.utils.files import check_writable, named_disk_errors
from keras_vit.utils.json_files import fits_json
from keras_vit.utils.progress import without_progress
from keras_vit.utils.synonyms import no_such_arguments


class Verb(NamedTuple):
    """A command that is also a function.

    Args:
        command: The command's dataclass.
        by_place: The arguments that are given by their place, as in the shell.
        returns: The annotation of what the function returns.
        page: The page of docs/ that shows it.
        shell_only: Fields that are exit codes or printed texts in the shell, and no arguments here.
    """

    command: type[Command]
    by_place: tuple[str, ...]
    returns: str
    page: str
    shell_only: tuple[str, ...] = ()


VERBS = {
    "check": Verb(Check, ("photos",), "CheckReport", "check.md", shell_only=("strict",)),
    "finetune": Verb(
        Finetune, ("data", "output"), "Finished", "finetune.md", shell_only=("dry_run",)
    ),
    "sweep": Verb(Sweep, ("data", "output"), "SweepResult", "training.md"),
    "pretrain": Verb(
        PretrainCommand, ("data", "output"), "Finished", "pretraining.md", shell_only=("dry_run",)
    ),
    "evaluate": Verb(
        Evaluate, ("model", "data"), "EvaluationReport | ImageNetAccuracy", "evaluation.md"
    ),
    "calibrate": Verb(Calibrate, ("model", "data"), "Classifier", "unknown.md"),
    "compare": Verb(Compare, ("old", "new", "data"), "Comparison", "compare.md"),
    "embed": Verb(
        Embed,
        ("model", "images", "output"),
        "tuple[dict[str, Any], list[tuple[str, str]]]",
        "evaluation.md",
    ),
    "few_shot": Verb(FewShot, ("model", "data"), "FewShotReport", "evaluation.md"),
    "convert": Verb(Convert, ("source", "destination"), "list[str]", "checkpoints.md"),
    "verify": Verb(Verify, ("artefact",), "ExportReport", "export.md"),
    "push": Verb(Push, ("folder", "repository"), "Pushed", "hub.md"),
}

# Processes of JAX are joined by a program itself, and a program is no command to record.
_SHELL_ONLY = ("coordinator", "processes", "process", "called_as", "given", "recipe_source")
_PATHS = (
    "DATA",
    "DEST",
    "DIR",
    "EXPORT",
    "FILE",
    "FOLDER",
    "MODEL",
    "NEW",
    "OLD",
    "SOURCE",
    "TABLE",
    "WEIGHTS",
)


def function_of(name: str) -> Callable:
    """Returns the function of a command.

    Args:
        name: A key of `VERBS`.
    """
    verb, fields = VERBS[name], arguments_of(name)
    known = signature_of(name)

    def function(*args, **kwargs):
        if unknown := [argument for argument in kwargs if argument not in fields]:
            flags = {flag_of(field): argument for argument, field in fields.items()}
            raise no_such_arguments(name, unknown, fields, flags)
        try:
            given = known.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"keras_vit.{name}: {error}. It takes {_by_place(known)}") from None
        return _call(name, verb.command, _with_spec(given, fields, name), fields)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "keras_vit"
    function.__doc__ = docstring_of(name)
    vars(function)["__signature__"] = known
    return function


def arguments_of(name: str) -> dict[str, dataclasses.Field]:
    """Returns the fields of a function's arguments by name, those by place first."""
    verb = VERBS[name]
    left_out = (*_SHELL_ONLY, *verb.shell_only)
    fields = {field.name: field for field, *_ in flat_fields(verb.command, in_python=True)}
    order = [*verb.by_place, *(known for known in fields if known not in verb.by_place)]
    order.append(order.pop(order.index("log")))
    return {known: fields[known] for known in order if known not in left_out}


def signature_of(name: str) -> inspect.Signature:
    """Returns the signature of a function, with annotations as texts."""
    verb = VERBS[name]
    parameters: list[inspect.Parameter] = []
    is_needed = False
    # From the last: an argument by place has no default if a later one has none.
    for known, field in reversed(arguments_of(name).items()):
        is_by_place = known in verb.by_place
        is_needed = field.default is REQUIRED or (is_by_place and is_needed)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameter = inspect.Parameter(
            known,
            kind if is_by_place else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if is_needed else field.default,
            annotation=annotation_of(field),
        )
        parameters.insert(0, parameter)
    return inspect.Signature(parameters, return_annotation=verb.returns)


def annotation_of(field: dataclasses.Field) -> str:
    """Returns the annotation of an argument: the field's, and what Python gives in its place."""
    info, kind = field_info(field), str(field.type)
    if info.python:
        return info.python
    items = re.fullmatch(r"(tuple\[(.*), \.\.\.\]|.*?)( \| None)?", kind)
    kind, item, none = items[1], items[2], items[3] or ""  # type: ignore[index]
    if info.choices:
        return f"Literal[{', '.join(repr(choice) for choice in info.choices)}]{none}"
    if info.from_file:
        return f"str | os.PathLike[str] | Mapping[str, str] | Sequence[str]{none}"
    if item:
        return f"Sequence[{item}]{none}"
    if kind == "tuple[int, int]":
        return f"int | tuple[int, int]{none}"
    if kind == "str" and (info.unit in _PATHS or field.name == "weights"):
        return f"str | os.PathLike[str]{none}"
    return kind + none


def docstring_of(name: str) -> str:
    """Returns the docstring of a function: the command's, its arguments and an address."""
    verb = VERBS[name]
    summary, _, details = (inspect.getdoc(verb.command) or "").partition("\n\n")
    command = name.replace("_", "-")
    paragraphs = details.split("\n\n") if details else []
    parts = [summary, *(text for text in paragraphs if "xit code" not in text)]
    parts.append(f"As `keras-vit {command}`; docs/{verb.page} shows it.")
    lines = [line[4:] for field in arguments_of(name).values() for line in argument_lines(field)]
    parts.append("Args:\n" + "\n".join(lines))
    parts.append(f"Returns:\n    {verb.returns}")
    raises = "    ValueError: If a value is wrong or something does not fit.\n"
    raises += "    TypeError: If an argument is unknown or missing."
    parts.append(f"Raises:\n{raises}")
    return "\n\n".join(parts) + "\n"


def _by_place(signature):
    """The arguments by place as an error names them."""
    places = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}=None"
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    return f"({', '.join(places)}), and the others by name"


def _with_spec(given, fields, name):
    """The arguments, of which a `DataSpec` gives all that differ from its defaults."""
    spec = next((value for value in given.values() if isinstance(value, DataSpec)), None)
    if spec is None:
        return given
    spread = {
        field.name: getattr(spec, field.name)
        for field in dataclasses.fields(spec)
        if getattr(spec, field.name) != field.default and field.name not in ("data", "checked")
    }
    if twice := [known for known in spread if known in given]:
        raise ValueError(
            f"With a DataSpec, the data options must be in it. Received: {', '.join(twice)}"
        )
    if others := [known for known in spread if known not in fields]:
        raise ValueError(
            f"keras_vit.{name} must have a DataSpec of the data alone. Received: one with "
            f"{', '.join(others)}"
        )
    own = {known: spec.data if value is spec else value for known, value in given.items()}
    return {**own, **spread}


def _call(name, command_type, given, fields):
    """Makes the command of the arguments and returns its result."""
    kinds = _kinds(fields)
    values = {known: _value(fields[known], given[known], kinds[known]) for known in given}
    arguments = argparse.Namespace(**values, given=tuple(given))
    command = from_arguments(command_type, arguments)
    command.check_input()
    if command.needs_tensorflow:
        command.check_backend(f"keras_vit.{name}")
    output = values.get("output") or values.get("destination")
    if output:
        check_writable(output)  # Before the work.
    with named_disk_errors(output or "A file"):
        shown = without_progress() if command.log is None else contextlib.nullcontext()
        with shown:
            return _with_classifier(command.result())


def _with_classifier(result):
    """A result with the public `Classifier` in place of the object that rooms below have."""
    from keras_vit.classifier import load_classifier
    from keras_vit.predictor import Predictor

    if isinstance(result, Predictor):
        return load_classifier(result)
    held = getattr(result, "classifier", None)
    if isinstance(held, Predictor):
        return dataclasses.replace(result, classifier=load_classifier(held))
    return result


def _kinds(fields):
    """The types of the fields by name; `object` where Python takes more than the flag."""
    plain = [
        (known, field.type if field_info(field).flag != "" else "object")
        for known, field in fields.items()
    ]
    names = {"Any": Any, "os": os}  # What annotations use.
    kinds = get_type_hints(dataclasses.make_dataclass("Arguments", plain), names)
    wide = {known for known, field in fields.items() if field_info(field).python}
    return {known: object if known in wide else kind for known, kind in kinds.items()}


def _value(field, value, kind):
    """Returns an argument as the field has it.

    Raises:
        ValueError: If it is of another type.
    """
    from keras_vit.predictor import predictor_in  # With NumPy.

    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()  # A number of NumPy.
    if kind is object or (field_info(field).from_file and not isinstance(value, int | float)):
        return value
    if str(field.type).startswith("tuple[int, int]") and type(value) is int:
        return (value, value)
    if predictor_in(value) is not None:
        is_export = field_info(field).unit == "EXPORT"
        writes = "classifier.export(path)" if is_export else "classifier.save(folder)"
        raise ValueError(
            f"{field.name} must be on disk: first write it with {writes}. "
            f"Received: {field.name}={value!r}"
        )
    if isinstance(value, list | tuple):
        value = tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)
    is_given_none = value is None and "None" in str(field.type)
    as_json = list(value) if isinstance(value, tuple) else value
    word = field_info(field).none  # Such as "auto", which stands for None.
    if is_given_none or fits_json(kind, as_json) or (word is not None and value == word):
        return value
    text = textwrap.shorten(repr(value), 80)
    raise ValueError(f"{field.name} must be {annotation_of(field)}. Received: {field.name}={text}")
