"""Matplotlib figures without windows or global state."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from keras_vit.files import atomic_write


def new_figure(size: tuple[float, float], layout: Any = "constrained", dpi: int = 100):
    """Returns an empty `matplotlib.figure.Figure`, apart from pyplot's global state.

    Args:
        size: Inches (width, height).
        layout: Matplotlib's layout engine; None if the caller places the axes.
        dpi: Pixels per inch.

    Raises:
        ImportError: Without matplotlib. The message has the command that installs it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'keras-vit[plots]'") from error
    return Figure(figsize=size, layout=layout, dpi=dpi)


def save_figure(path: str | os.PathLike, figure: Any, dpi: int = 120) -> None:
    """Writes a figure to an image file, atomically.

    Args:
        path: The file; its suffix is the format.
        figure: A `matplotlib.figure.Figure`.
        dpi: Pixels per inch.
    """
    with atomic_write(path) as partial:
        figure.savefig(partial, dpi=dpi)


def displayed(image: Any) -> np.ndarray:
    """Returns an image that matplotlib can show: uint8, or floats scaled to [0, 1].

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
