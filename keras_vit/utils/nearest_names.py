"""The known names that a wrong one may have meant, for error messages."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection

_ALIKE = 0.9  # A ratio of `difflib`, from 0 to 1 (equal): two slips in a long name.


def nearest_names(name: str, known: Collection[str], cutoff: float = _ALIKE) -> str:
    """Returns a part of an error: "Nearest: A, B", or "Known: ..." if no name is near.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: See `near_names`.
    """
    nearest = near_names(name, known, cutoff)
    return f"Nearest: {', '.join(nearest)}" if nearest else f"Known: {', '.join(known)}"


def near_names(name: str, known: Collection[str], cutoff: float = _ALIKE) -> list[str]:
    """Returns at most three names of which `name` is a typing error, the most alike first.

    Another word for the same thing is no typing error; see `keras_vit.utils.synonyms`.

    Args:
        name: The unknown name.
        known: All names.
        cutoff: How alike more than one slip may be, from 0 to 1 (equal); see `difflib`.
    """
    folded = {other.lower(): other for other in sorted(known, reverse=True)}
    slips = [other for other in folded if _is_slip(name.lower(), other)]
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=cutoff)
    return [folded[match] for match in dict.fromkeys([*close, *slips])][:3]


def _is_slip(word, other):
    """Whether a letter is missing, added or another, or two neighbours are in the other order."""
    if min(len(word), len(other)) < 4:
        return False
    start = len(os.path.commonprefix([word, other]))
    word, other = word[start:][::-1], other[start:][::-1]
    end = len(os.path.commonprefix([word, other]))
    word, other = word[end:], other[end:]
    is_swapped = len(word) == 2 and word == other[::-1]
    return is_swapped or max(len(word), len(other)) <= 1
