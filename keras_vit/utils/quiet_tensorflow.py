"""Import of TensorFlow without its log lines, and the processes in which it never answers."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile

# Warnings that users can do nothing about: images of several formats are decoded by several graphs,
# and data sets are looked for before they are downloaded.
_REMARKS = ("tf.function retracing", "has no dataset_info.json")

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
    with tempfile.TemporaryFile() as held_back:
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


def _is_useful(record: logging.LogRecord) -> bool:
    return not any(remark in record.getMessage() for remark in _REMARKS)
