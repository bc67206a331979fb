"""How large the images of a data set are, from a few of their headers."""

from __future__ import annotations

import math

import numpy as np

from keras_vit.image_headers import read_header
from keras_vit.images import upright_size

from . import Examples
from .untuned import untuned

MOST_HEADERS = 100


def typical_size(examples: Examples, count: int = MOST_HEADERS) -> tuple[int, int]:
    """Returns the size of the image with the median area among an even choice of them.

    Args:
        examples: The examples; at least one.
        count: How many at most are looked at.

    Returns:
        Pixels (height, width), upright.
    """
    count = min(count, len(examples))
    chosen = examples.take(np.arange(count) * len(examples) // count)

    def size(handle, *_):
        return upright_size(read_header(chosen.read(handle)[0]))

    found = untuned(chosen.ordered().map(size)).as_numpy_iterator()
    sizes = [(int(height), int(width)) for height, width in found]
    sizes.sort(key=math.prod)
    return sizes[(count - 1) // 2]
