"""Pixels of image files, decoded and resized by Pillow.

The process that runs an export in its own runtime reads images by these functions, so this module
imports neither TensorFlow nor Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps

from keras_vit.images.transcoding import to_rgb


def read_pixels(path: Any, formats: tuple[str, ...] | None = None) -> np.ndarray:
    """Returns an image file's pixels as Pillow decodes them: uint8 `(H, W, 3)`, upright.

    Args:
        path: The file, or its path.
        formats: The formats that it may have, by Pillow's names; by default any.
    """
    with PIL.Image.open(path, formats=formats) as image:
        return np.asarray(to_rgb(PIL.ImageOps.exif_transpose(image)))


def with_size(pixels: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
    """Returns pixels resized by Pillow, with antialiasing; unchanged if the size is None."""
    if size is None or pixels.shape[:2] == tuple(size):
        return pixels
    height, width = size
    return np.asarray(
        PIL.Image.fromarray(pixels).resize((width, height), PIL.Image.Resampling.BILINEAR)
    )
