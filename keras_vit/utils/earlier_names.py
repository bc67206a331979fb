"""Names in files that were written before 0.1.0, and what they are called now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FIELDS = {
    "accumulation_steps": "gradient_accumulation_steps",
    "averaging": "ema_momentum",
    "class_weights": "class_weight",
    "clip_norm": "global_clipnorm",
    "licence": "license",
}
_VALUES = {"mean-colour": "mean-color"}


def with_present_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a JSON object by the names that they have now."""
    return {
        _FIELDS.get(name, name): _VALUES.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
