"""Keeps TensorFlow's greetings off the terminal of the command."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator

# What TensorFlow's C++ libraries say as they are loaded, before they read the environment.
# The third row is TensorFlow 2.19's, of GPU libraries that it links twice.
_GREETING = re.compile(
    rb"I\d{4} |WARNING: All log messages before absl|To enable the following"
    rb"|.*(Unable to register cu\w+ factory|computation placer already registered)"
)


def silence_tensorflow() -> None:
    """Loads TensorFlow without its greetings when it is imported; all else is printed."""
    # Of its C++ code: fatal messages alone. What a user can do something about is raised.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _QuietTensorFlow())


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_quietly(module):
            with _without_greetings():
                load(module)

        spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _without_greetings() -> Iterator[None]:
    """Holds back what is written to the process's standard error, and prints the rest."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if not _GREETING.match(line):
                    os.write(2, line)
