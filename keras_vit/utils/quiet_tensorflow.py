"""Import of TensorFlow without its log lines."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile

# Warnings that users can do nothing about: images of several formats are decoded by several graphs,
# and data sets are looked for before they are downloaded.
_REMARKS = ("tf.function retracing", "has no dataset_info.json")


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
