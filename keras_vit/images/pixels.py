"""Pixels of any image: their depth in bits, and floats that were scaled before.

Neither TensorFlow nor Keras is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import keras
    import numpy.typing as npt
    import PIL.Image

    # Pixels in memory: an array, a tensor, a PIL image, or a list of these.
    Pixels: TypeAlias = npt.ArrayLike | keras.KerasTensor | PIL.Image.Image | Sequence

# Above the largest value of pixels from -1 to 1, or by ImageNet's mean and deviation.
_LARGEST_SCALED = 3
FULL_DEPTH = 16  # Bits of a 16-bit image that uses its whole range: the high byte is read.


def check_no_paths(images: Pixels) -> None:
    """Raises ValueError for the path of an image, or a list of paths, in place of pixels."""
    first = images[0] if isinstance(images, (list, tuple)) and len(images) else images
    if isinstance(first, (str, os.PathLike)):
        raise ValueError(
            "Images must be pixels (arrays, tensors or PIL images): PIL.Image.open(path) reads "
            "a file, and keras_vit.load_classifier(name).predict(paths) takes paths. "
            f"Received: the path {os.fspath(first)!r}"
        )


def scaled_pixels(images: Pixels) -> str:
    """Returns what is wrong with pixels that were scaled before; "" for other pixels.

    Integers are pixels, and so are images of zeros alone. Tensors of a graph have no values yet.

    Args:
        images: An array, a tensor, a PIL image, or a list of these.
    """
    import numpy as np

    for image in images if isinstance(images, (list, tuple)) else [images]:
        image = image.detach().cpu() if hasattr(image, "detach") else image  # PyTorch's.
        try:
            pixels = np.asarray(image)
        except (TypeError, ValueError, NotImplementedError):  # Within a graph.
            continue
        is_float = pixels.dtype.kind in "fV"  # bfloat16 has the kind V.
        if not is_float or not pixels.size:
            continue
        low, high = float(pixels.min()), float(pixels.max())
        received = (
            f"Images must have pixels in [0, 255]. Received: floats from {low:.3g} to {high:.3g}"
        )
        if low >= 0 and 0 < high <= 1:
            return f"{received}, which all become nearly black; multiply them by 255"
        if low < 0 and high <= _LARGEST_SCALED:
            return f"{received}, which were scaled before; give the pixels of the file"
    return ""
