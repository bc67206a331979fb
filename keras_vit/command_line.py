# PYTHON_ARGCOMPLETE_OK
"""The command `keras-vit`: a table of commands, each imported only when it is called."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import shlex
import sys
import tempfile
import warnings

from keras_vit import shell_completion
from keras_vit._installation import check_installation
from keras_vit._version import __version__
from keras_vit.files import check_writable, named_disk_errors
from keras_vit.optional_packages import install_command
from keras_vit.terminal import safe_output

DESCRIPTION = "Vision Transformers for TensorFlow and Keras."

# Summary by name. The module is keras_vit.commands.<name>, dashes as underscores.
COMMANDS = {
    "demo": "Run the main job on real digits: pre-train, transfer, evaluate, predict, export.",
    "models": "List the models and their costs.",
    "finetune": "Fine-tune a pre-trained model on your own images.",
    "sweep": "Fine-tune with several learning rates, then the best with several seeds.",
    "pretrain": "Train a model from random weights.",
    "recipes": "List the paper's recipes, and ours for small classifiers.",
    "evaluate": "Evaluate a classifier, every image counted once.",
    "predict": "Print the most likely classes of images.",
    "embed": "Write features of images, and find the images nearest to one.",
    "few-shot": "Evaluate frozen features with a few images per class.",
    "vtab": "Evaluate a model on the 19 tasks of VTAB-1k.",
    "records": "Write images as sharded TFRecord files, for several machines.",
    "deduplicate": "Find copies of test images in a training set.",
    "report": "Collect results into the paper's tables.",
    "scaling": "Draw accuracy by pre-training data and compute from results.",
    "inspect": "Draw what a model has learned and what it looks at.",
    "benchmark": "Measure images per second and the largest batch by image size.",
    "export": "Export a classifier to SavedModel, TFLite, ONNX, OpenVINO or a web page.",
    "verify": "Check an export in its own runtime, on this machine.",
    "serve": "Serve a classifier by HTTP, with a page for uploads.",
    "convert": "Convert weights from and to other code bases.",
}

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
EPILOG = """\
keras-vit COMMAND --help lists a command's arguments.

Completion of commands, flags and names by the Tab key, in bash or zsh:
  {install}
  eval "$(register-python-argcomplete keras-vit)"   # Also in ~/.bashrc or ~/.zshrc.
"""

# These start at once: they need no TensorFlow, or start processes that import it.
WITHOUT_TENSORFLOW = {"benchmark", "deduplicate", "models", "recipes", "report", "scaling"}

# These trace TensorFlow graphs.
ON_TENSORFLOW_ALONE = {"export"}

_MAX_LINE = 5000  # Letters of an error.

# Log lines that TensorFlow's C++ libraries print before they read TF_CPP_MIN_LOG_LEVEL. The
# last row is of TensorFlow 2.19, which links GPU libraries twice.
_GREETING = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl|To enable the following"
    rb"|.*(Unable to register cu\w+ factory|computation placer already registered)"
)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all others of the command."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns the exit code: 2 where the input is wrong."""
    completing = argv is None and shell_completion.ASKED_FOR in os.environ
    if argv is None:
        argv = shell_completion.words_so_far() if completing else sys.argv[1:]
    parser = _Parser(
        prog="keras-vit",
        description=DESCRIPTION,
        epilog=EPILOG.format(install=install_command("completion")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"keras-vit {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    try:
        check_installation()
    except ImportError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        return 2
    if not argv and not completing:
        print(first_commands())
        return 0
    called = next((word for word in argv if word in COMMANDS), None)
    if called is None and not completing and not argv[0].startswith("-"):
        near = difflib.get_close_matches(argv[0], COMMANDS)
        parser.error(
            f"no such command: {argv[0]!r}" + (f"; nearest: {', '.join(near)}" if near else "")
        )
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == called:
            command.add_argument(
                "--traceback", action="store_true", help="show where an error was raised"
            )
            module = importlib.import_module(f"keras_vit.commands.{name.replace('-', '_')}")
            module.add_arguments(command)
    if completing:
        shell_completion.complete(parser, called)
    arguments = parser.parse_args(argv)
    arguments.called_as = shlex.join(["keras-vit", *argv])  # For the files that a run writes.
    with safe_output(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # Remarks about details of EXIF.
        return _run(module, called, arguments)


def first_commands() -> str:
    """Returns what `keras-vit` prints without arguments."""
    lines = [DESCRIPTION]
    for purpose, command in FIRST_COMMANDS.items():
        lines += ["", purpose, f"  {command}"]
    listing = f"keras-vit --help lists all {len(COMMANDS)} commands."
    return "\n".join([*lines, "", WITHOUT_PHOTOS, listing])


def _run(module, called, arguments):
    try:
        if called not in WITHOUT_TENSORFLOW:
            import_tensorflow_quietly()
            check_backend(called)
        output = getattr(arguments, "output", None) or getattr(arguments, "destination", None)
        if output:
            check_writable(output)  # Before the work.
        with named_disk_errors(output or "A file"):
            return module.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # The reader has seen enough, such as `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at its end.
        return 141  # As the shell reports SIGPIPE.
    except Exception as error:
        line = _line_of(error)
        if line is None or arguments.traceback:
            raise
        print(f"keras-vit: {line}", file=sys.stderr)
        return 2


def _line_of(error):
    """An error that a user can act on, in one line; None for any other."""
    line = str(error) if isinstance(error, (ValueError, OSError, ImportError)) else None
    images = sys.modules.get("keras_vit.images.decoding")  # Where a command reads some.
    if images is not None and (reason := images.reading_error(error)):
        line = f"The data must be whole while they are read. {reason}"
    if line is not None:
        line = " ".join(line.split())
        return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."  # It may quote files.
    return None


def check_backend(command: str) -> None:
    """Hides the GPUs from TensorFlow where it only reads data: it would take all their memory.

    Raises:
        ValueError: If the command needs Keras to run on TensorFlow.
    """
    keras, tensorflow = map(importlib.import_module, ("keras", "tensorflow"))
    backend = keras.backend.backend()
    if backend == "tensorflow":
        return
    if command in ON_TENSORFLOW_ALONE:
        raise ValueError(
            f"keras-vit {command} must run on Keras's TensorFlow backend (KERAS_BACKEND=tensorflow "
            f"keras-vit {command} ...), which takes what was trained on any other. "
            f"Received: KERAS_BACKEND={backend}"
        )
    tensorflow.config.set_visible_devices([], "GPU")


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its start-up log lines; all other output is printed."""
    # Of its C++ code only fatal messages: what a user can act on is raised in Python.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held_back.seek(0)
            for line in held_back:
                if not _GREETING.match(line):
                    os.write(2, line)
