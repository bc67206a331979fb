"""Import of optional packages, with the command that installs a missing one."""

from __future__ import annotations

import importlib
from typing import Any

from keras_vit._installation import DISTRIBUTION, IN_CHECKOUT


def import_optional(module: str, purpose: str, extra: str) -> Any:
    """Returns a module of an optional package.

    Args:
        module: The module's full name.
        purpose: The feature that needs it; the first words of the error.
        extra: The extra of this project that installs it, or "" for a package in none.

    Raises:
        ImportError: If it is not installed. The message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        command = install_command(extra) if extra else f"pip install {package}"
        raise ImportError(f"{purpose} needs the package {package}: {command} ({error})") from error


def install_command(extra: str) -> str:
    """Returns the command that installs an extra of this project."""
    return (
        f'pip install -e ".[{extra}]"' if IN_CHECKOUT else f'pip install "{DISTRIBUTION}[{extra}]"'
    )
