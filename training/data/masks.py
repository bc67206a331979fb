"""Masks that lie beside photos, from which a class can be read."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.images.transcoding import with_pixels

from .content import on_all_cores

_LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".heic", ".heif", ".avif", ".webp")
_LEVELS = 4  # Grey levels of a mask, at most.
_FEWEST, _MOST = 20, 64  # Files that are looked at.
_ALL = 0.9  # A share of all images above which they are drawings, and no masks.


def mask_notes(paths: Sequence[str], *, decodes: bool) -> list[str]:
    """Returns a line where images may be masks of others.

    Args:
        paths: The images.
        decodes: Whether some may be decoded, if no names say it.
    """
    return _beside(paths) or (_of_few_greys(paths) if decodes else [])


def _beside(paths):
    """A line for images that have the name of others beside them but another suffix."""
    suffixes = collections.defaultdict(set)
    totals: collections.Counter[str] = collections.Counter()
    for path in paths:
        stem, suffix = os.path.splitext(path)
        suffixes[stem].add(suffix.lower())
        totals[suffix.lower()] += 1
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    for beside in suffixes.values():
        if len(beside) > 1:
            photo, *others = sorted(beside, key=_is_lossless)
            pairs.update((photo, other) for other in others)
    return [
        f"{count:,} {other} have the name of a {photo} next to them: masks? --only '*{photo}' "
        "leaves them out"
        for (photo, other), count in sorted(pairs.items())
        if count > max(1, totals[other] / 2)  # A few names may be alike by chance.
    ]


def _is_lossless(suffix):
    """Sorts photos before masks, which are saved without loss."""
    return suffix not in _LOSSY, suffix


def _of_few_greys(paths):
    """A line if a share of the images, but not nearly all, has very few grey levels."""
    lossless = [path for path in paths if not path.lower().endswith(_LOSSY)]
    if len(lossless) < _FEWEST:
        return []
    count = min(len(lossless), _MOST)
    some = [lossless[place * len(lossless) // count] for place in range(count)]
    flat = sum(on_all_cores(_has_few_greys, (pathlib.Path(path).read_bytes() for path in some)))
    if not 0 < flat / count * len(lossless) <= _ALL * len(paths):
        return []
    return [
        f"{flat} of {count} lossless files that were looked at have at most {_LEVELS} grey levels: "
        "masks? --only PATTERN or --exclude LIST leaves them out"
    ]


def _has_few_greys(encoded):
    try:
        return with_pixels(encoded, _few_greys)
    except ValueError:
        return False


def _few_greys(pixels):
    is_grey = (pixels == pixels[..., :1]).all()
    return bool(is_grey) and len(np.unique(pixels[..., 0])) <= _LEVELS
