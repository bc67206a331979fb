"""The known names that are most like a wrong one, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest_names(name: str, known: Collection[str], cutoff: float = 0.4) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name. Its case matters only in the order of the names.
        known: All names.
        cutoff: How like `name` they must be, from 0 to 1 (equal); see `difflib`.
    """
    folded: dict[str, list[str]] = {}
    for other in known:
        folded.setdefault(other.lower(), []).append(other)  # ViT-b and ViT-B differ in case only.
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    found = [other for match in close for other in folded[match]]
    found.sort(key=lambda other: -difflib.SequenceMatcher(None, name, other).ratio())
    return f"Nearest: {', '.join(found)}" if found else f"Known: {', '.join(known)}"
