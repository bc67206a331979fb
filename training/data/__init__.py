"""Where training images come from, and how they become batches.

Importing this package is cheap: a name loads its module at first use.
"""

import importlib
from typing import Any

# Public name: the module that holds it.
_LAZY = {
    "AUGMENTATIONS": "augmentations",
    "Examples": "examples",
    "Source": "sources",
    "evaluation_batches": "batches",
    "open_source": "sources",
    "training_batches": "batches",
    "write_records": "write_records",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
