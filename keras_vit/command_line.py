# PYTHON_ARGCOMPLETE_OK
"""The command `keras-vit`: a table of commands, each imported only when it is called."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import math
import mmap
import os
import pathlib
import pkgutil
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence

from keras_vit._installation import check_installation
from keras_vit._version import __version__
from keras_vit.commands import Command
from keras_vit.utils.fields import (
    add_arguments,
    field_info,
    flag_of,
    flat_fields,
    from_arguments,
)
from keras_vit.utils.files import check_writable, named_disk_errors
from keras_vit.utils.nearest_names import near_names, nearest_names, our_word
from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly
from keras_vit.utils.terminal import safe_output

DESCRIPTION = "Vision Transformers for TensorFlow and Keras."

# The class of each command. Its module is keras_vit.commands.<name>, dashes as underscores.
COMMANDS = {
    "demo": "Demo",
    "check": "Check",
    "models": "Models",
    "finetune": "Finetune",
    "sweep": "Sweep",
    "pretrain": "PretrainCommand",
    "recipes": "Recipes",
    "evaluate": "Evaluate",
    "calibrate": "Calibrate",
    "compare": "Compare",
    "predict": "Predict",
    "embed": "Embed",
    "few-shot": "FewShot",
    "records": "RecordsCommand",
    "inspect": "Inspect",
    "export": "Export",
    "verify": "Verify",
    "convert": "Convert",
    "push": "Push",
}

BACKENDS = ("tensorflow", "jax")  # Backends of Keras that the package supports.

# What most people come for, and the command to paste.
FIRST_COMMANDS = {
    "Fine-tune a model on your own photos, in a folder for each class": (
        "keras-vit finetune --data photos --weights imagenet21k --output runs/photos"
    ),
    "Predict the classes of other photos": "keras-vit predict runs/photos cat.jpg",
    "Export it to a phone (tflite), a browser (html) or a server (saved_model)": (
        "keras-vit export runs/photos --to tflite --output photos.tflite"
    ),
    "Look inside: attention, filters, positions": (
        "keras-vit inspect runs/photos cat.jpg --output inside"
    ),
    "Load a model of the paper with its official weights": (
        "python -c \"import keras_vit; keras_vit.build('ViT-B/16', weights='imagenet').summary()\""
    ),
}
WITHOUT_PHOTOS = (
    "Without photos: keras-vit demo trains, evaluates, predicts and exports on real digits, and a\n"
    "trained classifier is in the package (keras-vit predict cifar10 cat.jpg)."
)
EPILOG = "keras-vit COMMAND --help lists a command's arguments."

_MAX_LINE = 5000  # Letters of an error.

# TensorFlow 2.21 takes 2.5 GB of addresses before it computes. With less than this, its C++ code
# hangs, ends the process, or calls a whole photo damaged.
_TENSORFLOW_ADDRESSES = 3e9


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all others of the command."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns the exit code: 2 where the input is wrong."""
    if argv is None:
        argv = sys.argv[1:]
    parser = _Parser(
        prog="keras-vit",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"keras-vit {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    try:
        check_installation()
    except ImportError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 2
    if not argv:
        print(first_commands())
        return 0
    called = next((word for word in argv if word in COMMANDS), None)
    if called is None and not argv[0].startswith("-"):
        ours = our_word(argv[0], COMMANDS)
        near = f"It is {ours} here" if ours else nearest_names(argv[0], COMMANDS, 0.6)
        parser.error(f"no such command: {argv[0]!r}. {near}")
    for name in COMMANDS:
        if name == called:
            summary, details = _parts_of(inspect.getdoc(command_type(name)))
            command = commands.add_parser(name, help=summary, description=summary, epilog=details)
            command.add_argument(
                "--traceback", action="store_true", help="show where an error was raised"
            )
            add_arguments(command, command_type(name))
        elif argv[:1] == [called]:  # The others are not printed.
            commands.add_parser(name)
        else:
            commands.add_parser(name, help=help_texts(name)[0])
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        flags = {
            field.name: flag_of(field)
            for field in flat_fields(command_type(arguments.command))
            if field_info(field).flag != "" and not field_info(field).positional
        }
        is_data = len(unknown) == 1 and not unknown[0].startswith("-") and "data" in flags
        if is_data and not hasattr(arguments, "data"):
            arguments.data = unknown[0]  # The flag may be left out.
        else:
            commands.choices[arguments.command].error(unknown_arguments(unknown, flags))
    arguments.given = tuple(vars(arguments))
    arguments.called_as = shlex.join(["keras-vit", *argv])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # Remarks about details of EXIF.
        return run_command(arguments.command, arguments)


def unknown_arguments(unknown: Sequence[str], flags: Mapping[str, str]) -> str:
    """Returns the error of arguments that a command does not have.

    Args:
        unknown: The arguments, with their values.
        flags: The command's flags by the names of their fields.
    """
    texts = []
    for word in [word for word in unknown if word.startswith("-")] or unknown[:1]:
        flag = word.partition("=")[0]
        text = f"unrecognized argument: {flag}"
        if ours := our_word(flag, flags):
            text += f", here it is {flags[ours]}"
        elif near := near_names(flag, list(flags.values()), 0.7):
            text += f", the nearest: {', '.join(near)}"
        texts.append(text)
    return "; ".join(texts)


def command_type(name: str) -> type[Command]:
    """Returns the dataclass of a command."""
    return getattr(importlib.import_module(_module(name)), COMMANDS[name])


def help_texts(name: str) -> tuple[str, str]:
    """Returns the summary of a command, and the text below its arguments.

    They are the docstring of the command's dataclass. It is read from the source, as importing
    all commands would take longer than the rest of `keras-vit --help`.
    """
    source = pkgutil.get_data("keras_vit.commands", f"{_module(name).rpartition('.')[2]}.py")
    assert source is not None
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    found = next(node for node in classes if node.name == COMMANDS[name])
    return _parts_of(ast.get_docstring(found))


def _parts_of(docstring):
    summary, _, details = (docstring or "").partition("\n\n")
    return summary, details


def _module(name):
    return f"keras_vit.commands.{name.replace('-', '_')}"


def first_commands() -> str:
    """Returns what `keras-vit` prints without arguments."""
    lines = [DESCRIPTION]
    for purpose, command in FIRST_COMMANDS.items():
        lines += ["", purpose, f"  {command}"]
    listing = f"keras-vit --help lists all {len(COMMANDS)} commands."
    return "\n".join([*lines, "", WITHOUT_PHOTOS, listing])


def run_command(name: str, arguments: argparse.Namespace) -> int:
    """Runs a command and returns the exit code.

    Args:
        name: The command's name.
        arguments: Its parsed arguments.
    """
    try:
        command = from_arguments(command_type(name), arguments)
        needs_tensorflow = command.needs_tensorflow
    except (ValueError, OSError) as error:
        with safe_output():
            return _report(error, arguments)
    with safe_output():
        try:
            if needs_tensorflow:
                check_backend_name()
                check_address_limit()
                import_tensorflow_quietly()
                check_backend(name, command)
            output = getattr(arguments, "output", None) or getattr(arguments, "destination", None)
            if output:
                check_writable(output)  # Before the work.
            with named_disk_errors(output or "A file"):
                return command.run() or 0
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:  # The reader has seen enough, such as `| head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at its end.
            return 141  # As the shell reports SIGPIPE.
        except Exception as error:
            return _report(error, arguments)


def _report(error, arguments):
    """Prints an error that a user can act on and returns the exit code; raises any other."""
    line = _line_of(error)
    if line is None or arguments.traceback:
        raise error
    print(f"keras-vit: {line}", file=sys.stderr)
    return 2


def _line_of(error):
    """An error that a user can act on, in one line; None for any other."""
    line = str(error) if isinstance(error, (ValueError, OSError, ImportError)) else None
    if line is None and (isinstance(error, MemoryError) or memory_is_short()):
        line = f"The command must have more memory. Received: {type(error).__name__}: {error}"
    images = sys.modules.get("keras_vit.images.decoding")  # Where a command reads some.
    if images is not None and (reason := images.reading_error(error)):
        line = f"The data must be whole while they are read. {reason}"
    if line is not None:
        line = " ".join(line.split())
        return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."  # It may quote files.
    return None


def memory_is_short() -> bool:
    """Returns whether the process uses over half of the address space of `ulimit -v`.

    Libraries that cannot be loaded for that raise errors of any kind, such as AttributeError.
    """
    limit = _address_limit()
    if limit == math.inf:
        return False
    try:
        statm = pathlib.Path("/proc/self/statm").read_text(encoding="ascii")
    except OSError:
        return False
    return 2 * int(statm.split()[0]) * mmap.PAGESIZE > limit


def check_address_limit() -> None:
    """Raises ValueError if `ulimit -v` leaves too few addresses for TensorFlow to start."""
    limit = _address_limit()
    if limit < _TENSORFLOW_ADDRESSES:
        raise ValueError(
            f"The command must have {_TENSORFLOW_ADDRESSES / 1e9:.0f} GB of address space "
            f"(ulimit -v) or more, for TensorFlow. Received: {limit / 1e9:.1f} GB"
        )


def _address_limit():
    """The bytes of `ulimit -v`; infinity without a limit."""
    try:
        import resource  # Not on Windows.
    except ImportError:
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def check_backend_name() -> None:
    """Raises ValueError if the environment asks for a backend of Keras that the package lacks."""
    wanted = os.environ.get("KERAS_BACKEND", BACKENDS[0])
    if wanted not in BACKENDS:
        raise ValueError(
            f"Keras's backend must be {' or '.join(BACKENDS)}. Received: KERAS_BACKEND={wanted}"
        )


def check_backend(name: str, command: Command) -> None:
    """Hides the GPUs from TensorFlow where it only reads data: it would take all their memory.

    Raises:
        ValueError: If the command needs Keras to run on TensorFlow.
    """
    keras, tensorflow = map(importlib.import_module, ("keras", "tensorflow"))
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    if command.on_tensorflow_alone:
        raise ValueError(
            f"keras-vit {name} must run on Keras's TensorFlow backend (KERAS_BACKEND=tensorflow "
            f"keras-vit {name} ...), which takes what was trained on any other. "
            f"Received: KERAS_BACKEND={backend}"
        )
    tensorflow.config.set_visible_devices([], "GPU")
