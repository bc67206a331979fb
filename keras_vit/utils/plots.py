"""Matplotlib figures without windows or global state, and what they show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from keras_vit._installation import import_optional


def new_figure(size: tuple[float, float], layout: str | None = "constrained", dpi: int = 100):
    """Returns an empty `matplotlib.figure.Figure`, apart from pyplot's global state.

    Args:
        size: Inches (width, height).
        layout: Matplotlib's layout engine; None if the caller places the axes.
        dpi: Pixels per inch.

    Raises:
        ImportError: Without matplotlib. The message has the command that installs it.
    """
    module = import_optional("matplotlib.figure", "Drawing a figure", "plots")
    return module.Figure(figsize=size, layout=layout, dpi=dpi)


def colored(values: np.ndarray) -> np.ndarray:
    """Returns numbers in [0, 1] as colours from violet to yellow, RGB in a last axis of 3.

    Raises:
        ImportError: Without matplotlib. The message has the command that installs it.
    """
    module = import_optional("matplotlib", "Drawing a figure", "plots")
    return module.colormaps["viridis"](values)[..., :3]


def evenly_spread(items: Sequence, most: int) -> list:
    """Returns at most `most` items in their order, evenly spread from the first to the last."""
    places = np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int)
    return [items[place] for place in places]
