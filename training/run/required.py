"""A value that may be missing in general, and must not be where it is used."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def required(value: Value | None, name: str) -> Value:
    """Returns the value, which something else has filled in by now.

    Args:
        value: Such as a field of settings that `Settings.resolve` fills in.
        name: What the error calls it.

    Raises:
        ValueError: If it is None.
    """
    if value is None:
        raise ValueError(f"{name} must be known by now. Received: {name}=None")
    return value
