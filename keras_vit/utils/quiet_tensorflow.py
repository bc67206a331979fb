"""Import of TensorFlow without its log lines."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import sys
import tempfile

# Warnings by their logger that users can do nothing about: images of several formats are decoded by
# several graphs, and data sets are looked for before they are downloaded.
_REMARKS = {"tensorflow": "tf.function retracing", "absl": "has no dataset_info.json"}

# Log lines that TensorFlow's C++ libraries print before they read TF_CPP_MIN_LOG_LEVEL. The
# last row is of TensorFlow 2.19, which links GPU libraries twice.
_GREETING = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl|To enable the following"
    rb"|.*(Unable to register cu\w+ factory|computation placer already registered)"
)


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without its start-up log lines; all other output is printed."""
    # Only fatal messages of its C++ code: errors that a user can act on are raised in Python.
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
    for logger, remark in _REMARKS.items():
        logging.getLogger(logger).addFilter(functools.partial(_lacks, remark))


def _lacks(remark: str, record: logging.LogRecord) -> bool:
    return remark not in record.getMessage()
