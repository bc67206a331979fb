"""TensorFlow's names, each of which imports TensorFlow when it is first used.

The sources of labelled images import this in place of TensorFlow: image files are listed, split and
evaluated on an export without it, and their pipelines need it.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module("tensorflow"), name)
