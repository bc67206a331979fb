"""Pixels of an export's check images, by Pillow: read, and resized."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np
import PIL.Image
import PIL.ImageOps

from keras_vit.images.transcoding import to_rgb


def read_pixels(
    path: str | os.PathLike | BinaryIO, formats: tuple[str, ...] | None = None
) -> np.ndarray:
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
