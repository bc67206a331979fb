"""Arguments of the commands that train, made from the fields of the settings."""

import argparse
import dataclasses
import os
import shlex
import sys

from keras_vit.commands.shared_arguments import image_size
from keras_vit.fields import field_info
from keras_vit.files import RECIPE, named_disk_errors
from keras_vit.training.data.spec import DataSpec

SETTINGS_GROUP = "recipe, the paper's by default"


def add_job(parser, settings_type):
    """Adds the arguments of a job: data, output and settings."""
    add_fields(parser.add_argument_group("data"), DataSpec)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", required=True, metavar="DIR", help="the classifier's folder to write"
    )
    output.add_argument("--overwrite", action="store_true", help="replace an existing output")
    output.add_argument(
        "--resume",
        action="store_true",
        help="continue a stopped run; only --output is needed then",
    )
    output.add_argument(
        "--dry-run",
        action="store_true",
        help="print the resolved recipe, the memory needed, steps, images seen and epochs; train "
        "nothing, write nothing",
    )
    add_fields(parser.add_argument_group(SETTINGS_GROUP), settings_type)


def add_data(parser, names=("data", "data_dir", "strict", "follow_symlinks"), *, required=()):
    """Adds the flags of some fields of `DataSpec`, with the defaults of the fields.

    Args:
        parser: A parser.
        names: Names of the fields.
        required: Names of fields whose flag must be given.
    """
    defaults = {name: getattr(DataSpec, name) for name in names}
    add_fields(parser, DataSpec, only=defaults, required=required)
    parser.set_defaults(**defaults)


def add_fields(group, settings_type, without=(), only=None, required=()):
    """Adds a flag for each field of a dataclass of settings; see `FieldInfo`.

    Args:
        group: A parser or a group of its arguments.
        settings_type: The dataclass.
        without: Names of fields to leave out.
        only: Defaults by name of the only fields to add; by default all, with their own.
        required: Names of fields whose flag must be given.
    """
    for field in dataclasses.fields(settings_type):
        known = field_info(field)
        if field.name in without or known.flag == "" or only and field.name not in only:
            continue
        flag = "--" + (known.flag or field.name.replace("_", "-"))
        options = {"dest": field.name, "default": argparse.SUPPRESS, "help": _help(field, only)}
        if field.name in required:
            options["required"] = True
        kind = field.type.removesuffix(" | None")
        if kind == "bool" and kind == field.type:
            options["action"] = "store_true"
        elif kind == "bool":
            options["action"] = argparse.BooleanOptionalAction
        elif known.choices:
            options["choices"] = known.choices
        else:
            options["metavar"] = known.unit
            options["type"] = TYPES.get(kind, str)
            if kind == "tuple[int, ...]":
                options["nargs"] = "+"
        group.add_argument(flag, **options)


def given_fields(arguments, settings_type):
    """Returns the fields of a dataclass of settings that were given as flags, with their values."""
    given = {}
    for field in dataclasses.fields(settings_type):
        if not hasattr(arguments, field.name):
            continue
        value, known = getattr(arguments, field.name), field_info(field)
        if known.from_file:
            value = read_list(value)
        if known.none is not None and value == known.none:
            value = None
        given[field.name] = value
    return given


def settings(arguments, settings_type):
    """Returns the settings from the arguments."""
    given = given_fields(arguments, settings_type)
    recipe, scale = given.pop("recipe", None), given.pop("scale", None)
    if recipe is not None:
        return settings_type.from_recipe(recipe, 1.0 if scale is None else scale, **given)
    if scale is not None:
        raise ValueError(
            "--scale needs a recipe (--recipe); without one, --steps and --batch-size make a run "
            f"smaller. Received: --scale {scale:g} alone"
        )
    return settings_type(**given)


def data(arguments):
    """Returns the data from the arguments."""
    return DataSpec(**given_fields(arguments, DataSpec))


def run_job(job_type, settings, arguments):
    """Runs a job; returns 130 or 143 if a signal stopped it, and prints how to continue.

    Args:
        job_type: A subclass of `keras_vit.training.run.job.Job`.
        settings: Its settings.
        arguments: The parsed arguments of `add_job`.
    """
    from keras_vit.training.run.loop import Interrupted

    job = job_type(
        data(arguments),
        arguments.output,
        settings,
        overwrite=arguments.overwrite,
        resume=arguments.resume,
        command=arguments.called_as,
    )
    if arguments.dry_run:
        print(job.dry_run())
        return 0
    output = os.fspath(arguments.output)
    command = shlex.join(["keras-vit", *settings.command.split(), "--output", output, "--resume"])

    def advice():
        again = command if (job.folder.path / RECIPE).is_file() else "the same command"
        return f"Free space there, and go on with: {again}"

    try:
        with named_disk_errors(job.folder.path, advice):
            job.run()
    except Interrupted as stop:
        return report_stop(stop, command)
    return 0


def report_stop(stop, command):
    """Prints how to continue a run that a signal stopped; returns the exit code, 130 or 143.

    Args:
        stop: An `Interrupted`.
        command: The command that continues the run.
    """
    print(f"{stop} Go on with: {command}", file=sys.stderr)
    return 128 + stop.signal_number


def read_list(path):
    """Returns the lines of a file, none of None."""
    if path is None:
        return ()
    with open(path, encoding="utf-8") as file:
        return tuple(line for line in file.read().splitlines() if line)


# The type of a field: from the flag's text to its value.
TYPES = {
    "int": int,
    "float": float,
    "tuple[int, ...]": int,
    "tuple[int, int]": image_size,
}


def _help(field, defaults=None):
    """Returns the help text of a field with its default and the default's source."""
    known, default = field_info(field), (defaults or {}).get(field.name, field.default)
    if default is None:
        default = known.absent
    elif field.type.startswith("tuple[int, int]"):
        height, width = default
        default = height if height == width else f"{height}x{width}"
    if default is None or default is False or default == ():
        return known.help
    source = f"; {known.source}" if known.source else ""
    return f"{known.help} (default: {default}{source})"
