"""The known names that a wrong one may have meant, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest_names(name: str, known: Collection[str], cutoff: float = 0.4) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: How like `name` they must be, from 0 to 1 (equal); see `difflib`.
    """
    nearest = near_names(name, known, cutoff)
    return f"Nearest: {', '.join(nearest)}" if nearest else f"Known: {', '.join(known)}"


def near_names(name: str, known: Collection[str], cutoff: float) -> list[str]:
    """Returns at most three names like `name`, the most alike first; see `nearest_names`."""
    folded = {other.lower(): other for other in sorted(known, reverse=True)}
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    return [folded[match] for match in close]
