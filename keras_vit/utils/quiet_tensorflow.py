"""Import of TensorFlow: without log lines and unused packages, with oneDNN, in no forked process.

TensorFlow turns oneDNN on by itself on processors with instructions for neural networks (AVX-512
VNNI, AVX-VNNI, AMX). On other x86 processors it leaves it off, also where oneDNN is faster
(docs/speed.md). It asks the environment once, as it is imported: a command sets it before, and a
Python program does so itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import pathlib
import platform
import re
import sys
import tempfile
from collections.abc import Iterator

from keras_vit.utils.files import PARTIAL, UNFINISHED, output_place, partial_of
from keras_vit.utils.json_files import read_json

# Warnings that users can do nothing about: images of several formats are decoded by several graphs,
# and data sets are looked for before they are downloaded.
_RETRACING = "tf.function retracing"
_REMARKS = (_RETRACING, "has no dataset_info.json")

# Optional packages of Keras: for scikit-learn, galleries of images, tables as data, and editing a
# file in a notebook. No command uses them.
UNUSED = ("IPython", "matplotlib", "pandas", "sklearn")
JAX = "jax"  # TensorFlow imports it for models of JAX that become TFLite.

ONEDNN = "oneDNN"  # Its name in the plan of a run, and in the record.
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"

# The processor, and its flags with which TensorFlow turns oneDNN on: tensorflow/core/util/port.cc.
PROCESSOR = pathlib.Path("/proc/cpuinfo")
_NEURAL = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}

_turned_on = False  # By `choose_onednn`, where TensorFlow would have left it off.

_process: int | None = None  # The one that opened the first model.


def is_forked() -> bool:
    """Returns whether this process is a fork of one that has opened a model; else notes it."""
    global _process
    _process = _process or os.getpid()
    return _process != os.getpid()


def check_not_forked() -> None:
    """Raises RuntimeError in a fork of a process that has opened a model; see `is_forked`."""
    if is_forked():
        raise RuntimeError(
            "A classifier must be neither opened nor used in a forked process, where TensorFlow "
            'never answers: start processes with multiprocessing.get_context("spawn"). '
            f"Received: process {os.getpid()}, a fork of {_process}"
        )


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without the log lines of its start; they are printed if it fails."""
    # Only fatal messages of its C++ code: errors that a user can act on are raised in Python.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held_back, _without_collection():
        os.dup2(held_back.fileno(), 2)
        try:
            importlib.import_module("tensorflow")
        except BaseException:
            held_back.seek(0)
            os.write(stderr, held_back.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
    for logger in ("tensorflow", "absl"):
        logging.getLogger(logger).addFilter(_is_useful)


@contextlib.contextmanager
def without_retracing_remarks() -> Iterator[None]:
    """Keeps TensorFlow from remarks that a function is traced again, inside a `with` block.

    TensorFlow counts the traces of all models of a program together, as if they were one.
    """
    logger = logging.getLogger("tensorflow")
    logger.addFilter(_is_no_retracing)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_retracing)


@contextlib.contextmanager
def _without_collection():
    """Keeps Python's garbage collector from objects of the modules that are imported inside.

    They stay to the end, and to look for garbage among them takes a third of the import.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def without_unused_packages() -> Iterator[None]:
    """Hides packages that Keras and TensorFlow import wherever they are, inside a `with` block.

    They cost a command as much as Keras itself. After the block they can be imported as before.
    """
    unused = UNUSED if _may_run_on_jax() else (*UNUSED, JAX)
    hidden = [name for name in unused if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None stops an import.
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _may_run_on_jax():
    """Whether Keras, which is not imported yet, runs on JAX by the environment or its own file."""
    if backend := os.environ.get("KERAS_BACKEND"):
        return backend == JAX
    home = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    file = pathlib.Path(home, "keras.json")
    return file.is_file() and f'"{JAX}"' in file.read_text(encoding="utf-8", errors="replace")


def choose_onednn(output: str | os.PathLike | None = None) -> None:
    """Sets TF_ENABLE_ONEDNN_OPTS before TensorFlow is imported, unless the user has.

    Args:
        output: The folder of a command; where it has an unfinished run, oneDNN is on or off as in
            that run.
    """
    global _turned_on
    if ONEDNN_VARIABLE in os.environ or "tensorflow" in sys.modules:
        return
    state = None if output is None else _state_of_unfinished(pathlib.Path(output))
    if state is None and _is_left_off():
        os.environ[ONEDNN_VARIABLE] = "1"
        _turned_on = True
    elif state in ("on", "off"):
        os.environ[ONEDNN_VARIABLE] = str(int(state == "on"))


def has_turned_on_onednn() -> bool:
    """Returns whether `choose_onednn` turned it on where TensorFlow would have left it off."""
    return _turned_on


def _is_left_off():
    """Whether TensorFlow leaves oneDNN off on this processor, on which it is faster."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    text = PROCESSOR.read_text(encoding="utf-8")
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    flags = set(found[1].split()) if found else set()
    return "avx2" in flags and not flags & _NEURAL


def _state_of_unfinished(output) -> str | None:
    """Whether the unfinished run of an output, or of a sweep's in it, has oneDNN "on" or "off".

    It is "" if an older run does not say it, and None without a run.
    """
    place = output_place(output)
    for folder in (partial_of(place), *sorted(place.glob(f"*/*{PARTIAL}"))):
        try:
            versions = read_json(folder / UNFINISHED).get("versions")
        except (OSError, ValueError):
            continue
        return str(versions.get(ONEDNN, "")) if isinstance(versions, dict) else ""
    return None


def _is_no_retracing(record: logging.LogRecord) -> bool:
    return _RETRACING not in record.getMessage()


def _is_useful(record: logging.LogRecord) -> bool:
    return not any(remark in record.getMessage() for remark in _REMARKS)
