"""The evaluation protocols of the paper. Importing this package costs nothing."""

import importlib
from typing import Any

_MODULES = ("calibration", "classification", "features", "few_shot", "results")

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
