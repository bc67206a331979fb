"""The command `keras-vit`: a table of commands, each imported only when it is called."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import inspect
import os
import re
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence

from keras_vit._installation import check_installation
from keras_vit._version import __version__
from keras_vit.commands import Command
from keras_vit.utils import synonyms
from keras_vit.utils.fields import (
    add_arguments,
    field_info,
    flag_of,
    flat_fields,
    from_arguments,
    without_tilde,
)
from keras_vit.utils.files import check_writable, named_disk_errors
from keras_vit.utils.quiet_tensorflow import (
    choose_onednn,
    import_tensorflow_quietly,
    without_unused_packages,
)
from keras_vit.utils.safe_text import safe_output
from keras_vit.utils.synonyms import near_names, nearest_names, value_here

DESCRIPTION = "Vision Transformers for TensorFlow and Keras."

# Each command with the first line of its docstring, which `--help` lists without the imports of all
# commands. Its module is keras_vit.commands.<name>, dashes as underscores.
COMMANDS = {
    "check": "Check labelled photos before training: labels, copies, shortcuts, unreadable files.",
    "models": "List the models and their costs.",
    "finetune": "Fine-tune a pre-trained model on your own images.",
    "sweep": "Fine-tune with several learning rates, then the best with several seeds.",
    "pretrain": "Train a model from random weights.",
    "recipes": "List the paper's recipes.",
    "evaluate": "Evaluate a classifier, every image counted once.",
    "calibrate": (
        'Find when a classifier answers and when it answers "unknown", from held-out images.'
    ),
    "compare": "Compare a new classifier with an old one on the same images, with gates.",
    "predict": "Print the most likely classes of images.",
    "embed": "Write features of images.",
    "few-shot": "Evaluate frozen features with a few images per class.",
    "records": "Write images as sharded TFRecord files, for several machines.",
    "inspect": "Draw what a model has learned and what it looks at.",
    "export": "Export a classifier to SavedModel, LiteRT, ONNX, OpenVINO or a web page.",
    "verify": "Check an export in its own runtime, on this machine.",
    "convert": "Convert weights from and to other code bases.",
    "push": "Push a classifier to the Hugging Face Hub, with a model card, in one commit.",
}

EPILOG = """keras-vit COMMAND --help lists a command's arguments. To begin with:
  keras-vit finetune --data photos --weights imagenet21k --output runs/photos
  keras-vit predict runs/photos cat.jpg
  keras-vit predict cifar10 cat.jpg  (a trained classifier of the package)"""

_MAX_LINE = 5000  # Letters of an error.


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all others of the command."""

    words: Sequence[str] = ()  # What was typed.
    flags: Mapping[str, str] = {}  # The command's flags by the names of their fields.

    def error(self, message):
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice and (here := value_here(choice[1], re.findall(r"[\w-]+", choice[2]))):
            message += f"; {here}"
        is_early = choice or "arguments are required" in message
        if is_early and (unknown := self._unknown_flags()):
            # Argparse reports these errors first, and what was typed may be a flag by another name.
            message += f"; {unknown_arguments(unknown, self.flags)}"
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help\n")

    def _unknown_flags(self):
        known = ("--traceback", "--help-all", *self.flags.values())
        typed = [word.partition("=")[0] for word in self.words if re.match("--|-[a-z]$", word)]
        return [
            flag
            for flag in typed
            if not flag.startswith("--no-") and not any(name.startswith(flag) for name in known)
        ]


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
    if not argv:
        parser.print_help()
        return 0
    called = next((word for word in argv if word in COMMANDS), None)
    if called is None and not argv[0].startswith("-"):
        synonym = synonyms.COMMANDS.get(argv[0].lower())
        answer = synonym.answer() if synonym else nearest_names(argv[0], COMMANDS)
        parser.error(f"no such command: {argv[0]!r}. {answer}")
    for name, summary in COMMANDS.items():
        if name == called:
            command = commands.add_parser(
                name, help=summary, description=summary, epilog=details_of(name)
            )
            command.add_argument(
                "--traceback", action="store_true", help="show where an error was raised"
            )
            shown = command_type(name).common_flags
            if shown:
                command.add_argument("--help-all", action="help", help="show all arguments")
            add_arguments(command, command_type(name), () if "--help-all" in argv else shown)
            command.words = argv
            command.flags = {
                field.name: flag_of(field)
                for field, *_ in flat_fields(command_type(name))
                if not field_info(field).positional
            }
        else:
            commands.add_parser(name, help=summary)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        command = commands.choices[arguments.command]
        flags = command.flags
        is_data = len(unknown) == 1 and not unknown[0].startswith("-") and "data" in flags
        if is_data and not hasattr(arguments, "data"):
            arguments.data = without_tilde(unknown[0])  # The flag may be left out.
        else:
            command.error(unknown_arguments(unknown, flags))
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
    answers = []
    for word in [word for word in unknown if word.startswith("-")] or unknown[:1]:
        flag = word.partition("=")[0]
        answer = flag
        synonym = synonyms.FLAGS.get(flag.replace("_", "-"))
        if synonym and synonym.here.removeprefix("here ").split()[0].strip(",") in flags.values():
            answer = synonym.answer()
        elif near := near_names(flag, list(flags.values())):
            answer += f", the nearest: {', '.join(near)}"
        answers.append(answer)
    return f"unrecognized argument{'s' if len(answers) > 1 else ''}: {'; '.join(answers)}"


def command_type(name: str) -> type[Command]:
    """Returns the dataclass of a command, the only one that its module defines."""
    module = importlib.import_module(f"keras_vit.commands.{name.replace('-', '_')}")
    classes = filter(inspect.isclass, vars(module).values())
    own = (value for value in classes if value.__module__ == module.__name__)
    return next(value for value in own if issubclass(value, Command))


def details_of(name: str) -> str:
    """Returns the text below the arguments of a command."""
    return (inspect.getdoc(command_type(name)) or "").partition("\n\n")[2]


def run_command(name: str, arguments: argparse.Namespace) -> int:
    """Runs a command and returns the exit code.

    Args:
        name: The command's name.
        arguments: Its parsed arguments.
    """
    with safe_output():
        try:
            check_installation()
            command = from_arguments(command_type(name), arguments)
            command.check_input()
            output = getattr(arguments, "output", None) or getattr(arguments, "destination", None)
            choose_onednn(output)
            if command.needs_tensorflow:
                with without_unused_packages():
                    import_tensorflow_quietly()
                    command.check_backend(f"keras-vit {name}")
                hide_gpus_of_readers()
            if output:
                check_writable(output)  # Before the work.
            with named_disk_errors(output or "A file"):
                return _run(command)
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:  # The reader has seen enough, such as `| head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at its end.
            return 141  # As the shell reports SIGPIPE.
        except Exception as error:
            line = error_line(error)
            if line is None or arguments.traceback:
                raise
            print(f"keras-vit: {line}", file=sys.stderr)
            return 2


def _run(command):
    """Runs a command in this process, or together with other processes of JAX."""
    processes = getattr(command, "processes", None)
    with contextlib.nullcontext(True) if processes is None else processes.started() as is_first:
        if command.needs_tensorflow and importlib.import_module("keras").backend.backend() == "jax":
            from keras_vit.training.trainer.jax_backend import keep_compiled_programs

            keep_compiled_programs()  # It asks JAX for its devices, so it comes after the others.
        if not is_first and hasattr(command, "output"):
            command = dataclasses.replace(command, **{"output": None})
        return command.run() or 0


def error_line(error: Exception) -> str | None:
    """Returns an error that a user can act on in one line; None for any other."""
    line = str(error) if isinstance(error, (ValueError, OSError, ImportError)) else None
    if isinstance(error, MemoryError):
        line = f"The command must have more memory. Received: {type(error).__name__}: {error}"
    images = sys.modules.get("keras_vit.images.decoding")  # Where a command reads some.
    if images is not None and (reason := images.reading_error(error)):
        line = f"The data must be whole while they are read. {reason}"
    if line is None:
        return None
    line = " ".join(line.split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."  # It may quote files.


def hide_gpus_of_readers() -> None:
    """Hides the GPUs from TensorFlow where it only reads data: it would take all their memory."""
    keras, tensorflow = map(importlib.import_module, ("keras", "tensorflow"))
    if keras.backend.backend() != "tensorflow":
        tensorflow.config.set_visible_devices([], "GPU")
