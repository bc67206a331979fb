"""The two plots of the paper's Figure 12."""

from __future__ import annotations

import pathlib
from typing import Any

from keras_vit import configs
from keras_vit.drawing import new_figure
from keras_vit.files import atomic_write

from .results import Results

# Kind of model: line style and marker; its colour is the model's own.
STYLES = {
    "vit": ("-", "o"),
    "bit": ("--", "s"),
    "hybrid_vit": ("-.", "^"),
    "axial_vit": (":", "D"),
    "axial_resnet": (":", "v"),
}
OTHER = ("-", "x")


def write_figures(results: Results) -> list[pathlib.Path]:
    """Draws rates and largest batches of each mode and precision as PNG and SVG.

    Args:
        results: What was measured, and the folder.

    Returns:
        The files written.

    Raises:
        ImportError: Without matplotlib.
    """
    written = []
    for mode, precision in results.groups():
        for name, draw in (("images_per_second", draw_rates), ("largest_batch", draw_batches)):
            figure = draw(results, mode, precision)
            if figure is None:
                continue
            for suffix in (".png", ".svg"):
                path = results.folder / f"{name}_{mode}_{precision}{suffix}"
                with atomic_write(path) as partial:
                    figure.savefig(partial, dpi=150)
                written.append(path)
    return written


def draw_rates(results: Results, mode: str, precision: str) -> Any:
    """Draws images per second by input size, with the range of the timed runs.

    Args:
        results: What was measured.
        mode: "inference" or "training".
        precision: Of the measurements.

    Returns:
        A `matplotlib.figure.Figure`, or None if there is nothing to draw.

    Raises:
        ImportError: Without matplotlib.
    """
    points = {
        key: (found.images_per_second, min(found.rates), max(found.rates))
        for key, found in _of(results, mode, precision).items()
        if found.rates
    }
    title = f"Images per second at the best batch size, {mode}, {precision}"
    return _draw(points, title, "images per second") if points else None


def draw_batches(results: Results, mode: str, precision: str) -> Any:
    """Draws the largest batch that fits by input size.

    Args:
        results: What was measured.
        mode: "inference" or "training".
        precision: Of the measurements.

    Returns:
        A `matplotlib.figure.Figure`, or None if there is nothing to draw.

    Raises:
        ImportError: Without matplotlib.
    """
    points = {
        key: (found.largest_batch,) * 3
        for key, found in _of(results, mode, precision).items()
        if found.largest_batch
    }
    if not points:
        return None
    memory = results.setting["memory"] / 2**30
    title = f"Largest batch in {memory:g} GiB, {mode}, {precision}"
    return _draw(points, title, "images")


def _of(results, mode, precision):
    return {
        (cell.model, cell.image_size): found
        for cell, found in results.cells.items()
        if (cell.mode, cell.precision) == (mode, precision)
    }


def _draw(points, title, label):
    figure = new_figure((7.5, 5))
    from matplotlib.ticker import LogLocator, NullLocator

    axes = figure.add_subplot()
    for model in dict.fromkeys(model for model, _ in points):
        sizes = sorted(size for name, size in points if name == model)
        middle, low, high = zip(*(points[model, size] for size in sizes), strict=True)
        line, marker = STYLES.get(configs.resolve(model).architecture, OTHER)
        (drawn,) = axes.plot(sizes, middle, line, marker=marker, markersize=4, label=model)
        axes.fill_between(sizes, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({size for _, size in points})
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.3)
    axes.set(title=title, xlabel="input size (pixels)", ylabel=label)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
