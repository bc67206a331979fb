"""Decoding of image files with Pillow, where TensorFlow is not needed for anything else.

They are the pixels that `decoding.decode_file` gives.
"""

from __future__ import annotations

import numpy as np

from keras_vit.images.transcoding import kind_of, upright_rgb
from keras_vit.preprocessing import MAX_PIXELS


def decode_with_pillow(encoded: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Returns the pixels of an image file's content, upright and in RGB.

    Args:
        encoded: The content of a JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC file.
        max_pixels: Largest height times width; checked before memory is allocated.

    Returns:
        uint8 `(H, W, 3)`.

    Raises:
        ValueError: If it cannot be decoded. The message is the reason, in one line.
    """
    if not encoded:
        raise ValueError("The file is empty.")
    kind = kind_of(encoded)
    if kind is None:
        raise ValueError("An image must be JPEG, PNG, BMP, GIF, WebP, TIFF, AVIF or HEIC.")
    return np.asarray(upright_rgb(encoded, kind, max_pixels))
