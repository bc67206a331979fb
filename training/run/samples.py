"""A few real images beside a classifier, on which its exports are checked."""

from __future__ import annotations

import pathlib

import numpy as np

from keras_vit.training.data import Examples

SAMPLES = "samples"  # Folder inside the classifier's.
MAX_SAMPLES = 32

# First bytes of a file: its suffix.
_SUFFIXES = {b"\x89PNG": ".png", b"GIF8": ".gif", b"RIFF": ".webp", b"BM": ".bmp"}


def write_samples(folder: pathlib.Path, examples: Examples, count: int = MAX_SAMPLES) -> None:
    """Copies an evenly spread choice of images as they are, byte for byte.

    Args:
        folder: The classifier's folder.
        examples: Held-out examples.
        count: How many at most.
    """
    count = min(count, len(examples))
    chosen = examples.take(np.arange(count) * len(examples) // count)
    (folder / SAMPLES).mkdir(exist_ok=True)
    for index, (image, _) in enumerate(chosen.encoded()):
        kinds = (suffix for start, suffix in _SUFFIXES.items() if image.startswith(start))
        (folder / SAMPLES / f"{index:02}{next(kinds, '.jpg')}").write_bytes(image)
