"""What all pictures share."""

from __future__ import annotations

from typing import Any

import numpy as np


def new_figure(size: tuple[float, float], layout: Any = "constrained", dpi: int = 100):
    """Returns an empty `matplotlib.figure.Figure` that no window and no global state knows.

    Args:
        size: Inches (width, height).
        layout: Who places the axes; None leaves it to the caller.
        dpi: Pixels per inch.

    Raises:
        ImportError: Without matplotlib; the message names the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Pictures are drawn by matplotlib: pip install 'keras-vit[plots]'"
        ) from error
    return Figure(figsize=size, layout=layout, dpi=dpi)


def displayed(image: Any) -> np.ndarray:
    """Returns an image as what matplotlib shows: uint8, or floats scaled to [0, 1].

    Args:
        image: `(H, W, 1 or 3)`, uint8 or floats of any range.
    """
    image = np.asarray(image)
    if image.shape[-1] == 1:
        image = np.repeat(image, 3, axis=-1)
    if image.dtype == np.uint8:
        return image
    low, high = image.min(), image.max()
    return (image - low) / max(high - low, 1e-12)
